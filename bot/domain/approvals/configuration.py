"""Who may approve what, as an operator configures it, and the approval policy that follows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from bot.domain.approvals.announced import PreApproved
from bot.domain.approvals.contacts import Contact, Contacts
from bot.domain.approvals.grant import APPROVERS, Demand, Policy, still_missing_at_best
from bot.domain.approvals.kinds import DEFAULTS, KINDS, RISKS_OF_KINDS, VERB_OF_KIND, Asked, Share, more_of, shares_of
from bot.domain.approvals.rules import ApprovalRules, people_named
from bot.domain.changes.catalogue import VERBS
from bot.domain.changes.plan import RISKS, Risk
from bot.domain.kernel.configured import (
    Duration,
    Hours,
    Secret,
    Section,
    TargetPatterns,
    WebAddress,
    from_a_file,
    listed,
    pairs,
)

EXPIRES = {"low": timedelta(minutes=30), "medium": timedelta(minutes=15), "high": timedelta(minutes=15)}


def _named_kinds(raw: dict[str, Any]) -> dict[str, Any]:
    strange = sorted(raw.keys() - set(KINDS) - VERBS.keys())
    if strange:
        near = get_close_matches(strange[0], KINDS, n=1)
        raise ValueError(f"'{strange[0]}' is not a kind of change" + (f"; did you mean {near[0]}?" if near else ""))
    return raw


def _who(raw: object) -> object:
    found = pairs(raw)
    if not isinstance(found, Mapping):
        return found
    return {kind: shares_of(str(text)) if isinstance(text, str) else text for kind, text in found.items()}


Floors = Annotated[dict[str, Risk], BeforeValidator(pairs), AfterValidator(_named_kinds)]
Who = Annotated[dict[str, tuple[Share, ...]], BeforeValidator(_who), AfterValidator(_named_kinds)]
Times = Annotated[dict[str, Duration], BeforeValidator(pairs), AfterValidator(_named_kinds)]
Users = Annotated[tuple[Annotated[str, StringConstraints(pattern=r"^[UW][A-Z0-9]+$")], ...], BeforeValidator(listed)]
UserGroup = Annotated[str, StringConstraints(pattern=r"^(S[A-Z0-9]+)?$")]
Channel = Annotated[str, StringConstraints(pattern=r"^([CG][A-Z0-9]+)?$")]


def _four_eyes(names: tuple[str, ...]) -> tuple[str, ...]:
    known = (*KINDS, *VERBS, *RISKS, "all")
    if strange := [name for name in names if name not in known]:
        near = get_close_matches(strange[0], known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"'{strange[0]}' is neither a kind of change nor a risk{hint}")
    return names


FourEyes = Annotated[tuple[str, ...], BeforeValidator(listed), AfterValidator(_four_eyes)]


class People(Section):
    """People of Slack, named in any of these ways."""

    users: Users = Field((), examples=["U0123456789,U9876543210"])
    """The ids of these people."""
    user_group: UserGroup = Field("", examples=["S0123456789, the user group's id, not its handle"])
    """The id of a user group whose members are meant."""
    channel: Channel = Field("", examples=["C0123456789, whose members are meant"])
    """The id of a channel whose members are meant."""

    @property
    def is_anybody(self) -> bool:
        return bool(self.users or self.user_group or self.channel)

    def demand(self, **fields: Any) -> Demand:
        return Demand(users=self.users, user_group=self.user_group, channel=self.channel, **fields)


class Level(People):
    """Who decides about one risk level. People named here replace those named for all levels."""

    needed: int = Field(1, ge=1, le=9)
    """How many people must approve."""
    expires: Duration | None = Field(None, examples=["15m"])
    """How long an approval is waited for."""


class Team(People):
    """The people of one team, and how they are called."""

    pagerduty: Secret | None = Field(None, examples=["the Integration Key of an Events API v2 integration"])
    """Page this team through PagerDuty with this routing key."""
    opsgenie: Secret | None = Field(None, examples=["the API key of an API integration of the team"])
    """Page this team through Opsgenie with this API key."""
    webhook: WebAddress = Field("", examples=["https://pager.example.com/incident-bot"])
    """Page this team by a signed POST to this address."""
    webhook_secret: Secret | None = None
    """The key of the signature."""
    phone: str = Field("", max_length=200, examples=["+49 30 1234567 (control room)"])
    """Shown where people have to call this team themselves."""

    @property
    def has_pager(self) -> bool:
        return bool(self.pagerduty or self.opsgenie or self.webhook)

    def contact(self, team: str) -> Contact:
        groups = (self.user_group,) if self.user_group else ()
        return Contact(team=team, mentions=(*groups, *self.users), has_pager=self.has_pager, phone=self.phone)

    @property
    def can_be_called(self) -> bool:
        return bool(self.users or self.user_group or self.has_pager or self.phone)

    @model_validator(mode="after")
    def _one_pager(self) -> Self:
        if sum(map(bool, (self.pagerduty, self.opsgenie, self.webhook))) > 1:
            raise ValueError("has more than one pager; keep one of pagerduty, opsgenie and webhook")
        if bool(self.webhook) != (self.webhook_secret is not None):
            raise ValueError("has only one of webhook and webhook_secret; set both")
        return self


class OnCall(Team):
    """The team that is on call for some targets."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,30}$", examples=["chat"])
    """Its name in messages."""
    targets: TargetPatterns = Field(min_length=1, examples=["chat/llm-*"])
    """Namespace and workload, with `*`."""


