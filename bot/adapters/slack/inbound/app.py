"""Registers the listeners for Slack's signed requests; each request is answered within three seconds.

A press is stored, then acknowledged, then processed. A request that could not be stored gets an error reply.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from slack_bolt.adapter.starlette.async_handler import to_starlette_response
from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncBoltRequest
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient
from starlette.requests import Request
from starlette.responses import Response

from bot.adapters.slack.inbound.afterwards import Afterwards
from bot.adapters.slack.inbound.boundary import MAYBE_PRESSED, MAYBE_SENT, Boundary
from bot.adapters.slack.inbound.card_buttons import card_button
from bot.adapters.slack.inbound.commands import Commands, after_no_answer
from bot.adapters.slack.inbound.decision_forms import ANSWER_FORM, CLOSE_FORM, EDIT_FORM, REASON_FORMS
from bot.adapters.slack.inbound.naming import Naming
from bot.adapters.slack.inbound.opening import CHOOSING, FILLING, Opening
from bot.adapters.slack.inbound.operator_commands import SKIP_FORM, STATUS_FORM, OperatorCommands
from bot.adapters.slack.inbound.pins import MAYBE_ADDED, PIN_FORM, SHORTCUT, Pins
from bot.adapters.slack.inbound.presses import NOT_READ, Presses, old_button
from bot.adapters.slack.inbound.pull_requests import PullRequestButton
from bot.adapters.slack.inbound.signed import only_signed
from bot.adapters.slack.inbound.silencing import SILENCE_FORM, Silencing
from bot.adapters.slack.outbound.home import Homes
from bot.adapters.slack.press_value import (
    APPROVE,
    CARRY_OUT,
    CHOOSE,
    EDIT,
    LINK,
    MENU,
    MORE,
    MORE_TIME,
    OPEN_FORM,
    PULL_REQUEST,
    RUN_COMMAND,
)
from bot.adapters.slack.services import Services

COMMAND = "/incident"
REACTION_ADDED, HOME_OPENED = "reaction_added", "app_home_opened"
ANYTHING = re.compile(".*")


class SlackApp(AsyncApp):
    """Bolt's app. `answering` is entered while Slack waits for the answer to a request, over HTTP or Socket Mode."""

    def __init__(self, answering: Callable[[], AbstractContextManager[None]], **options: Any) -> None:
        # Without a name Bolt looks through the stack for the calling file: a twentieth of the bot's start.
        super().__init__(name=type(self).__name__, **options)
        self._answering = answering

    async def async_dispatch(self, req: AsyncBoltRequest) -> BoltResponse:
        with self._answering():
            return await super().async_dispatch(req)


