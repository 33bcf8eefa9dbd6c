"""One connection to the API server: plain JSON in and out, and whether a request can have arrived.

The official client is imported on first use (seconds and 120 MB with its models; its transport is enough here). It
brings kubeconfig, exec plugins, in-cluster tokens and TLS; its models are not used, so that objects stay unchanged.
Credentials are loaded again before they expire, and once more after a 401.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp
import structlog

from bot.adapters.kubernetes.credentials import Connection, Credentials, NotSentError, load
from bot.adapters.kubernetes.library import library
from bot.domain.kernel.errors import BotError, CircuitOpenError
from bot.flow.bounded import TooLargeError, at_most
from bot.flow.circuit import Circuit

log = structlog.get_logger()

ApiClient = Any
"""`kubernetes.aio.client.api_client.ApiClient`, whose methods are generated and only partly typed."""

USER_AGENT = "incident-bot"
JSON_PATCH = "application/json-patch+json"
UNAUTHORIZED, FORBIDDEN = 401, 403
NOT_KNOWN = "the API server does not accept the bot's credentials"
FORBIDDEN_SECONDS = 60.0
ASK_AGAIN_SECONDS = 30.0
REVIEWS = "/apis/authorization.k8s.io/"
"""Questions about permissions are POST requests that change nothing."""
FOR_EVERYBODY = ("/version", REVIEWS)
LOAD_PAUSE_SECONDS = 10.0
"""Minimum time between two loads of credentials, even after refusals: each load starts the exec plugin."""
CONNECT_SECONDS = 3.0
DEADLINE_SECONDS = 10.0
POOL_SIZE = 32


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_of_server(self) -> bool:
        """Whether the API server wrote it. A proxy in front of it may send its own page, or JSON without `kind`."""
        return isinstance(self.body, dict) and "kind" in self.body

    @property
    def message(self) -> str:
        """The server's message, for people."""
        # A text is a proxy's, or a kubelet's: it may be a whole page.
        message = self.body.get("message") if isinstance(self.body, dict) else str(self.body or "").strip()[:200]
        whose = "" if self.is_of_server or not self.is_ok else "not the API server's answer: "
        text = f"{whose}{self.status} {message or 'without a reason'}"
        return f"{text}: {NOT_KNOWN}" if self.status == UNAUTHORIZED else text

    @property
    def retry_after(self) -> str:
        """The header's value; empty without one."""
        return next((value for name, value in self.headers.items() if name.lower() == "retry-after"), "")

    @property
    def reason(self) -> str:
        return str(self.body.get("reason") or "") if isinstance(self.body, dict) else ""


READS_ONLY = "the settings say observe-only: the bot sends nothing that could change the cluster"


class NoAnswerError(BotError):
    """The request was sent and no answer came back: it may or may not have been carried out."""


class _RedirectedError(Exception):
    """The API server redirects nothing: a proxy before it does, as to its login page."""

    def __init__(self, status: int, location: str) -> None:
        super().__init__()
        where = urlsplit(location)
        # What follows the path may hold a session.
        to = f"{where.scheme}://{where.hostname}{where.path}" if where.hostname else where.path
        self.answer = Answer(status, f"a redirect to {to}, which the bot does not follow")


@dataclass(frozen=True)
class _Wanted:
    """One request, kept so that it can be sent again."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any
    timeout: aiohttp.ClientTimeout
    max_bytes: int | None
    passed_on: bool
    insists: bool


class Refusals:
    """Whether the API server refuses everything that the bot asks: for /readyz and the log.

    A single 403 proves nothing: a role may lack one permission, and a server that has just started refuses everything
    for a second. Requests that every account may send prove nothing about the bot's role.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._forbidden: tuple[float, float] | None = None
        """When the first and the last of an unbroken row of 403 came."""
        self._is_unknown = False
        self.noted_at = -math.inf
        self.no_credentials = ""
        """Why the last load of credentials failed; empty if it succeeded."""

    def note(self, path: str, status: int) -> None:
        self.noted_at = self._now()
        if status == UNAUTHORIZED:
            if not self._is_unknown:
                log.error("cluster.refused", status=status)
            self._is_unknown = True
            return
        self._is_unknown = False
        if path.startswith(FOR_EVERYBODY):
            return
        first = self._forbidden[0] if self._forbidden else self._now()
        self._forbidden = (first, self._now()) if status == FORBIDDEN else None

    @property
    def reason(self) -> str:
        """Why the API server refuses the bot, for people; empty if it does not, as far as is known."""
        if self._is_unknown:
            return f"{UNAUTHORIZED} Unauthorized: " + "; ".join(filter(None, (NOT_KNOWN, self.no_credentials)))
        first, last = self._forbidden or (0.0, 0.0)
        if last - first >= FORBIDDEN_SECONDS:
            for_long = f"for {(last - first) / 60:.0f} min"
            return f"the API server answers 403 Forbidden to everything {for_long}: look at the bot's role"
        return self.no_credentials