class TargetApprovers(People):
    """The approvers of some targets, in place of the approvers of every target."""

    targets: TargetPatterns = Field(min_length=1, examples=["chat/llm-*"])
    """Namespace and workload, with `*`."""

    @model_validator(mode="after")
    def _somebody(self) -> Self:
        if not self.is_anybody:
            raise ValueError("name nobody; set users, user_group or channel")
        return self


class Teams(Section):
    """Teams that are called, and whose approval a change may ask for.

    Where nobody is named, the approvers decide, the lead or who is on call is called, and messages name the gap.
    """

    serving: Team = Team()
    """On call for the endpoint."""
    platform: Team = Team()
    """Nodes, quota, autoscalers: moving pods of others, and putting a node back into service."""
    model: Team = Team()
    """Owns the answers' quality."""
    facilities: Team = Team()
    """Cooling and power."""
    router: Team = Team()
    """The gateway or router in front of the replicas."""
    lead: Team = Team()
    """Incident commanders. They are called when nobody answers."""


def _kind(name: str) -> str:
    return next(iter(_named_kinds({name: None})))


class PreApproval(Section):
    """A kind of change that needs no press, within bounds."""

    change: Annotated[str, AfterValidator(_kind)] = Field(examples=["scale"])
    """The kind of change. Those of `scale` are for more replicas: people are asked before one is taken away."""
    at_most: int = Field(1, ge=1, le=20)
    """How often in one incident; each of several replicas that are replaced together counts."""
    targets: TargetPatterns = Field((), examples=["serving/llm-*"])
    """`namespace/name`, or `cluster/namespace/name`, with `*`; empty: every target."""
    hours: Hours = Field("", examples=["22:00-06:00"])
    """Time of day in UTC; empty: always."""
    least_serving: int = Field(0, ge=0, le=10000, examples=["4"])
    """Only while so many replicas are in rotation; 0: any number."""
    most_replicas: int = Field(0, ge=0, le=10000, examples=["12"])
    """Only up to so many replicas, as a limit of cost; 0: no limit."""

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        scales = [kind.name for kind in VERBS["scale"].kinds]
        if self.most_replicas and self.change not in scales:
            named = f"{', '.join(scales[:-1])} and {scales[-1]}"
            raise ValueError(f"most_replicas limits only {named}, not {self.change}; leave it out")
        return self

    def rule(self) -> PreApproved:
        return PreApproved(**self.model_dump())


def _pre_approvals(raw: object) -> object:
    """Reads `scale=1` as `{change: scale, at_most: 1}`; a settings file may write all bounds."""
    found = pairs(raw)
    return [{"change": kind, "at_most": count} for kind, count in found.items()] if isinstance(found, Mapping) else raw


PreApprovals = Annotated[tuple[PreApproval, ...], BeforeValidator(_pre_approvals)]


