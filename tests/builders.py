"""Small builders with good defaults: a test names only the values that matter to it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from bot.domain.approvals.grant import APPROVERS, Authority, Demand, JudgedPress, Policy, Press, Request
from bot.domain.approvals.rules import ApprovalRules
from bot.domain.changes.plan import Call, Difference, LedgerEntry, Plan
from bot.domain.cluster.objects import ObjectRef
from bot.domain.incidents.machine import Rules
from bot.domain.incidents.run import Findings, Run, Visit
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.target import Target
from bot.domain.playbooks.bundle import Bundle

START = 1_800_000_000.0
TARGET = Target(cluster="test", namespace="serving", name="llm")


def alert(status: str = "firing", *, fingerprint: str = "f1", starts_at: float = START, **labels: str) -> Alert:
    named = {"alertname": "VllmKVCacheThrash", "namespace": "serving", "deployment": "llm", "severity": "warning"}
    return Alert.model_validate(
        {
            "fingerprint": fingerprint,
            "status": status,
            "starts_at": datetime.fromtimestamp(starts_at, UTC),
            "labels": named | labels,
            "annotations": {"summary": "KV cache thrash on llm"},
        }
    )


def call(**fields: Any) -> Call:
    workload = ObjectRef(kind="Deployment", namespace="serving", name="llm", uid="u1")
    body = [
        {"op": "test", "path": "/metadata/uid", "value": "u1"},
        {"op": "test", "path": "/spec/replicas", "value": 4},
        {"op": "replace", "path": "/spec/replicas", "value": 5},
    ]
    back = Call(
        method="patch",
        target=workload,
        title="scale back to 4",
        restores=True,
        body=[
            {"op": "test", "path": "/metadata/uid", "value": "u1"},
            {"op": "test", "path": "/spec/replicas", "value": 5},
            {"op": "replace", "path": "/spec/replicas", "value": 4},
        ],
    )
    difference = Difference(path="/spec/replicas", before=4, after=5, text="replicas 4 → 5")
    defaults: dict[str, Any] = {
        "method": "patch",
        "target": workload,
        "body": body,
        "differences": (difference,),
        "title": "scale llm from 4 to 5",
        "undo": (back,),
    }
    return Call(**(defaults | fields))


def ledger_entry(**fields: Any) -> LedgerEntry:
    """What `call` applied as the first step of R1 of INC-1."""
    made = call()
    defaults: dict[str, Any] = {
        "call_id": "INC-1/R1/0",
        "state": "grow",
        "verb": "scale",
        "title": made.title,
        "target": made.target,
        "undo": made.undo,
        "applied_at": 0.0,
    }
    return LedgerEntry(**(defaults | fields))


def plan(**fields: Any) -> Plan:
    defaults: dict[str, Any] = {
        "verb": "scale",
        "title": "Scale llm from 4 to 5",
        "steps": (call(),),
        "risk": "low",
        "undo_text": "scale back to 4",
    }
    return Plan(**(defaults | fields))


def policy(**fields: Any) -> Policy:
    """One of two people unless `needed` and `users` say otherwise, or `demands` all of it."""
    demand = Demand(needed=fields.pop("needed", 1), users=fields.pop("users", ("ana", "ben")))
    defaults: dict[str, Any] = {"demands": (demand,), "expires_seconds": 900.0}
    return Policy(**(defaults | fields))


def rules(**fields: Any) -> Rules:
    lenient = policy()
    return Rules(approvals=ApprovalRules(low=lenient, medium=lenient, high=policy(**fields)))


def four_eyes(rules: Rules) -> Rules:
    """The same rules, with two people for every change."""
    return rules.model_copy(update={"approvals": rules.approvals.model_copy(update={"four_eyes": ("all",)})})


def press(**fields: Any) -> Press:
    defaults: dict[str, Any] = {
        "press_id": "p1",
        "action": "approve",
        "about": "R1",
        "digest": plan().digest,
        "user": "ana",
        "user_name": "Ana",
        "channel": "C1",
    }
    return Press(**(defaults | fields))


def judged_press(
    *,
    allowed: bool = True,
    reason: str = "on the list",
    at: float = START,
    teams: tuple[str, ...] = (APPROVERS,),
    **fields: Any,
) -> JudgedPress:
    authority = Authority(allowed=allowed, reason=reason, teams=teams if allowed else (), read_at=at)
    return JudgedPress(press=press(**fields), authority=authority, at=at)


def request(**fields: Any) -> Request:
    wanted = fields.pop("plan", plan())
    defaults: dict[str, Any] = {
        "request_id": "R1",
        "state": "grow",
        "visit": 2,
        "plan": wanted,
        "digest": wanted.digest,
        "policy": policy(),
        "why": "more room",
        "asked_at": START - 60,
        "posted_at": START - 50,
        "expires_at": START + 850,
    }
    return Request(**(defaults | fields))


def run(**fields: Any) -> Run:
    """Fields of a run; those of its visit and of its findings may be given beside them."""
    defaults: dict[str, Any] = {
        "incident_id": "INC-1",
        "target": TARGET,
        "title": "KV cache thrash on llm",
        "opened_at": START,
        "starts_at": START - 60,
        "playbook": "test",
        "digest": "d1",
    }
    first = Visit(number=0, state="look", machine_state="look", entered_at=START)
    return Run(**(defaults | nested(fields, first, Findings())))


def in_visit(run: Run, **fields: Any) -> Run:
    """The run with these fields of its visit."""
    return run.with_(visit=run.visit.model_copy(update=fields))


def bundle(source: str = "playbook", digest: str = "d1") -> Bundle:
    """A bundle of this text, with the digest of `run()`."""
    made = Bundle("test", {})
    vars(made).update(digest=digest, stored=lambda: {"source": source})
    return made


def nested(fields: dict[str, Any], visit: Visit, findings: Findings) -> dict[str, Any]:
    """With the fields of a visit and of findings put where they belong."""
    parts = {"visit": visit, "findings": findings}
    names = {part: [name for name in type(value).model_fields if name in fields] for part, value in parts.items()}
    moved = {
        part: parts[part].model_copy(update={name: fields[name] for name in found}) for part, found in names.items()
    }
    rest = {name: value for name, value in fields.items() if name not in [*names["visit"], *names["findings"]]}
    return moved | rest
