"""Messages that people put on an incident's timeline: the message shortcut, and the 📌 reaction. Once each.

In an incident's thread, that incident is used; elsewhere the only open one, or the one chosen in a form.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient

from bot.adapters.slack.client import Refusal, ask
from bot.adapters.slack.escape import line, plain
from bot.adapters.slack.inbound import forms
from bot.adapters.slack.inbound.boundary import (
    MAYBE,
    Click,
    NoAnswerError,
    NotDoneError,
    Submission,
    in_time,
    notify,
    permitted,
)
from bot.adapters.slack.outbound.lookup import slot_of
from bot.adapters.slack.services import Services
from bot.domain.incidents.event import CARD, Commanded
from bot.domain.incidents.run import Run
from bot.domain.kernel.form import Form, FormField, problems

Json = dict[str, Any]

SHORTCUT = "add_to_timeline"
PIN_FORM = "pin"
REACTION = "pushpin"
INCIDENT = "incident"
MAX_CHARACTERS = 3_000
MAYBE_ADDED = f"{MAYBE} Please try again; adding it twice is harmless."
OUTSIDE = frozenset({"not_in_channel", "channel_not_found"})
"""What Slack answers about a channel, the second about a private one, that the bot has not joined."""
INVITE = "The bot cannot read this channel, so nothing was added. Invite the bot to this channel, then try again."


@dataclass(frozen=True)
class PinnedMessage:
    """One message, and the incident whose thread it is in, if any."""

    channel: str
    ts: str
    user: str
    text: str
    incident_id: str = ""


class Pins:
    def __init__(self, client: AsyncWebClient, services: Services) -> None:
        self._client, self._services, self._incidents = client, services, services.incidents

    async def shortcut(self, click: Click) -> forms.Modal | str:
        """Adds the message at once, or returns the form that asks for the incident."""
        await self._must_take_part(click.user)
        message = await self._message(click.channel, click.message_ts)
        page = await self._incidents.open_page()
        incident = message.incident_id
        if not incident and (only := page.only) is not None:
            incident = only.incident_id
        if incident:
            stored = await self._store(message, incident, click.user)
            return f"Added to the timeline of {incident}." if stored else f"{incident} is no longer known."
        if not page.count:
            return "No incident is open, so there is no timeline to add it to."
        kept = {"channel": message.channel, "ts": message.ts}
        return forms.Modal(PIN_FORM, "Add to a timeline", "Add", forms.inputs(which(page.runs)), kept)

    async def chosen(self, sent: Submission) -> None:
        """Adds the message to the chosen incident."""
        await self._must_take_part(sent.user)
        if wrong := problems(which((await self._incidents.open_page()).runs), sent.fields):
            raise NotDoneError(fields=wrong)
        message = await self._message(sent.kept["channel"], sent.kept["ts"])
        await self._store(message, str(sent.fields[INCIDENT]), sent.user)

    async def reaction(self, body: Json, next_: Callable[[], Awaitable[BoltResponse | None]]) -> BoltResponse | None:
        """Runs before Bolt acknowledges: an event that could not be stored is refused, and Slack sends it again."""
        event = body["event"]
        item = event.get("item", {})
        if event.get("reaction") == REACTION and item.get("type") == "message":
            try:
                await in_time(self._pin(str(item["channel"]), str(item["ts"]), str(event["user"])), MAYBE_ADDED)
            except NoAnswerError:
                return BoltResponse(status=503, body="")
        return await next_()

    async def _pin(self, channel: str, ts: str, user: str) -> None:
        """Adds the message if it is in the thread or channel of an incident."""
        try:
            message = await self._message(channel, ts)
        except NotDoneError:
            return  # the bot can read the thread of each incident
        if not message.incident_id:
            return
        try:
            await self._must_take_part(user)
        except NotDoneError as error:
            await notify(self._services.messenger, user, channel, str(error))
            return
        await self._store(message, message.incident_id, user)

    async def _must_take_part(self, user: str) -> None:
        """Raise `NotDoneError` when this person may not write on a timeline."""
        await permitted(self._services.people.takes_part(user, at=self._services.clock.now()), "Nothing was added")

    async def _store(self, message: PinnedMessage, incident: str, user: str) -> bool:
        link = await ask(self._client.chat_getPermalink(channel=message.channel, message_ts=message.ts))
        event = Commanded(
            event_id=f"pin/{message.channel}/{message.ts}",
            command="pin",
            user=user,
            text=message.text,
            author=message.user,
            happened_at=float(message.ts),
            link="" if isinstance(link, Refusal) else str(link.get("permalink", "")),
        )
        return await self._incidents.command(event, incident)

    async def _message(self, channel: str, ts: str) -> PinnedMessage:
        """The message and the incident of its thread.

        Raise `NotDoneError` when Slack does not show the message, and `MessengerError` when it does not answer.
        """
        message = await self._first(channel, ts)
        if isinstance(message, Refusal) and message.error in OUTSIDE:
            raise NotDoneError(INVITE)
        if isinstance(message, Refusal) or message.get("ts") != ts:
            why = f" ({line(message.error, 80)})" if isinstance(message, Refusal) else ""
            raise NotDoneError(f"Slack does not show the bot this message{why}, so nothing was added.")
        root_ts = str(message.get("thread_ts") or ts)
        root = message if root_ts == ts else await self._first(channel, root_ts)
        text = plain(message.get("text", ""), MAX_CHARACTERS)
        incident = ("" if isinstance(root, Refusal) else self._incident_of(root)) or await self._whose(channel)
        return PinnedMessage(channel, ts, str(message.get("user", "")), text, incident)

    async def _whose(self, channel: str) -> str:
        """The ID of the open incident that owns this channel; empty when there is none."""
        found = await self._incidents.of_channel(channel)
        return found.incident_id if found is not None else ""

    async def _first(self, channel: str, ts: str) -> Json | Refusal:
        """The message at `ts`, or why Slack never shows it; empty when it is gone.

        A thread lists its parent first; a reply's own ts returns only that reply.
        """
        call = self._client.conversations_replies(channel=channel, ts=ts, limit=1, include_all_metadata=True)
        found = await ask(call)
        if isinstance(found, Refusal):
            if found.is_final:
                return found
            raise found.as_error("reading a message")
        return next(iter(found.get("messages", ())), {})

    def _incident_of(self, message: Mapping[str, Any]) -> str:
        """The ID of the incident whose card this message is; empty when it is not a card."""
        incident, _, slot = slot_of(message, self._services.deployment).partition("/")
        return incident if slot == CARD else ""


def which(runs: Sequence[Run]) -> Form:
    options = {run.incident_id: f"{run.incident_id} {run.called}" for run in runs}
    return {INCIDENT: FormField(label="Which incident?", kind="choice", options=options)}
