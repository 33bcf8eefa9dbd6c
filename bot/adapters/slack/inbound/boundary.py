"""Runs every command, click and form: under a deadline it does the work, acknowledges and replies.

A handler returns its reply, or raises `NotDoneError` with the reason. Storage is confirmed before the acknowledgement.
Slack gets its answer when the listener returns, so forms and replies that are calls to Slack follow afterwards.
"""

from __future__ import annotations

import asyncio
import html
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from slack_bolt.async_app import AsyncAck
from slack_sdk.web.async_client import AsyncWebClient

from bot.adapters.slack.client import Refusal, ask
from bot.adapters.slack.escape import line, mentioned
from bot.adapters.slack.inbound import forms
from bot.adapters.slack.inbound.afterwards import Afterwards
from bot.adapters.slack.inbound.command import Answer, Command, reply
from bot.adapters.slack.inbound.forms import Modal
from bot.adapters.slack.outbound.message import Message
from bot.domain.approvals.grant import Authority, Policy, still_missing_at_best
from bot.domain.kernel.errors import (
    MessengerError,
    NewerFormError,
    PaceError,
    PlaybookError,
    StorageUnavailableError,
)
from bot.domain.kernel.form import Answer as FieldAnswer
from bot.flow.ports.people import Messenger, People

log = structlog.get_logger(__name__)

Json = dict[str, Any]
T = TypeVar("T")
Reply = Answer | str | None
Listener = Callable[..., Awaitable[None]]
ANSWER_SECONDS = 2.0
"""Slack waits 3 s. What the storage has not confirmed by then may take effect all the same: it may have been sent."""
ANNOUNCED_WITHIN_SECONDS = 600.0
MAYBE = "The bot's storage or Slack did not answer in time, so this may or may not have been recorded."
MAYBE_PRESSED = f"{MAYBE} Check the message, then press again; pressing twice is harmless."
MAYBE_SENT = f"{MAYBE} Please send it again; sending it twice is harmless."
MAYBE_SENT_ONCE = f"{MAYBE} Look in the incident's thread before you send it again: sent twice, it counts twice."
PRESS_AGAIN = " Nothing was decided; please press again."
COMMAND_AGAIN = " Nothing was done; please send it again."
WARNING = "⚠️"
"""Begins a reply about what was not done."""


