"""Two incidents were both granted the one free accelerator: the second one checks again, and does not get it."""

from __future__ import annotations

from typing import Any

import pytest

from bot.adapters.redis.claims import RedisClaims
from bot.adapters.redis.connection import Connection
from bot.adapters.redis.store import RedisStore
from bot.domain.approvals.grant import Approved
from bot.domain.changes.context import PlanContext
from bot.domain.changes.plan import Call, PlanResult
from bot.domain.changes.planning import plan_change
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.incidents.effect import ApplyStep
from bot.domain.incidents.event import StepSettled
from bot.domain.incidents.run import Run
from bot.flow.handlers.apply import ROOM_TAKEN, ApplyCall
from bot.flow.perform_effect import Done, EffectContext, Later
from bot.flow.ports.cluster import Sent
from bot.flow.ports.storage import Owed
from tests.domain.changes import snapshots
from tests.domain.incidents.machine.steps import PLAYBOOK, Story
from tests.fakes.restrictions import restrictions
from tests.flow.harness import RULES
from tests.redis_server import VirtualTime

pytestmark = pytest.mark.fast
SEEN_AFTER = 3.0
"""A controller makes the pod of a scaled Deployment this much later."""


class OneFree:
    """A cluster with one free accelerator; whoever scales first has its pod there, after a moment."""

    def __init__(self, now: Any) -> None:
        self._now = now
        self.sent_at: dict[str, float] = {}

    def snapshot(self) -> ClusterSnapshot:
        nodes = tuple(snapshots.node(number, gpus=gpus) for number, gpus in ((1, 2), (2, 1), (3, 2)))
        pods = tuple(snapshots.pod(number) for number in (1, 2, 3, 4))
        taken = tuple(self._pod(number) for number, at in enumerate(self.sent_at.values()) if self._is_seen(at))
        return snapshots.snapshot(nodes=nodes, pods=pods, all_pods=(*pods, *taken))

    def _is_seen(self, at: float) -> bool:
        return bool(self._now() >= at + SEEN_AFTER)

    @staticmethod
    def _pod(number: int) -> Obj:
        made = snapshots.pod(10 + number, is_ready=False)
        made["metadata"]["namespace"] = "elsewhere"
        del made["spec"]["nodeName"]
        return made

    async def send(self, approved: Approved, call: Call, *, call_id: str) -> Sent:
        self.sent_at[call_id] = self._now()
        return Sent("done", "")


class Planner:
    def __init__(self, cluster: OneFree, verb: str) -> None:
        self._cluster, self._verb = cluster, verb

    async def plan(self, run: Run, *, at: float) -> tuple[PlanResult, dict[str, Any]]:
        return self.now(run.incident_id), {}

    def now(self, incident_id: str) -> PlanResult:
        arguments = {"by": 1} if self._verb == "scale" else {"edits": [{"flag": "--max-num-seqs", "value": 6}]}
        found = plan_change(self._verb, arguments, self._cluster.snapshot(), PlanContext(incident_id=incident_id))
        # The platform team is asked too for the last accelerator; who approves is not what this is about.
        plan = found.plan and found.plan.model_copy(update={"approved_by": ()})
        return found.model_copy(update={"plan": plan})


def granted(incident_id: str, name: str, planner: Planner) -> Run:
    story = Story().opened().reads(0.95).chooses("grow").planned(planner.now(incident_id)).posted()
    run = story.presses("approve").run
    return run.with_(incident_id=incident_id, target=run.target.model_copy(update={"name": name}))


def applier(cluster: OneFree, store: RedisStore, claims: RedisClaims, planner: Any, time: VirtualTime) -> ApplyCall:
    async def see(run: Run, context: Any, *, at: float) -> ClusterSnapshot:
        return cluster.snapshot()

    async def playbook_of(run: Run) -> Any:
        return PLAYBOOK

    nothing: Any = None
    writer: Any = cluster
    seen: Any = see
    return ApplyCall(
        writer, claims, store, planner, seen, playbook_of,
        cluster="test", restrictions=restrictions(), job_result=nothing,
        generate=nothing, grant_valid_seconds=1e9, approvals=RULES.approvals,
        pause=time.advance,
    )  # fmt: skip


EFFECT = "v/apply"


async def tried(apply: ApplyCall, run: Run, at: float) -> Done | Later:
    assert run.change is not None
    effect = ApplyStep(effect_id=EFFECT, request_id=run.change.request_id, step=0)
    now = run.change.step_started_at + at
    return await apply(EffectContext(run=run, owed=Owed(run.incident_id, effect, 0, ""), now=now), effect)


def result(outcome: Done | Later) -> str:
    (event,) = outcome.events
    assert isinstance(event, StepSettled)
    return event.result


@pytest.mark.parametrize("verb", ["scale", "canary"])
async def test_two_that_were_granted_the_same_accelerator_do_not_both_take_it(
    redis: Connection, store: RedisStore, time: VirtualTime, verb: str
) -> None:
    cluster, claims = OneFree(time.now), RedisClaims(redis, owner="one")
    for incident in ("INC-1", "INC-2"):
        await redis.client.hset(redis.key("owners"), f"{incident}|{EFFECT}", "one")
    planner = Planner(cluster, verb)
    one, other = granted("INC-1", "llm", planner), granted("INC-2", "llm-b", planner)
    apply = applier(cluster, store, claims, planner, time)
    assert result(await tried(apply, one, 0.0)) == "done"
    outcome = await tried(apply, other, 0.0)
    assert isinstance(outcome, Later), "its pod is not seen yet, and the room looks free"
    assert [getattr(event, "text", "") for event in outcome.events] == [f"waiting: {ROOM_TAKEN}"]
    await time.advance(60.0)
    assert result(await tried(apply, other, 60.0)) == "superseded"
    assert len(cluster.sent_at) == 1


async def test_another_incidents_room_is_waited_for_only_until_its_pods_are_seen(
    redis: Connection, time: VirtualTime
) -> None:
    """A canary may take twenty minutes to start; nobody else's canary has to wait so long."""
    claims = RedisClaims(redis)

    async def claimed(incident_id: str, workload: str, *rooms: str) -> str:
        leases = [f"workload/{workload}", *rooms]
        return await claims.claim(
            incident_id, f"{incident_id}/R1/0", workload_key=workload, lease_keys=leases, disruption="a change"
        )

    assert await claimed("INC-1", "a", "room/test") == "claimed"
    assert await claimed("INC-2", "b", "room/test") == "room_held"
    assert await claimed("INC-2", "b", "room/other") == "claimed"
    await time.advance(60.0)
    assert await claimed("INC-3", "c", "room/test") == "claimed"
    assert await claimed("INC-4", "a") == "lease_held"
