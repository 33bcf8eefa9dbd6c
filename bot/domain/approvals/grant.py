"""Who may permit a change: requests, presses, and `grant`, the only source of permission.

Permission is a type: a writer accepts only `Approved`, which only `grant` creates, from stored facts; it is never
stored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from bot.domain.approvals.advice import OnlyAdvice
from bot.domain.changes.plan import Plan, Risk
from bot.domain.kernel.errors import ApprovalError
from bot.domain.kernel.runbook import Runbook

RequestStatus = Literal["open", "granted", "refused", "expired", "superseded", "withdrawn", "advised"]
STATUS_TEXTS = {"open": "open", "granted": "approved", "superseded": "replaced"}
"""What people read for a status; the others are words already."""


APPROVERS = "approvers"
"""The people that a risk level names; the other teams are `serving`, `platform`, `model` and `lead`."""


class Demand(BaseModel):
    """A number of different people of one team."""

    model_config = ConfigDict(frozen=True)

    team: str = APPROVERS
    needed: int = 1
    users: tuple[str, ...] = ()
    """User ids; a team without users, user group and channel has no members."""
    user_group: str = ""
    channel: str = ""
    """A channel whose members belong to the team."""
    or_of: tuple[Demand, ...] = ()
    """Other teams whose people count equally (`serving or platform`)."""
    of_target: str = ""
    """The pattern of the targets whose own approvers these are; empty: a team, or the approvers of every target."""
    falls_back: bool = False
    """The settings name no people for this team: it falls back to the approvers, and the request says so."""

    @property
    def sources(self) -> tuple[Demand, ...]:
        """Returns every source that names people for it; empty if none does."""
        every = (self, *self.or_of)
        return tuple(each for each in every if each.users or each.user_group or each.channel)


class Policy(BaseModel):
    """Who decides about one request, and how much time they have. Each demand needs separate people."""

    model_config = ConfigDict(frozen=True)

    demands: tuple[Demand, ...]
    expires_seconds: float
    needs_reason: bool = False
    """An approval must come with a reason in words, as for every high-risk change."""
    announced: str = ""
    """Why nobody is asked: the change is announced and starts at once. Empty: people approve it."""
    escalate_to: Demand | None = None
    """The team that is also asked once half of the time has passed."""
    break_glass: Demand | None = None
    """The team of which one person may decide alone, with a typed reason, after half time while a team is silent."""

    @property
    def needed(self) -> int:
        return sum(demand.needed for demand in self.demands)

    @property
    def approvers_of(self) -> str:
        """Returns the pattern of the targets whose own approvers decide here; empty if none do."""
        named = (each.of_target for demand in self.demands for each in (demand, *demand.or_of))
        return next(filter(None, named), "")

    @property
    def all_demands(self) -> tuple[Demand, ...]:
        """Returns every team whose presses count here."""
        return (*self.demands, self.break_glass) if self.break_glass else self.demands


class Authority(BaseModel):
    """The result of one authority check of a presser, kept as evidence; unreadable means not allowed."""

    model_config = ConfigDict(frozen=True)

    allowed: bool
    reason: str
    """Why not, in words for the presser; or what gave the permission."""
    teams: tuple[str, ...] = ()
    """The teams of the policy's demands that this person is in."""
    read_at: float


class Press(BaseModel):
    """A person's click as received, stored before it was acknowledged."""

    model_config = ConfigDict(frozen=True)

    press_id: str
    action: Literal["approve", "refuse", "choose", "undo", "edit", "more_time", "break_glass", "carried_out"]
    about: str
    """The request id (`R3`) or question id (`Q2`) of the button."""
    digest: str = ""
    value: str = ""
    """The choice; for an edit the new values as JSON."""
    fields: dict[str, float | str] = Field(default_factory=dict)
    """Values entered with the choice."""
    reason: str = ""
    user: str
    user_name: str = ""
    channel: str
    message_ts: str = ""
    response_url: str = ""


class JudgedPress(BaseModel):
    """A press with the authority read for it and the storage's time of the press."""

    model_config = ConfigDict(frozen=True)

    press: Press
    authority: Authority
    at: float


class Covered(BaseModel):
    """A later change, by its state in the playbook, with its title and its least risk."""

    model_config = ConfigDict(frozen=True)

    state: str
    verb: str = ""
    """Empty in requests that an earlier version made."""
    title: str
    risk: Risk


INSTEAD = ", instead"
"""At the end of the reason of a request in whose place another option was chosen."""