class NotDoneError(Exception):
    """Nothing was done. The text gives the reason and what would work; `fields` gives reasons by form field."""

    def __init__(self, text: str = "", fields: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.fields = fields or {"": text}


class NoAnswerError(NotDoneError):
    """The storage or Slack did not answer in time: unlike other errors, this one may have been done."""


async def in_time(work: Awaitable[T], no_answer: str, **facts: str) -> T:
    """The result of `work`. Raise `NoAnswerError` with this text when the storage or Slack does not answer in time."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await work
    except (StorageUnavailableError, MessengerError, TimeoutError) as error:
        log.error("slack.not_confirmed", reason=str(error) or type(error).__name__, **facts)
        raise NoAnswerError(no_answer) from error
    except NewerFormError as error:
        log.warning("slack.left", reason=str(error), **facts)
        raise NotDoneError(f"Nothing was done: {line(str(error), 500)}. Please try again in a minute.") from error
    except PlaybookError as error:
        log.warning("slack.without_playbook", reason=str(error), **facts)
        raise NotDoneError(f"Nothing was done: {line(str(error), 500)}.") from error


async def permitted(asked: Awaitable[Authority], refusal: str = "Not done") -> Authority:
    """Raise `NotDoneError` with the reason when this person is not allowed."""
    authority = await asked
    if not authority.allowed:
        raise NotDoneError(f"{refusal}: {line(authority.reason, 500)}.")
    return authority


async def decides_alone(people: People, user: str, policy: Policy, *, at: float, refusal: str, so: str) -> Authority:
    """The authority of a person who may decide without anybody else. Raise `NotDoneError` for anyone else.

    `so`: what follows if the settings require more people.
    """
    authority = await permitted(people.authority(user, policy, at=at), refusal)
    if still_missing_at_best(policy, {user: authority.teams}):
        wants = " and ".join(f"{demand.needed} of {demand.team}" for demand in policy.demands)
        raise NotDoneError(f"The settings require {wants}{so}")
    return authority


async def announce(messenger: Messenger, text: str, mentions: Collection[str] = ()) -> None:
    """Post the text of a reply in the channel of all incidents. Raise `MessengerError` when Slack refuses.

    It notifies only the people mentioned in the reply and those in `mentions`. What the reply shows as text stays text.
    """
    # The text is already escaped for blocks, and the messenger escapes it again.
    await messenger.announce(html.unescape(text), mentions=mentioned(text) | set(mentions))


async def announce_in_time(
    messenger: Messenger,
    text: str,
    mentions: Collection[str] = (),
    *,
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Like `announce`, and waits for the pace of posts: in a storm too, people have to learn of a halt or a freeze."""
    waited = 0.0
    while True:
        try:
            return await announce(messenger, text, mentions)
        except PaceError as busy:
            if waited >= ANNOUNCED_WITHIN_SECONDS:
                raise
            waited += busy.retry_after_seconds
            await pause(busy.retry_after_seconds)


async def notify(messenger: Messenger, user: str, channel: str, text: str, response_url: str = "") -> None:
    """Show the text to this person alone. A refusal by Slack is only logged."""
    try:
        await messenger.notify(user, channel, html.unescape(text), response_url=response_url)  # as above
    except MessengerError as refused:
        log.warning("slack.notify_failed", user=user, reason=refused.reason)


@dataclass(frozen=True)
class Click:
    """A pressed button or chosen shortcut: the person, the message, and the button's value."""

    user: str
    user_name: str
    channel: str
    response_url: str
    message_ts: str
    action_ts: str
    value: str

    @classmethod
    def read(cls, body: Json, action: Json) -> Click:
        container = body.get("container", {})
        return cls(
            user=str(body["user"]["id"]),
            user_name=_name_of(body["user"]),
            channel=str(body.get("channel", {}).get("id") or container.get("channel_id", "")),
            response_url=str(body.get("response_url", "")),
            message_ts=str(container.get("message_ts") or body.get("message_ts", "")),
            action_ts=str(action.get("action_ts", "")),
            # Of a button, or of the chosen option of a menu.
            value=str(action.get("value") or (action.get("selected_option") or {}).get("value", "")),
        )

    @property
    def kept(self) -> dict[str, str]:
        """The click as its form stores it; `Submission.click` restores it."""
        kept = {"channel": self.channel, "message_ts": self.message_ts, "action_ts": self.action_ts}
        return {"value": self.value, **kept, "response_url": self.response_url}


@dataclass(frozen=True)
class Submission:
    """A submitted form: the person, the data stored when it was opened, and the answers."""

    form: str
    view_id: str
    user: str
    user_name: str
    kept: Mapping[str, str]
    fields: Mapping[str, FieldAnswer]

    @classmethod
    def read(cls, body: Json, view: Json) -> Submission:
        user = body["user"]
        kept, fields = forms.kept_in(view), forms.given(view)
        return cls(view["callback_id"], view["id"], user["id"], _name_of(user), kept, fields)

    @property
    def click(self) -> Click:
        """The click that opened the form, attributed to the person who submitted it."""
        return Click(self.user, self.user_name, **self.kept)

    @property
    def command(self) -> Command:
        """The form as the command that it completes; the same form sent twice is the same command."""
        return Command(f"view:{self.view_id}", self.user, self.user_name, self.form, "")


class Boundary:
    """Makes listeners for Bolt from handlers. `no_answer` is the reply when the storage does not answer in time."""

    def __init__(self, client: AsyncWebClient, messenger: Messenger) -> None:
        self._client, self._messenger, self._afterwards = client, messenger, Afterwards()

    def command(self, handle: Callable[[Command], Awaitable[Answer]], no_answer: Callable[[Command], str]) -> Listener:
        async def listener(ack: AsyncAck, body: Json) -> None:
            command = Command.received(body)
            try:
                answer = await in_time(handle(command), no_answer(command), user=command.user, word=command.name)
            except NotDoneError as error:
                answer = reply(f"{WARNING} {error}")
            if isinstance(answer, Message):
                await ack(text=answer.text, blocks=list(answer.blocks), response_type="ephemeral")
                return
            await ack()
            self._afterwards.begin(self._form_of_command(body, answer, command), "form of a command")

        return listener

    async def _form_of_command(self, body: Json, form: Modal, command: Command) -> None:
        if problem := await self._open(body, form, COMMAND_AGAIN):
            await notify(self._messenger, command.user, command.channel, problem, command.response_url)

    def click(
        self, handle: Callable[[Click], Awaitable[Reply]], no_answer: str, *, again: str = PRESS_AGAIN
    ) -> Listener:
        """Shows a text reply, or opens a form, to the person who clicked."""

        async def listener(ack: AsyncAck, body: Json, action: Json | None) -> None:
            click = Click.read(body, action or {})
            try:
                answer = await in_time(handle(click), no_answer, user=click.user)
            except NotDoneError as error:
                answer = f"{WARNING} {error}"
            await ack()
            if answer:
                self._afterwards.begin(self._reply_to_click(body, answer, click, again), "reply to a click")

        return listener

    async def _reply_to_click(self, body: Json, answer: Answer | str, click: Click, again: str) -> None:
        if isinstance(answer, Modal):
            answer = await self._open(body, answer, again)
        if answer:
            text = answer.text if isinstance(answer, Message) else answer
            await notify(self._messenger, click.user, click.channel, text, click.response_url)

    def form(self, handle: Callable[[Submission], Awaitable[Modal | str | None]], no_answer: str) -> Listener:
        """A rejected form stays open with its answers, and shows the reasons below its fields."""

        async def listener(ack: AsyncAck, body: Json, view: Json) -> None:
            sent = Submission.read(body, view)
            try:
                answer = await in_time(handle(sent), no_answer, user=sent.user)
            except NotDoneError as error:
                await ack(response_action="errors", errors=forms.errors(error.fields, sent.fields))
                return
            if isinstance(answer, Modal):
                await ack(response_action="push", view=answer.view)
            elif answer:
                await ack(response_action="clear")
                reply_to = sent.kept["channel"], answer, sent.kept["response_url"]
                self._afterwards.begin(notify(self._messenger, sent.user, *reply_to), "reply to a form")
            else:
                await ack()

        return listener

    async def _open(self, body: Json, form: Modal, again: str) -> str:
        """Opens the form. Returns an empty string, or the reason when it could not be opened."""
        result = await ask(self._client.views_open(trigger_id=str(body.get("trigger_id", "")), view=form.view))
        return f"The form could not be opened ({result.error}).{again}" if isinstance(result, Refusal) else ""


def _name_of(user: Json) -> str:
    return str(user.get("name") or user.get("username", ""))
