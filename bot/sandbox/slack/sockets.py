"""Socket Mode: the connections that a bot holds open, and the envelopes that it must acknowledge.

While there is a connection, everything goes over Socket Mode and nothing over HTTP; the connections take turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from dataclasses import dataclass, field

from starlette.websockets import WebSocket, WebSocketDisconnect

from bot.sandbox.slack.directory import APP_ID
from bot.sandbox.slack.errors import ApiError, Json

MAX_CONNECTIONS = 10


@dataclass
class Sockets:
    _tickets: set[str] = field(default_factory=set)
    _open: list[WebSocket] = field(default_factory=list)
    _waiting: dict[str, asyncio.Future[Json]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self._open)

    def issue_ticket(self) -> str:
        """A ticket opens one connection."""
        if self.count >= MAX_CONNECTIONS:
            raise ApiError("too_many_websockets")
        ticket = secrets.token_hex(16)
        self._tickets.add(ticket)
        return ticket

    async def serve(self, socket: WebSocket) -> None:
        """One connection, from its hello to its end."""
        ticket = socket.path_params["ticket"]
        if ticket not in self._tickets:
            await socket.close(code=4001)
            return
        self._tickets.discard(ticket)
        await socket.accept()
        hello = {"type": "hello", "num_connections": self.count + 1, "connection_info": {"app_id": APP_ID}}
        await socket.send_json(hello)
        self._open.append(socket)
        with contextlib.suppress(WebSocketDisconnect):
            while True:
                self._take(await socket.receive_text())
        if socket in self._open:
            self._open.remove(socket)

    def _take(self, text: str) -> None:
        """Handles an acknowledgement; ignores anything else."""
        with contextlib.suppress(ValueError):
            answer = json.loads(text)
            waiting = self._waiting.get(str(answer.get("envelope_id", "")))
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)

    async def deliver(self, kind: str, payload: Json, *, retry: int = 0, reason: str = "") -> Json:
        """The payload of the acknowledgement, empty if it has none. It waits until the caller's time-out."""
        envelope_id = secrets.token_hex(16)
        envelope: Json = {
            "envelope_id": envelope_id,
            "type": kind,
            "payload": payload,
            "accepts_response_payload": kind != "events_api",
        }
        if kind == "events_api":
            envelope |= {"retry_attempt": retry, "retry_reason": reason}
        waiting = self._waiting[envelope_id] = asyncio.get_running_loop().create_future()
        socket = self._open[0]
        self._open = [*self._open[1:], socket]
        try:
            await socket.send_json(envelope)
            answer = (await waiting).get("payload") or {}
        finally:
            del self._waiting[envelope_id]
        return dict(answer)

    async def refresh(self) -> None:
        """As Slack does now and then: asks every connection to reconnect."""
        going, self._open = self._open, []
        for socket in going:
            await socket.send_json({"type": "disconnect", "reason": "refresh_requested", "debug_info": {}})
