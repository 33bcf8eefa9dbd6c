"""Pagers: PagerDuty (Events API v2), Opsgenie (Alert API) and a signed webhook, behind `flow.ports.Pager`.

Each deduplicates by the key of the page: PagerDuty by `dedup_key`, Opsgenie by `alias`, a webhook's receiver by
`Idempotency-Key`. So a call whose answer was lost is sent again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol
from urllib.parse import quote

import httpx

from bot.domain.approvals.configuration import Team
from bot.domain.kernel.answer_reason import answer_reason
from bot.domain.kernel.errors import PagerError
from bot.domain.kernel.finding import Finding, broken, fine
from bot.domain.kernel.redaction import place_of
from bot.domain.kernel.retry_after import retry_after
from bot.domain.kernel.signature import SIGNATURE, TIMESTAMP, signature
from bot.flow.ports.people import PageCall

TIMEOUT_SECONDS = 10.0
MAX_SUMMARY = 1024
"""PagerDuty cuts a longer `payload.summary`."""
MAX_MESSAGE = 130
"""Opsgenie refuses a longer `message`."""
PASSING = frozenset({408, 425, 429})
MAX_REST_SECONDS = 60.0


class _Pager(Protocol):
    name: str

    def request(self, http: httpx.AsyncClient, call: PageCall) -> httpx.Request: ...


class Pagers:
    """Sends each page through its team's pager."""

    def __init__(self, http: httpx.AsyncClient | None, pagers: Mapping[str, _Pager]) -> None:
        """`http`: None where nobody is paged."""
        self._http, self._pagers = http, pagers

    async def send(self, team: str, call: PageCall) -> str:
        """Returns the name of the pager that accepted it. Raises `PagerError`."""
        pager = self._pagers.get(team)
        if pager is None or self._http is None:
            raise PagerError(f"the settings have no pager for '{team}' any more", lasting=True)
        try:
            response = await self._http.send(pager.request(self._http, call))
        except httpx.HTTPError as error:
            raise PagerError(f"{pager.name} does not answer: {type(error).__name__}", lasting=False) from error
        if response.is_success:
            return pager.name
        lasting = 400 <= response.status_code < 500 and response.status_code not in PASSING
        why = f"{pager.name} answers HTTP {response.status_code}: {answer_reason(response.text)}"
        rest = retry_after(response.headers.get("Retry-After", ""), otherwise=0.0, at_most=MAX_REST_SECONDS)
        raise PagerError(why, lasting=lasting, retry_after_seconds=rest)


class PagerDuty:
    name = "PagerDuty"

    def __init__(self, url: str, routing_key: str) -> None:
        self._url, self._routing_key = f"{url.rstrip('/')}/v2/enqueue", routing_key

    def request(self, http: httpx.AsyncClient, call: PageCall) -> httpx.Request:
        event: dict[str, Any] = {
            "routing_key": self._routing_key,
            "event_action": call.action,
            "dedup_key": call.key,
        }
        if call.action == "trigger":
            event["client"] = "incident-bot"
            event["payload"] = {
                "summary": call.text[:MAX_SUMMARY],
                "source": call.target,
                "severity": "critical",
                "timestamp": datetime.fromtimestamp(call.at, UTC).isoformat(),
                "component": call.target,
                "custom_details": {"incident": call.incident, "title": call.title},
            }
            if call.link:
                event |= {"client_url": call.link, "links": [{"href": call.link, "text": "Incident in Slack"}]}
        return http.build_request("POST", self._url, json=event)


class Opsgenie:
    name = "Opsgenie"

    def __init__(self, url: str, api_key: str) -> None:
        self._url, self._api_key = f"{url.rstrip('/')}/v2/alerts", api_key

    def request(self, http: httpx.AsyncClient, call: PageCall) -> httpx.Request:
        headers = {"Authorization": f"GenieKey {self._api_key}"}
        if call.action == "trigger":
            alert = {
                "message": call.text[:MAX_MESSAGE],
                "alias": call.key,
                "description": f"{call.text}\n{call.title}\n{call.link}".strip(),
                "entity": call.target,
                "source": "incident-bot",
                "priority": "P1",
                "details": {"incident": call.incident, "link": call.link},
            }
            return http.build_request("POST", self._url, json=alert, headers=headers)
        verb = {"acknowledge": "acknowledge", "resolve": "close"}[call.action]
        url = f"{self._url}/{quote(call.key, safe='')}/{verb}?identifierType=alias"
        return http.build_request("POST", url, json={"source": "incident-bot"}, headers=headers)


class Webhook:
    """A POST of JSON, signed like Slack's: HMAC-SHA256 of `timestamp.body` in hexadecimal after `v1=`."""

    name = "the webhook"

    def __init__(self, url: str, secret: str) -> None:
        self._url, self._secret = url, secret

    def request(self, http: httpx.AsyncClient, call: PageCall) -> httpx.Request:
        body = {
            "action": call.action,
            "key": call.key,
            "team": call.team,
            "incident": call.incident,
            "title": call.title,
            "target": call.target,
            "text": call.text,
            "link": call.link,
        }
        content = json.dumps(body, separators=(",", ":")).encode()
        timestamp = str(int(call.at))
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": f"{call.key}:{call.action}",
            TIMESTAMP: timestamp,
            SIGNATURE: signature(self._secret, timestamp, content),
        }
        return http.build_request("POST", self._url, content=content, headers=headers)


def pager_of(team: Team, *, pagerduty_url: str, opsgenie_url: str) -> _Pager:
    if team.pagerduty is not None:
        return PagerDuty(pagerduty_url, team.pagerduty.get_secret_value())
    if team.opsgenie is not None:
        return Opsgenie(opsgenie_url, team.opsgenie.get_secret_value())
    assert team.webhook_secret is not None
    return Webhook(team.webhook, team.webhook_secret.get_secret_value())


async def reachable(http: httpx.AsyncClient, name: str, url: str) -> Finding:
    """Whether anything answers there. A key cannot be tried without paging somebody."""
    at = place_of(url)
    try:
        answer = await http.get(url)
    except httpx.HTTPError as error:
        what = f"{name} does not answer at {at}: {type(error).__name__}"
        return broken("paging", what, "Let the bot reach it; until then nobody is paged through it.")
    return fine("paging", f"{name} answers at {at} (HTTP {answer.status_code}); its keys are not tried")
