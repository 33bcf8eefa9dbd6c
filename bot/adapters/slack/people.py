"""Who a Slack user is and what they may do, read when it is needed; what cannot be read is not allowed.

Bots, deactivated accounts and guests never decide, whatever a list says. Membership is at most a minute old.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.adapters.slack.client import Refusal, ask
from bot.domain.approval import Authority, Demand, Policy
from bot.flow.ports import Clock

MEMBERS_VALID_SECONDS = 60.0
NAMES_VALID_SECONDS = 3600.0
CHANNEL_PAGE = 200
NEVER = {
    "is_bot": "bots never decide",
    "deleted": "this account is deactivated",
    "is_restricted": "guests do not decide",
    "is_ultra_restricted": "guests do not decide",
}


class SlackPeople:
    """`flow.ports.People` for Slack. `steerers` may answer questions, halt, resume, resolve."""

    def __init__(self, client: AsyncWebClient, clock: Clock, *, steerers: Demand) -> None:
        self._client, self._clock, self._steerers = client, clock, steerers
        self._members: dict[str, tuple[float, frozenset[str]]] = {}
        self._names: tuple[float, dict[str, str]] = (float("-inf"), {})

    async def authority(self, user: str, policy: Policy, *, at: float) -> Authority:
        return await self._judge(user, policy.heard, at, "approve this")

    async def may_steer(self, user: str, *, at: float) -> Authority:
        return await self._judge(user, (self._steerers,), at, "steer incidents")

    async def _judge(self, user: str, demands: Sequence[Demand], at: float, what: str) -> Authority:
        """Allowed is who is in at least one of the teams; which ones they are is kept."""

        def no(reason: str) -> Authority:
            return Authority(allowed=False, reason=reason, read_at=at)

        named = [demand for demand in demands if demand.sources]
        if not named:
            return no(f"the settings name nobody who may {what}")
        account = await ask(self._client.users_info(user=user))
        if isinstance(account, Refusal):
            return no(f"could not read your Slack account ({account.error}): try again, or ask somebody else who may")
        if reason := _never(account.get("user")):
            return no(reason)
        found: dict[str, tuple[bool, str]] = {}
        for demand in named:
            found.setdefault(demand.team, await self._belongs(user, demand, what))
        teams = tuple(team for team, (is_in, _) in found.items() if is_in)
        reasons = dict.fromkeys(why for is_in, why in found.values() if is_in or not teams)
        return Authority(allowed=bool(teams), reason="; ".join(reasons), teams=teams, read_at=at)

    async def _belongs(self, user: str, demand: Demand, what: str) -> tuple[bool, str]:
        """Whether the person is in the team, and what says so or why not."""
        why_not: dict[str, None] = {}
        for source in demand.sources:
            if user in source.users:
                return True, f"is named as one who may {what}"
            for group in filter(None, (source.user_group, source.channel)):
                is_in, reason = await self._is_member(user, group, what)
                if is_in:
                    return True, reason
                why_not[reason] = None
        return False, "; ".join(why_not) or f"you are not among those who may {what}"

    async def _is_member(self, user: str, group: str, what: str) -> tuple[bool, str]:
        """Of a user group or of a channel, by its id."""
        is_channel = not group.startswith("S")
        members = await self._members_of(group)
        name = f"<#{group}>" if is_channel else await self._name_of(group)
        if isinstance(members, Refusal):
            return False, (
                f"could not read who is in {name} ({members.error}): try again, or ask somebody named in the settings"
            )
        if user not in members:
            return False, f"you are not in {name}, whose members may {what}"
        return True, f"is in {name}"

    async def _members_of(self, group: str) -> frozenset[str] | Refusal:
        read_at, members = self._members.get(group, (float("-inf"), frozenset()))
        now = self._clock.now()
        if now - read_at < MEMBERS_VALID_SECONDS:
            return members
        found = await (self._in_group(group) if group.startswith("S") else self._in_channel(group))
        if not isinstance(found, Refusal):
            self._members[group] = (now, found)
        return found

    async def _in_group(self, group: str) -> frozenset[str] | Refusal:
        answer = await ask(self._client.usergroups_users_list(usergroup=group))
        return answer if isinstance(answer, Refusal) else frozenset(map(str, answer.get("users", ())))

    async def _in_channel(self, channel: str) -> frozenset[str] | Refusal:
        members: set[str] = set()
        cursor = ""
        while True:
            answer = await ask(self._client.conversations_members(channel=channel, cursor=cursor, limit=CHANNEL_PAGE))
            if isinstance(answer, Refusal):
                return answer
            members.update(map(str, answer.get("members", ())))
            cursor = str((answer.get("response_metadata") or {}).get("next_cursor", ""))
            if not cursor:
                return frozenset(members)

    async def _name_of(self, group: str) -> str:
        """`@handle` for people; the id where the handle cannot be read, since only the words depend on it."""
        read_at, names = self._names
        if self._clock.now() - read_at >= NAMES_VALID_SECONDS:
            answer = await ask(self._client.usergroups_list())
            if not isinstance(answer, Refusal):
                names = {str(each["id"]): f"@{each['handle']}" for each in answer.get("usergroups", ())}
                self._names = (self._clock.now(), names)
        return names.get(group, f"user group {group}")


def _never(account: Any) -> str:
    """Why this account may never decide; empty when it may."""
    if not isinstance(account, dict):
        return "Slack did not describe your account: try again"
    return next((reason for flag, reason in NEVER.items() if account.get(flag)), "")
