"""Calls the bot as Slack does: signed, one address for everything, 3 seconds to answer.

Commands and interactions are sent once. An event whose answer is not a 2xx is sent up to three times more.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from dataclasses import dataclass
from urllib.parse import urlencode

import httpx

from bot.sandbox.plain_http import async_http
from bot.sandbox.slack.errors import Json
from bot.sandbox.slack.interactions import event_callback
from bot.sandbox.slack.team import Team

INTERACTIVE, COMMANDS, EVENTS = "interactive", "slash_commands", "events_api"
"""The type of the payload in a Socket Mode envelope."""


def signature(secret: str, timestamp: str, body: bytes) -> str:
    digest = hmac.new(secret.encode(), b"v0:" + timestamp.encode() + b":" + body, hashlib.sha256).hexdigest()
    return f"v0={digest}"


@dataclass(frozen=True)
class Delivery:
    """The result of one request: the answer, or `error` in the wording that Slack shows to people."""

    status: int | None
    body: str
    seconds: float
    error: str | None

    @property
    def ok(self) -> bool:
        return self.error is None

    def reply(self) -> Json:
        """The answer's JSON object; a plain text becomes a message; an empty body becomes nothing."""
        try:
            parsed = json.loads(self.body)
        except ValueError:
            return {"text": self.body} if self.body.strip() else {}
        return parsed if isinstance(parsed, dict) else {}


class BotLink:
    def __init__(self, team: Team) -> None:
        self._team = team
        self._client = async_http(timeout=None)  # bounded by answer_seconds
        self._retries: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        for retry in self._retries:
            retry.cancel()
        await asyncio.gather(*self._retries, return_exceptions=True)
        await self._client.aclose()

    async def interact(self, payload: Json) -> Delivery:
        form = urlencode({"payload": json.dumps(payload)}).encode()
        return await self._send(payload["type"], form, "application/x-www-form-urlencoded", payload, INTERACTIVE)

    async def command(self, form: Json) -> Delivery:
        body = urlencode(form).encode()
        return await self._send("command", body, "application/x-www-form-urlencoded", form, COMMANDS)

    async def dispatch(self, event: Json) -> Delivery:
        """Sends an event; if it fails, retries in the background."""
        callback = event_callback(self._team, event)
        first = await self._send_event(callback, {})
        if not first.ok:
            retry = asyncio.create_task(self._retry_event(callback, first))
            self._retries.add(retry)
            retry.add_done_callback(self._retries.discard)
        return first

    async def _retry_event(self, callback: Json, last: Delivery) -> None:
        for number, pause in enumerate(self._team.settings.event_retry_seconds, start=1):
            await asyncio.sleep(pause)
            reason = "http_timeout" if last.error == "operation_timeout" else "http_error"
            last = await self._send_event(callback, {"X-Slack-Retry-Num": str(number), "X-Slack-Retry-Reason": reason})
            if last.ok:
                return

    async def _send_event(self, callback: Json, headers: dict[str, str]) -> Delivery:
        body = json.dumps(callback).encode()
        return await self._send(callback["event"]["type"], body, "application/json", callback, EVENTS, headers)

    async def _send(
        self,
        kind: str,
        body: bytes,
        content_type: str,
        payload: Json,
        envelope: str,
        headers: dict[str, str] | None = None,
    ) -> Delivery:
        timestamp = str(int(time.time()))
        signed = {
            "Content-Type": content_type,
            "User-Agent": "Slackbot 1.0 (+https://api.slack.com/robots)",
            "X-Slack-Request-Timestamp": timestamp,
            "X-Slack-Signature": signature(self._team.settings.signing_secret, timestamp, body),
            **(headers or {}),
        }
        began = time.monotonic()
        if self._team.sockets.count:
            status, answer, error = await self._through_socket(envelope, payload, signed)
        else:
            status, answer, error = await self._post(body, signed)
        delivery = Delivery(status, answer, time.monotonic() - began, error)
        self._team.deliveries.append(
            {
                "time": time.time(),
                "kind": kind,
                "payload": payload,
                "retry": int(signed.get("X-Slack-Retry-Num", 0)),
                "status": status,
                "answer": answer,
                "seconds": round(delivery.seconds, 4),
                "error": error,
            }
        )
        return delivery

    async def _through_socket(
        self, envelope: str, payload: Json, headers: dict[str, str]
    ) -> tuple[int | None, str, str | None]:
        retry, reason = int(headers.get("X-Slack-Retry-Num", 0)), headers.get("X-Slack-Retry-Reason", "")
        try:
            async with asyncio.timeout(self._team.settings.answer_seconds):
                answer = await self._team.sockets.deliver(envelope, payload, retry=retry, reason=reason)
        except TimeoutError:
            return None, "", "operation_timeout"
        except RuntimeError:  # the connection ended after it was chosen and before the write
            return None, "", "dispatch_failed"
        return 200, json.dumps(answer) if answer else "", None

    async def _post(self, body: bytes, headers: dict[str, str]) -> tuple[int | None, str, str | None]:
        address = f"{self._team.settings.bot_url.rstrip('/')}/slack/events"
        try:
            async with asyncio.timeout(self._team.settings.answer_seconds):
                response = await self._client.post(address, content=body, headers=headers)
        except TimeoutError:
            return None, "", "operation_timeout"
        except httpx.HTTPError:
            return None, "", "dispatch_failed"
        return response.status_code, response.text, None if response.is_success else "dispatch_failed"
