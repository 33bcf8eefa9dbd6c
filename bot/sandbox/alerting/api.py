"""Alertmanager's API (v2), as far as the bot and Prometheus use it; every change of it is passed to the notifier."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from pydantic import TypeAdapter, ValidationError

from bot.sandbox.alerting.alertmanager import Alert, Alertmanager, SilenceAsked, SilenceError

STATUS = {
    "cluster": {"name": "", "peers": [], "status": "disabled"},
    "config": {"original": "route: {receiver: incident-bot}\n"},
    "uptime": "2026-01-01T00:00:00.000Z",
    "versionInfo": {
        **dict.fromkeys(("branch", "buildDate", "buildUser", "goVersion", "revision"), ""),
        "version": "0.28.1-sandbox",
    },
}
ALERTS: TypeAdapter[list[Alert]] = TypeAdapter(list[Alert])


class AlertmanagerRoutes:
    def __init__(self, alertmanager: Alertmanager, changed: Callable[[], None]) -> None:
        self._alertmanager, self._changed = alertmanager, changed

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/-/ready", self._ready),
            web.get("/api/v2/status", self._status),
            web.get("/api/v2/receivers", self._receivers),
            web.get("/api/v2/alerts", self._alerts),
            web.post("/api/v2/alerts", self._put),
            web.get("/api/v2/silences", self._silences),
            web.post("/api/v2/silences", self._silence),
            web.delete("/api/v2/silence/{id}", self._end_silence),
        ]

    async def _ready(self, request: web.Request) -> web.Response:
        return web.Response(text="OK")

    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response(STATUS)

    async def _receivers(self, request: web.Request) -> web.Response:
        return web.json_response([{"name": "incident-bot"}])

    async def _alerts(self, request: web.Request) -> web.Response:
        # As the real one: suppressed alerts are listed too unless the request excludes them.
        wants_silenced = request.query.get("silenced", "true") == "true"
        listed = self._alertmanager.alerts(datetime.now(UTC))
        return web.json_response([each for each in listed if wants_silenced or not each["status"]["silencedBy"]])

    async def _put(self, request: web.Request) -> web.Response:
        try:
            alerts = ALERTS.validate_json(await request.read())
        except ValidationError as error:
            return _refused(error)
        self._alertmanager.put(alerts, datetime.now(UTC))
        self._changed()
        return web.Response()

    async def _silences(self, request: web.Request) -> web.Response:
        return web.json_response(self._alertmanager.silences(datetime.now(UTC)))

    async def _silence(self, request: web.Request) -> web.Response:
        try:
            asked = SilenceAsked.model_validate_json(await request.read())
            made = self._alertmanager.silence(asked, datetime.now(UTC))
        except ValidationError as error:
            return _refused(error)
        except SilenceError as error:
            return web.json_response(str(error), status=400)
        self._changed()
        return web.json_response({"silenceID": made})

    async def _end_silence(self, request: web.Request) -> web.Response:
        try:
            self._alertmanager.end_silence(request.match_info["id"], datetime.now(UTC))
        except SilenceError as error:
            # Alertmanager's own versions differ here: newer ones answer 404.
            return web.json_response(str(error), status=500)
        self._changed()
        return web.Response()


def _refused(error: ValidationError) -> web.Response:
    faults: list[Any] = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
    return web.json_response({"code": 422, "message": "; ".join(faults)}, status=422)
