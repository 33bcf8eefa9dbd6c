"""Where the API server is, and the bot's credentials: loaded again before they expire and after a 401.

An exec plugin's token has its expiry; a token file and a pod's service account token are rotated on disk, and are read
again every minute. The client's own loader reads each of them once.
"""

from __future__ import annotations

import asyncio
import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.adapters.kubernetes.library import library
from bot.domain.kernel.errors import BotError

if TYPE_CHECKING:
    from kubernetes.aio.client.configuration import Configuration

LOAD_SECONDS = 10.0
"""An exec plugin that takes longer has failed."""
FILE_SECONDS = 60.0


@dataclass(frozen=True)
class Connection:
    """Where the API server is: an explicit URL, else a kubeconfig, else the pod's own service account."""

    url: str = ""
    token: str = ""
    ca_file: str = ""
    kubeconfig: str = ""
    context: str = ""


class NotSentError(BotError):
    """The server could not be reached: this request has certainly not arrived."""


@dataclass(frozen=True)
class Credentials:
    configuration: Configuration
    stale_at: float = math.inf
    """When they must be loaded again, as seconds since the epoch."""

    @property
    def token(self) -> str:
        return str(self.configuration.api_key.get("BearerToken", ""))

    def is_same_but_for_the_token(self, other: Credentials) -> bool:
        """A certificate may change under the same name, so it never counts as the same."""
        return bool(self.token and other.token) and _where(self) == _where(other)


def _where(credentials: Credentials) -> tuple[object, ...]:
    known = credentials.configuration
    return known.host, known.ssl_ca_cert, known.cert_file, known.key_file, known.verify_ssl


async def load(connection: Connection, *, now: Callable[[], float]) -> Credentials:
    """Raises `NotSentError` if the cluster cannot be reached."""
    try:
        async with asyncio.timeout(LOAD_SECONDS):
            return await _load(connection, now())
    except TimeoutError:
        raise NotSentError(f"no way to the cluster: no credentials within {LOAD_SECONDS:.0f} s") from None


async def _load(connection: Connection, now: float) -> Credentials:
    module = await asyncio.to_thread(library, "client.configuration")
    configuration: Configuration = module.Configuration()
    if connection.url:
        configuration.host = connection.url.rstrip("/")
        configuration.ssl_ca_cert = connection.ca_file or None
        if connection.token:
            configuration.api_key = {"BearerToken": f"Bearer {connection.token}"}
        return Credentials(configuration)
    config = await asyncio.to_thread(library, "config")
    # The client's errors for a file that is not YAML, or does not have the structure of a kubeconfig.
    malformed = (importlib.import_module("yaml").YAMLError, AttributeError, KeyError, TypeError, ValueError)
    try:
        if connection.kubeconfig:
            stale_at = await _from_kubeconfig(config, connection, configuration, now)
        else:
            config.load_incluster_config(client_configuration=configuration, try_refresh_token=False)
            stale_at = now + FILE_SECONDS
    except (config.ConfigException, OSError) as error:
        raise NotSentError(f"no way to the cluster: {error}") from error
    except malformed as error:
        # Only the kind of the error: its text may quote the file, which contains secrets.
        reason = f"{connection.kubeconfig} is not a kubeconfig ({type(error).__name__})"
        raise NotSentError(f"no way to the cluster: {reason}") from None
    if token := configuration.api_key.get("BearerToken"):
        # A file ends with a newline, which a header must not contain.
        configuration.api_key["BearerToken"] = token.strip()
    return Credentials(configuration, stale_at)


async def _from_kubeconfig(config: Any, connection: Connection, configuration: Configuration, now: float) -> float:
    """Fills the configuration; returns when its credentials become stale."""
    loader = await config.load_kube_config(
        config_file=connection.kubeconfig,
        context=connection.context or None,
        client_configuration=configuration,
        persist_config=False,
    )
    # The client's own `refresh_token` reads this too: there is no public attribute for the kind of user.
    user = (loader._user.value if loader._user is not None else None) or {}
    how = f"the exec plugin {user['exec']['command']}" if "exec" in user else "the tokenFile"
    if {"exec", "tokenFile"} & user.keys() and not configuration.api_key and not configuration.cert_file:
        raise NotSentError(f"no way to the cluster: {how} of {connection.kubeconfig} gave no credentials")
    if expires := getattr(loader, "exec_plugin_expiry", None):
        return float(expires.timestamp())
    return now + FILE_SECONDS if "tokenFile" in user and "exec" not in user else math.inf
