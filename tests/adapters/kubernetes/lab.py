"""Helpers for the tests of reader and writer: grant, send, arrange faults, wait for a condition.

What any cluster must do is asked of `Hands` in `tests/sandbox/kubernetes/test_verbs*.py`, which a real cluster can run
too. Only what needs the stand-in is asked of `Lab`: dropped requests and lost replies on demand, paused controllers,
the journal of mutations, and the simulated fleet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import httpx

from bot.adapters.kubernetes.client import KubernetesClient
from bot.adapters.kubernetes.cluster import KubernetesCluster
from bot.adapters.kubernetes.reader import KubernetesReader
from bot.adapters.kubernetes.writer import KubernetesWriter
from bot.domain.approvals.grant import (
    APPROVERS,
    Approved,
    Authority,
    Demand,
    JudgedPress,
    Policy,
    Press,
    Request,
    grant,
)
from bot.domain.changes.context import PlanContext
from bot.domain.changes.plan import Call, LedgerEntry, Plan, Wait
from bot.domain.changes.planning import plan_change
from bot.domain.changes.progress import Progress, progress
from bot.domain.cluster.rotation import rotation_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.target import Target
from bot.domain.signals.scrape import ReplicaLoad
from bot.flow.ports.cluster import Sent

TARGET = Target(cluster="sandbox", namespace="serving", name="llm")
CONTEXT = PlanContext(incident_id="INC-42")
LLM = "/apis/apps/v1/namespaces/serving/deployments/llm"
PODS = "/api/v1/namespaces/serving/pods"
MAX_SECONDS = 30.0
LOOK_SECONDS = 0.2
IDLE = ReplicaLoad(0.0, 0.0, arrivals_in_window=0.0, window_seconds=60.0)


def granted(plan: Plan) -> Approved:
    policy = Policy(demands=(Demand(users=("ana",)),), expires_seconds=900.0)
    request = Request(
        request_id="R1", state="s", visit=1, plan=plan, digest=plan.digest, policy=policy, why="test", asked_at=0.0
    )
    press = Press(press_id="p", action="approve", about="R1", digest=plan.digest, user="ana", channel="C")
    judged = JudgedPress(
        press=press, authority=Authority(allowed=True, reason="listed", teams=(APPROVERS,), read_at=0.0), at=1.0
    )
    return grant(request, (judged,))


CAP = [{"flag": "--max-num-seqs", "value": 6.0}]


def with_ledger(plan: Plan) -> PlanContext:
    """As if the plan had been carried out in this incident."""
    entries = tuple(
        LedgerEntry(
            call_id=f"INC-42/R1/{number}",
            state="s",
            verb=plan.verb,
            title=call.title,
            target=call.target,
            differences=call.differences,
            undo=call.undo,
            no_undo=call.no_undo,
            holds=call.holds,
            applied_at=0.0,
        )
        for number, call in enumerate(plan.calls)
    )
    return replace(CONTEXT, ledger=entries)


def names(snapshot: ClusterSnapshot) -> set[str]:
    return {pod["metadata"]["name"] for pod in snapshot.pods}


def available(snapshot: ClusterSnapshot) -> int:
    """As the workload's own status counts, which its controller brings up to date a moment after the pods."""
    return int(((snapshot.workload or {}).get("status") or {}).get("availableReplicas", 0))


async def spec(hands: Hands) -> Obj:
    workload = (await hands.snapshot()).workload
    assert workload is not None
    found: Obj = workload["spec"]
    return found


@dataclass(frozen=True, kw_only=True)
class Hands:
    """The bot's own planner, reader and writer on one workload of whichever cluster."""

    client: KubernetesClient
    reader: KubernetesReader
    cluster: KubernetesCluster
    writer: KubernetesWriter
    target: Target = TARGET
    max_seconds: float = MAX_SECONDS

    async def snapshot(self) -> ClusterSnapshot:
        """As the flow sees it: with the load of each replica, which is idle here."""
        seen = await self.cluster.snapshot(self.target, incident_id=CONTEXT.incident_id)
        return replace(seen, load={pod["metadata"]["name"]: IDLE for pod in seen.pods})

    def serving(self, snapshot: ClusterSnapshot) -> tuple[str, ...]:
        rotation = rotation_of(snapshot)
        return rotation.in_rotation if rotation else ()

    async def plan(self, verb: str, context: PlanContext = CONTEXT, **arguments: Any) -> Plan:
        result = plan_change(verb, arguments, await self.snapshot(), context)
        assert result.plan is not None, f"{result.outcome}: {result.reason}"
        return result.plan

    async def send(self, plan: Plan, call: Call | None = None, call_id: str = "INC-42/R1/0") -> Sent:
        return await self.writer.send(granted(plan), call or plan.calls[0], call_id=call_id)

    async def carry_out(self, plan: Plan) -> None:
        """Every step in order, as the flow does."""
        approved = granted(plan)
        for number, step in enumerate(plan.steps):
            if isinstance(step, Wait):
                await self.until_done(step)
            else:
                sent = await self.writer.send(approved, step, call_id=f"INC-42/R1/{number}")
                assert sent.result == "done", f"{step.title}: {sent}"

    async def until_done(self, wait: Wait) -> Progress:
        status = Progress("pending", "never looked")
        ends = time.monotonic() + self.max_seconds
        while time.monotonic() < ends:
            status = progress(wait, await self.snapshot())
            assert status.state != "failed", f"{wait.title}: {status.text}"
            if status.state == "done":
                return status
            await asyncio.sleep(LOOK_SECONDS)  # between two looks; what ends the wait is the condition
        raise AssertionError(f"not within {self.max_seconds} s: {wait.title}; last: {status.text}")

    async def until_seen(self, description: str, condition: Callable[[ClusterSnapshot], bool]) -> ClusterSnapshot:
        ends = time.monotonic() + self.max_seconds
        while time.monotonic() < ends:
            snapshot = await self.snapshot()
            if condition(snapshot):
                return snapshot
            await asyncio.sleep(LOOK_SECONDS)  # between two looks; what ends the wait is the condition
        raise AssertionError(f"not within {self.max_seconds} s: {description}")


@dataclass(frozen=True, kw_only=True)
class Lab(Hands):
    """The same in the demo snapshot of the stand-in, which can be made to fail and lists what was changed."""

    url: str
    door: httpx.AsyncClient
    """Another user agent, for what somebody else does."""

    async def get(self, path: str) -> Obj:
        answer = await self.door.get(path)
        answer.raise_for_status()
        return dict(answer.json())

    async def somebody_patches(self, path: str, patch: Obj) -> None:
        answer = await self.door.patch(path, json=patch, headers={"Content-Type": "application/merge-patch+json"})
        answer.raise_for_status()

    async def somebody_creates(self, path: str, obj: Obj) -> None:
        answer = await self.door.post(path, json=obj)
        answer.raise_for_status()

    async def fault(self, match: str, kind: str, **fields: Any) -> None:
        answer = await self.door.post("/__sandbox__/faults", json=[{"match": match, "kind": kind, **fields}])
        answer.raise_for_status()

    async def mutations(self) -> list[Obj]:
        """What the bot itself changed."""
        answer = await self.door.get("/__sandbox__/mutations")
        seen: list[Obj] = answer.json()
        return [one for one in seen if one["userAgent"].startswith("incident-bot") and not one["dryRun"]]
