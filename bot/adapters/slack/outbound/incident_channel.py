"""A separate channel for each incident, if the settings enable it: created once, named, filled with people, archived.

Slack has no idempotency key for channels, so a name derived from the incident replaces it: if this bot already owns
that name, an earlier attempt created the channel and was interrupted.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from bot.adapters.slack.client import Refusal, ask, pages
from bot.adapters.slack.escape import is_person, plain
from bot.adapters.slack.outbound.card import INCIDENT_CHANNEL
from bot.adapters.slack.outbound.deciders import people_of
from bot.adapters.slack.outbound.shown import Shown, ShownStore
from bot.domain.approvals.grant import Demand
from bot.domain.incidents.event import CARD
from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import MessengerError
from bot.domain.kernel.target import Target

log = structlog.get_logger(__name__)

CHANNEL = INCIDENT_CHANNEL
"""The slot whose `channel` is the incident's own; the slots below record what was last done to it."""
TOPIC, PEOPLE, GROUPS, ARCHIVED = "channel:topic", "channel:people", "channel:groups", "channel:archived"
REFUSED = "refused: "
MAX_NAME_LENGTH = 80
MAX_TOPIC_LENGTH = 250
NAMES = 5
"""How many names are tried when a name is taken."""
ALREADY = frozenset({"already_in_channel", "cant_invite_self", "no_user"})

Slots = Mapping[str, Shown]


@dataclass(frozen=True)
class ChannelRules:
    """The settings of incident channels: on or off, the people to invite, and whether to archive."""

    wanted: bool = False
    users: tuple[str, ...] = ()
    user_groups: tuple[str, ...] = ()
    archive: bool = False
    approvers_of: tuple[tuple[str, Demand], ...] = ()
    """Pattern of a target to its own approvers, who are also invited; the first that matches counts."""

    def invited(self, target: Target) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Returns the users and the user groups that an incident's channel starts with."""
        own = next((demand for pattern, demand in self.approvers_of if target.matches(pattern)), Demand())
        groups = (own.user_group,) if own.user_group else ()
        return (*self.users, *own.users), tuple(dict.fromkeys((*self.user_groups, *groups)))


def thread_of(slots: Slots) -> Shown:
    """Where an incident's messages go: its own channel, which has no `ts`, else the thread of its card."""
    own = slots.get(CHANNEL, Shown()).channel
    return Shown(channel=own) if own and ARCHIVED not in slots else slots.get(CARD, Shown())


def is_out_of_reach(slots: Slots, entry: Shown) -> bool:
    """Whether the message is in an archived channel, where nothing can be edited."""
    return ARCHIVED in slots and entry.channel == slots[CHANNEL].channel


def names_of(run: Run, deployment: str) -> list[str]:
    """Valid Slack channel names. They include the opening time, since numbering restarts after a storage wipe."""
    mark = hashlib.sha256(f"{deployment}/{run.incident_id}/{run.opened_at}".encode()).hexdigest()[:6]
    words = re.sub("[^a-z0-9]+", "-", f"{run.incident_id}-{run.target.name}".lower()).strip("-")
    ends = ["", *(f"-{number}" for number in range(2, NAMES + 1))]
    return [f"{words[: MAX_NAME_LENGTH - len(mark) - 3].strip('-')}-{mark}{end}" for end in ends]


def topic_of(run: Run) -> str:
    stands = f"severity {run.severity}" if run.is_open else run.ending_in_words
    return plain(f"{run.target} · {stands} · {run.called}", MAX_TOPIC_LENGTH)


