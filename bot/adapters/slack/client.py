"""The Web API client, and Slack's errors sorted into retryable and final ones.

The SDK's own retries are off: after a lost reply they would post twice. All calls share one session, and one circuit:
while Slack fails, one call now and then tries again for all of them.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
from pydantic_core import from_json, to_json
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.domain.kernel.errors import CircuitOpenError, MessengerError
from bot.domain.kernel.retry_after import retry_after
from bot.flow.circuit import BackOff, Circuit

TIMEOUT_SECONDS = 10.0
MAX_REST_SECONDS = 300.0
"""A proxy before Slack may ask for any time."""
ONE_BY_ONE_SECONDS = 60.0
"""How long after a rate limit has ended calls are sent one at a time."""
POST = "chat.postMessage"
LARGEST_PAGE = 999
"""Slack recommends 200 on a page, but fifty pages a minute are all that may be read: in a storm, fewer calls count."""
SLACK_API = "https://slack.com/api/"
JSON = "application/json;charset=utf-8"
PASSING = frozenset(
    {"internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org", "accesslimited"}
)
RATE_LIMITED = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})
OF_THE_BOT = frozenset(
    {
        "invalid_auth", "not_authed", "token_revoked", "token_expired", "account_inactive", "org_login_required",
        "two_factor_setup_required", "ekm_access_denied", "team_access_not_granted", "access_denied",
        "enterprise_is_restricted", "not_allowed_token_type",
    }
)  # fmt: skip
"""Slack does not let the bot in. No other message can change that, but a person can."""
OF_THE_CHANNEL = frozenset(
    {
        "channel_not_found", "not_in_channel", "is_archived", "restricted_action",
        "restricted_action_read_only_channel", "restricted_action_thread_only_channel",
        "restricted_action_non_threadable_channel",
    }
)  # fmt: skip
"""Slack refuses every message in this channel."""
OF_THE_SCOPES = frozenset({"missing_scope", "no_permission"})
PEOPLE_TAKE_SECONDS = 60.0
"""How often an error that only a person can fix is tried again."""
LAYOUT_REFUSED = frozenset({"invalid_blocks", "msg_too_long", "msg_blocks_too_long", "invalid_blocks_format"})
SDK_LOG = logging.getLogger("slack_sdk.web")
# The SDK formats each request and response for a debug message unless the level of its logger is higher.
SDK_LOG.setLevel(logging.INFO)


BACK_OFF = BackOff(slow_seconds=0.0, first_seconds=1.0, max_seconds=5.0, trial_seconds=TIMEOUT_SECONDS)


class RateLimits:
    """What Slack asked to wait for. All calls that share a limit wait, then they are sent one at a time for a while.

    Posts share the limit of their `channel`; calls of any other method have none, and share that of the workspace.
    """

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._until: dict[tuple[str, str], float] = {}
        self._sending: Counter[tuple[str, str]] = Counter()

    def must_try(self, method: str, channel: str) -> None:
        """Raise `CircuitOpenError` if a call would not be sent now."""
        limit = method, channel
        rest = self._until.get(limit, float("-inf")) - self._elapsed()
        if rest < -ONE_BY_ONE_SECONDS:
            self._until.pop(limit, None)
        elif rest > 0 or self._sending[limit]:
            raise CircuitOpenError(f"Slack limits the rate of {method}", retry_after_seconds=max(rest, 1.0))

    @contextlib.contextmanager
    def asking(self, method: str, channel: str, *, insists: bool) -> Iterator[None]:
        """Wraps one call."""
        if not insists:
            self.must_try(method, channel)
        limit = method, channel
        self._sending[limit] += 1
        try:
            yield
        finally:
            self._sending -= Counter([limit])

    def rest(self, method: str, channel: str, seconds: float) -> None:
        self._until[method, channel] = self._elapsed() + seconds


class SlackCircuits:
    """Whether Slack fails. Files have circuits of their own: they fail alone often, and must not delay messages.

    The bytes of a file go to another host, which a firewall may block.
    """

    def __init__(self, *, elapsed: Callable[[], float] = time.monotonic, now: Callable[[], float] = time.time) -> None:
        self.limits = RateLimits(elapsed)
        self.messages = Circuit("Slack", BACK_OFF, elapsed=elapsed, now=now)
        self.files = Circuit("Slack's file storage", BACK_OFF, elapsed=elapsed, now=now)
        self.uploads = Circuit("Slack's file storage", BACK_OFF, elapsed=elapsed, now=now)

    def of(self, method: str) -> Circuit:
        return self.files if method.startswith("files.") else self.messages

    @property
    def reason(self) -> str:
        """Since when Slack has not answered; empty while it does."""
        return self.messages.reason or self.files.reason or self.uploads.reason


class SlackClient(AsyncWebClient):
    """Raises `CircuitOpenError` while Slack fails or limits the rate of such calls.

    Not if it `insists`: then a person waits for the answer.
    """

    def __init__(self, circuits: SlackCircuits, *, insists: bool, **options: Any) -> None:
        super().__init__(**options)
        self.circuits, self._insists = circuits, insists

    async def api_call(self, api_method: str, **options: Any) -> AsyncSlackResponse:
        with self._asking(api_method):
            return await super().api_call(api_method, **options)

    # The SDK searches each message for objects of its classes, and prepares for retries and deprecated methods: a third
    # of a call. Messages of the bot are plain JSON.

    async def chat_postMessage(self, **message: Any) -> AsyncSlackResponse:  # noqa: N802 - the SDK's name
        return await self._post(POST, message, channel=str(message["channel"]))

    async def chat_update(self, **message: Any) -> AsyncSlackResponse:
        return await self._post("chat.update", message)

    async def _post(self, method: str, message: dict[str, Any], *, channel: str = "") -> AsyncSlackResponse:
        headers = {**self.headers, "Authorization": f"Bearer {self.token}", "Content-Type": JSON}
        sent = {"json": message, "headers": headers, "proxy": self.proxy}
        with self._asking(method, channel):
            return await self._send("POST", self.base_url + method, sent)

    async def _request(self, *, http_verb: str, api_url: str, req_args: dict[str, Any]) -> dict[str, Any]:
        # Once an answer is read, its connection is free again.
        answer = await session_of(self).request(http_verb, api_url, **req_args)
        data = _json_object(await answer.read())
        return {"data": data, "headers": answer.headers, "status_code": answer.status}

    @contextlib.contextmanager
    def _asking(self, method: str, channel: str = "") -> Iterator[None]:
        """A refusal is an answer: Slack does not fail."""
        refused: SlackApiError | None = None
        circuit, limits = self.circuits.of(method), self.circuits.limits
        with limits.asking(method, channel, insists=self._insists), circuit.asking(insists=self._insists):
            try:
                yield
            except SlackApiError as error:
                refusal = _refusal(error)
                if refusal.happened == "unknown":
                    raise
                if refusal.is_rate_limit:
                    limits.rest(method, channel, refusal.retry_after_seconds)
                refused = error
        if refused is not None:
            raise refused


def _json_object(raw: bytes) -> dict[str, Any]:
    """Empty for anything else, such as the page of a proxy before Slack."""
    try:
        found = from_json(raw)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def web_client(
    token: str,
    session: aiohttp.ClientSession,
    *,
    base_url: str = SLACK_API,
    circuits: SlackCircuits | None = None,
    insists: bool = False,
) -> SlackClient:
    client = SlackClient(
        circuits or SlackCircuits(),
        insists=insists,
        token=token,
        base_url=base_url,
        session=session,
        retry_handlers=[],
        logger=SDK_LOG,
    )
    # The SDK takes a proxy from the environment and ignores no_proxy.
    host = urlsplit(base_url).hostname or ""
    if _is_loopback(host) or urllib.request.proxy_bypass(host):
        client.proxy = None
    return client


def must_try(check: Callable[[], None]) -> None:
    """Raise `MessengerError` while Slack fails or limits the rate: before work that only a call needs."""
    try:
        check()
    except CircuitOpenError as away:
        raise MessengerError(str(away), lasting=False, retry_after_seconds=away.retry_after_seconds) from away


def web_session() -> aiohttp.ClientSession:
    """The session for `web_client`: every call has a deadline. The caller closes it."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    return aiohttp.ClientSession(timeout=timeout, json_serialize=lambda body: to_json(body).decode())


