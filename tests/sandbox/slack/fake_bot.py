"""A small bot on the real slack-bolt, to prove that the simulator behaves like Slack.

It remembers what it was sent; it answers in every way our bot uses.
"""

import asyncio
from typing import Any

from slack_bolt.adapter.starlette.async_handler import AsyncSlackRequestHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

SECRET = "shared-secret"
Json = dict[str, Any]

REASON_BLOCK = {
    "type": "input",
    "block_id": "reason",
    "label": {"type": "plain_text", "text": "Reason"},
    "element": {"type": "plain_text_input", "action_id": "text", "multiline": True},
}
AMOUNT_BLOCK = {
    "type": "input",
    "block_id": "amount",
    "optional": True,
    "label": {"type": "plain_text", "text": "Sequences at once"},
    "element": {
        "type": "number_input",
        "action_id": "number",
        "is_decimal_allowed": False,
        "min_value": "1",
        "max_value": "256",
        "initial_value": "48",
    },
}


def plain(text: str) -> Json:
    return {"type": "plain_text", "text": text}


def modal(title: str, blocks: list[Json], **more: object) -> Json:
    return {
        "type": "modal",
        "callback_id": "edit",
        "title": plain(title),
        "submit": plain("Save"),
        "close": plain("Cancel"),
        "private_metadata": "INC-1",
        "blocks": blocks,
        **more,
    }


def edit_modal() -> Json:
    return modal("Edit the change", [REASON_BLOCK, AMOUNT_BLOCK], notify_on_close=True)


class FakeBot:
    """`received` holds every payload, oldest first; `silent` keeps it from answering."""

    def __init__(self) -> None:
        self.received: list[Json] = []
        self.is_silent = False
        self.failures_left = 0
        self.client: AsyncWebClient | None = None
        self._handler: AsyncSlackRequestHandler | None = None
        self.app = Starlette(routes=[Route("/slack/events", self.receive, methods=["POST"])])

    def connect(self, api_url: str, token: str = "xoxb-sandbox") -> None:
        self.client = AsyncWebClient(token=token, base_url=api_url, retry_handlers=[])
        bolt = AsyncApp(client=self.client, signing_secret=SECRET, process_before_response=False)
        bolt.action("approve")(self.approve)
        bolt.action("edit")(self.edit)
        bolt.action("close_note")(self.close_note)
        bolt.action("pick")(self.remember)
        bolt.command("/incident")(self.command)
        bolt.view("edit")(self.submitted)
        bolt.view_closed("edit")(self.remember)
        bolt.shortcut("add_to_timeline")(self.shortcut)
        bolt.event("reaction_added")(self.event)
        bolt.event("message")(self.event)
        bolt.event("app_home_opened")(self.home)
        self._handler = AsyncSlackRequestHandler(bolt)

    async def receive(self, request: Request) -> Response:
        if self.is_silent:
            await asyncio.Event().wait()
        if self.failures_left:
            self.failures_left -= 1
            return Response(status_code=503)
        assert self._handler is not None
        return await self._handler.handle(request)

    async def remember(self, ack: Any, body: Json) -> None:
        self.received.append(body)
        await ack()

    async def event(self, body: Json) -> None:
        self.received.append(body)

    async def approve(self, ack: Any, body: Json, respond: Any, client: AsyncWebClient) -> None:
        self.received.append(body)
        await ack()
        channel, ts = body["channel"]["id"], body["message"]["ts"]
        note = {"type": "section", "text": {"type": "mrkdwn", "text": f"Granted by <@{body['user']['id']}>"}}
        await client.chat_update(channel=channel, ts=ts, text="granted", blocks=[note])
        await respond(text="Thank you, your press counts.", replace_original=False)

    async def edit(self, ack: Any, body: Json, client: AsyncWebClient) -> None:
        self.received.append(body)
        await ack()
        await client.views_open(trigger_id=body["trigger_id"], view=edit_modal())

    async def close_note(self, ack: Any, body: Json, respond: Any) -> None:
        self.received.append(body)
        await ack()
        await respond(delete_original=True)

    async def command(self, ack: Any, body: Json, respond: Any) -> None:
        self.received.append(body)
        if body["text"] == "public":
            await ack({"response_type": "in_channel", "text": "for everybody"})
            return
        if body["text"] == "edit":
            await ack()
            assert self.client is not None
            await self.client.views_open(trigger_id=body["trigger_id"], view=edit_modal())
            return
        await ack(f"looking for `{body['text']}`")
        await respond(text="one open incident: INC-1")

    async def submitted(self, ack: Any, body: Json) -> None:
        self.received.append(body)
        reason = body["view"]["state"]["values"]["reason"]["text"]["value"]
        answers: dict[str, Json] = {
            "bad": {"response_action": "errors", "errors": {"reason": "Say more than that."}},
            "more": {"response_action": "push", "view": modal("One step more", [REASON_BLOCK])},
            "again": {"response_action": "update", "view": modal("Please confirm", [REASON_BLOCK])},
            "done": {"response_action": "clear"},
        }
        await ack(answers.get(reason, {}))

    async def shortcut(self, ack: Any, body: Json, respond: Any) -> None:
        self.received.append(body)
        await ack()
        await respond(text="added to the timeline", response_type="ephemeral")

    async def home(self, body: Json, client: AsyncWebClient) -> None:
        self.received.append(body)
        blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": "No open incident."}}]
        await client.views_publish(user_id=body["event"]["user"], view={"type": "home", "blocks": blocks})
