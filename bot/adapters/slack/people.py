"""Reads who a Slack user is and what they may do, when it is needed; an unreadable permission is denied.

Bots, guests, deactivated accounts and people of other workspaces never decide, even if a list names them. While Slack
does not answer, only halting still works, by Slack's last answer, since a halt changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from bot.adapters.slack.accounts import Accounts, LastKnown, Memory, SlackAccounts, is_channel
from bot.adapters.slack.client import Refusal, ask
from bot.domain.approvals.grant import Authority, Demand, Policy
from bot.domain.kernel.errors import StorageUnavailableError
from bot.flow.ports.people import Clock

log = structlog.get_logger(__name__)

NAMES_VALID_SECONDS = 3600.0
ACCOUNT_VALID_SECONDS = 60.0
"""How long an account is valid for taking part; a note decides nothing."""
SLACK_WAITS_SECONDS = 0.7
"""How long to wait for Slack when its last answer is an acceptable fallback."""
READ_EVERY_SECONDS, READ_AGAIN_SECONDS = 600.0, 60.0
ON_THE_COMMAND_LINE = "incident-bot halt all, on the command line, needs no Slack"


class SlackPeople:
    """`Callers` for Slack. `operators` may answer questions, halt, resume, resolve."""

    def __init__(
        self,
        client: AsyncWebClient,
        clock: Clock,
        memory: Memory,
        *,
        operators: Demand,
        members_valid_seconds: float = 0.0,
    ) -> None:
        """`members_valid_seconds`: how old a membership may be; for views only, not for presses."""
        self._client, self._clock, self._operators = client, clock, operators
        self._now = SlackAccounts(client, clock, memory, valid_seconds=members_valid_seconds)
        self._last = LastKnown(memory)
        self._accounts: dict[str, tuple[float, str]] = {}
        self._names: tuple[float, dict[str, str]] = (float("-inf"), {})

    async def authority(self, user: str, policy: Policy, *, at: float) -> Authority:
        found, _ = await self._judge(self._now, user, policy.all_demands, at, "approve this")
        return found

    async def may_operate(self, user: str, *, at: float) -> Authority:
        found, _ = await self._judge(self._now, user, (self._operators,), at, "operate incidents")
        return found

    async def may_halt(self, user: str, *, at: float) -> Authority:
        try:
            async with asyncio.timeout(SLACK_WAITS_SECONDS):
                found, is_unread = await self._judge(self._now, user, (self._operators,), at, "operate incidents")
        except TimeoutError:
            found, is_unread = Authority(allowed=False, reason="Slack did not answer in time", read_at=at), True
        if not is_unread:
            return found
        last, _ = await self._judge(self._last, user, (self._operators,), at, "operate incidents")
        log.warning("halt.judged_by_last_known", user=user, allowed=last.allowed, reason=last.reason)
        if last.allowed:
            return last.model_copy(update={"reason": f"{last.reason}, as Slack last reported"})
        return found.model_copy(update={"reason": f"{found.reason}; {ON_THE_COMMAND_LINE}"})

    async def takes_part(self, user: str, *, at: float) -> Authority:
        read_at, against = self._accounts.get(user, (float("-inf"), ""))
        if at - read_at >= ACCOUNT_VALID_SECONDS:
            read = await self._account(user)
            if isinstance(read, Refusal):
                reason = f"could not read the Slack account ({read.error}): try again"
                return Authority(allowed=False, reason=reason, read_at=at)
            self._accounts[user] = (at, against := read)
        return Authority(allowed=not against, reason=against.replace("decide", "take part"), read_at=at)

    async def _account(self, user: str) -> str | Refusal:
        try:
            async with asyncio.timeout(SLACK_WAITS_SECONDS):
                read = await self._now.against(user)
        except TimeoutError:
            read = Refusal("it did not answer in time", lasting=False, happened="no")
        if not isinstance(read, Refusal):
            return read
        last = await self._last.account(user)
        return read if isinstance(last, Refusal) else last

    async def keep_reading(self) -> None:
        """Reads until cancelled, so that who may halt is known even if Slack fails before the first command."""
        while True:
            try:
                is_read = await self.read_operators()
            except StorageUnavailableError as error:
                log.warning("operators.not_kept", reason=str(error))
                is_read = False
            except Exception:
                # A bug must not end the reading: it is tried again.
                log.exception("operators.not_read")
                is_read = False
            await asyncio.sleep(READ_EVERY_SECONDS if is_read else READ_AGAIN_SECONDS)

    async def read_operators(self) -> bool:
        """Reads the operators' groups; whether all of them could be read."""
        groups = [group for each in self._operators.sources for group in (each.user_group, each.channel) if group]
        read = [await self._now.members(group) for group in groups]
        return not any(isinstance(each, Refusal) for each in read)

    async def _judge(
        self, accounts: Accounts, user: str, demands: Sequence[Demand], at: float, what: str
    ) -> tuple[Authority, bool]:
        """The authority of a person, who is allowed if in at least one team, and the teams.

        Also whether the answer is no only because something could not be read.
        """

        def no(reason: str) -> Authority:
            return Authority(allowed=False, reason=reason, read_at=at)

        named = [demand for demand in demands if demand.sources]
        if not named:
            return no(f"the settings name no one who may {what}"), False
        against = await accounts.against(user)
        if isinstance(against, Refusal):
            reason = f"could not read your Slack account ({against.error}): try again, or ask someone else who may"
            return no(reason), True
        if against:
            return no(against), False
        found: dict[str, _Found] = {}
        for demand in named:
            found.setdefault(demand.team, await self._belongs(accounts, user, demand, what))
        teams = tuple(team for team, each in found.items() if each.is_in)
        reasons = dict.fromkeys(each.reason for each in found.values() if each.is_in or each.is_unread or not teams)
        judged = Authority(allowed=bool(teams), reason="; ".join(reasons), teams=teams, read_at=at)
        return judged, not teams and any(each.is_unread for each in found.values())

    async def _belongs(self, accounts: Accounts, user: str, demand: Demand, what: str) -> _Found:
        """Whether the person is in the team, with the reason."""
        why_not: dict[str, None] = {}
        is_unread = False
        for source in demand.sources:
            if user in source.users:
                return _Found(f"is named as one who may {what}", is_in=True)
            for group in filter(None, (source.user_group, source.channel)):
                is_in = await accounts.is_member(user, group)
                name = f"<#{group}>" if is_channel(group) else await self._name_of(group, accounts)
                if is_in is True:
                    return _Found(f"is in {name}", is_in=True)
                is_unread = is_unread or isinstance(is_in, Refusal)
                why_not[_why_not(is_in, name, what)] = None
        return _Found("; ".join(why_not) or f"you are not among those who may {what}", is_unread=is_unread)

    async def _name_of(self, group: str, accounts: Accounts) -> str:
        """The group's `@handle`; its id when the handle cannot be read, since it only affects the text."""
        read_at, names = self._names
        if accounts is self._now and self._clock.now() - read_at >= NAMES_VALID_SECONDS:
            answer = await ask(self._client.usergroups_list())
            if not isinstance(answer, Refusal):
                names = {str(each["id"]): f"@{each['handle']}" for each in answer.get("usergroups", ())}
                self._names = (self._clock.now(), names)
        return names.get(group, f"user group {group}")


@dataclass(frozen=True)
class _Found:
    reason: str
    is_in: bool = False
    is_unread: bool = False


def _why_not(is_in: bool | Refusal, name: str, what: str) -> str:
    if isinstance(is_in, Refusal):
        return f"could not read the members of {name} ({is_in.error}): try again, or ask someone named in the settings"
    return f"you are not in {name}, whose members may {what}"