def session_of(client: AsyncWebClient) -> aiohttp.ClientSession:
    if client.session is None:
        raise MessengerError("the Slack client was made without a session", lasting=True)
    return client.session


@dataclass(frozen=True)
class Refusal:
    """Why a call returned no usable answer.

    `happened`: `no` when Slack said that it did nothing; `unknown` when it may have done it.
    """

    error: str
    lasting: bool
    happened: Literal["no", "unknown"]
    retry_after_seconds: float = 1.0
    is_answer: bool = True
    """False if no answer came."""
    is_rate_limit: bool = False

    @property
    def is_final(self) -> bool:
        """Whether no retry can succeed, at most another message. A person can fix an error of the bot's access."""
        return self.lasting and self.error not in OF_THE_BOT

    def as_error(self, doing: str) -> MessengerError:
        reason = f"{doing}: {f'Slack answered {self.error}' if self.is_answer else self.error}"
        if self.lasting and not self.is_final:
            return MessengerError(reason, lasting=False, retry_after_seconds=PEOPLE_TAKE_SECONDS)
        return MessengerError(reason, lasting=self.lasting, retry_after_seconds=self.retry_after_seconds)


def _lost(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "Slack did not answer in time"
    return f"Slack cannot be reached ({type(error).__name__})"


async def ask(call: Awaitable[Any]) -> dict[str, Any] | Refusal:
    """Slack's answer, or the refusal."""
    try:
        answer = (await call).data
    except SlackApiError as refused:
        return _refusal(refused)
    except CircuitOpenError as away:
        rest = away.retry_after_seconds
        return Refusal(str(away), lasting=False, happened="no", retry_after_seconds=rest, is_answer=False)
    except (TimeoutError, aiohttp.ClientError, OSError) as lost:
        return Refusal(_lost(lost), lasting=False, happened="unknown", is_answer=False)
    if not isinstance(answer, dict):
        return Refusal("an answer that is not JSON", lasting=False, happened="unknown")
    return answer


async def pages(method: Callable[..., Awaitable[Any]], **arguments: Any) -> AsyncIterator[dict[str, Any] | Refusal]:
    """Every page of a list, read one after the other; a refusal is the last one."""
    cursor = ""
    while True:
        page = await ask(method(**arguments, limit=LARGEST_PAGE, **({"cursor": cursor} if cursor else {})))
        yield page
        if isinstance(page, Refusal):
            return
        cursor = str((page.get("response_metadata") or {}).get("next_cursor", ""))
        if not cursor:
            return


def _refusal(refused: SlackApiError) -> Refusal:
    response = refused.response
    status = int(getattr(response, "status_code", 0) or getattr(response, "status", 0))
    data = getattr(response, "data", None)
    error = str(data.get("error", "")) if isinstance(data, dict) else ""
    if status == 429 or error in RATE_LIMITED:
        asked = str(response.headers.get("Retry-After", ""))
        rest = retry_after(asked, otherwise=1.0, at_most=MAX_REST_SECONDS)
        return Refusal(
            error or "ratelimited", lasting=False, happened="no", retry_after_seconds=rest, is_rate_limit=True
        )
    if status >= 500 or error in PASSING or not error:
        return Refusal(error or f"HTTP {status}", lasting=False, happened="unknown")
    return Refusal(error, lasting=True, happened="no")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
