"""Accepts only requests that Slack has signed. Anyone can reach the port, so bad requests are refused with a 4xx."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

log = structlog.get_logger(__name__)
Handler = Callable[[Request], Awaitable[Response]]
OLDEST_SECONDS = 300
"""The limit that Slack recommends: an older request may be a replay."""


def only_signed(handle: Handler, secret: str) -> Handler:
    async def checked(request: Request) -> Response:
        try:
            body = await request.body()
        except ClientDisconnect:
            log.warning("slack.aborted")
            return Response(status_code=400)
        stamp = request.headers.get("x-slack-request-timestamp", "")
        if not is_signed(body, stamp, request.headers.get("x-slack-signature", ""), secret, now=time.time()):
            log.warning("slack.refused", status=401)
            return PlainTextResponse("not signed by Slack\n", status_code=401)
        if not is_readable(body, request.headers.get("content-type", "")):
            log.warning("slack.refused", status=400)
            return PlainTextResponse("not what Slack sends\n", status_code=400)
        return await handle(request)

    return checked


def is_signed(body: bytes, stamp: str, signature: str, secret: str, *, now: float) -> bool:
    """Checks the raw bytes, since a body that is not text can also be signed."""
    if not (stamp.isascii() and stamp.isdigit()) or abs(now - int(stamp)) > OLDEST_SECONDS:
        return False
    wanted = hmac.new(secret.encode(), b"v0:" + stamp.encode() + b":" + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(f"v0={wanted}".encode(), signature.encode("utf-8", "replace"))


def is_readable(body: bytes, content_type: str) -> bool:
    """A JSON object, or a form that has one or no `payload`."""
    try:
        text = body.decode()
        if content_type.startswith("application/json"):
            return isinstance(json.loads(text), dict)
        payload = parse_qs(text, errors="strict").get("payload", ["{}"])[0]
        return isinstance(json.loads(payload), dict)
    except ValueError:
        return False
