"""HTTP between processes of this machine: no TLS, no proxies.

By default each client of httpx loads all certificates of the system, which takes longer than twenty requests.
"""

from __future__ import annotations

import ssl
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx

_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""It knows no certificate, so every HTTPS server is refused."""


@cache
def http() -> httpx.Client:
    """One for the process; threads may share it."""
    import httpx  # some fakes need none of it

    return httpx.Client(verify=_NO_TLS, trust_env=False, timeout=20)


def async_http(*, base_url: str = "", timeout: float | None = 5.0) -> httpx.AsyncClient:
    """Returns a new client, which the caller closes. `timeout`: in seconds."""
    import httpx  # as above

    return httpx.AsyncClient(base_url=base_url, verify=_NO_TLS, trust_env=False, timeout=timeout)
