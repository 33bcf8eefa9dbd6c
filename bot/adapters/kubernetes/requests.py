"""Calls as HTTP requests, and the meaning of answers and objects for them. Pure: this module sends nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bot.adapters.kubernetes.client import Answer
from bot.adapters.kubernetes.paths import path_of, path_of_ref
from bot.domain.changes.plan import Call
from bot.domain.cluster.json_patch import ABSENT, Broken, broken_tests, is_in_force, pointer, value_at
from bot.domain.cluster.objects import CALL_ANNOTATION, FIELD_MANAGER, annotations_of, dig, is_going_away, uid_of
from bot.domain.cluster.snapshot import Obj
from bot.domain.kernel.errors import ApprovalError
from bot.domain.kernel.redaction import redacted_data
from bot.domain.kernel.retry_after import retry_after
from bot.flow.ports.cluster import EarlierAttempt, Sent

RETRY_SECONDS = 10.0
"""A budget's 429 often comes without a Retry-After, and a failed webhook has none."""
MAX_RETRY_SECONDS = 60.0
"""Upper bound for any Retry-After: the bot has its own limit for delaying a change, and must check it."""
TWO_BUDGETS = "more than one PodDisruptionBudget"
WEBHOOK_FAILED = "failed calling webhook"
"""Webhooks are asked before anything is stored: the API server has not carried out what one of them could not judge."""
ANNOTATIONS = "/metadata/annotations"
REPLICAS = "/spec/replicas"


@dataclass(frozen=True)
class HttpRequest:
    method: Literal["PATCH", "POST", "DELETE"]
    path: str
    body: Any
    query: Mapping[str, str]


def http_request(call: Call, *, call_id: str, present: Obj | None) -> HttpRequest:
    """`present` is the object as it is now; it decides how annotations are written, nothing else."""
    target, written = call.target, {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
    match call.method:
        case "patch":
            body = patch_body(call, call_id=call_id, present=present or {})
            return HttpRequest("PATCH", path_of_ref(target, call.subresource), body, written)
        case "create":
            path = path_of(target.kind, target.namespace)
            return HttpRequest("POST", path, stamped(call.body, call_id), written)
        case "delete":
            options = {"apiVersion": "v1", "kind": "DeleteOptions", **(call.body or {})}
            return HttpRequest("DELETE", path_of_ref(target), options | _precondition(call), {})
        case "evict":
            return HttpRequest("POST", path_of_ref(target, "eviction"), eviction(call), {})
        case "generate":
            raise ApprovalError(f"not a call to the API server: {call.title}")


def _precondition(call: Call) -> Obj:
    return {"preconditions": {"uid": call.target.uid}}


def eviction(call: Call) -> Obj:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": call.target.name, "namespace": call.target.namespace},
        "deleteOptions": _precondition(call),
    }


def stamped(obj: Obj, call_id: str) -> Obj:
    metadata = obj["metadata"]
    return {
        **obj,
        "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), CALL_ANNOTATION: call_id}},
    }


def patch_body(call: Call, *, call_id: str, present: Obj) -> list[Obj]:
    """The plan's operations and the stamp. Never on the pod template, which would restart replicas."""
    operations: list[Obj] = list(call.body)
    if call.subresource == "scale":
        operations = _of_scale(operations)
    if not call.stamped:
        return operations
    stamp: Obj = {"op": "add", "path": ANNOTATIONS + pointer(CALL_ANNOTATION), "value": call_id}
    # If there are no annotations, their map must be created first.
    is_bare = dig(present, "metadata", "annotations") is None
    mapped: list[Obj] = [{"op": "add", "path": ANNOTATIONS, "value": {}}] if is_bare else []
    version = dig(present, "metadata", "resourceVersion")
    unchanged: Obj = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    return [*([unchanged] if rests_on_absence(call, present) else []), *mapped, *operations, stamp]


def _of_scale(operations: list[Obj]) -> list[Obj]:
    """A Scale leaves `replicas` out if it is 0: the test must check for its absence, and the number is added."""
    tested = next((op for op in operations if op["op"] == "test" and op["path"] == REPLICAS), None)
    if tested is None or tested["value"] != 0:
        return operations
    written: dict[str, Obj] = {"test": {"value": None}, "replace": {"op": "add"}}
    return [op | written.get(op["op"], {}) if op["path"] == REPLICAS else op for op in operations]


