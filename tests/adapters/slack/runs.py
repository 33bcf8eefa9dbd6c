"""Runs in the middle of an incident, with good defaults, from which Slack messages are made."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

from bot.domain.approvals.grant import APPROVERS, Authority, Demand, JudgedPress, Policy, Press, Request
from bot.domain.changes.plan import Call, Circumstance, Difference, LedgerEntry, Plan, Risk, Wait
from bot.domain.cluster.objects import ObjectRef
from bot.domain.incidents.run import ActiveChange, Findings, Looked, Post, PostKind, Question, Run, Visit
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.target import Target
from bot.domain.signals.signal import Reading
from tests.builders import nested

BEGAN = 1_795_000_000.0
DEPLOYMENT = ObjectRef(kind="Deployment", namespace="serving", name="llm", uid="u-1")
CAP = Difference(path="/spec/template/spec/containers/0/args/4", text="--max-num-seqs 64 → 6")


def policy(**changes: Any) -> Policy:
    """One of the on-call group; `needed`, `users`, `user_group` and `of_target` are of that one demand."""
    of_demand: dict[str, Any] = {
        name: changes.pop(name) for name in ("needed", "users", "user_group", "of_target") if name in changes
    }
    demand = Demand(user_group="S0SERVING").model_copy(update=of_demand)
    return Policy(demands=(demand,), expires_seconds=900).model_copy(update=changes)


def plan(*, risk: Risk = "high", **changes: Any) -> Plan:
    patch = Call(method="patch", target=DEPLOYMENT, title="set --max-num-seqs on llm", differences=(CAP,), body=[])
    wait = Wait(condition="rolled_out", about=DEPLOYMENT, within_seconds=1200, title="all 4 replicas run the new flags")
    return Plan(
        verb="set_flags",
        title="Cap llm at 6 sequences",
        steps=(patch, wait),
        circumstances=(
            Circumstance(name="pdb", grade="fine", text="PDB llm lets 1 of 4 pods go"),
            Circumstance(name="streams", grade="note", text="streams end within the drain of 20 s"),
            Circumstance(name="gpus", grade="warning", text="0 GPUs are free for the surge pod"),
        ),
        risk=risk,
        expected="thrash falls below 0.01 within 10 minutes",
        undo_text="set --max-num-seqs back to 64: another rolling restart",
    ).model_copy(update=changes)


def request(*, risk: Risk = "high", **changes: Any) -> Request:
    asked = plan(risk=risk)
    return Request(
        request_id="R3",
        state="cap",
        visit=5,
        plan=asked,
        digest=asked.digest,
        policy=policy(),
        why="Fewer sequences fit the pool; the queue moves into `waiting`.",
        still="thrash > 0.1",
        evidence=("thrash: 2.81", "kv_usage: 0.99", "gpu_health: unknown (no dcgm-exporter pod)"),
        asked_at=BEGAN + 200,
        posted_at=BEGAN + 202,
        expires_at=BEGAN + 1102,
    ).model_copy(update=changes)


def approval(user: str = "U0ANA", *, teams: tuple[str, ...] = (APPROVERS,)) -> JudgedPress:
    press = Press(press_id=f"p-{user}", action="approve", about="R3", user=user, channel="C0INC")
    return JudgedPress(
        press=press, authority=Authority(allowed=True, reason="", teams=teams, read_at=BEGAN), at=BEGAN + 260
    )


def question(**changes: Any) -> Question:
    return Question(
        question_id="Q2",
        state="choose",
        visit=4,
        text="Which way out of the thrash?",
        why="The pool is full on all 4 replicas.",
        choices={"cap": "Cap concurrency", "scale": "Scale out", "hand_over": "Hand over to me"},
        notes={"cap": "recommended: no GPU needed", "scale": "0 GPUs are free"},
        styles={"cap": "primary", "hand_over": "danger"},
        evidence=("capacity: free_gpus 0",),
        asked_at=BEGAN + 100,
        expires_at=BEGAN + 1000,
    ).model_copy(update=changes)


def post(kind: PostKind, slot: str, ref: str = "", **data: Any) -> Post:
    return Post(slot=slot, kind=kind, ref=ref, at=BEGAN + 60, data=data)


def alert(name: str = "VLLMPreemptionThrash", status: Literal["firing", "resolved"] = "firing") -> Alert:
    return Alert(
        fingerprint=f"f-{name}",
        status=status,
        starts_at=datetime.fromtimestamp(BEGAN, UTC),
        labels={"alertname": name, "severity": "page"},
    )


def number(name: str, value: float, unit: str = "", *, at: float = 0.0) -> Reading:
    return Reading(name=name, value=value, unit=unit, at=at)


def no_units(part: str) -> str:
    del part
    return ""


def readings() -> dict[str, Reading]:
    """All of one look, but for the waiting requests, which were counted a minute before."""
    found = {
        "kv_usage": number("kv_usage", 0.99),
        "thrash": number("thrash", 2.8106),
        "waiting": number("waiting", 1423.0, "requests"),
        "usage_by_replica": Reading(name="usage_by_replica", value={"llm-a": 0.99, "llm-b": 0.97}),
        "restarts": Reading(
            name="restarts", fields={"count": 0.0, "oom": False}, unknown_parts={"last_reason": "none"}
        ),
        "gpu_health": Reading(name="gpu_health", unknown="no dcgm-exporter pod in any namespace"),
    }
    at = {"waiting": BEGAN - 10}
    return {name: each.model_copy(update={"at": at.get(name, BEGAN + 50)}) for name, each in found.items()}


LOOKED = Looked(readings=readings(), decisions=(("Keep a baseline", "thrash > settings.thrash_ratio → One replica?"),))


def ledger_entry(**changes: Any) -> LedgerEntry:
    return LedgerEntry(
        call_id="INC-7/c3/1",
        state="cap",
        verb="set_flags",
        title="set --max-num-seqs on llm",
        target=DEPLOYMENT,
        differences=(CAP,),
        undo=plan().calls,
        applied_at=BEGAN + 300,
    ).model_copy(update=changes)


def run(**changes: Any) -> Run:
    standard = Run(
        incident_id="INC-7",
        target=Target(cluster="prod-1", namespace="serving", name="llm"),
        title="KV-cache OOM and preemption thrash",
        severity="page",
        opened_at=BEGAN + 5,
        starts_at=BEGAN,
        alerts={"f": alert()},
        playbook="kv-cache-oom",
        digest="d" * 64,
        visit=Visit(number=5, state="cap", machine_state="cap/awaiting", entered_at=BEGAN + 190),
        findings=Findings(
            path=("look", "scope", "choose", "canary", "cap"),
            baseline={
                "kv_usage": number("kv_usage", 0.45, at=BEGAN - 300),
                "thrash": number("thrash", 0.0, at=BEGAN - 300),
                "waiting": number("waiting", 3.0, at=BEGAN - 300),
            },
        ),
        latest=readings(),
    )
    return standard.with_(**nested(changes, standard.visit, standard.findings))


def waiting(**changes: Any) -> Run:
    """A run whose request waits for approval."""
    asked = request(**changes)
    return run(
        requests={asked.request_id: asked},
        change=ActiveChange(state="cap", verb="set_flags", request_id=asked.request_id),
        posts=(
            post(
                "diagnosis",
                "diagnosis:1",
                "kv-cache-oom",
                title="KV cache full, requests are restarted",
                cause="Requests are preempted on 4 of 4 replicas <!here>.",
                users="Users wait 5 s for the first token (target 2 s)",
                checks=[["ruled_out", "a crash"], ["unknown", "a node fault"], ["found", "a replica is on its way"]],
                looked=LOOKED.model_dump(mode="json"),
            ),
            post("request", "request:R3", "R3"),
        ),
    )
