"""A pod's own page over HTTP at the pod's own address: never through a Service, which picks any of its pods.

aiohttp, because the pool of httpx takes quadratic time: 200 pages took 2.2 s with it and take 0.2 s here.
"""

from __future__ import annotations

import aiohttp

from bot.domain.kernel.errors import SourceError
from bot.flow.bounded import TooLargeError, at_most
from bot.flow.ports.readings import MAX_PAGE_BYTES, PodPage

KEPT_SECONDS = 30.0


class AddressPages:
    """The `PodPages` port. Use as `async with`, or call `close`."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> AddressPages:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def read(self, page: PodPage) -> str:
        host = f"[{page.address}]" if ":" in page.address else page.address
        try:
            async with self._opened().get(f"http://{host}:{page.port}{page.path}", allow_redirects=False) as response:
                if response.status >= 300:
                    raise SourceError(f"{page.path} answered HTTP {response.status}")
                body = await at_most(response.content.iter_any(), MAX_PAGE_BYTES)
        except (aiohttp.ClientError, OSError, TooLargeError) as error:
            raise SourceError(f"{page.path}: {error or type(error).__name__}") from error
        return body.decode("utf-8", errors="replace")

    def _opened(self) -> aiohttp.ClientSession:
        """Opened on the loop that reads. The callers limit how many pages are open at once, not a pool."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT_SECONDS)
            # Each read has its caller's deadline; the environment's proxy must not be used for pods.
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=aiohttp.ClientTimeout(total=None), trust_env=False
            )
        return self._session
