"""An HTTP client for one dependency: once the dependency has stopped answering, requests fail at once.

The clients share one set of CA certificates, which takes 0.7 MB.
"""

from __future__ import annotations

import ssl
from functools import cache
from typing import Any

import httpx

from bot.flow.circuit import Circuit


@cache
def tls() -> ssl.SSLContext:
    """The certificates that httpx trusts by default, read once."""
    return httpx.create_ssl_context()


class CircuitClient(httpx.AsyncClient):
    """Raises `CircuitOpenError` besides the errors of httpx."""

    def __init__(self, circuit: Circuit, **options: Any) -> None:
        super().__init__(**options)
        self._circuit = circuit

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        with self._circuit.asking():
            return await super().send(request, **options)
