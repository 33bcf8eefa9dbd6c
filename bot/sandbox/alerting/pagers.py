"""PagerDuty's Events API v2, Opsgenie's Alert API and a receiver of signed webhooks, as far as the bot uses them.

As the real ones: a second trigger of an open alert is the same alert, a closed alert's key opens another one, an
unknown key is acknowledged or closed without effect, and an acknowledged alert is not rung again. PagerDuty answers 202
to a routing key of the right form, whether or not it exists; Opsgenie answers 401 to an unknown key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from aiohttp import web

ROUTING_KEY = re.compile(r"^[0-9a-zA-Z]{32}$")
State = Literal["triggered", "acknowledged", "resolved"]


@dataclass
class Alert:
    """One call of people: it rings once."""

    pager: str
    key: str
    text: str
    link: str = ""
    state: State = "triggered"


@dataclass
class Fault:
    """The next `count` answers; with `lost` the request is done and its answer never arrives."""

    status: int = 503
    count: int = 1
    retry_after: str = ""
    lost: bool = False


@dataclass
class Pagers:
    """The alerts of all pagers, oldest first."""

    opsgenie_keys: tuple[str, ...] = ()
    webhook_secret: str = ""
    alerts: list[Alert] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def trigger(self, pager: str, key: str, text: str, link: str) -> None:
        if self.open_alert(pager, key) is None:
            self.alerts.append(Alert(pager, key, text, link))

    def change(self, pager: str, key: str, state: State) -> bool:
        alert = self.open_alert(pager, key)
        if alert is not None:
            alert.state = state
        return alert is not None

    def open_alert(self, pager: str, key: str) -> Alert | None:
        found = (alert for alert in self.alerts if (alert.pager, alert.key) == (pager, key))
        return next((alert for alert in found if alert.state != "resolved"), None)


class PagerRoutes:
    def __init__(self, pagers: Pagers) -> None:
        self._pagers = pagers

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v2/enqueue", self._pagerduty),
            web.post("/v2/alerts", self._opsgenie_create),
            web.post("/v2/alerts/{alias}/{verb}", self._opsgenie_change),
            web.post("/webhook", self._webhook),
            web.get("/__sandbox__/pages", self._pages),
            web.post("/__sandbox__/pages/fault", self._fault),
        ]

    async def _pagerduty(self, request: web.Request) -> web.StreamResponse:
        event, refused = await self._taken(request)
        if refused is not None:
            return refused
        if problems := _problems(event):
            body = {"status": "invalid event", "message": "Event object is invalid", "errors": problems}
            return web.json_response(body, status=400)
        key = str(event["dedup_key"])
        if event["event_action"] == "trigger":
            self._pagers.trigger("PagerDuty", key, event["payload"]["summary"], str(event.get("client_url", "")))
        else:
            state: State = "acknowledged" if event["event_action"] == "acknowledge" else "resolved"
            self._pagers.change("PagerDuty", key, state)
        body = {"status": "success", "message": "Event processed", "dedup_key": key}
        return await self._answer(request, body)

    async def _opsgenie_create(self, request: web.Request) -> web.StreamResponse:
        alert, refused = await self._of_opsgenie(request)
        if refused is not None:
            return refused
        message = alert.get("message")
        if not message or len(message) > 130:
            what = "may not be empty" if not message else "size must be between 1 and 130"
            body = {"message": "Request body is not processable.", "errors": {"message": what}, "took": 0.001}
            return web.json_response(body, status=422)
        link = str(alert.get("details", {}).get("link", ""))
        self._pagers.trigger("Opsgenie", str(alert["alias"]), message, link)
        return await self._answer(request, {"result": "Request will be processed", "took": 0.01, "requestId": "r"})

    async def _opsgenie_change(self, request: web.Request) -> web.StreamResponse:
        _body, refused = await self._of_opsgenie(request)
        if refused is not None:
            return refused
        verb = request.match_info["verb"]
        if verb not in ("acknowledge", "close") or request.query.get("identifierType") != "alias":
            return web.json_response({"message": "No handler found", "took": 0.0}, status=404)
        state: State = "acknowledged" if verb == "acknowledge" else "resolved"
        self._pagers.change("Opsgenie", request.match_info["alias"], state)
        return await self._answer(request, {"result": "Request will be processed", "took": 0.01, "requestId": "r"})

    async def _of_opsgenie(self, request: web.Request) -> tuple[dict[str, Any], web.StreamResponse | None]:
        scheme, _, key = request.headers.get("Authorization", "").partition(" ")
        if scheme != "GenieKey" or key not in self._pagers.opsgenie_keys:
            body = {"message": "Could not authenticate", "took": 0.0, "requestId": "r"}
            return {}, web.json_response(body, status=401)
        return await self._taken(request)

    async def _webhook(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        signed = request.headers.get("X-Incident-Bot-Timestamp", "").encode() + b"." + body
        digest = hmac.new(self._pagers.webhook_secret.encode(), signed, hashlib.sha256).hexdigest()
        if request.headers.get("X-Incident-Bot-Signature") != f"v1={digest}":
            return web.json_response({"message": "wrong signature"}, status=401)
        call, refused = await self._taken(request)
        if refused is not None:
            return refused
        if call["action"] == "trigger":
            self._pagers.trigger("webhook", call["key"], call["text"], call["link"])
        else:
            state: State = "acknowledged" if call["action"] == "acknowledge" else "resolved"
            self._pagers.change("webhook", call["key"], state)
        return await self._answer(request, {"ok": True})

    async def _taken(self, request: web.Request) -> tuple[dict[str, Any], web.StreamResponse | None]:
        """Returns the body, and the answer of a fault that refuses it."""
        body: dict[str, Any] = json.loads(await request.read())
        if self._pagers.faults and not self._pagers.faults[0].lost:
            fault = self._used_fault()
            headers = {"Retry-After": fault.retry_after} if fault.retry_after else {}
            return body, web.json_response({"message": "fault"}, status=fault.status, headers=headers)
        self._pagers.requests.append(body)
        return body, None

    async def _answer(self, request: web.Request, body: Mapping[str, Any]) -> web.StreamResponse:
        if self._pagers.faults and self._pagers.faults[0].lost:
            self._used_fault()
            assert request.transport is not None
            request.transport.abort()
        return web.json_response(body, status=202)

    def _used_fault(self) -> Fault:
        fault = self._pagers.faults[0]
        fault.count -= 1
        if fault.count <= 0:
            self._pagers.faults.pop(0)
        return fault

    async def _pages(self, request: web.Request) -> web.Response:
        return web.json_response([asdict(alert) for alert in self._pagers.alerts])

    async def _fault(self, request: web.Request) -> web.Response:
        self._pagers.faults.append(Fault(**await request.json()))
        return web.Response()


def _problems(event: Mapping[str, Any]) -> list[str]:
    """As PagerDuty names them."""
    found = []
    if not ROUTING_KEY.fullmatch(str(event.get("routing_key", ""))):
        found.append("Invalid routing key")
    if event.get("event_action") not in ("trigger", "acknowledge", "resolve"):
        found.append("'event_action' must be one of trigger, acknowledge, resolve")
    elif event["event_action"] == "trigger":
        payload = event.get("payload") or {}
        found += [
            f"'payload.{name}' is missing or blank"
            for name in ("summary", "source", "severity")
            if not payload.get(name)
        ]
    elif not event.get("dedup_key"):
        found.append("'dedup_key' is missing or blank")
    return found
