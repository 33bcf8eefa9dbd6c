"""The bot's HTTP side: alerts, Slack, health and metrics. A 2xx for an alert means stored, never merely received.

No request is read beyond the size limit, and no log line contains a secret or a payload.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bot.domain.kernel.alert import LIMIT_ALERTS, Alert
from bot.domain.kernel.errors import BadWebhookError, SecretFileError, StorageUnavailableError

RETRY_AFTER_SECONDS = 5
LARGE_BYTES = 64 * 1024
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Read = Callable[[bytes], tuple[list[Alert], int]]
"""The alerts of a webhook's body and how many more were left out of it; raises `BadWebhookError`."""
Accept = Callable[[list[Alert], int], Awaitable[int]]
"""Stores alerts, with how many Alertmanager left out, and returns how many were new."""
Handler = Callable[[Request], Awaitable[Response]]
Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, repr=False)
class Credentials:
    """What a sender must send in its Authorization header: a bearer token, or user and password.

    The secret is asked for each time: it may have been rotated.
    """

    scheme: str
    secret: Callable[[], bytes]

    @classmethod
    def bearer(cls, token: Callable[[], str]) -> Credentials:
        return cls("Bearer", lambda: token().encode())

    @classmethod
    def basic(cls, user: str, password: Callable[[], str]) -> Credentials:
        return cls("Basic", lambda: base64.b64encode(f"{user}:{password()}".encode()))

    def match(self, header: str) -> bool:
        scheme, _, shown = header.partition(" ")
        same = hmac.compare_digest(shown.strip().encode("latin-1"), self.secret())
        return same and scheme.lower() == self.scheme.lower()


@dataclass(frozen=True)
class Endpoints:
    """What the routes call. `not_ready` returns what is not ready, with the reason; empty if all is ready.

    `degraded` returns what the bot cannot do although it accepts alerts and presses.
    """

    read: Read
    accept: Accept
    not_ready: Callable[[], Awaitable[Mapping[str, str]]]
    metrics: Callable[[], Awaitable[str]]
    slack: Handler | None = None
    degraded: Callable[[], Awaitable[Mapping[str, str]]] | None = None
    pages: Sequence[Route] = ()
    """What people read in a browser."""


def create_app(
    endpoints: Endpoints, *, credentials: Credentials | None, body_limit_bytes: int, lifespan: Lifespan | None = None
) -> Starlette:
    """`credentials` None accepts alerts from every sender that reaches the port."""

    async def alertmanager(request: Request) -> Response:
        if credentials is not None and not credentials.match(request.headers.get("authorization", "")):
            sender = request.client.host if request.client else ""
            log.warning("webhook.refused", status=401, reason="not the configured credentials", sender=sender)
            challenge = f'{credentials.scheme} realm="alerts"'
            raise HTTPException(401, "Authorization: not the configured credentials", {"WWW-Authenticate": challenge})
        return await _accept(request, endpoints)

    async def readiness(_request: Request) -> Response:
        faults = await endpoints.not_ready()
        degraded = await endpoints.degraded() if endpoints.degraded else {}
        page = {"ready": not faults, "faults": dict(faults), "degraded": dict(degraded)}
        # 503 removes the pod from its Service: then alerts and presses would not arrive either.
        return JSONResponse(page, status_code=503 if faults else 200)

    async def health(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def metrics(_request: Request) -> Response:
        return Response(await endpoints.metrics(), media_type=METRICS_TYPE)

    routes = [
        Route("/alertmanager", alertmanager, methods=["POST"]),
        Route("/healthz", health),
        Route("/readyz", readiness),
        Route("/metrics", metrics),
    ]
    if endpoints.slack is not None:
        routes.append(Route("/slack/events", endpoints.slack, methods=["POST"]))
    return Starlette(
        routes=[*routes, *endpoints.pages],
        middleware=[Middleware(BodyLimit, max_bytes=body_limit_bytes)],
        exception_handlers={HTTPException: _refused, ClientDisconnect: _aborted, SecretFileError: _without_secret},
        lifespan=lifespan,
    )


async def _accept(request: Request, endpoints: Endpoints) -> Response:
    try:
        body = await request.body()
        # Parsing a large one and masking its texts takes a moment: not on the loop that serves all requests.
        is_large = len(body) > LARGE_BYTES
        alerts, truncated = await asyncio.to_thread(endpoints.read, body) if is_large else endpoints.read(body)
        new = await endpoints.accept(alerts, truncated) if alerts or truncated else 0
    except BadWebhookError as bad:
        # 4xx: Alertmanager does not retry, because the retry would be just as wrong.
        log.warning("webhook.refused", status=400, reason=str(bad))
        return _error(400, str(bad))
    except StorageUnavailableError as away:
        log.error("webhook.postponed", status=503, reason=str(away))
        headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
        return _error(
            503, "the storage does not answer or takes no writes, so this may not be stored; send it again", headers
        )
    log.debug("webhook.accepted", alerts=len(alerts), new=new, truncated=truncated)
    return JSONResponse({"accepted": len(alerts), "new": new})


async def _refused(_request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    return _error(error.status_code, error.detail, error.headers)


async def _without_secret(_request: Request, error: Exception) -> Response:
    """The sender cannot be checked now. 5xx: Alertmanager sends it again."""
    log.error("secret.unread", reason=str(error))
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
    return _error(503, "the bot cannot read the secret that it checks requests with; send this again later", headers)


async def _aborted(request: Request, _error: Exception) -> Response:
    """The client went away, or was too slow; this answer is not read."""
    log.warning("request.aborted", path=request.url.path)
    return Response(status_code=400)


def _error(status: int, reason: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": reason}, status_code=status, headers=headers)


class BodyLimit:
    """Ends a request whose body is over the limit with 413, as soon as that is known."""

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self._app, self._max_bytes = app, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced, received = _announced(scope), 0

        async def limited() -> Message:
            nonlocal received
            if announced <= self._max_bytes:
                message = await receive()
                received += len(message.get("body", b""))
                if received <= self._max_bytes:
                    return message
            log.warning("request.refused", status=413, path=scope["path"])
            what = f"body: over {self._max_bytes} bytes; {LIMIT_ALERTS}, or raise http.body_limit_bytes of the bot"
            raise HTTPException(413, what, {"Connection": "close"})

        await self._app(scope, limited, send)


def _announced(scope: Scope) -> int:
    length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    # Python reads no number of thousands of digits.
    return int(length[:19]) if length.isdigit() else 0
