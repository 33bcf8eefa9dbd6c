"""A plan is exactly what a change would do now: calls with before and after, waits between them, and circumstances.

The digest covers what people approve (verb, choices, calls). Circumstances are shown and graded, not hashed.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from bot.domain.changes.owners_edit import OwnersEdit
from bot.domain.cluster.objects import ObjectRef

Risk = Literal["low", "medium", "high"]
RISKS: tuple[Risk, ...] = get_args(Risk)
Grade = Literal["fine", "note", "warning"]
GRADES: tuple[Grade, ...] = get_args(Grade)


def highest(*risks: Risk) -> Risk:
    return max(risks, key=RISKS.index)


def raised(risk: Risk) -> Risk:
    """Returns the next higher risk, or the same if there is none."""
    return RISKS[min(RISKS.index(risk) + 1, len(RISKS) - 1)]


class Difference(BaseModel):
    """One field that a call changes, as shown to people; `path` is a JSON pointer if the field has one."""

    model_config = ConfigDict(frozen=True)

    path: str
    before: Any = None
    after: Any = None
    text: str = ""
    """The line for people, e.g. `--max-num-seqs 64 → 6`."""


class Call(BaseModel):
    """One API request of a plan, with a precondition so that it succeeds at most once.

    `patch`: JSON-patch in `body` with `test` on uid and on the old value of each field; the writer adds the stamp.
    `create`: `body` is the object with its fixed name. `delete` and `evict`: the uid is the precondition.
    `generate`: one request to a pod's own engine; afterwards there is no evidence that it was sent.
    """

    model_config = ConfigDict(frozen=True)

    step: Literal["call"] = "call"
    method: Literal["patch", "create", "delete", "evict", "generate"]
    target: ObjectRef
    subresource: Literal["", "scale"] = ""
    body: Any = None
    differences: tuple[Difference, ...] = ()
    title: str
    undo: tuple[Call, ...] = ()
    """The inverse, recorded in the ledger when this call is done; empty if `no_undo` gives a reason."""
    no_undo: str = ""
    stamped: bool = True
    """Whether the call id can be written on the object (not for `delete`, `evict` and the scale subresource)."""
    restores: bool = False
    """It undoes, returns a replica or removes our own canary: the breaker does not count it."""
    undoes: str = ""
    """Id of the applied call that this one undoes."""
    holds: bool | None = None
    """True: a rollout, or how the workload rolls out, differs from here until a later call ends that (False)."""
    ends: tuple[str, ...] = ()
    """UIDs of the pods that this call ends: earlier changes to them end with it."""
    node: str = ""
    """Node of the pod that this call ends: the next replacement there may be the node's fault."""


class Wait(BaseModel):
    """The condition to wait for before the next call; `condition` names a check in `bot.domain.changes.progress`."""

    model_config = ConfigDict(frozen=True)

    step: Literal["wait"] = "wait"
    condition: str
    about: ObjectRef
    parameters: dict[str, Any] = Field(default_factory=dict)
    within_seconds: float
    title: str
    gives: str = ""
    """The result read once it is met or has failed: a key of `catalogue.RESULTS`, kept as a result of the state."""
    closes: bool = False
    """Meeting the condition ends its object: nothing is left to undo there."""


Step = Annotated[Call | Wait, Field(discriminator="step")]


class Circumstance(BaseModel):
    """A fact for people to weigh; a worse grade than the approved one means: ask again."""

    model_config = ConfigDict(frozen=True)

    name: str
    grade: Grade
    text: str


FLAG_TABLE = "flag_table"
"""The circumstance about flags of this engine version; a warning if it is not known whether it has one."""
DRAIN = "drain"
"""The circumstance that says what the end of pods does to the requests they serve."""
ROOM = "room"
"""The circumstance about room for new replicas: with it, a change takes the lease of the cluster's room."""
LAST_ROOM = "last_room"
"""The circumstance that no accelerator stays free: other teams decide too."""
DIFFERENCES = "differences"
"""The circumstance that lists the edits of a rollback."""


