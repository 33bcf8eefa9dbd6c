"""Slack's requests: signed, and every one answered within three seconds.

A press is stored first, acknowledged second, worked on third. What could not be stored is said, never swallowed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import structlog
from slack_bolt.adapter.starlette.async_handler import AsyncSlackRequestHandler
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_sdk.web.async_client import AsyncWebClient
from starlette.requests import Request
from starlette.responses import Response

from bot.adapters.slack import forms
from bot.adapters.slack.blocks import plain_text
from bot.adapters.slack.client import Refusal, ask
from bot.adapters.slack.command import Command
from bot.adapters.slack.commands import Commands
from bot.adapters.slack.inbound import Desk
from bot.adapters.slack.limits import MODAL_TITLE, Block
from bot.adapters.slack.opening import CHOOSING, FILLING, Opening
from bot.adapters.slack.press_value import APPROVE, CHOOSE, FILL, REFUSE, ButtonValue
from bot.adapters.slack.steering_words import SKIP_FORM, STATUS_FORM, SteeringWords
from bot.domain.approval import Press
from bot.domain.errors import MessengerError, StorageUnavailableError
from bot.domain.form import Answer, Form, answers, problems

log = structlog.get_logger(__name__)

Json = dict[str, Any]
COMMAND = "/incident"
REFUSE_FORM = "refuse"
ANSWER_FORM = "answer"
REASON = "reason"
STORE_SECONDS = 2.0
"""Slack waits 3 s; what the storage has not confirmed by then counts as not stored."""
ANYTHING = re.compile(".*")

NOT_STORED = (
    "Your press could not be stored: the bot's storage did not answer. Nothing was decided. Please press again in a "
    "moment; pressing twice is harmless."
)
OLD_BUTTON = "This button is from an older message of the bot; use the newest message of the thread."
COMMAND_NOT_STORED = (
    "The bot's storage or Slack did not answer in time, so it is not known whether this was done. Please say it again; "
    "saying it twice is harmless."
)


def bolt_app(client: AsyncWebClient, signing_secret: str, desk: Desk) -> AsyncApp:
    """The app with every listener; building it needs no network."""
    app = AsyncApp(
        client=_without_token(client),
        signing_secret=signing_secret,
        # One workspace and one token: Bolt's own way would ask `auth.test` before the first press may be stored.
        authorize=_authorize_with(client.token or ""),
        process_before_response=False,
        ignoring_self_events_enabled=False,
    )
    presses = Presses(client, desk)
    app.action(APPROVE)(presses.approve)
    app.action(REFUSE)(presses.open_refusal)
    app.action(re.compile(re.escape(CHOOSE) + r"\d+"))(presses.choose)
    app.action(re.compile(re.escape(FILL) + r"\d+"))(presses.open_form)
    app.action(ANYTHING)(presses.old)
    app.view(REFUSE_FORM)(presses.refuse)
    app.view(ANSWER_FORM)(presses.fill)
    opening = Opening(desk)
    app.view(CHOOSING)(opening.chosen)
    app.view(FILLING)(opening.filled)
    commands = Commands(desk)
    steering = SteeringWords(desk, commands.pointed_at)
    app.view(STATUS_FORM)(steering.submitted)
    app.view(SKIP_FORM)(steering.submitted)
    app.view(ANYTHING)(_acknowledge)
    app.command(COMMAND)(_command_listener(client, desk, commands))
    # Events carry nothing that we use; unanswered ones would be sent three times more.
    app.event(ANYTHING)(_acknowledge)
    return app


def endpoint(app: AsyncApp) -> Callable[[Request], Awaitable[Response]]:
    """The Starlette handler for `POST /slack/events`: one address for everything that Slack sends."""
    return AsyncSlackRequestHandler(app).handle


class Presses:
    """Buttons and the form of a refusal."""

    def __init__(self, client: AsyncWebClient, desk: Desk) -> None:
        self._client, self._inbound, self._messenger = client, desk.inbound, desk.messenger

    async def approve(self, ack: AsyncAck, body: Json, action: Json) -> None:
        await self._press(ack, body, action, "approve")

    async def choose(self, ack: AsyncAck, body: Json, action: Json) -> None:
        await self._press(ack, body, action, "choose")

    async def old(self, ack: AsyncAck, body: Json) -> None:
        await ack()
        await self._tell(body["user"]["id"], _channel(body), OLD_BUTTON, str(body.get("response_url", "")))

    async def open_refusal(self, ack: AsyncAck, body: Json, action: Json) -> None:
        """Ask for a reason first; nothing is decided by opening the form."""
        value = ButtonValue.unpacked(str(action.get("value", "")))
        if value is None:
            return await self.old(ack, body)
        await ack()
        view = _refusal_form(value, body, action)
        result = await ask(self._client.views_open(trigger_id=str(body.get("trigger_id", "")), view=view))
        if isinstance(result, Refusal):
            said = f"The form could not be opened ({result.error}). Nothing was decided; please press Refuse again."
            await self._tell(body["user"]["id"], _channel(body), said, str(body.get("response_url", "")))
        return None

    async def refuse(self, ack: AsyncAck, body: Json, view: Json) -> None:
        """The submitted form; where it cannot be stored it stays open with the reason below the field."""
        kept = json.loads(view["private_metadata"])
        value = ButtonValue.unpacked(kept["value"])
        if value is None:
            await ack(response_action="errors", errors={REASON: OLD_BUTTON})
            return
        reason = view["state"]["values"][REASON][REASON].get("value") or ""
        press = _press_of("refuse", value, kept | {"user": body["user"]}, reason=reason)
        if problem := await self._store(press, value.incident_id):
            await ack(response_action="errors", errors={REASON: problem})
        else:
            await ack()

    async def open_form(self, ack: AsyncAck, body: Json, action: Json) -> None:
        """A choice with something to fill in; nothing is decided by opening its form."""
        value = ButtonValue.unpacked(str(action.get("value", "")))
        if value is None:
            return await self.old(ack, body)
        await ack()
        place = _place_of(body, action)
        form, problem = await self._form_of(value)
        if not problem:
            view = _answer_form(value, form, place).view
            result = await ask(self._client.views_open(trigger_id=str(body.get("trigger_id", "")), view=view))
            if isinstance(result, Refusal):
                problem = f"The form could not be opened ({result.error}). Nothing was decided; please press again."
        if problem:
            await self._tell(body["user"]["id"], place["channel"], problem, place["response_url"])
        return None

    async def fill(self, ack: AsyncAck, body: Json, view: Json) -> None:
        """The submitted answer; while it cannot be stored or is out of range, the form stays open as it was filled."""
        kept = forms.kept_in(view)
        value = ButtonValue.unpacked(kept["value"])
        filled = forms.given(view)
        if value is None:
            await ack(response_action="errors", errors=forms.errors({"": OLD_BUTTON}, filled))
            return
        form, problem = await self._form_of(value)
        wrong = {"": problem} if problem else problems(form, filled)
        if not wrong:
            press = _press_of("choose", value, kept | {"user": body["user"]}, fields=answers(form, filled))
            stored = await self._store(press, value.incident_id)
            wrong = {"": stored} if stored else {}
        if wrong:
            await ack(response_action="errors", errors=forms.errors(wrong, filled))
        else:
            await ack()

    async def _form_of(self, value: ButtonValue) -> tuple[Form, str]:
        """What a choice asks for, or why that is not known, for the presser."""
        try:
            async with asyncio.timeout(STORE_SECONDS):
                run = await self._inbound.load(value.incident_id)
        except (StorageUnavailableError, TimeoutError):
            return {}, NOT_STORED
        question = run.questions.get(value.about) if run else None
        if question is None or not question.forms.get(value.choice):
            return {}, OLD_BUTTON
        if question.status != "open":
            return {}, f"Question {value.about} was already {question.status}; nothing was changed."
        return question.forms[value.choice], ""

    async def _press(self, ack: AsyncAck, body: Json, action: Json, kind: Literal["approve", "choose"]) -> None:
        value = ButtonValue.unpacked(str(action.get("value", "")))
        if value is None:
            return await self.old(ack, body)
        press = _press_of(kind, value, _place_of(body, action) | {"user": body["user"]})
        problem = await self._store(press, value.incident_id)
        await ack()
        if problem:
            await self._tell(press.user, press.channel, problem, press.response_url)
        return None

    async def _store(self, press: Press, incident_id: str) -> str:
        """Empty once the press is stored; otherwise why it is not, for the presser."""
        try:
            async with asyncio.timeout(STORE_SECONDS):
                stored = await self._inbound.press(press, incident_id)
        except (StorageUnavailableError, TimeoutError):
            log.error("press.not_stored", incident=incident_id, press=press.press_id)
            return NOT_STORED
        if not stored:
            return f"The bot does not know incident {incident_id} (any more). Nothing was decided."
        log.info("press.stored", incident=incident_id, press=press.press_id, action=press.action, user=press.user)
        return ""

    async def _tell(self, user: str, channel: str, text: str, response_url: str) -> None:
        try:
            await self._messenger.tell(user, channel, text, response_url=response_url)
        except MessengerError as refused:
            log.warning("slack.tell_failed", user=user, reason=refused.reason)


def _place_of(body: Json, action: Json) -> Json:
    """Where a press came from: enough to know it again, and to answer it."""
    container = body.get("container", {})
    return {
        "channel": _channel(body),
        "message_ts": str(container.get("message_ts", "")),
        "action_ts": str(action.get("action_ts", "")),
        "response_url": str(body.get("response_url", "")),
    }


def _channel(body: Json) -> str:
    return str(body.get("channel", {}).get("id") or body.get("container", {}).get("channel_id", ""))


def _press_of(
    kind: Literal["approve", "refuse", "choose"],
    value: ButtonValue,
    place: Json,
    *,
    reason: str = "",
    fields: Mapping[str, Answer] = forms.NOTHING,
) -> Press:
    user = place["user"]
    # Slack sometimes delivers one click twice: the same place and time are the same press.
    seed = f"{place['channel']}/{place['message_ts']}/{place['action_ts']}/{user['id']}"
    return Press(
        press_id=hashlib.sha256(seed.encode()).hexdigest()[:24],
        action=kind,
        about=value.about,
        digest=value.digest,
        value=value.choice,
        reason=reason,
        fields=dict(fields),
        user=user["id"],
        user_name=str(user.get("name") or user.get("username", "")),
        channel=place["channel"],
        message_ts=place["message_ts"],
        response_url=place["response_url"],
    )


def _refusal_form(value: ButtonValue, body: Json, action: Json) -> Block:
    kept = {"value": value.packed(), **_place_of(body, action)}
    return {
        "type": "modal",
        "callback_id": REFUSE_FORM,
        "title": plain_text(f"Refuse {value.about}", MODAL_TITLE),
        "submit": plain_text("Refuse", MODAL_TITLE),
        "close": plain_text("Back", MODAL_TITLE),
        "private_metadata": json.dumps(kept, separators=(",", ":")),
        "blocks": [
            {
                "type": "input",
                "block_id": REASON,
                "optional": True,
                "label": plain_text(f"Why not? ({value.incident_id})", 200),
                "hint": plain_text("It goes on the timeline and is shown with the request.", 200),
                "element": {
                    "type": "plain_text_input",
                    "action_id": REASON,
                    "multiline": True,
                    "max_length": 500,
                    "focus_on_load": True,
                },
            }
        ],
    }


def _answer_form(value: ButtonValue, form: Form, place: Json) -> forms.Modal:
    return forms.Modal(
        ANSWER_FORM,
        title=f"Answer {value.about}",
        submit="Answer",
        blocks=forms.inputs(form),
        kept={"value": value.packed() or "", **place},
        close="Back",
    )


def _command_listener(client: AsyncWebClient, desk: Desk, commands: Commands) -> Callable[..., Awaitable[None]]:
    async def listener(ack: AsyncAck, body: Json) -> None:
        command = Command.read(
            str(body.get("text", "")),
            user=body["user_id"],
            user_name=str(body.get("user_name", "")),
            trigger_id=str(body.get("trigger_id", "")),
            channel=str(body.get("channel_id", "")),
            response_url=str(body.get("response_url", "")),
        )
        try:
            async with asyncio.timeout(STORE_SECONDS):
                answer = await commands.answer(command)
        except (StorageUnavailableError, TimeoutError):
            log.error("command.not_stored", word=command.word, user=command.user)
            await ack(text=COMMAND_NOT_STORED)
            return
        log.info("command.answered", word=command.word, user=command.user)
        if isinstance(answer, forms.Modal):
            await ack()
            await open_form(command, answer, str(body.get("trigger_id", "")))
        else:
            await ack(text=answer.text, blocks=list(answer.blocks), response_type="ephemeral")

    async def open_form(command: Command, form: forms.Modal, trigger_id: str) -> None:
        result = await ask(client.views_open(trigger_id=trigger_id, view=form.view))
        if not isinstance(result, Refusal):
            return
        said = f"The form could not be opened ({result.error}). Nothing was done; please say it again."
        try:
            await desk.messenger.tell(command.user, command.channel, said, response_url=command.response_url)
        except MessengerError as refused:
            log.warning("slack.tell_failed", user=command.user, reason=refused.reason)

    return listener


async def _acknowledge(ack: AsyncAck) -> None:
    await ack()


def _authorize_with(token: str) -> Callable[..., Awaitable[AuthorizeResult]]:
    async def authorize(enterprise_id: str | None, team_id: str | None) -> AuthorizeResult:
        return AuthorizeResult(enterprise_id=enterprise_id, team_id=team_id, bot_token=token)

    return authorize


def _without_token(client: AsyncWebClient) -> AsyncWebClient:
    """What Bolt makes its own clients from; with a token in it, Bolt would insist on `auth.test`."""
    bare = AsyncWebClient(base_url=client.base_url, session=client.session, retry_handlers=[])
    bare.proxy = client.proxy
    return bare
