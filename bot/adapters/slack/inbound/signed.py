"""Accepts only requests that Slack has signed. Anyone can reach the port, so bad requests are refused with a 4xx."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

log = structlog.get_logger(__name__)
Handler = Callable[[Request], Awaitable[Response]]
SignedHandler = Callable[[Request, dict[str, Any]], Awaitable[Response]]
"""Handles a signed request; the second argument is its decoded body."""
OLDEST_SECONDS = 300
"""The limit that Slack recommends: an older request may be a replay."""


def only_signed(handle: SignedHandler, secret: Callable[[], str]) -> Handler:
    async def checked(request: Request) -> Response:
        try:
            body = await request.body()
        except ClientDisconnect:
            log.warning("slack.aborted")
            return Response(status_code=400)
        stamp = request.headers.get("x-slack-request-timestamp", "")
        signature = request.headers.get("x-slack-signature", "")
        if reason := why_refused(body, stamp, signature, secret(), now=time.time()):
            log.warning("slack.refused", status=401, reason=reason)
            return PlainTextResponse("not signed by Slack\n", status_code=401)
        payload = payload_of(body, request.headers.get("content-type", ""))
        if payload is None:
            log.warning("slack.refused", status=400)
            return PlainTextResponse("not what Slack sends\n", status_code=400)
        return await handle(request, payload)

    return checked


def why_refused(body: bytes, stamp: str, signature: str, secret: str, *, now: float) -> str:
    """Empty if Slack signed it lately. Checks the raw bytes, since a body that is not text can also be signed."""
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) < 16):
        return "it has no time"
    wanted = hmac.new(secret.encode(), b"v0:" + stamp.encode() + b":" + body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(f"v0={wanted}".encode(), signature.encode("utf-8", "replace")):
        return "it is not signed with the signing secret of the settings"
    if (apart := abs(now - int(stamp))) > OLDEST_SECONDS:
        return f"its time and this replica's clock differ by {apart:.0f} s: it is sent again, or the clock is wrong"
    return ""


def payload_of(body: bytes, content_type: str) -> dict[str, Any] | None:
    """What Slack sends: a JSON object, or a form, of which only the `payload` counts if it has one; else None."""
    try:
        text = body.decode()
        if content_type.startswith("application/json"):
            payload = json.loads(text)
        else:
            form = dict(parse_qsl(text, keep_blank_values=True, errors="strict"))
            payload = json.loads(form["payload"]) if "payload" in form else form
    except (ValueError, RecursionError):
        return None
    return payload if isinstance(payload, dict) else None
