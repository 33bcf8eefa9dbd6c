"""Reads a person's account and the members of a group: from Slack now, or as last read.

Each answer is stored with its time, for the decision that must work while Slack does not answer: the kill switch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from slack_sdk.web.async_client import AsyncWebClient

from bot.adapters.slack.client import RATE_LIMITED, Refusal, ask, pages
from bot.flow.ports.people import Clock

LIMITED_VALID_SECONDS = 60.0
"""Slack allows about twenty reads of groups a minute. Beyond that, a membership read within the last minute counts."""
NEVER_READ = Refusal("never read", lasting=True, happened="no")
NEVER = {
    "is_bot": "bots never decide",
    "deleted": "this account is deactivated",
    "is_restricted": "guests do not decide",
    "is_ultra_restricted": "guests do not decide",
}
ELSEWHERE = "people of another workspace do not decide here"


@dataclass(frozen=True)
class Home:
    """The bot's own workspace, and its enterprise where it has one."""

    team: str
    enterprise: str

    @classmethod
    def of(cls, me: Mapping[str, Any]) -> Home:
        """From the answer of `auth.test`."""
        return cls(str(me.get("team_id", "")), str(me.get("enterprise_id") or ""))


class Memory(Protocol):
    """The last successful reads. Raise `StorageUnavailableError` on no answer."""

    async def keep(self, what: str, answer: str, *, at: float) -> None: ...

    async def last(self, what: str) -> tuple[str, float] | None:
        """The stored answer and its time; None when it was never read."""
        ...


class Accounts(Protocol):
    async def against(self, user: str) -> str | Refusal:
        """Why this account may never decide; empty when it may. A refusal when it cannot be read."""
        ...

    async def is_member(self, user: str, group: str) -> bool | Refusal:
        """Whether the person is a member of a user group or channel, by its id."""
        ...


class SlackAccounts:
    """Slack as it is now. An answer is read again once it is older than `valid_seconds`."""

    def __init__(self, client: AsyncWebClient, clock: Clock, memory: Memory, *, valid_seconds: float) -> None:
        self._client, self._clock, self._memory, self._valid_seconds = client, clock, memory, valid_seconds
        self._members: dict[str, tuple[float, frozenset[str]]] = {}
        self._reasons: dict[str, tuple[float, str]] = {}
        self._home: Home | None = None

    async def against(self, user: str) -> str | Refusal:
        read_at, reason = self._reasons.get(user, (float("-inf"), ""))
        if self._clock.now() - read_at < self._valid_seconds:
            return reason
        home = await self._home_of_the_bot()
        if isinstance(home, Refusal):
            return home
        answer = await ask(self._client.users_info(user=user))
        if isinstance(answer, Refusal):
            return answer
        reason = reason_against(answer.get("user"), home)
        self._reasons[user] = (self._clock.now(), reason)
        await self._memory.keep(f"account:{user}", reason, at=self._clock.now())
        return reason

    async def is_member(self, user: str, group: str) -> bool | Refusal:
        members = await self.members(group)
        return members if isinstance(members, Refusal) else user in members

    async def members(self, group: str) -> frozenset[str] | Refusal:
        read_at, members = self._members.get(group, (float("-inf"), frozenset()))
        now = self._clock.now()
        if now - read_at < self._valid_seconds:
            return members
        found = await (self._in_channel(group) if is_channel(group) else self._in_group(group))
        if not isinstance(found, Refusal):
            self._members[group] = (now, found)
            await self._memory.keep(f"members:{group}", json.dumps(sorted(found)), at=now)
        elif found.error in RATE_LIMITED and now - read_at < LIMITED_VALID_SECONDS:
            return members
        return found

    async def _home_of_the_bot(self) -> Home | Refusal:
        """The bot's workspace, read once: a token belongs to one workspace for its lifetime."""
        if self._home is None:
            answer = await ask(self._client.auth_test())
            if isinstance(answer, Refusal):
                return answer
            self._home = Home.of(answer)
        return self._home

    async def _in_group(self, group: str) -> frozenset[str] | Refusal:
        answer = await ask(self._client.usergroups_users_list(usergroup=group))
        return answer if isinstance(answer, Refusal) else frozenset(map(str, answer.get("users", ())))

    async def _in_channel(self, channel: str) -> frozenset[str] | Refusal:
        members: set[str] = set()
        async for page in pages(self._client.conversations_members, channel=channel):
            if isinstance(page, Refusal):
                return page
            members.update(map(str, page.get("members", ())))
        return frozenset(members)


class LastKnown:
    """Slack as it was when it last answered.

    An account that was never read may be anyone's. Members of a user group were added on purpose; a channel may have
    guests and people of other companies, so membership of a channel alone is then not enough.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def account(self, user: str) -> str | Refusal:
        """Like `against`, but a refusal when it was never read."""
        last = await self._memory.last(f"account:{user}")
        return NEVER_READ if last is None else last[0]

    async def against(self, user: str) -> str | Refusal:
        account = await self.account(user)
        return "" if isinstance(account, Refusal) else account

    async def is_member(self, user: str, group: str) -> bool | Refusal:
        last = await self._memory.last(f"members:{group}")
        if last is None or (is_channel(group) and isinstance(await self.account(user), Refusal)):
            return NEVER_READ
        return user in json.loads(last[0])


def is_channel(group: str) -> bool:
    return not group.startswith("S")


def reason_against(account: Any, home: Home) -> str:
    """Why this account may never decide; empty when it may."""
    if not isinstance(account, dict):
        return "Slack did not return your account: try again"
    if not _is_of(account, home):
        return ELSEWHERE
    return next((reason for flag, reason in NEVER.items() if account.get(flag)), "")


def _is_of(account: Mapping[str, Any], home: Home) -> bool:
    """`is_stranger` marks only people without a shared channel; the workspace id tells the others apart."""
    enterprise = str((account.get("enterprise_user") or {}).get("enterprise_id") or "")
    is_ours = account.get("team_id") == home.team or (enterprise != "" and enterprise == home.enterprise)
    return is_ours and not account.get("is_stranger")
