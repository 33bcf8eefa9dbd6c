"""Messages that people put on an incident's timeline: the message shortcut, and the 📌 reaction. Once each.

In an incident's thread it is that incident; elsewhere the only open one, or the one that is chosen in a form.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from slack_bolt.async_app import AsyncAck
from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient

from bot.adapters.slack.client import Refusal, ask
from bot.adapters.slack.escape import plain
from bot.adapters.slack.inbound import forms
from bot.adapters.slack.outbound.incident_channel import of_channel
from bot.adapters.slack.outbound.lookup import METADATA_TYPE
from bot.adapters.slack.outbound.messages import CARD
from bot.adapters.slack.services import Services
from bot.domain.incidents.event import Commanded
from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import MessengerError, StorageUnavailableError
from bot.domain.kernel.form import Form, FormField, problems

log = structlog.get_logger(__name__)
Json = dict[str, Any]

SHORTCUT = "add_to_timeline"
PIN_FORM = "pin"
REACTION = "pushpin"
INCIDENT = "incident"
ANSWER_SECONDS = 2.0
MOST_CHARACTERS = 3_000
NOT_STORED = "Slack or the bot's storage did not answer, so nothing was added. Please do it again; twice is harmless."


@dataclass(frozen=True)
class Said:
    """Somebody's message, and the incident in whose thread it stands, if it does."""

    channel: str
    ts: str
    user: str
    text: str
    incident_id: str = ""