class IncidentChannels:
    def __init__(self, client: AsyncWebClient, store: ShownStore, deployment: str, rules: ChannelRules) -> None:
        self._client, self._store, self._deployment, self.rules = client, store, deployment, rules

    async def stand(self, run: Run, slots: dict[str, Shown]) -> MessengerError | None:
        """Bring the channel up to date. Returns the refusal when there can be none, until people are notified of it.

        Raise `MessengerError` when Slack did not answer.
        """
        entry = slots.get(CHANNEL, Shown())
        if entry.hash.startswith(REFUSED):
            return None if entry.lookups else self._refusal(entry.hash.removeprefix(REFUSED))
        if not entry.channel:
            if not self.rules.wanted or not run.is_open or _has_thread(slots):
                return None
            made = await self._made(run)
            if isinstance(made, Refusal):
                log.error("channel.refused", incident=run.incident_id, error=made.error)
                await self._save(run, slots, CHANNEL, Shown(hash=f"{REFUSED}{made.error}"))
                return self._refusal(made.error)
            await self._save(run, slots, CHANNEL, Shown(channel=made))
            log.info("channel.made", incident=run.incident_id, channel=made)
        if ARCHIVED not in slots:
            await self._name_it(run, slots)
            await self._fill(run, slots)
        return None

    async def notified(self, run: Run, slots: dict[str, Shown]) -> None:
        """Record that the refusal is on the timeline; the thread of the card is used."""
        entry = slots.get(CHANNEL, Shown())
        if entry.hash.startswith(REFUSED) and not entry.lookups:
            await self._save(run, slots, CHANNEL, replace(entry, lookups=1))

    async def close(self, run: Run, slots: dict[str, Shown]) -> None:
        """Archive, if enabled, once the incident is closed and everything of it is in the channel."""
        channel = slots.get(CHANNEL, Shown()).channel
        last = "closed" if run.leaves_no_file else "file:export/"
        is_whole = any(slot.startswith(last) and entry.hash for slot, entry in slots.items())
        if not self.rules.archive or run.is_open or not channel or ARCHIVED in slots or not is_whole:
            return
        result = await ask(self._client.conversations_archive(channel=channel))
        if isinstance(result, Refusal) and not result.is_final:
            raise result.as_error("archiving the incident's channel")
        if isinstance(result, Refusal) and result.error != "already_archived":
            log.warning("channel.not_archived", incident=run.incident_id, error=result.error)
            return
        await self._save(run, slots, ARCHIVED, Shown(hash="archived"))
        log.info("channel.archived", incident=run.incident_id, channel=channel)

    # --- creating it -------------------------------------------------------------------------------------------------

    async def _made(self, run: Run) -> str | Refusal:
        """The channel's id, or the refusal when Slack will never create one."""
        taken = Refusal("name_taken", lasting=True, happened="no")
        for name in names_of(run, self._deployment):
            result = await ask(self._client.conversations_create(name=name))
            if not isinstance(result, Refusal):
                return str(result["channel"]["id"])
            if not result.is_final:
                raise result.as_error("making the incident's channel")
            if result.error != "name_taken":
                return result
            if ours := await self._ours(name):
                return ours
        return taken

    async def _ours(self, name: str) -> str:
        """The id of the channel of that name if this bot created it in an attempt whose answer was lost."""
        me = await self._sure(self._client.auth_test(), "asking who the bot is")
        async for page in pages(self._client.conversations_list, exclude_archived=True):
            if isinstance(page, Refusal):
                raise page.as_error("looking for the incident's channel")
            for each in page.get("channels", ()):
                if each.get("name") == name:
                    return str(each["id"]) if each.get("creator") == me.get("user_id") else ""
        return ""

    async def _sure(self, call: Any, doing: str) -> dict[str, Any]:
        result = await ask(call)
        if isinstance(result, Refusal):
            raise result.as_error(doing)
        return result

    def _refusal(self, error: str) -> MessengerError:
        reason = f"no incident channel: Slack answered {error}; the thread of the card is used"
        return MessengerError(reason, lasting=True)

    # --- its topic and its members -----------------------------------------------------------------------------------

    async def _name_it(self, run: Run, slots: dict[str, Shown]) -> None:
        topic = topic_of(run)
        if slots.get(TOPIC, Shown()).hash == topic:
            return
        result = await ask(self._client.conversations_setTopic(channel=slots[CHANNEL].channel, topic=topic))
        if isinstance(result, Refusal):
            self._tolerate(run, result, "setting the channel's topic")
        await self._save(run, slots, TOPIC, Shown(hash=topic))

    async def _fill(self, run: Run, slots: dict[str, Shown]) -> None:
        """Invite the on-call people once, then everyone who takes part: who presses, notes or leads."""
        if GROUPS not in slots:
            users, groups = self.rules.invited(run.target)
            await self._invite(run, slots, [*users, *await self._members(run, groups)])
            await self._save(run, slots, GROUPS, Shown(hash="invited"))
        known = slots.get(PEOPLE, Shown()).hash.split()
        if missing := sorted(set(filter(is_person, people_of(run))) - set(known)):
            await self._invite(run, slots, missing)
            await self._save(run, slots, PEOPLE, Shown(hash=" ".join([*known, *missing])))

    async def _members(self, run: Run, groups: Sequence[str]) -> list[str]:
        users: list[str] = []
        for group in groups:
            result = await ask(self._client.usergroups_users_list(usergroup=group))
            if isinstance(result, Refusal):
                self._tolerate(run, result, f"reading who is in {group}")
            else:
                users += map(str, result.get("users", ()))
        return users

    async def _invite(self, run: Run, slots: Slots, users: Sequence[str]) -> None:
        """Invite people; one who cannot be invited does not block the others."""
        if not users:
            return
        wanted = ",".join(dict.fromkeys(users))
        result = await ask(self._client.conversations_invite(channel=slots[CHANNEL].channel, users=wanted, force=True))
        if isinstance(result, Refusal) and result.error not in ALREADY:
            self._tolerate(run, result, "inviting people")

    def _tolerate(self, run: Run, refusal: Refusal, doing: str) -> None:
        """Log a final refusal, since the channel works without it. Raise when a retry may succeed."""
        if not refusal.is_final:
            raise refusal.as_error(doing)
        log.warning("channel.incomplete", incident=run.incident_id, doing=doing, error=refusal.error)

    async def _save(self, run: Run, slots: dict[str, Shown], slot: str, entry: Shown) -> None:
        await self._store.save(run.incident_id, {slot: entry})
        slots[slot] = entry


def _has_thread(slots: Slots) -> bool:
    """Whether the incident already has messages in the thread of its card, where it then stays."""
    return any(entry.ts and slot != CARD for slot, entry in slots.items())
