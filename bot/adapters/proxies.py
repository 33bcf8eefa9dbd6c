"""The proxy that the environment names for an address, read once instead of at each call."""

from __future__ import annotations

import ipaddress
import urllib.request
from urllib.parse import urlsplit


def proxy_from_environment(url: str) -> str | None:
    """`https_proxy` or `http_proxy`, unless `no_proxy` names the host. Loopback addresses never have a proxy."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if _is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
