"""One connection to the API server: plain JSON in and out, and a clear word on whether a request can have arrived.

The official client is imported on first use (seconds and 120 MB with its models; its transport is enough here). It
brings kubeconfig, exec plugins, in-cluster tokens and TLS; its models are not used, so that objects stay as they came.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp

from bot.domain.errors import BotError

if TYPE_CHECKING:
    from kubernetes.aio.client.configuration import Configuration

ApiClient = Any
"""`kubernetes.aio.client.api_client.ApiClient`, whose methods are generated and only partly typed."""

USER_AGENT = "incident-bot"
JSON_PATCH = "application/json-patch+json"
CONNECT_SECONDS = 3.0
DEADLINE_SECONDS = 10.0
POOL_SIZE = 32


@dataclass(frozen=True)
class Connection:
    """Where the API server is: an explicit URL, else a kubeconfig, else the pod's own service account."""

    url: str = ""
    token: str = ""
    ca_file: str = ""
    kubeconfig: str = ""
    context: str = ""


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def message(self) -> str:
        """What the server says, for people."""
        said = self.body.get("message") if isinstance(self.body, dict) else self.body
        return f"{self.status} {said or 'without a reason'}"

    @property
    def reason(self) -> str:
        return str(self.body.get("reason") or "") if isinstance(self.body, dict) else ""


class NotSentError(BotError):
    """The server could not be reached: this request has certainly not arrived."""


class NoAnswerError(BotError):
    """The request left and no answer came back: it may or may not have been carried out."""


class KubernetesClient:
    """Use as `async with`, or call `close`. Safe for many requests at once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._api: ApiClient | None = None
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> KubernetesClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Import and configure now what the first request would else wait for. Raise `ClusterError` without a way."""
        await self._opened()

    async def close(self) -> None:
        if self._api is not None:
            await self._api.close()
            self._api = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        deadline_seconds: float = DEADLINE_SECONDS,
        most_bytes: int | None = None,
    ) -> Answer:
        """Any answer of the server, also a refusal. Raise `NotSentError` or `NoAnswerError`.

        `most_bytes` where somebody else than the API server writes the answer; no more than that is read.
        """
        api = await self._opened()
        content_type = JSON_PATCH if method == "PATCH" else "application/json"
        timeout = aiohttp.ClientTimeout(total=deadline_seconds, connect=CONNECT_SECONDS, sock_connect=CONNECT_SECONDS)
        sent = await api.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            response = await api.call_api(*sent, _request_timeout=timeout)
            raw = await (response.read() if most_bytes is None else _at_most(response.response, most_bytes))
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:
            raise NotSentError(f"the API server cannot be reached: {error}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            said = str(error) or type(error).__name__
            raise NoAnswerError(f"no answer from the API server: {said}") from error
        headers = dict(response.headers)
        return Answer(response.status, _decoded(raw, headers), headers)

    @contextlib.asynccontextmanager
    async def websocket(
        self, path: str, query: Sequence[tuple[str, str]]
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A request that upgrades, as exec does. Raise aiohttp's own errors: a refusal has its status there."""
        api = await self._opened()
        stream = await asyncio.to_thread(importlib.import_module, "kubernetes.aio.stream")
        upgrading = stream.WsApiClient(api.configuration)
        upgrading.user_agent = USER_AGENT
        try:
            sent = await upgrading.param_serialize(
                "GET", path, query_params=list(query), header_params={}, auth_settings=["BearerToken"]
            )
            answered = await upgrading.call_api(*sent, _preload_content=False)
            async with answered.response as socket:
                yield socket
        finally:
            await upgrading.close()

    async def _opened(self) -> ApiClient:
        async with self._opening:
            if self._api is None:
                self._api = await _open(self._connection)
            return self._api


async def _at_most(response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > most_bytes:
            response.close()
            raise NoAnswerError(f"the answer is larger than {most_bytes >> 20} MiB")
    return bytes(body)


def _decoded(raw: bytes, headers: Mapping[str, str]) -> Any:
    """JSON where the server calls it that, else the text: a log may be one line of JSON and is still a log."""
    text = raw.decode("utf-8", errors="replace")
    kind = next((value for name, value in headers.items() if name.lower() == "content-type"), "")
    if "json" not in kind:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


async def _open(connection: Connection) -> ApiClient:
    # Importing takes most of a second of work: not on the loop that serves Slack and webhooks.
    transport = await asyncio.to_thread(importlib.import_module, "kubernetes.aio.client.api_client")
    configuration = await _configuration(connection)
    configuration.connection_pool_maxsize = POOL_SIZE
    # The client's own retries would send a DELETE again; repeating is decided by whoever knows the precondition.
    configuration.retries = None
    api = transport.ApiClient(configuration)
    api.user_agent = USER_AGENT
    return api


async def _configuration(connection: Connection) -> Configuration:
    module = await asyncio.to_thread(importlib.import_module, "kubernetes.aio.client.configuration")
    configuration: Configuration = module.Configuration()
    if connection.url:
        configuration.host = connection.url.rstrip("/")
        configuration.ssl_ca_cert = connection.ca_file or None
        if connection.token:
            configuration.api_key = {"BearerToken": connection.token}
            configuration.api_key_prefix = {"BearerToken": "Bearer"}
        return configuration
    config = await asyncio.to_thread(importlib.import_module, "kubernetes.aio.config")
    # What the client raises for a file that is not YAML, or not of the shape of a kubeconfig.
    malformed = (importlib.import_module("yaml").YAMLError, AttributeError, KeyError, TypeError, ValueError)
    try:
        if connection.kubeconfig:
            await config.load_kube_config(
                config_file=connection.kubeconfig,
                context=connection.context or None,
                client_configuration=configuration,
                persist_config=False,
            )
        else:
            config.load_incluster_config(client_configuration=configuration)
    except (config.ConfigException, OSError) as error:
        raise NotSentError(f"no way to the cluster: {error}") from error
    except malformed as error:
        # Only the kind of the error: its words may quote the file, which holds secrets.
        said = f"{connection.kubeconfig} is no kubeconfig ({type(error).__name__})"
        raise NotSentError(f"no way to the cluster: {said}") from None
    return configuration
