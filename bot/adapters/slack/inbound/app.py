"""Slack's requests: signed, and every one answered within three seconds.

A press is stored first, acknowledged second, worked on third. What could not be stored is said, never swallowed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import structlog
from slack_bolt.adapter.starlette.async_handler import AsyncSlackRequestHandler
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_sdk.web.async_client import AsyncWebClient
from starlette.requests import Request
from starlette.responses import Response

from bot.adapters.slack.client import Refusal, ask
from bot.adapters.slack.inbound import forms
from bot.adapters.slack.inbound.card_buttons import CardButtons
from bot.adapters.slack.inbound.command import Command
from bot.adapters.slack.inbound.commands import Commands
from bot.adapters.slack.inbound.decision_forms import (
    AGAIN_FORM,
    EDIT_FORM,
    GLASS_FORM,
    REASON,
    REFUSE_FORM,
    ReasonForm,
    block_of,
    edit_form,
    reason_form,
    written_values,
)
from bot.adapters.slack.inbound.opening import CHOOSING, FILLING, Opening
from bot.adapters.slack.inbound.pins import PIN_FORM, SHORTCUT, Pins
from bot.adapters.slack.inbound.signed import only_signed
from bot.adapters.slack.inbound.silencing import SILENCE_FORM, Silencing
from bot.adapters.slack.inbound.steering_words import SKIP_FORM, STATUS_FORM, SteeringWords
from bot.adapters.slack.outbound.home import Homes
from bot.adapters.slack.press_value import (
    APPROVE,
    APPROVE_AGAIN,
    BREAK_GLASS,
    CHOOSE,
    EDIT,
    FILL,
    MORE_TIME,
    REFUSE,
    SAY,
    SEE,
    ButtonValue,
)
from bot.adapters.slack.services import Services
from bot.domain.approvals.edits import EditableValue, editable_values, values_of
from bot.domain.approvals.grant import Press
from bot.domain.approvals.grant import Request as ChangeRequest
from bot.domain.kernel.errors import ApprovalError, MessengerError, StorageUnavailableError
from bot.domain.kernel.form import Answer, Form, answers, problems

log = structlog.get_logger(__name__)

Json = dict[str, Any]
Action = Literal["approve", "refuse", "choose", "edit", "more_time", "break_glass"]
COMMAND = "/incident"
REACTION_ADDED, HOME_OPENED = "reaction_added", "app_home_opened"
ANSWER_FORM = "answer"
STORE_SECONDS = 2.0
"""Slack waits 3 s; what the storage has not confirmed by then counts as not stored."""
ANYTHING = re.compile(".*")

NOT_STORED = (
    "Your press could not be stored: the bot's storage did not answer. Nothing was decided. Please press again in a "
    "moment; pressing twice is harmless."
)
NOT_READ = "The bot's storage did not answer, so the request could not be read. Nothing was decided; please try again."
OLD_BUTTON = "This button is from an older message of the bot; use the newest message of the thread."
COMMAND_NOT_STORED = (
    "The bot's storage or Slack did not answer in time, so it is not known whether this was done. Please say it again; "
    "saying it twice is harmless."
)


def bolt_app(client: AsyncWebClient, signing_secret: str, services: Services, homes: Homes) -> AsyncApp:
    """The app with every listener; building it needs no network."""
    app = AsyncApp(
        client=_without_token(client),
        signing_secret=signing_secret,
        # One workspace and one token: Bolt's own way would ask `auth.test` before the first press may be stored.
        authorize=_authorize_with(client.token or ""),
        process_before_response=False,
        ignoring_self_events_enabled=False,
    )
    presses, commands = Presses(client, services), Commands(services)
    # Bolt asks listener after listener whether it is meant, on the way to the acknowledgement: what is used most first.
    app.command(COMMAND)(_command_listener(client, services, commands))
    app.action(APPROVE)(presses.approve)
    app.action(re.compile(re.escape(CHOOSE) + r"\d+"))(presses.choose)
    app.action(APPROVE_AGAIN)(presses.open_again)
    app.action(MORE_TIME)(presses.more_time)
    app.action(REFUSE)(presses.open_refusal)
    app.action(BREAK_GLASS)(presses.open_glass)
    app.action(EDIT)(presses.open_edit)
    app.action(re.compile(re.escape(FILL) + r"\d+"))(presses.open_form)
    app.action(re.compile(re.escape(SAY) + r"[a-z]+"))(CardButtons(services, commands).pressed)
    app.action(SEE)(_acknowledge)
    app.action(ANYTHING)(presses.old)
    app.view(REFUSE_FORM.callback_id)(presses.refuse)
    app.view(AGAIN_FORM.callback_id)(presses.approve_again)
    app.view(GLASS_FORM.callback_id)(presses.break_glass)
    app.view(EDIT_FORM)(presses.edit)
    app.view(ANSWER_FORM)(presses.fill)
    opening = Opening(services)
    app.view(CHOOSING)(opening.chosen)
    app.view(FILLING)(opening.filled)
    steering = SteeringWords(services, commands.pointed_at)
    app.view(STATUS_FORM)(steering.submitted)
    app.view(SKIP_FORM)(steering.submitted)
    app.view(SILENCE_FORM)(Silencing(services, commands.pointed_at).confirmed)
    pins = Pins(client, services)
    app.shortcut(SHORTCUT)(pins.shortcut)
    app.view(PIN_FORM)(pins.chosen)
    app.event(REACTION_ADDED, middleware=[pins.reaction])(_acknowledge)
    app.event(HOME_OPENED)(homes.opened)
    app.view(ANYTHING)(_acknowledge)
    # Unanswered events would be sent three times more.
    app.event(ANYTHING)(_acknowledge)
    return app


def endpoint(app: AsyncApp, signing_secret: str) -> Callable[[Request], Awaitable[Response]]:
    """The Starlette handler for `POST /slack/events`: one address for everything that Slack sends."""
    return only_signed(AsyncSlackRequestHandler(app).handle, signing_secret)


class Presses:
    """Buttons, and the forms behind them."""

    def __init__(self, client: AsyncWebClient, services: Services) -> None:
        self._client, self._incidents, self._messenger = client, services.incidents, services.messenger

    async def approve(self, ack: AsyncAck, body: Json, action: Json) -> None:
        await self._press(ack, body, action, "approve")

    async def more_time(self, ack: AsyncAck, body: Json, action: Json) -> None:
        await self._press(ack, body, action, "more_time")

    async def choose(self, ack: AsyncAck, body: Json, action: Json) -> None:
        await self._press(ack, body, action, "choose")

    async def old(self, ack: AsyncAck, body: Json) -> None:
        await ack()
        await self._tell(body["user"]["id"], _channel(body), OLD_BUTTON, str(body.get("response_url", "")))

    async def open_refusal(self, ack: AsyncAck, body: Json, action: Json) -> None:
        await self._ask_reason(ack, body, action, REFUSE_FORM)

    async def open_again(self, ack: AsyncAck, body: Json, action: Json) -> None:
        await self._ask_reason(ack, body, action, AGAIN_FORM)

    async def open_glass(self, ack: AsyncAck, body: Json, action: Json) -> None:
        await self._ask_reason(ack, body, action, GLASS_FORM)

    async def refuse(self, ack: AsyncAck, body: Json, view: Json) -> None:
        await self._with_reason(ack, body, view, "refuse")

    async def approve_again(self, ack: AsyncAck, body: Json, view: Json) -> None:
        await self._with_reason(ack, body, view, "approve")

    async def break_glass(self, ack: AsyncAck, body: Json, view: Json) -> None:
        await self._with_reason(ack, body, view, "break_glass")

    async def open_edit(self, ack: AsyncAck, body: Json, action: Json) -> None:
        """The numbers of the request as it is now; a request that is decided has none."""
        value = ButtonValue.unpacked(str(action.get("value", "")))
        if value is None:
            return await self.old(ack, body)
        await ack()
        found = await self._open_request(value)
        if isinstance(found, str):
            return await self._tell(body["user"]["id"], _channel(body), found, str(body.get("response_url", "")))
        kept = {"value": value.packed() or "", **_place_of(body, action)}
        return await self._open(body, edit_form(value, editable_values(found.plan), kept))

    async def edit(self, ack: AsyncAck, body: Json, view: Json) -> None:
        """The submitted values, checked before they are stored; a wrong one keeps the form open, with its range."""
        kept = forms.kept_in(view)
        value = ButtonValue.unpacked(kept["value"])
        if value is None:
            await ack(response_action="errors", errors={block_of(0): OLD_BUTTON})
            return
        found = await self._open_request(value)
        if isinstance(found, str):
            await ack(response_action="errors", errors={block_of(0): found})
            return
        offered = editable_values(found.plan)
        texts = written_values(view, offered)
        if errors := _range_errors(offered, texts):
            await ack(response_action="errors", errors=errors)
            return
        written = json.dumps(texts, sort_keys=True)
        try:
            values_of(found.plan, written)
        except ApprovalError as unchanged:
            await ack(response_action="errors", errors={block_of(0): str(unchanged)})
            return
        press = _press_of("edit", value, kept | {"user": body["user"]}).model_copy(update={"value": written})
        await self._store_form(ack, press, value.incident_id, field=block_of(0))

    async def _open_request(self, value: ButtonValue) -> ChangeRequest | str:
        """The request as it stands; a text for the presser where it cannot be edited."""
        try:
            async with asyncio.timeout(STORE_SECONDS):
                run = await self._incidents.load(value.incident_id)
        except (StorageUnavailableError, TimeoutError):
            return NOT_READ
        request = run.requests.get(value.about) if run is not None else None
        if request is None:
            return f"The bot does not know {value.about} of {value.incident_id} (any more)."
        if request.status != "open" or request.digest != value.digest:
            return f"{value.about} was already {request.status}; nothing of it can be edited."
        return request if editable_values(request.plan) else f"Nothing in {value.about} can be edited."

    async def _ask_reason(self, ack: AsyncAck, body: Json, action: Json, form: ReasonForm) -> None:
        """Ask for a reason first; nothing is decided by opening the form."""
        value = ButtonValue.unpacked(str(action.get("value", "")))
        if value is None:
            return await self.old(ack, body)
        await ack()
        kept = {"value": value.packed() or "", **_place_of(body, action)}
        return await self._open(body, reason_form(form, value, kept))

    async def _open(self, body: Json, form: forms.Modal) -> None:
        result = await ask(self._client.views_open(trigger_id=str(body.get("trigger_id", "")), view=form.view))
        if isinstance(result, Refusal):
            said = f"The form could not be opened ({result.error}). Nothing was decided; please press again."
            await self._tell(body["user"]["id"], _channel(body), said, str(body.get("response_url", "")))

    async def _with_reason(self, ack: AsyncAck, body: Json, view: Json, kind: Action) -> None:
        """The submitted form; where it cannot be stored it stays open with the reason below the field."""
        kept = forms.kept_in(view)
        value = ButtonValue.unpacked(kept["value"])
        if value is None:
            await ack(response_action="errors", errors={REASON: OLD_BUTTON})
            return
        reason = view["state"]["values"][REASON][REASON].get("value") or ""
        if kind != "refuse" and not reason.strip():
            await ack(response_action="errors", errors={REASON: "This needs a reason in words."})
            return
        press = _press_of(kind, value, kept | {"user": body["user"]}, reason=reason)
        await self._store_form(ack, press, value.incident_id, field=REASON)

    async def _store_form(self, ack: AsyncAck, press: Press, incident_id: str, *, field: str) -> None:
        if problem := await self._store(press, incident_id):
            await ack(response_action="errors", errors={field: problem})
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
            return await self._open(body, _answer_form(value, form, place))
        return await self._tell(body["user"]["id"], place["channel"], problem, place["response_url"])

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
                run = await self._incidents.load(value.incident_id)
        except (StorageUnavailableError, TimeoutError):
            return {}, NOT_STORED
        question = run.questions.get(value.about) if run else None
        if question is None or not question.forms.get(value.choice):
            return {}, OLD_BUTTON
        if question.status != "open":
            return {}, f"Question {value.about} was already {question.status}; nothing was changed."
        return question.forms[value.choice], ""

    async def _press(self, ack: AsyncAck, body: Json, action: Json, kind: Action) -> None:
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
                stored = await self._incidents.press(press, incident_id)
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


def _range_errors(offered: Sequence[EditableValue], texts: Mapping[str, str]) -> dict[str, str]:
    errors: dict[str, str] = {}
    for place, each in enumerate(offered):
        try:
            each.read(texts[each.name])
        except ApprovalError as wrong:
            errors[block_of(place)] = str(wrong)
    return errors


def _press_of(
    kind: Action,
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


def _answer_form(value: ButtonValue, form: Form, place: Json) -> forms.Modal:
    return forms.Modal(
        ANSWER_FORM,
        title=f"Answer {value.about}",
        submit="Answer",
        blocks=forms.inputs(form),
        kept={"value": value.packed() or "", **place},
        close="Back",
    )


def _command_listener(client: AsyncWebClient, services: Services, commands: Commands) -> Callable[..., Awaitable[None]]:
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
            await services.messenger.tell(command.user, command.channel, said, response_url=command.response_url)
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