class Pins:
    def __init__(self, client: AsyncWebClient, services: Services) -> None:
        self._client, self._services, self._incidents = client, services, services.incidents

    async def shortcut(self, ack: AsyncAck, body: Json) -> None:
        user, channel = body["user"], str(body["channel"]["id"])
        told, form = NOT_STORED, None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                told, form = await self._add_message(channel, str(body["message_ts"]), user["id"])
        except (StorageUnavailableError, TimeoutError, MessengerError):
            log.error("pin.not_stored", user=user["id"])
        await ack()
        if form is not None:
            result = await ask(self._client.views_open(trigger_id=str(body.get("trigger_id", "")), view=form.view))
            told = f"The form could not be opened ({result.error})." if isinstance(result, Refusal) else ""
        if told:
            await self._tell(user["id"], channel, told, str(body.get("response_url", "")))

    async def chosen(self, ack: AsyncAck, body: Json, view: Json) -> None:
        """Which incident it is for; the form stays open while that cannot be stored."""
        kept, given = forms.kept_in(view), forms.given(view)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                why_not = await self._why_not(body["user"]["id"])
                wrong = {"": why_not} if why_not else problems(which((await self._incidents.open_page()).runs), given)
                said = None if wrong else await self._message(kept["channel"], kept["ts"])
                if said is not None:
                    await self._store(said, str(given[INCIDENT]), body["user"]["id"])
                elif not wrong:
                    wrong = {"": NOT_STORED}
        except (StorageUnavailableError, TimeoutError, MessengerError):
            wrong = {"": NOT_STORED}
        if wrong:
            await ack(response_action="errors", errors=forms.errors(wrong, given))
        else:
            await ack()

    async def reaction(self, body: Json, next_: Callable[[], Awaitable[BoltResponse | None]]) -> BoltResponse | None:
        """Before Bolt acknowledges: an event that could not be stored is refused, and Slack sends it again."""
        event = body["event"]
        item = event.get("item", {})
        if event.get("reaction") != REACTION or item.get("type") != "message":
            return await next_()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                said = await self._message(str(item["channel"]), str(item["ts"]))
                if said is not None and said.incident_id:
                    why_not = await self._why_not(str(event["user"]))
                    if why_not:
                        await self._tell(str(event["user"]), said.channel, why_not, "")
                    else:
                        await self._store(said, said.incident_id, str(event["user"]))
        except (StorageUnavailableError, TimeoutError, MessengerError) as error:
            log.error("pin.not_stored", reason=str(error) or type(error).__name__)
            return BoltResponse(status=503, body="")
        return await next_()

    async def _why_not(self, user: str) -> str:
        """What to tell who may not write on a timeline; empty for everybody else."""
        authority = await self._services.people.takes_part(user, at=self._services.clock.now())
        return "" if authority.allowed else f"Nothing was added: {authority.reason}."

    async def _add_message(self, channel: str, ts: str, user: str) -> tuple[str, forms.Modal | None]:
        """As `_add`."""
        if why_not := await self._why_not(user):
            return why_not, None
        said = await self._message(channel, ts)
        return await self._add(said, user) if said else (NOT_STORED, None)

    async def _add(self, said: Said, user: str) -> tuple[str, forms.Modal | None]:
        """What to tell, or the form that asks which incident it is for."""
        runs = (await self._incidents.open_page()).runs
        incident = said.incident_id or (runs[0].incident_id if len(runs) == 1 else "")
        if incident:
            stored = await self._store(said, incident, user)
            return (f"Added to the timeline of {incident}." if stored else f"{incident} is not known any more."), None
        if not runs:
            return "No incident is open, so there is no timeline to add it to.", None
        kept = {"channel": said.channel, "ts": said.ts}
        return "", forms.Modal(PIN_FORM, "Add to a timeline", "Add", forms.inputs(which(runs)), kept)

    async def _store(self, said: Said, incident: str, user: str) -> bool:
        link = await ask(self._client.chat_getPermalink(channel=said.channel, message_ts=said.ts))
        event = Commanded(
            event_id=f"pin/{said.channel}/{said.ts}",
            command="pin",
            user=user,
            text=said.text,
            author=said.user,
            happened_at=float(said.ts),
            link="" if isinstance(link, Refusal) else str(link.get("permalink", "")),
        )
        return await self._incidents.command(event, incident)

    async def _message(self, channel: str, ts: str) -> Said | None:
        """The message, and whose thread it is in; None when Slack has no such message any more.

        Raise `MessengerError` when Slack does not answer.
        """
        message = await self._first(channel, ts)
        if message is None or message.get("ts") != ts:
            return None
        root_ts = str(message.get("thread_ts") or ts)
        root = message if root_ts == ts else await self._first(channel, root_ts)
        text = plain(message.get("text", ""), MOST_CHARACTERS)
        incident = self._incident_of(root or {}) or await self._whose(channel)
        return Said(channel, ts, str(message.get("user", "")), text, incident)

    async def _whose(self, channel: str) -> str:
        """The open incident whose own channel this is."""
        found = of_channel((await self._incidents.open_page()).runs, channel)
        return found.incident_id if found is not None else ""

    async def _first(self, channel: str, ts: str) -> Json | None:
        """The message at `ts`: of a thread its parent comes first, and a reply's own ts finds that reply alone."""
        call = self._client.conversations_replies(channel=channel, ts=ts, limit=1, include_all_metadata=True)
        found = await ask(call)
        if isinstance(found, Refusal):
            if found.is_final:
                return None
            raise found.as_error("reading a message")
        return next(iter(found.get("messages", ())), None)

    def _incident_of(self, message: Mapping[str, Any]) -> str:
        """The incident whose card it is."""
        metadata = message.get("metadata") or {}
        payload = metadata.get("event_payload") or {}
        incident, _, slot = str(payload.get("slot", "")).partition("/")
        is_ours = metadata.get("event_type") == METADATA_TYPE and payload.get("deployment") == self._services.deployment
        return incident if is_ours and slot == CARD else ""

    async def _tell(self, user: str, channel: str, text: str, response_url: str) -> None:
        try:
            await self._services.messenger.tell(user, channel, text, response_url=response_url)
        except MessengerError as refused:
            log.warning("slack.tell_failed", user=user, reason=refused.reason)


def which(runs: Sequence[Run]) -> Form:
    options = {run.incident_id: f"{run.incident_id} {run.title}" for run in runs}
    return {INCIDENT: FormField(label="Which incident?", kind="choice", options=options)}