class KubernetesClient:
    """Use as `async with`, or call `close`. Safe for many requests at once."""

    def __init__(
        self,
        connection: Connection,
        circuit: Circuit | None = None,
        *,
        now: Callable[[], float] = time.time,
        reads_only: bool = False,
    ) -> None:
        """`reads_only`: refuse every request that could change the cluster."""
        self._connection, self._now, self._reads_only = connection, now, reads_only
        self._circuit = circuit or Circuit("the Kubernetes API")
        self._credentials: Credentials | None = None
        self._api: ApiClient | None = None
        self._retired: list[ApiClient] = []
        self._loading: asyncio.Task[None] | None = None
        self._load_again_at = -math.inf
        self.refusals = Refusals(now)
        """Whether the API server refuses the bot altogether."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Imports and configures early what the first request would else wait for. Raises `NotSentError` on failure."""
        await self._opened()

    async def close(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        open_ones = [*self._retired, *([self._api] if self._api is not None else [])]
        self._api, self._credentials = None, None
        self._retired.clear()
        for api in open_ones:
            await api.close()

    async def request(  # noqa: PLR0913 - what one request needs
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        deadline_seconds: float = DEADLINE_SECONDS,
        max_bytes: int | None = None,
        passed_on: bool = False,
        insists: bool = False,
    ) -> Answer:
        """Returns any answer of the server, even a refusal. Raises `NotSentError` or `NoAnswerError`.

        `passed_on`: a kubelet or a pod answers, and its silence is not the server's. `insists`: also ask a server that
        has not answered for a while.

        `max_bytes`: for answers that the API server does not write itself; no more than that is read.
        """
        if self._reads_only and method != "GET" and not path.startswith(REVIEWS):
            raise NotSentError(READS_ONLY)
        timeout = aiohttp.ClientTimeout(total=deadline_seconds, connect=CONNECT_SECONDS, sock_connect=CONNECT_SECONDS)
        wanted = _Wanted(method, path, query or {}, body, timeout, max_bytes, passed_on, insists)
        api, shown = await self._opened()
        answer = await self._exchange(api, wanted)
        if answer.status == UNAUTHORIZED and await self._renewed(shown):
            # A request that was rejected as unauthorized was not carried out: it may be sent again.
            api, _ = await self._opened()
            answer = await self._exchange(api, wanted)
        self.refusals.note(path, answer.status)
        return answer

    async def _exchange(self, api: ApiClient, wanted: _Wanted) -> Answer:
        method, max_bytes = wanted.method, wanted.max_bytes
        content_type = JSON_PATCH if method == "PATCH" else "application/json"
        sent = await api.param_serialize(
            method,
            wanted.path,
            query_params=list(wanted.query.items()),
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=wanted.body,
            auth_settings=["BearerToken"],
        )
        try:
            with self._circuit.asking(insists=wanted.insists, counts=not wanted.passed_on):
                try:
                    response = await api.call_api(*sent, _request_timeout=wanted.timeout)
                except _RedirectedError as redirected:
                    return redirected.answer
                raw = await (response.read() if max_bytes is None else _at_most(response.response, max_bytes))
        except CircuitOpenError as error:
            raise NotSentError(str(error)) from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:
            raise NotSentError(f"the API server cannot be reached: {error}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise NoAnswerError(f"no answer from the API server: {reason}") from error
        headers = dict(response.headers)
        return Answer(response.status, _decoded(raw, headers), headers)

    async def trouble(self) -> str:
        """Why the API server refuses the bot, for people; empty if it does not. Asks it unless that was done lately."""
        if self._now() - self.refusals.noted_at >= ASK_AGAIN_SECONDS:
            try:
                await self.request("GET", "/version", deadline_seconds=CONNECT_SECONDS)
            except (NotSentError, NoAnswerError) as error:
                return str(error)
        return self.refusals.reason

    @contextlib.asynccontextmanager
    async def websocket(
        self, path: str, query: Sequence[tuple[str, str]]
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A request that upgrades, as exec does. Raises aiohttp's own errors: a refusal has its status there."""
        if self._reads_only:
            raise NotSentError(READS_ONLY)
        stream = await asyncio.to_thread(library, "stream")
        async with contextlib.AsyncExitStack() as stack:
            api, shown = await self._opened()
            try:
                socket = await _upgraded(stream.WsApiClient(api.configuration), path, query, stack)
            except aiohttp.WSServerHandshakeError as error:
                if error.status != UNAUTHORIZED or not await self._renewed(shown):
                    raise
                api, _ = await self._opened()
                socket = await _upgraded(stream.WsApiClient(api.configuration), path, query, stack)
            yield socket

    # --- credentials --------------------------------------------------------------------------------------------------

    async def _opened(self) -> tuple[ApiClient, Credentials]:
        """The transport and its credentials. Raises `NotSentError` while there are no credentials at all."""
        stale_at = self._credentials.stale_at if self._credentials else -math.inf
        if max(stale_at, self._load_again_at) <= self._now():
            await self._load()
        if self._api is None or self._credentials is None:
            raise NotSentError(self.refusals.no_credentials or "no way to the cluster")
        return self._api, self._credentials

    async def _renewed(self, shown: Credentials) -> bool:
        """Whether other credentials replaced the refused ones; loads them again unless that was just done."""
        if self._credentials is shown and self._load_again_at <= self._now():
            await self._load()
        return self._credentials is not shown

    async def _load(self) -> None:
        """Loads once for all waiting callers; one caller's cancellation does not stop it for the others."""
        if self._loading is None:
            self._loading = asyncio.create_task(self._loaded())
        await asyncio.shield(self._loading)

    async def _loaded(self) -> None:
        """Keeps the present credentials if no better ones are available; the server may still accept them."""
        try:
            fresh = await load(self._connection, now=self._now)
            await self._put(fresh)
        except NotSentError as error:
            log.warning("credentials.not_loaded", reason=str(error))
            self.refusals.no_credentials = str(error)
        else:
            self.refusals.no_credentials = ""
        finally:
            self._load_again_at = self._now() + LOAD_PAUSE_SECONDS
            self._loading = None

    async def _put(self, fresh: Credentials) -> None:
        held = self._credentials
        if self._api is not None and held is not None and fresh.is_same_but_for_the_token(held):
            self._credentials = fresh
            self._api.configuration.api_key = fresh.configuration.api_key
            return
        api = await _transport(fresh)
        # The previous transport may still serve requests; the one before it has none any more.
        for old in self._retired:
            await old.close()
        self._retired = [self._api] if self._api is not None else []
        self._api, self._credentials = api, fresh


async def _upgraded(
    upgrading: ApiClient, path: str, query: Sequence[tuple[str, str]], stack: contextlib.AsyncExitStack
) -> aiohttp.ClientWebSocketResponse:
    stack.push_async_callback(upgrading.close)
    upgrading.user_agent = USER_AGENT
    sent = await upgrading.param_serialize(
        "GET", path, query_params=list(query), header_params={}, auth_settings=["BearerToken"]
    )
    answered = await upgrading.call_api(*sent, _preload_content=False)
    socket: aiohttp.ClientWebSocketResponse = await stack.enter_async_context(answered.response)
    return socket


async def _at_most(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    try:
        return await at_most(response.content.iter_any(), max_bytes)
    except TooLargeError as error:
        response.close()
        raise NoAnswerError(f"the answer is {error}") from error


def _without_redirects() -> aiohttp.TraceConfig:
    """The client has no other way to keep aiohttp from sending a request, with its body, to another address."""

    async def refuse(_session: object, _context: object, found: aiohttp.TraceRequestRedirectParams) -> None:
        found.response.close()
        raise _RedirectedError(found.response.status, found.response.headers.get("Location", ""))

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(refuse)
    return trace


def _decoded(raw: bytes, headers: Mapping[str, str]) -> Any:
    """JSON if the server declares it, else the text: a log may be one line of JSON and is still a log."""
    text = raw.decode("utf-8", errors="replace")
    kind = next((value for name, value in headers.items() if name.lower() == "content-type"), "")
    if "json" not in kind:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _proxy_from_environment(url: str) -> str | None:
    """`https_proxy` or `http_proxy`, unless `no_proxy` names the host."""
    parts = urlsplit(url)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    return urllib.request.getproxies().get(parts.scheme)


async def _transport(credentials: Credentials) -> ApiClient:
    """Raises `NotSentError` if a certificate of the credentials cannot be read."""
    # Importing takes a while: not on the loop that serves Slack and webhooks.
    transport = await asyncio.to_thread(library, "client.api_client")
    configuration = credentials.configuration
    configuration.connection_pool_maxsize = POOL_SIZE
    # The client's own retries would send a DELETE again; the caller knows the precondition and decides.
    configuration.retries = None
    # With `trust_env` aiohttp reads the proxy and ~/.netrc again for each request, each in a thread.
    configuration.client_session_kwargs = {"trust_env": False}
    configuration.trace_configs = [_without_redirects()]
    configuration.proxy = configuration.proxy or _proxy_from_environment(configuration.host)
    try:
        api = transport.ApiClient(configuration)
    except OSError as error:  # also an `ssl.SSLError`
        files = ", ".join(filter(None, (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)))
        raise NotSentError(f"a certificate or key cannot be read ({files}): {error}") from error
    api.user_agent = USER_AGENT
    return api