class Alternative(BaseModel):
    """Another option beside a request, as it was when it was recommended."""

    model_config = ConfigDict(frozen=True)

    key: str
    label: str
    effect: str = ""
    why_not: str = ""
    """Why it is not possible; empty if it is."""


class CarriedOut(BaseModel):
    """What a person reports to have done, or to do, where the bot only advised."""

    model_config = ConfigDict(frozen=True)

    user: str
    at: float
    text: str = ""
    """Empty: what was advised."""


class Request(BaseModel):
    """A plan that people are asked to approve, or are only advised to carry out."""

    model_config = ConfigDict(frozen=True)

    request_id: str
    state: str
    visit: int
    plan: Plan
    digest: str
    kind: str = ""
    """The kind of change, which decided the policy."""
    policy: Policy
    option: str = ""
    """What its recommendation calls it; empty for a change that is not an option."""
    why: str
    runbook: Runbook | None = None
    """The step of the runbook that the change is."""
    still: str = ""
    """The reason of the change as an expression, for people; it is evaluated again right before the call."""
    covers: tuple[Covered, ...] = ()
    """The later changes that this approval covers as well; the request lists them."""
    evidence: tuple[str, ...] = ()
    asked_at: float
    edited_by: str = ""
    """The person who entered its values; empty if they are the playbook's."""
    posted_at: float | None = None
    expires_at: float | None = None
    """Counts from the posted card; None until then."""
    half_at: float | None = None
    half_passed: bool = False
    """Half of the time passed without a decision, and others were asked too."""
    extended_by: str = ""
    """The person who asked for more time; this is granted once."""
    status: RequestStatus = "open"
    presses: tuple[JudgedPress, ...] = ()
    decided_by: str = ""
    decided_at: float | None = None
    decision_reason: str = ""
    outcome: str = ""
    """The outcome of its change (`done`, `failed`, `unclear`, …); empty until it ends."""
    outcome_text: str = ""
    """Why it was not done, or the result that its call came back with."""
    ended_at: float | None = None
    """When its change ended."""
    alternatives: tuple[Alternative, ...] = ()
    """What may be done instead; a press on one withdraws this request."""
    asked_before: str = ""
    """The request that asked for exactly this within half an hour, `R3` or another incident's `INC-6/R3`: an approval
    needs a new reason in words.
    """
    advice: OnlyAdvice | None = None
    """Why the plan is only advised: nobody can approve it. None: it is requested."""
    carried_out: tuple[CarriedOut, ...] = ()
    """What people did about the advice."""
    alerts_resolved_at: float | None = None
    """When all alerts resolved while it waited: presses before this moment no longer count."""

    @property
    def slot(self) -> str:
        """Its message in the incident's thread; the names of its deadlines begin with it."""
        return f"request:{self.request_id}"

    @property
    def status_text(self) -> str:
        """Its status in words: `approved`, `refused`, `replaced`."""
        return STATUS_TEXTS.get(self.status, self.status)

    @property
    def became(self) -> str:
        """Its status in a sentence about a press that came too late: `was already approved`, `has expired`."""
        return "has expired" if self.status == "expired" else f"was already {self.status_text}"

    @property
    def called(self) -> str:
        """What people call it: the option that it carries out, else what its plan does, also with edited values."""
        if not self.option or self.edited_by:
            return self.plan.title
        tried_first = self.plan.verb == "canary" and "canary" not in self.option
        return self.option + ", on one canary first" * tried_first

    @property
    def needs_reason(self) -> str:
        """Why an approval must come with a reason in words; empty if it need not."""
        if self.asked_before:
            return "exactly this was asked for within the last half hour; approving it needs a new reason"
        return "its risk is high, and approving it needs a reason in words" if self.policy.needs_reason else ""


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
    """Returns permission for `request` from stored, judged presses.

    A request that is announced needs no press. Raise `ApprovalError`, with the reason for the presser, unless these
    presses satisfy the request's policy.
    """
    if request.advice is not None:
        raise ApprovalError(f"it is only advised: {request.advice.text}")
    if request.policy.announced:
        return Approved(request=request, presses=(), made_by=_GRANT)
    if not request.policy.demands:
        raise ApprovalError("nobody may approve this: no approvers are set")
    for judged in presses:
        must_count(request, judged)
    if not any(judged.press.action == "break_glass" for judged in presses):
        _must_be_enough(request, presses)
    elif not silent_teams(request.policy, presses):
        raise ApprovalError("somebody of every team has approved: it waits for their number, not for a team")
    return Approved(request=request, presses=presses, made_by=_GRANT)