class Plan(BaseModel):
    model_config = ConfigDict(frozen=True)

    verb: str
    title: str
    choices: dict[str, Any] = Field(default_factory=dict)
    """Choices fixed for the request: pod UID, value, revision."""
    steps: tuple[Step, ...]
    circumstances: tuple[Circumstance, ...] = ()
    risk: Risk
    approved_by: tuple[str, ...] = ()
    """Teams of which one person each must approve (`platform`); empty: the approvers of the risk level."""
    told: tuple[str, ...] = ()
    """Who is notified after the change but not asked before, as `owner=U0ANA`; not hashed."""
    expected: str = ""
    undo_text: str = ""
    commit: str = ""
    """What people have to put where the workload is kept, so that its owner does not revert the change; not hashed."""
    owners_edit: OwnersEdit | None = None
    """What `commit` says, where a file can be edited by it; not hashed."""
    disrupts: Literal["nothing", "replica", "workload"] = "workload"
    """Which serving replicas it ends, restarts or takes out of rotation: the breaker counts these; not hashed."""

    def disruption(self, change: str) -> str:
        """Returns what the breaker counts; empty: nothing. Draining and replacing the same replica is one disruption.

        `change`: the id of the request.
        """
        match self.disrupts:
            case "nothing":
                return ""
            case "replica":
                return f"replica {self.choices.get('uid') or change}"
            case "workload":
                return change

    serving: int | None = None
    """Replicas in rotation when it was planned; None: not known. Not hashed."""

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(s for s in self.steps if isinstance(s, Call))

    @property
    def digest(self) -> str:
        """SHA-256 of verb, choices and calls; equal digests mean exactly the same change."""
        agreed = {
            "verb": self.verb,
            "choices": self.choices,
            "calls": [
                c.model_dump(mode="json", include={"method", "target", "subresource", "body"}) for c in self.calls
            ],
        }
        return hashlib.sha256(json.dumps(agreed, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def is_worse_than(self, approved: Plan) -> tuple[str, ...]:
        """Returns the texts of circumstances that got worse since `approved` was shown; empty if none did."""
        old = {c.name: GRADES.index(c.grade) for c in approved.circumstances}
        return tuple(c.text for c in self.circumstances if GRADES.index(c.grade) > old.get(c.name, 0))


class PlanResult(BaseModel):
    """The result of planning: a plan, or why there is none."""

    model_config = ConfigDict(frozen=True)

    outcome: Literal["planned", "not_needed", "impossible", "failed", "unknown"]
    plan: Plan | None = None
    reason: str = ""
    hint: str = ""
    handed_out: tuple[dict[str, Any], ...] = ()
    """For `impossible`: the flag edits whose patch the owner of the workload was given."""
    owners_edit: OwnersEdit | None = None
    """For `impossible`: what the patch in `hint` says, where a file can be edited by it."""
    missing: tuple[str, ...] = ()
    """For `unknown`: the names in the playbook that had no value."""
    last_time: str = ""
    """How long this change held on this target the last time; empty if it was never made there."""
    asked_before: str = ""
    """The earlier incident's request on this target that asked for exactly this within half an hour."""


Result = Literal["done", "failed", "unclear", "superseded", "halted"]


def change_of(call_id: str) -> str:
    """Returns the change that a call belongs to, with its incident: `INC-1/R3` of `INC-1/R3/0`; empty for none."""
    return call_id.rpartition("/")[0]


def request_of(call_id: str) -> str:
    """Returns the request that a call belongs to: `R3` of `INC-1/R3/0`; empty for none."""
    return change_of(call_id).rpartition("/")[2]


class LedgerEntry(BaseModel):
    """One applied call and its inverse: a change that the bot may still hold active."""

    model_config = ConfigDict(frozen=True)

    call_id: str
    state: str
    verb: str
    title: str
    target: ObjectRef
    differences: tuple[Difference, ...] = ()
    undo: tuple[Call, ...] = ()
    no_undo: str = ""
    holds: bool | None = None
    applied_at: float
    node: str = ""
    undone_by: str = ""
