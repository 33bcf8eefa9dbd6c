"""The approval policy of a deployment: who decides about which change, and the floors that no playbook may lower."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import BaseModel, ConfigDict

from bot.domain.approvals.grant import APPROVERS, Demand, Policy
from bot.domain.approvals.kinds import OR, RISKS_OF_KINDS, SILENCE, Asked, Share, more_of
from bot.domain.changes.plan import Risk, highest


class ApprovalRules(BaseModel):
    """One policy for each risk, and what each kind of change asks besides.

    The level's number of people is the least, whatever teams a kind or a plan asks for.
    """

    model_config = ConfigDict(frozen=True)

    low: Policy
    medium: Policy
    high: Policy
    teams: dict[str, Demand] = {}
    """The teams that the settings name people for."""
    kinds: dict[str, Asked] = {}
    risk_floors: dict[str, Risk] = {}
    """By kind or verb."""
    escalate_to: str = ""
    """The team that is asked besides at half time, where people are named for it."""
    break_glass: str = ""
    """The team of which one alone may decide in a critical incident; empty: nobody may."""
    grant_valid_seconds: float = 600.0
    """A grant not begun within this time lapses."""

    def risk_of(self, kind: str, verb: str, *written: Risk) -> Risk:
        """The highest risk that the kind, the settings or the playbook give."""
        floors: list[Risk] = [RISKS_OF_KINDS.get(kind, "low")]
        floors += [self.risk_floors[name] for name in (kind, verb) if name in self.risk_floors]
        return highest(*floors, *written)

    def policy(self, risk: Risk, teams: Iterable[str] = (), *, kind: str = "", critical: bool = False) -> Policy:
        """Who decides about a kind of this risk; at least one person each of `teams`, where the plan asks for these."""
        level = {"low": self.low, "medium": self.medium, "high": self.high}[risk]
        asked = self.kinds.get(kind, Asked())
        demands = self._demands(level, more_of(asked.shares, [Share(team=team) for team in teams]))
        return level.model_copy(
            update={
                "demands": demands,
                "expires_seconds": asked.expires_seconds or level.expires_seconds,
                "escalate_to": self.teams.get(self.escalate_to),
                # One team has no second whose silence could be overruled.
                "break_glass": self.teams.get(self.break_glass) if critical and len(demands) > 1 else None,
            }
        )

    def of_a_silence(self) -> Policy:
        """It is no plan, and is decided as one of its kind all the same."""
        return self.policy(self.risk_of(SILENCE, SILENCE), kind=SILENCE)

    def one_of(self, team: str) -> Policy:
        """The policy of a question that one person of this team answers, whatever its risk."""
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


def people_named(demands: Iterable[Demand]) -> Mapping[str, frozenset[str]] | None:
    """User ids to the teams that they are in; None when a group or channel holds people whom the settings do not."""
    people: dict[str, set[str]] = {}
    for demand in demands:
        for source in demand.sources:
            if source.user_group or source.channel:
                return None
            for user in source.users:
                people.setdefault(user, set()).add(demand.team)
    return {user: frozenset(teams) for user, teams in people.items()}