def rests_on_absence(call: Call, present: Obj) -> bool:
    """Whether the patch adds a field that must be absent. JSON patch cannot test this: it needs the resource version.

    Losing that race changes nothing and is tried again.
    """
    return call.stamped and (not annotations_of(present) or bool(_added(call)))


def _added(call: Call) -> list[str]:
    """Fields that the patch adds to objects without a test of their old value: they must be absent."""
    tested = {op["path"] for op in call.body if op["op"] == "test"}
    added = [op["path"] for op in call.body if op["op"] == "add" and op["path"] not in tested]
    return [path for path in added if not path.rsplit("/", 1)[-1].isdigit() and not path.endswith("/-")]


def misfit(call: Call, present: Obj | None) -> str:
    """Why a patch cannot win on the object as it is now, in words; empty if its preconditions hold."""
    if present is None:
        return f"{call.target} does not exist any more"
    broken = list(broken_tests(call.body, present))
    broken += [Broken(path, ABSENT, value_at(present, path)) for path in _added(call) if _is_there(present, path)]
    return f"changed by somebody else: {differences(broken)}" if broken else ""


def _is_there(present: Obj, path: str) -> bool:
    return value_at(present, path) is not ABSENT


def differences(broken: Sequence[Broken]) -> str:
    return "; ".join(f"{b.path} is {_shown(b.present)}, expected {_shown(b.expected)}" for b in broken)


def _shown(value: Any) -> str:
    text = "not set" if value is ABSENT else str(redacted_data(value))
    return text if len(text) <= 200 else text[:199] + "…"


def outcome(call: Call, answer: Answer) -> Sent:
    """What an answer to a mutating request means; `unclear` only if the server itself may not know."""
    if answer.is_ok:
        is_done = answer.is_of_server
        return Sent("done", answer.headers.get("Warning", "")) if is_done else Sent("unclear", answer.message)
    match answer.status:
        case 404 if call.method in ("delete", "evict") and answer.is_of_server:
            return Sent("done", f"{call.target} was gone already")
        case 429:
            rest = retry_after(answer.retry_after, otherwise=RETRY_SECONDS, at_most=MAX_RETRY_SECONDS)
            return Sent("failed", _with_causes(answer), retry_after_seconds=rest)
        case 500 if call.method == "evict" and TWO_BUDGETS in answer.message:
            return Sent("failed", answer.message)
        case 500 if WEBHOOK_FAILED in answer.message:
            return Sent("failed", answer.message, retry_after_seconds=RETRY_SECONDS)
        case 409 | 422:
            return Sent("failed", f"changed by somebody else, or not valid: {answer.message}")
        case status if status >= 500:
            return Sent("unclear", answer.message)
        case _:
            return Sent("failed", answer.message)


def _with_causes(answer: Answer) -> str:
    """The causes contain a budget's details: how many are healthy and needed, or that it is not computed yet."""
    causes = [str(one.get("message") or "") for one in dig(answer.body, "details", "causes") or []]
    return " ".join([answer.message, *filter(None, causes)])


def seen_in(call: Call, present: Obj | None, *, call_id: str) -> EarlierAttempt:
    """What the object shows about an earlier attempt of this call."""
    if call.method in ("delete", "evict"):
        is_gone = present is None or uid_of(present) != call.target.uid or is_going_away(present)
        return "done" if is_gone else "not_done"
    if call.method == "create":
        return _seen_create(present, call_id)
    if present is None or uid_of(present) != call.target.uid:
        return "unclear"
    if is_in_force(call.body, present):
        return "done"
    has_stamp = call.stamped and annotations_of(present).get(CALL_ANNOTATION) == call_id
    if broken_tests(call.body, present):
        return "done" if has_stamp else "unclear"
    # Our stamp on the earlier values: the change was reverted, or the storage was wiped and an older call has the same
    # number. Neither counts as done, and neither may be sent without asking.
    return "unclear" if has_stamp else "not_done"


def _seen_create(present: Obj | None, call_id: str) -> EarlierAttempt:
    if present is None:
        return "not_done"
    return "done" if annotations_of(present).get(CALL_ANNOTATION) == call_id else "unclear"
