"""How teams are called: whom a message mentions, who has a pager, and who is called where a team has neither."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict

from bot.domain.kernel.copies import copy_with
from bot.domain.kernel.target import Target

TEAMS = ("serving", "platform", "model", "facilities", "router", "lead")
"""The teams that playbooks and settings may name."""
ON_CALL, LEAD = "serving", "lead"
"""The teams that are called: first who is on call for the target, then the people who lead incidents."""


class Contact(BaseModel):
    """One team, as it can be called."""

    model_config = ConfigDict(frozen=True)

    team: str
    mentions: tuple[str, ...] = ()
    """Ids of Slack users and user groups."""
    has_pager: bool = False
    phone: str = ""
    """Shown to people, who call it themselves."""

    def or_mentions(self, others: Contact) -> Contact:
        """Returns this team; without people in Slack, it mentions those of the other one."""
        return self if self.mentions else copy_with(self, mentions=others.mentions)


class Contacts(BaseModel):
    """The teams that a deployment can call."""

    model_config = ConfigDict(frozen=True)

    teams: dict[str, Contact] = {}
    on_call: tuple[tuple[str, Contact], ...] = ()
    """Pattern of a target to the team that is on call for it; the first that matches counts."""
    approvers: Contact = Contact(team="approvers")
    """Mentioned where no team is on call."""
    approvers_of: tuple[tuple[str, Contact], ...] = ()
    """Pattern of a target to its own approvers; the first that matches counts."""

    def team(self, name: str, target: Target) -> Contact | None:
        """Returns the team, or None if the settings name nobody for it."""
        if name == ON_CALL:
            return self.on_call_for(target)
        return self.teams.get(name)

    def on_call_for(self, target: Target) -> Contact:
        """Returns who is on call for a target: its own team, else `serving`, else the approvers.

        A team without people in Slack is mentioned as the approvers.
        """
        approvers = _first_of(self.approvers_of, target) or self.approvers
        contact = _first_of(self.on_call, target) or self.teams.get(ON_CALL, approvers)
        return contact.or_mentions(approvers)

    def instead_of(self, name: str, target: Target) -> Contact:
        """Returns who is called where a team is not configured: the lead, else who is on call."""
        lead = None if name == LEAD else self.teams.get(LEAD)
        return lead or self.on_call_for(target)


def _first_of(patterns: Iterable[tuple[str, Contact]], target: Target) -> Contact | None:
    return next((contact for pattern, contact in patterns if target.matches(pattern)), None)
