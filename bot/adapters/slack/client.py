"""The Web API client, and Slack's errors sorted into what a retry may cure and what it never will.

The SDK's own resending is off: after a lost reply it would post twice. One session is shared by all calls.
"""

from __future__ import annotations

import ipaddress
import urllib.request
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.domain.errors import MessengerError

TIMEOUT_SECONDS = 10.0
SLACK_API = "https://slack.com/api/"
PASSING = frozenset(
    {"internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org", "accesslimited"}
)
RATE_LIMITED = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})
LAYOUT_REFUSED = frozenset({"invalid_blocks", "msg_too_long", "msg_blocks_too_long", "invalid_blocks_format"})


def web_client(token: str, session: aiohttp.ClientSession, *, base_url: str = SLACK_API) -> AsyncWebClient:
    client = AsyncWebClient(token=token, base_url=base_url, session=session, retry_handlers=[])
    # The SDK takes a proxy from the environment and does not look at no_proxy.
    host = urlsplit(base_url).hostname or ""
    if _is_loopback(host) or urllib.request.proxy_bypass(host):
        client.proxy = None
    return client


def web_session() -> aiohttp.ClientSession:
    """The session for `web_client`: every call has a deadline. Whoever opens it closes it."""
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS))


@dataclass(frozen=True)
class Refusal:
    """Why a call did not give an answer that can be used.

    `happened`: `no` when Slack said that it did nothing; `unknown` when it may have done it.
    """

    error: str
    lasting: bool
    happened: Literal["no", "unknown"]
    retry_after_seconds: float = 1.0

    def as_error(self, doing: str) -> MessengerError:
        return MessengerError(
            f"{doing}: Slack answered {self.error}", lasting=self.lasting, retry_after_seconds=self.retry_after_seconds
        )


async def ask(call: Awaitable[Any]) -> dict[str, Any] | Refusal:
    """Slack's answer, or what became of the call instead."""
    try:
        answer = (await call).data
    except SlackApiError as refused:
        return _refusal(refused)
    except (TimeoutError, aiohttp.ClientError, OSError) as lost:
        return Refusal(type(lost).__name__, lasting=False, happened="unknown")
    if not isinstance(answer, dict):
        return Refusal("an answer that is not JSON", lasting=False, happened="unknown")
    return answer


def _refusal(refused: SlackApiError) -> Refusal:
    response = refused.response
    status = int(getattr(response, "status_code", 0) or getattr(response, "status", 0))
    data = getattr(response, "data", None)
    error = str(data.get("error", "")) if isinstance(data, dict) else ""
    if status == 429 or error in RATE_LIMITED:
        return Refusal(error or "429", lasting=False, happened="no", retry_after_seconds=_retry_after(response))
    if status >= 500 or error in PASSING or not error:
        return Refusal(error or f"HTTP {status}", lasting=False, happened="unknown")
    return Refusal(error, lasting=True, happened="no")


def _retry_after(response: Any) -> float:
    try:
        return max(0.0, float(response.headers.get("Retry-After", 1.0)))
    except ValueError:
        return 1.0


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