class Approvals(People):
    low: Level = Level()
    medium: Level = Level()
    high: Level = Level()
    teams: Teams = Teams()
    on_call: Annotated[tuple[OnCall, ...], BeforeValidator(from_a_file)] = Field(
        (), examples=["[{name: chat, targets: [chat/*], user_group: S0123456789, pagerduty: …}]"]
    )
    """Teams that are on call for some targets, in place of `teams.serving`; the first that matches counts.

    Only a settings file can hold them.
    """
    approvers: Annotated[tuple[TargetApprovers, ...], BeforeValidator(from_a_file)] = Field(
        (), examples=["[{targets: chat/*, user_group: S0123456789}]"]
    )
    """Approvers of some targets, in place of the approvers of every target; the first that matches counts.

    Teams, and people who are named for one risk level, decide about these targets as about others. Only a settings file
    can hold them.
    """
    who: Who = Field({}, examples=["scale=2 serving,set_flags=serving + lead,cordon_node=serving or platform"])
    """By kind of change: which teams, and how many of each. A verb's entry adds to what its other kinds ask."""
    expires: Times = Field({}, examples=["scale=20m,uncordon_node=1h"])
    """By kind of change. A playbook may only shorten it."""
    risk_floors: Floors = Field({}, examples=["scale=medium,rollback=high"])
    """By kind or verb. A playbook may only raise it."""
    escalate_to: Literal["", "serving", "platform", "model", "lead"] = Field("lead", examples=["lead"])
    """The team that is also asked at half time, where it has people."""
    break_glass: bool = True
    """In a critical incident, after half time, one of `lead` may decide with a typed reason while a team is silent."""
    four_eyes: FourEyes = Field((), examples=["high,rollback"])
    """Kinds of change, verbs, risks, or `all`: two people approve these, one of each team that is asked."""
    plan: Literal["each", "once"] = "each"
    """`once`: the approval of a canary also covers its rollout, if the canary is judged good. The request says so."""
    pre_approved: PreApprovals = Field((), examples=["scale=1,cordon_node=1"])
    """Changes that need no press within these bounds. They are announced with their undo."""
    grant_valid: Duration = Field(timedelta(minutes=10), examples=["10m"])
    """How long an approval may be used after it was given."""

    def who_decides(self, level: Level) -> People:
        return level if level.is_anybody else self

    def level(self, risk: Risk) -> Level:
        return {"low": self.low, "medium": self.medium, "high": self.high}[risk]

    def rules(self) -> ApprovalRules:
        return ApprovalRules(
            low=self._policy("low"),
            medium=self._policy("medium"),
            high=self._policy("high"),
            teams=self._teams(),
            kinds={kind: self._asked(kind) for kind in KINDS},
            risk_floors=self.risk_floors,
            four_eyes=self.four_eyes,
            plan_once=self.plan == "once",
            pre_approved=tuple(rule.rule() for rule in self.pre_approved),
            escalate_to=self.escalate_to,
            break_glass="lead" if self.break_glass else "",
            grant_valid_seconds=self.grant_valid.total_seconds(),
            of_targets=tuple(
                (target, self._rules_of(each, target)) for each in self.approvers for target in each.targets
            ),
        )

    def _with_approvers(self, people: People) -> Self:
        """Returns these settings as if they named only these people for every target."""
        named = {"users": people.users, "user_group": people.user_group, "channel": people.channel}
        return self.model_copy(update={**named, "approvers": ()})

    def _rules_of(self, people: People, target: str) -> ApprovalRules:
        rules = self._with_approvers(people).rules()
        levels: dict[Risk, Policy] = {"low": rules.low, "medium": rules.medium, "high": rules.high}
        own = {str(risk): _of_target(each, target) for risk, each in levels.items() if not self.level(risk).is_anybody}
        return rules.model_copy(update=own)

    def contacts(self) -> Contacts:
        """Returns how the teams are called."""
        teams: dict[str, Team] = {name: getattr(self.teams, name) for name in Teams.model_fields}
        return Contacts(
            teams={name: team.contact(name) for name, team in teams.items() if team.can_be_called},
            on_call=tuple((target, each.contact(each.name)) for each in self.on_call for target in each.targets),
            approvers=self._contact_of_approvers(),
            approvers_of=tuple(
                (target, self._with_approvers(each)._contact_of_approvers())
                for each in self.approvers
                for target in each.targets
            ),
        )

    def _contact_of_approvers(self) -> Contact:
        approvers = self.who_decides(self.low)
        groups = (approvers.user_group,) if approvers.user_group else ()
        return Contact(team=APPROVERS, mentions=(*groups, *approvers.users))

    def pagers(self) -> Mapping[str, Team]:
        """Returns the teams that have a pager, by the name of their contact."""
        named = {name: getattr(self.teams, name) for name in Teams.model_fields}
        named |= {each.name: each for each in self.on_call}
        return {name: team for name, team in named.items() if team.has_pager}

    def _policy(self, risk: Risk) -> Policy:
        level = self.level(risk)
        return Policy(
            demands=(self.who_decides(level).demand(needed=level.needed),),
            expires_seconds=(level.expires or EXPIRES[risk]).total_seconds(),
        )

    def _asked(self, kind: str) -> Asked:
        """Returns the settings for the kind; else the operations default, plus what the settings add for its verb."""
        default = DEFAULTS.get(kind, Asked())
        verb = VERB_OF_KIND.get(kind, kind)
        shares = self.who[kind] if kind in self.who else more_of(default.shares, self.who.get(verb, ()))
        is_set = kind in self.who or verb in self.who
        time = self.expires.get(kind) or self.expires.get(verb)
        if time is None and self.level(RISKS_OF_KINDS.get(kind, "low")).expires:
            return Asked(shares=shares, is_set=is_set)
        seconds = time.total_seconds() if time else default.expires_seconds
        return Asked(shares=shares, expires_seconds=seconds, is_set=is_set)

    def _teams(self) -> dict[str, Demand]:
        """Returns the teams that have people; `ApprovalRules` substitutes for the others."""
        teams: dict[str, Team] = {name: getattr(self.teams, name) for name in Teams.model_fields}
        return {name: team.demand(team=name) for name, team in teams.items() if team.is_anybody}

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [*Teams.model_fields, *(each.name for each in self.on_call)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"has two teams named '{twice[0]}'; give each team of on_call its own name")
        return self

    @model_validator(mode="after")
    def _can_be_met(self) -> Self:
        found = list(self._unmet())
        for each in self.approvers:
            found += [f"for {', '.join(each.targets)} {what}" for what in self._with_approvers(each)._unmet()]
        if found:
            raise ValueError("\n".join(dict.fromkeys(found)))
        return self

    def _unmet(self) -> Iterator[str]:
        """Returns what nobody, or too few people, could approve."""
        problems: dict[Risk, str] = {}
        orphans = [risk for risk in RISKS if not self.who_decides(self.level(risk)).is_anybody]
        if orphans:
            problems |= dict.fromkeys(
                orphans,
                f"name nobody who may approve {', '.join(orphans)} risk; "
                f"set INCIDENT_BOT_APPROVALS_USER_GROUP=S0123456789 or INCIDENT_BOT_APPROVALS_USERS=U0123456789",
            )
        for risk in RISKS:
            needed, people = self.level(risk).needed, self.who_decides(self.level(risk))
            if people.users and not (people.user_group or people.channel) and len(set(people.users)) < needed:
                problems[risk] = f"need {needed} people for {risk} risk and name {len(set(people.users))}"
        yield from dict.fromkeys(problems.values())
        yield from self._out_of_reach(problems)

    def _out_of_reach(self, faulty: Collection[Risk]) -> Iterator[str]:
        """Returns kinds for which the settings name too few people, even if all of them approve."""
        rules = self.rules()
        found: dict[str, list[str]] = {}
        for kind in KINDS:
            risk = rules.risk_of(kind, VERB_OF_KIND.get(kind, kind))
            policy = rules.policy(risk, kind=kind)
            people = people_named(policy.demands)
            if risk not in faulty and people is not None and (missing := still_missing_at_best(policy, people)):
                lacking = " and ".join(f"{demand.needed} of {demand.team}" for demand in missing)
                found.setdefault(lacking, []).append(kind)
        for lacking, kinds in found.items():
            yield f"name too few people for {', '.join(kinds)}: {lacking} missing; name more of them, or a user group"


def _of_target(policy: Policy, target: str) -> Policy:
    demands = tuple(demand.model_copy(update={"of_target": target}) for demand in policy.demands)
    return policy.model_copy(update={"demands": demands})


def operators(approvals: Approvals, *, users: tuple[str, ...], user_group: str) -> Demand:
    """Who may answer questions, halt, resume, undo and resolve: the people named, else the approvers of any target."""
    if users or user_group:
        return Demand(team="operators", users=users, user_group=user_group)
    approvers = [approvals.who_decides(approvals.level(risk)) for risk in RISKS]
    every: list[People] = [*approvers, *approvals.approvers]
    first, *others = dict.fromkeys(people.demand(team="operators") for people in every)
    return first.model_copy(update={"or_of": tuple(others)})


def on_call(demand: Demand) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the users and user groups that an incident's channel starts with."""
    everybody = (demand, *demand.or_of)
    groups = [each.user_group for each in everybody if each.user_group]
    return tuple(dict.fromkeys(user for each in everybody for user in each.users)), tuple(dict.fromkeys(groups))