def bolt_app(
    client: AsyncWebClient,
    services: Services,
    homes: Homes,
    answering: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> SlackApp:
    """The app with every listener; building it needs no network."""
    app = SlackApp(
        answering,
        # Bolt's default logger ignores our log level, and would warn that the token in the environment is not used.
        logger=logging.getLogger("slack_bolt"),
        client=_without_token(client),
        # One workspace and one token: Bolt would otherwise call `auth.test` before it stores the first press.
        authorize=_authorize_with(client.token or ""),
        # Else Bolt looks every 10 ms whether the listener has acknowledged: most of what a press waited for.
        process_before_response=True,
        ignoring_self_events_enabled=False,
    )
    boundary, commands = Boundary(client, services.messenger), Commands(services)
    # Bolt tries the listeners in order before it acknowledges, so the most used come first.
    app.command(COMMAND)(boundary.command(commands.answer, after_no_answer))
    decide = Presses(services.incidents, services.playbooks)
    _listen_to_buttons(app, boundary, decide, commands, PullRequestButton(services))
    _listen_to_forms(app, boundary, services)
    pinned = Pins(client, services)
    app.shortcut(SHORTCUT)(boundary.click(pinned.shortcut, MAYBE_ADDED, again=""))
    app.view(PIN_FORM)(boundary.form(pinned.chosen, MAYBE_ADDED))
    app.event(REACTION_ADDED, middleware=[pinned.reaction])(_acknowledge)
    app.event(HOME_OPENED)(_published_afterwards(homes))
    app.view(ANYTHING)(_acknowledge)
    # Slack resends an unanswered event three times.
    app.event(ANYTHING)(_acknowledge)
    return app


def _listen_to_buttons(
    app: AsyncApp, boundary: Boundary, decide: Presses, commands: Commands, pull_requests: PullRequestButton
) -> None:
    click = boundary.click
    app.action(APPROVE)(click(decide.storing("approve"), MAYBE_PRESSED))
    app.action(re.compile(re.escape(CHOOSE) + r"\d+"))(click(decide.storing("choose"), MAYBE_PRESSED))
    app.action(f"{CHOOSE}{MENU}")(click(decide.choose_from_menu, MAYBE_PRESSED))
    app.action(MORE)(click(decide.more, MAYBE_PRESSED))
    app.action(CARRY_OUT)(click(decide.storing("carried_out"), MAYBE_PRESSED))
    app.action(MORE_TIME)(click(decide.storing("more_time"), MAYBE_PRESSED))
    for form in REASON_FORMS:
        app.action(form.callback_id)(click(decide.opening(form), NOT_READ))
        app.view(form.callback_id)(boundary.form(decide.submitting(form), MAYBE_SENT))
    app.action(EDIT)(click(decide.open_edit, NOT_READ))
    app.view(EDIT_FORM)(boundary.form(decide.edit, MAYBE_SENT))
    app.action(re.compile(re.escape(OPEN_FORM) + r"\d+"))(click(decide.open_answer, NOT_READ))
    app.view(ANSWER_FORM)(boundary.form(decide.answer, MAYBE_SENT))
    app.view(CLOSE_FORM)(boundary.form(decide.close, MAYBE_SENT))
    app.action(re.compile(re.escape(RUN_COMMAND) + r"[a-z]+"))(click(card_button(commands.answer), MAYBE_PRESSED))
    app.action(LINK)(_acknowledge)
    app.action(PULL_REQUEST)(click(pull_requests.pressed, MAYBE_PRESSED))
    app.action(ANYTHING)(click(old_button, NOT_READ))


def _listen_to_forms(app: AsyncApp, boundary: Boundary, services: Services) -> None:
    form, by_hand, naming = boundary.form, Opening(services), Naming(services.incidents)
    operators = OperatorCommands(services, naming)
    app.view(CHOOSING)(form(by_hand.chosen, MAYBE_SENT))
    app.view(FILLING)(form(by_hand.filled, MAYBE_SENT))
    app.view(STATUS_FORM)(form(operators.submitted, MAYBE_SENT))
    app.view(SKIP_FORM)(form(operators.submitted, MAYBE_SENT))
    app.view(SILENCE_FORM)(form(Silencing(services, naming).confirmed, MAYBE_SENT))


def endpoint(app: AsyncApp, signing_secret: Callable[[], str]) -> Callable[[Request], Awaitable[Response]]:
    """The Starlette handler for `POST /slack/events`: one address for everything that Slack sends."""

    async def handle(request: Request, payload: dict[str, Any]) -> Response:
        # The mode in which Bolt takes what was read already, from a sender that was checked already.
        asked = AsyncBoltRequest(body=payload, headers=dict(request.headers), mode="socket_mode")
        return to_starlette_response(await app.async_dispatch(asked))

    return only_signed(handle, signing_secret)


async def _acknowledge(ack: AsyncAck) -> None:
    await ack()


def _published_afterwards(homes: Homes) -> Callable[..., Awaitable[None]]:
    afterwards = Afterwards()

    async def listener(ack: AsyncAck, event: dict[str, Any]) -> None:
        await ack()
        afterwards.begin(homes.opened(event), "home")

    return listener


def _authorize_with(token: str) -> Callable[..., Awaitable[AuthorizeResult]]:
    async def authorize(enterprise_id: str | None, team_id: str | None) -> AuthorizeResult:
        return AuthorizeResult(enterprise_id=enterprise_id, team_id=team_id, bot_token=token)

    return authorize


def _without_token(client: AsyncWebClient) -> AsyncWebClient:
    """The client that Bolt copies for its own use. With a token in it, Bolt would call `auth.test`."""
    bare = AsyncWebClient(base_url=client.base_url, session=client.session, retry_handlers=[])
    bare.proxy = client.proxy
    return bare
