"""The approval policy of a deployment: who decides about which change, and the floors that no playbook may lower."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from bot.domain.approvals.announced import PreApproved, cleans_up, covered, pre_approved, times
from bot.domain.approvals.grant import APPROVERS, Demand, Policy, Request
from bot.domain.approvals.kinds import OR, RISKS_OF_KINDS, VERB_OF_KIND, Asked, Share, more_of
from bot.domain.changes.plan import LedgerEntry, Plan, Risk, highest
from bot.domain.kernel.target import Target


class ApprovalRules(BaseModel):
    """One policy per risk level, and the teams of each kind of change.

    One person of the right teams is enough, unless the settings ask for more: a level's number, a kind's own `who`, or
    four eyes.
    """

    model_config = ConfigDict(frozen=True)

    low: Policy
    medium: Policy
    high: Policy
    teams: dict[str, Demand] = {}
    """The teams for which the settings name people."""
    kinds: dict[str, Asked] = {}
    risk_floors: dict[str, Risk] = {}
    """By kind or verb."""
    escalate_to: str = ""
    """The team that is also asked at half time, if it has people."""
    break_glass: str = ""
    """The team of which one person alone may decide in a critical incident; empty: none."""
    four_eyes: tuple[str, ...] = ()
    """Kinds, verbs or risks, or `all`: two people approve these, one of each team that is named."""
    plan_once: bool = False
    """An approval covers the later changes of the same plan even if their risk is higher."""
    pre_approved: tuple[PreApproved, ...] = ()
    grant_valid_seconds: float = 600.0
    """A grant not begun within this time lapses."""
    of_targets: tuple[tuple[str, ApprovalRules], ...] = ()
    """Pattern of a target to the rules with its own approvers; the first that matches counts."""

    def for_target(self, target: Target) -> ApprovalRules:
        """Returns the rules for changes of this target."""
        return next((rules for pattern, rules in self.of_targets if target.matches(pattern)), self)

    def risk_of(self, kind: str, verb: str, *written: Risk) -> Risk:
        """Returns the highest risk that the kind, the settings or the playbook set."""
        floors: list[Risk] = [RISKS_OF_KINDS.get(kind, "low")]
        floors += [self.risk_floors[name] for name in (kind, verb) if name in self.risk_floors]
        return highest(*floors, *written)

    def policy(
        self, risk: Risk, teams: Iterable[str] = (), *, kind: str, verb: str = "", critical: bool = False
    ) -> Policy:
        """Returns who decides about a kind of this risk, with at least one person each of `teams`, if there are any.

        `verb`: of the plan; some kinds, such as `client_contract`, have several.
        """
        level = {"low": self.low, "medium": self.medium, "high": self.high}[risk]
        asked = self.kinds.get(kind, Asked())
        if self.asks_two(kind, risk, verb):
            demands = self._demands(_of_two(level), more_of(asked.shares, [Share(team=team) for team in teams]))
        elif asked.is_set:
            demands = self._demands(level, asked.shares)
        else:
            demands = self._demands(level, _any_of(asked.shares, teams))
        return level.model_copy(
            update={
                "demands": demands,
                "needs_reason": risk == "high",
                "expires_seconds": asked.expires_seconds or level.expires_seconds,
                "escalate_to": self.teams.get(self.escalate_to),
                "break_glass": self.glass(demands) if critical else None,
            }
        )

    def glass(self, demands: Sequence[Demand]) -> Demand | None:
        """Returns the team that may break the glass in a critical incident, in place of these demands."""
        # With a single team there is no silent second team to overrule.
        return self.teams.get(self.break_glass) if len(demands) > 1 else None

    def asks_two(self, kind: str, risk: Risk, verb: str = "") -> bool:
        """Whether four eyes are required for this kind at this risk, or for this verb."""
        return not {"all", risk, kind, verb, VERB_OF_KIND.get(kind, kind)}.isdisjoint(self.four_eyes)

    def announced(  # noqa: PLR0913 - the facts that decide it
        self,
        plan: Plan,
        kind: str,
        risk: Risk,
        *,
        state: str,
        target: Target,
        ledger: Iterable[LedgerEntry],
        earlier: Iterable[Request],
        at: float,
    ) -> str:
        """Returns why nobody is asked about this plan; empty if people approve it.

        `earlier`: this incident's requests, oldest first. `state`: the playbook's state that proposes it.
        """
        earlier = tuple(earlier)
        if self.asks_two(kind, risk, plan.verb) or kind in self.risk_floors or plan.verb in self.risk_floors:
            return ""
        begun = [one.kind for one in earlier if one.status == "granted" for _ in range(times(one.plan))]
        has_own_approvers = self.kinds.get(kind, Asked()).is_set
        return (
            cleans_up(plan, ledger)
            or ("" if has_own_approvers else covered(plan, risk, state, earlier))
            or pre_approved(self.pre_approved, plan, kind, target, begun, at=at)
        )

    def of_kind(self, kind: str) -> Policy:
        """Returns the policy of a kind that is not a plan, such as a silence; it is decided like one."""
        return self.policy(self.risk_of(kind, kind), kind=kind)

    def deciders_of(self, kind: str) -> Callable[[Target], Policy]:
        """As `of_kind`, for each target."""
        return lambda target: self.for_target(target).of_kind(kind)

    def one_of(self, team: str) -> Policy:
        """Returns the policy of a question that one person of this team answers, whatever its risk."""
        return self.low.model_copy(update={"demands": (self._of_team(Share(team=team), self.low),)})

    def _demands(self, level: Policy, shares: tuple[Share, ...]) -> tuple[Demand, ...]:
        demands = [self._of_team(share, level) for share in shares]
        rest = level.needed - sum(demand.needed for demand in demands)
        if rest <= 0:
            return tuple(demands)
        if not demands:
            return level.demands
        if demands[0].team == APPROVERS:
            return (demands[0].model_copy(update={"needed": demands[0].needed + rest}), *demands[1:])
        return (*demands, *(each.model_copy(update={"needed": rest}) for each in level.demands[:1]))

    def _of_team(self, share: Share, level: Policy) -> Demand:
        approvers = level.demands[0] if level.demands else Demand()
        named = [self._one_team(name, approvers) for name in share.team.split(OR)]
        # Approvers who replace two teams of one demand are still the same people.
        first = next((each for each in named if not each.falls_back), named[0])
        others = tuple(each for each in named if each is not first and not (each.falls_back and first.falls_back))
        return first.model_copy(update={"team": share.team, "needed": share.needed, "or_of": others})

    def _one_team(self, name: str, approvers: Demand) -> Demand:
        if name == APPROVERS:
            return approvers
        return self.teams.get(name, approvers.model_copy(update={"team": name, "needed": 1, "falls_back": True}))


def _of_two(level: Policy) -> Policy:
    first, *others = level.demands or (Demand(),)
    enough = 2 - sum(demand.needed for demand in others)
    return level.model_copy(
        update={"demands": (first.model_copy(update={"needed": max(first.needed, enough)}), *others)}
    )


def _any_of(shares: Iterable[Share], teams: Iterable[str]) -> tuple[Share, ...]:
    """Returns one share that anybody of these teams meets; none if only the level's own people are asked."""
    named = [name for share in shares for name in share.team.split(OR)]
    teams = tuple(teams)
    if not named and not teams:
        return ()
    return (Share(team=OR.join(dict.fromkeys([*(named or [APPROVERS]), *teams]))),)


def people_named(demands: Iterable[Demand]) -> Mapping[str, frozenset[str]] | None:
    """Returns user ids with their teams; None if a group or channel holds members that the settings do not list."""
    people: dict[str, set[str]] = {}
    for demand in demands:
        for source in demand.sources:
            if source.user_group or source.channel:
                return None
            for user in source.users:
                people.setdefault(user, set()).add(demand.team)
    return {user: frozenset(teams) for user, teams in people.items()}
