"""HTTP between processes of this machine: no TLS, no proxies.

By default each client of httpx loads all certificates of the system, which takes longer than twenty requests.
"""

from __future__ import annotations

import ssl
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""`verify=` of a client. It knows no certificate, so every HTTPS server is refused."""


@cache
def http() -> httpx.Client:
    """One for the process; threads may share it."""
    import httpx  # some fakes need none of it

    return httpx.Client(verify=NO_TLS, trust_env=False, timeout=20)
