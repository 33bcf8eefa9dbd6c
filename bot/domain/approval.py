"""Who may let a change happen: requests, presses, and `grant`, the only maker of permission.

Permission is a type: a writer accepts only `Approved`, only `grant` makes one, from stored facts; it is never stored.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from bot.domain.change.plan import Plan, Risk
from bot.domain.errors import ApprovalError

RequestStatus = Literal["open", "granted", "refused", "expired", "superseded", "withdrawn"]


class Policy(BaseModel):
    """Who decides about one risk level, and how long they have."""

    model_config = ConfigDict(frozen=True)

    needed: int = 1
    users: tuple[str, ...] = ()
    """User ids; empty together with an empty `user_group` means: nobody may approve."""
    user_group: str = ""
    expires_seconds: float
    own_work_counts: bool
    """False: who asked for or edited the plan is never the only approver. `single_operator` makes it True."""
    single_operator: bool = False


class Authority(BaseModel):
    """What was read once about a presser, kept as evidence; unreadable is not allowed."""

    model_config = ConfigDict(frozen=True)

    allowed: bool
    reason: str
    """Why not, in words for the presser; or what gave the right."""
    read_at: float


class Press(BaseModel):
    """A person's click as it arrived, stored before it was acknowledged."""

    model_config = ConfigDict(frozen=True)

    press_id: str
    action: Literal["approve", "refuse", "choose", "undo"]
    about: str
    """The request id (`R3`) or question id (`Q2`) that was on the button."""
    digest: str = ""
    value: str = ""
    fields: dict[str, float | str] = {}
    """What was filled in beside the choice."""
    reason: str = ""
    user: str
    user_name: str = ""
    channel: str
    message_ts: str = ""
    response_url: str = ""


class JudgedPress(BaseModel):
    """A press with the authority that was read for it and the storage's time of the press."""

    model_config = ConfigDict(frozen=True)

    press: Press
    authority: Authority
    at: float


class Request(BaseModel):
    """A plan put to people."""

    model_config = ConfigDict(frozen=True)

    request_id: str
    state: str
    visit: int
    plan: Plan
    digest: str
    policy: Policy
    why: str
    still: str = ""
    """The reason of the change as an expression, for people; it is read again right before the call."""
    evidence: tuple[str, ...] = ()
    asked_at: float
    own_work_of: tuple[str, ...] = ()
    """Who asked for this change or edited it."""
    posted_at: float | None = None
    expires_at: float | None = None
    """Counts from the posted card; None until it is posted."""
    status: RequestStatus = "open"
    presses: tuple[JudgedPress, ...] = ()
    decided_by: str = ""
    decided_at: float | None = None
    decision_reason: str = ""
    outcome: str = ""
    """How its change ended (`done`, `failed`, `unclear`, …); empty while it has not."""
    alerts_resolved_at: float | None = None
    """All alerts resolved while it waited: presses before this moment no longer count."""


class Approved:
    """Proof that these presses satisfy the policy for exactly this plan. Only `grant` makes it; never serialised."""

    __slots__ = ("plan", "presses", "request_id")

    def __init__(self, *, request: Request, presses: tuple[JudgedPress, ...], made_by: object) -> None:
        if made_by is not _GRANT:
            raise ApprovalError("only grant() makes an approval")
        self.plan, self.presses, self.request_id = request.plan, presses, request.request_id

    def __reduce__(self) -> tuple[object, ...]:
        raise ApprovalError("an approval is never serialised; store the presses and call grant() again")


_GRANT = object()


def grant(request: Request, presses: tuple[JudgedPress, ...]) -> Approved:
    """Make permission for `request` from stored, judged presses.

    Raise `ApprovalError`, which tells the presser why, unless these presses satisfy the request's policy.
    """
    for judged in presses:
        must_count(request, judged)
    approvers = {judged.press.user for judged in presses}
    if len(approvers) < request.policy.needed:
        missing = request.policy.needed - len(approvers)
        raise ApprovalError(f"{missing} more approval{'s' if missing > 1 else ''} needed")
    if not request.policy.own_work_counts and not approvers - set(request.own_work_of):
        raise ApprovalError("somebody else must approve what you asked for or edited")
    return Approved(request=request, presses=presses, made_by=_GRANT)


def must_count(request: Request, judged: JudgedPress) -> None:
    """Raise `ApprovalError`, in words for the presser, unless this press counts for `request`."""
    if judged.press.action != "approve":
        raise ApprovalError("this press is not an approval")
    if not judged.authority.allowed:
        raise ApprovalError(judged.authority.reason)
    if judged.press.digest != request.plan.digest:
        raise ApprovalError("the plan changed after this button was posted; use the newer request")
    if request.expires_at is not None and judged.at >= request.expires_at:
        raise ApprovalError(f"this request expired at {_clock(request.expires_at)} UTC; ask again")
    if request.alerts_resolved_at is not None and judged.at < request.alerts_resolved_at:
        raise ApprovalError("all alerts resolved after this press; if it is still wanted, press again")


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


class ApprovalRules(BaseModel):
    """The approval policy of a deployment: one policy for each risk, and the floors that no playbook may lower."""

    model_config = ConfigDict(frozen=True)

    low: Policy
    medium: Policy
    high: Policy
    risk_floors: dict[str, Risk] = {}
    grant_valid_seconds: float = 600.0
    """A grant not begun within this time lapses."""

    def policy(self, risk: Risk) -> Policy:
        return {"low": self.low, "medium": self.medium, "high": self.high}[risk]
