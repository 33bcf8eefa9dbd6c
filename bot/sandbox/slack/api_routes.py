"""The endpoints that the bot calls: `/api/{method}`, upload addresses and response URLs.

Every call is recorded with its answer; faults and rate limits are decided before the work is done.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from bot.sandbox.slack.acts import use_response_url
from bot.sandbox.slack.arguments import Arguments
from bot.sandbox.slack.channel_api import CHANNEL_METHODS
from bot.sandbox.slack.connections import Connections
from bot.sandbox.slack.errors import ApiError, Json
from bot.sandbox.slack.faults import Fault
from bot.sandbox.slack.team import Team
from bot.sandbox.slack.web_api import METHODS, OF_THE_APP, SCOPES

EVERY_METHOD = METHODS | CHANNEL_METHODS
Work = Callable[[], Response]
SHOWN_INLINE = ("image/png", "image/jpeg", "image/gif", "image/webp", "text/plain")


async def arguments_of(request: Request) -> Json:
    """Query, form and JSON body as one mapping; an unreadable JSON body raises `invalid_json`."""
    values: Json = dict(request.query_params)
    body = await request.body()
    if request.headers.get("content-type", "").startswith("application/json"):
        try:
            parsed = json.loads(body or b"{}")
        except ValueError:
            raise ApiError("invalid_json") from None
        if not isinstance(parsed, dict):
            raise ApiError("json_not_object")
        return values | parsed
    return values | dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


class ApiRoutes:
    def __init__(self, team: Team, connections: Connections) -> None:
        self._team = team
        self._connections = connections

    def routes(self) -> list[Route]:
        return [
            Route("/api/{method}", self.call, methods=["GET", "POST"]),
            Route("/upload/v1/{key}", self.upload, methods=["POST", "PUT"]),
            Route("/response/{id}", self.response_url, methods=["POST"]),
            Route("/files-pri/{id}/{name:path}", self.download),
        ]

    async def call(self, request: Request) -> Response:
        method = request.path_params["method"]
        try:
            values = await arguments_of(request)
        except ApiError as refused:
            return JSONResponse(refused.answer())
        token = values.pop("token", None) or request.headers.get("authorization", "").removeprefix("Bearer ")
        record = self._record(method, values)

        def work() -> Response:
            return JSONResponse(self._answer(method, token, values), headers={"X-OAuth-Scopes": ",".join(SCOPES)})

        return await self._guarded(request, record, work)

    def _answer(self, method: str, token: str, values: Json) -> Json:
        if not token:
            return {"ok": False, "error": "not_authed"}
        settings = self._team.settings
        if token != (settings.app_token if method in OF_THE_APP else settings.token):
            return {"ok": False, "error": "invalid_auth"}
        if method not in EVERY_METHOD:
            return {"ok": False, "error": "unknown_method", "req_method": method}
        try:
            return EVERY_METHOD[method](self._team, Arguments(values))
        except ApiError as refused:
            return refused.answer()

    async def upload(self, request: Request) -> Response:
        content = await request.body()
        record = self._record("upload", {"bytes": len(content)})

        def work() -> Response:
            stored = self._team.files.receive(request.path_params["key"], content)
            if stored is None:
                return PlainTextResponse("Bad Request", status_code=400)
            return PlainTextResponse(f"OK - {stored.length}")

        return await self._guarded(request, record, work)

    async def response_url(self, request: Request) -> Response:
        try:
            arguments = await arguments_of(request)
        except ApiError as refused:
            return JSONResponse(refused.answer(), status_code=400)
        record = self._record("response_url", {"id": request.path_params["id"], **arguments})

        def work() -> Response:
            try:
                return JSONResponse(use_response_url(self._team, request.path_params["id"], arguments))
            except ApiError as refused:
                is_gone = refused.code in ("used_url", "expired_url", "invalid_url")
                return JSONResponse(refused.answer(), status_code=404 if is_gone else 400)

        return await self._guarded(request, record, work)

    async def download(self, request: Request) -> Response:
        """A stored file. Only harmless kinds are shown in place: a page could otherwise carry scripts."""
        try:
            stored = self._team.files.get(request.path_params["id"])
        except ApiError as refused:
            return JSONResponse(refused.answer(), status_code=404)
        is_inline = stored.mimetype in SHOWN_INLINE and "download" not in request.query_params
        kind = "inline" if is_inline else "attachment"
        headers = {
            "Content-Disposition": kind,
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "sandbox; default-src 'none'",
        }
        return Response(stored.content or b"", media_type=stored.mimetype, headers=headers)

    def _record(self, method: str, args: Json) -> Json:
        record: Json = {
            "n": self._team.calls_made,
            "time": time.time(),
            "at": time.monotonic(),
            "method": method,
            "args": args,
            "status": None,
            "answer": None,
            "fault": None,
        }
        self._team.calls.append(record)
        self._team.calls_made += 1
        return record

    async def _guarded(self, request: Request, record: Json, work: Work) -> Response:
        now = time.monotonic()
        if fault := self._team.faults.next_for(record["method"], now):
            record["fault"] = fault.kind
            if (response := await self._suffer(request, fault, work)) is not None:
                return self._answered(record, response)
        wait = self._team.rate_limits.retry_after(record["method"], str(record["args"].get("channel", "")), now)
        if wait is not None:
            record["fault"] = "rate_limit"
            return self._answered(record, ratelimited(wait))
        return self._answered(record, work())

    async def _suffer(self, request: Request, fault: Fault, work: Work) -> Response | None:
        """The bad answer, or None if the call may go on after all."""
        if fault.kind == "429":
            return ratelimited(fault.retry_after)
        if fault.kind == "500":
            return JSONResponse({"ok": False, "error": "internal_error"}, status_code=500)
        if fault.kind.startswith("error:"):
            return JSONResponse({"ok": False, "error": fault.kind.removeprefix("error:")})
        if fault.kind == "delay":
            await asyncio.sleep(fault.seconds or 1.0)
            return None
        answer = work() if fault.kind == "lost_reply" else Response(status_code=500)
        if request.client is not None:
            self._connections.cut((request.client.host, request.client.port))
        return answer

    @staticmethod
    def _answered(record: Json, response: Response) -> Response:
        record["status"] = response.status_code
        body = bytes(response.body)
        is_json = isinstance(response, JSONResponse)
        record["answer"] = json.loads(body) if is_json else body.decode("utf-8", "replace")
        return response


def ratelimited(retry_after: int) -> Response:
    body = {"ok": False, "error": "ratelimited"}
    return JSONResponse(body, status_code=429, headers={"Retry-After": str(retry_after)})