def _must_be_enough(request: Request, presses: tuple[JudgedPress, ...]) -> None:
    if missing := still_missing(request.policy, presses):
        raise ApprovalError(" and ".join(map(more_needed, missing)))


def silent_teams(policy: Policy, presses: Sequence[JudgedPress]) -> tuple[Demand, ...]:
    """Returns the demands without any approval, however the approvals are assigned to teams."""
    one_of_each = tuple(demand.model_copy(update={"needed": 1}) for demand in policy.demands)
    approvals = [judged for judged in presses if judged.press.action == "approve"]
    return still_missing(policy.model_copy(update={"demands": one_of_each}), approvals)


def still_missing(policy: Policy, presses: Sequence[JudgedPress]) -> tuple[Demand, ...]:
    """Returns the demands that these presses do not meet, each with the number of missing people.

    One person meets one demand: a member of two teams counts where that leaves the fewest missing.
    """
    people: dict[str, set[str]] = {}
    for judged in presses:
        people.setdefault(judged.press.user, set()).update(judged.authority.teams)
    return still_missing_at_best(policy, people)


def still_missing_at_best(policy: Policy, people: Mapping[str, Collection[str]]) -> tuple[Demand, ...]:
    """Like `still_missing`, after each of these people, given with their teams, has approved."""
    places = [number for number, demand in enumerate(policy.demands) for _ in range(demand.needed)]
    seated = _seated([policy.demands[number].team for number in places], people)
    met = [sum(places[seat] == number for seat in seated) for number in range(len(policy.demands))]
    lacking = [(demand, demand.needed - count) for demand, count in zip(policy.demands, met, strict=True)]
    return tuple(demand.model_copy(update={"needed": count}) for demand, count in lacking if count > 0)


def _seated(seats: Sequence[str], people: Mapping[str, Collection[str]]) -> Mapping[int, str]:
    """Assigns as many people as possible to one seat each of their teams (an augmenting path for each in turn)."""
    taken: dict[int, str] = {}

    def seat(user: str, tried: set[int]) -> bool:
        for number, team in enumerate(seats):
            if team not in people[user] or number in tried:
                continue
            tried.add(number)
            if number not in taken or seat(taken[number], tried):
                taken[number] = user
                return True
        return False

    for user in people:
        seat(user, set())
    return taken


def more_needed(demand: Demand) -> str:
    """`1 more approval needed from platform`."""
    more = f"{demand.needed} more approval{'s' if demand.needed > 1 else ''} needed"
    return more if demand.team == APPROVERS else f"{more} from {demand.team}"


def must_count(request: Request, judged: JudgedPress) -> None:
    """Raise `ApprovalError`, in words for the presser, unless this press counts for `request`."""
    if judged.press.action not in ("approve", "break_glass"):
        raise ApprovalError("this press is not an approval")
    if not judged.authority.allowed:
        raise ApprovalError(judged.authority.reason)
    if judged.press.digest != request.plan.digest:
        raise ApprovalError("the plan changed after this button was posted; use the newer request")
    if request.expires_at is not None and judged.at >= request.expires_at:
        raise ApprovalError(f"this request expired at {_clock(request.expires_at)} UTC; ask again")
    if request.alerts_resolved_at is not None and judged.at < request.alerts_resolved_at:
        raise ApprovalError("all alerts resolved after this press; if it is still wanted, press again")
    if request.needs_reason and not judged.press.reason.strip():
        raise ApprovalError(request.needs_reason)
    if judged.press.action == "break_glass":
        _may_break_glass(request, judged)
    elif not is_asked(request.policy, judged.authority):
        raise ApprovalError("you are not in a team that is asked here; you may only break the glass, after half time")


def is_asked(policy: Policy, authority: Authority) -> bool:
    """Whether one of the person's teams is asked to approve, rather than only allowed to act."""
    asked = {demand.team for demand in policy.demands}
    return not authority.teams or bool(asked & set(authority.teams))


def _may_break_glass(request: Request, judged: JudgedPress) -> None:
    leads = request.policy.break_glass
    if leads is None:
        raise ApprovalError("the glass can be broken only in a critical incident, for what two teams have to approve")
    if leads.team not in judged.authority.teams:
        raise ApprovalError(f"only one of {leads.team} may break the glass")
    if request.half_at is None or judged.at < request.half_at:
        raise ApprovalError("the teams have half of the time to answer; the glass can be broken after that")
    if judged.press.user == request.edited_by:
        raise ApprovalError("somebody else must approve what you edited")
    if not judged.press.reason.strip():
        raise ApprovalError("breaking the glass needs a reason in words")


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")
