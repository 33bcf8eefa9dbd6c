"""Who may let a change happen: requests, presses, and `grant`, the only maker of permission.

Permission is a type: a writer accepts only `Approved`, only `grant` makes one, from stored facts; it is never stored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from bot.domain.change.plan import Plan, Risk
from bot.domain.errors import ApprovalError

RequestStatus = Literal["open", "granted", "refused", "expired", "superseded", "withdrawn"]


APPROVERS = "approvers"
"""The team of whoever a risk level names; the other teams are teams: `serving`, `platform`, `model`, `lead`."""


class Demand(BaseModel):
    """So many different people of one team."""

    model_config = ConfigDict(frozen=True)

    team: str = APPROVERS
    needed: int = 1
    users: tuple[str, ...] = ()
    """User ids; empty together with an empty `user_group` means: nobody is in it."""
    user_group: str = ""
    stands_in: bool = False
    """The settings name nobody for this team: the approvers stand in for it, and the request says so."""


class Policy(BaseModel):
    """Who decides about one request, and how long they have. Every demand is met by people of its own."""

    model_config = ConfigDict(frozen=True)

    demands: tuple[Demand, ...]
    expires_seconds: float
    own_work_counts: bool
    """False: who asked for or edited the plan is never the only approver. `single_operator` makes it True."""
    single_operator: bool = False
    """One person may meet every demand of whose team they are, and approve their own work."""

    @property
    def needed(self) -> int:
        return sum(demand.needed for demand in self.demands)


class Authority(BaseModel):
    """What was read once about a presser, kept as evidence; unreadable is not allowed."""

    model_config = ConfigDict(frozen=True)

    allowed: bool
    reason: str
    """Why not, in words for the presser; or what gave the right."""
    teams: tuple[str, ...] = ()
    """The teams of the policy's demands that this person is in."""
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
    if not request.policy.demands:
        raise ApprovalError("nobody may approve this: no approvers are set")
    if missing := still_missing(request.policy, presses):
        raise ApprovalError(" and ".join(map(_more_needed, missing)))
    approvers = {judged.press.user for judged in presses}
    if not request.policy.own_work_counts and not approvers - set(request.own_work_of):
        raise ApprovalError("somebody else must approve what you asked for or edited")
    return Approved(request=request, presses=presses, made_by=_GRANT)


def still_missing(policy: Policy, presses: Sequence[JudgedPress]) -> tuple[Demand, ...]:
    """The demands that these presses do not meet, each with how many people it lacks.

    One person meets one demand: who is in two teams is counted where that leaves the least to ask for.
    """
    people: dict[str, set[str]] = {}
    for judged in presses:
        people.setdefault(judged.press.user, set()).update(judged.authority.teams)
    if policy.single_operator:
        met = [sum(demand.team in teams for teams in people.values()) for demand in policy.demands]
    else:
        places = [number for number, demand in enumerate(policy.demands) for _ in range(demand.needed)]
        seated = _seated([policy.demands[number].team for number in places], people)
        met = [sum(places[seat] == number for seat in seated) for number in range(len(policy.demands))]
    lacking = [(demand, demand.needed - count) for demand, count in zip(policy.demands, met, strict=True)]
    return tuple(demand.model_copy(update={"needed": count}) for demand, count in lacking if count > 0)


def _seated(seats: Sequence[str], people: Mapping[str, Collection[str]]) -> Mapping[int, str]:
    """As many people as can be, each on one seat of a team of theirs (an augmenting path for each in turn)."""
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


def _more_needed(demand: Demand) -> str:
    more = f"{demand.needed} more approval{'s' if demand.needed > 1 else ''} needed"
    return more if demand.team == APPROVERS else f"{more} from {demand.team}"


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
    """The approval policy of a deployment: one policy for each risk, and the floors that no playbook may lower.

    A plan that asks for certain teams is decided by these; the level's number of people is still the least.
    """

    model_config = ConfigDict(frozen=True)

    low: Policy
    medium: Policy
    high: Policy
    teams: dict[str, Demand] = {}
    """The teams that the settings name people for."""
    risk_floors: dict[str, Risk] = {}
    grant_valid_seconds: float = 600.0
    """A grant not begun within this time lapses."""

    def policy(self, risk: Risk, teams: Sequence[str] = ()) -> Policy:
        """Who decides about a plan of this risk; one person each of `teams`, where the plan asks for these."""
        level = {"low": self.low, "medium": self.medium, "high": self.high}[risk]
        if not teams:
            return level
        demands = [self._one_of(team, level) for team in teams]
        rest = level.needed - len(demands)
        more = [each.model_copy(update={"needed": rest}) for each in level.demands[:1] if rest > 0]
        return level.model_copy(update={"demands": (*demands, *more)})

    def one_of(self, team: str) -> Policy:
        """The policy of a question that one person of this team answers, whatever its risk."""
        return self.low.model_copy(update={"demands": (self._one_of(team, self.low),)})

    def _one_of(self, team: str, level: Policy) -> Demand:
        approvers = level.demands[0] if level.demands else Demand()
        standing_in = approvers.model_copy(update={"team": team, "needed": 1, "stands_in": True})
        return self.teams.get(team, standing_in)
