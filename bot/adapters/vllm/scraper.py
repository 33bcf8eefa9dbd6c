"""Scrape every replica at its own address, in parallel, each within its own deadline.

One that does not answer becomes a scrape with its reason, so that nobody takes its silence for idleness.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import httpx

from bot.adapters.vllm.metrics import parse, scrape_of
from bot.domain.scrape import Scrape
from bot.flow.ports import Replica

DEADLINE_SECONDS = 2.0
AT_ONCE = 32
MOST_BYTES = 8 * 1024 * 1024
"""A page of 0.32 has 53 kB; what is larger than this is no metrics page."""


class VllmScraper:
    """The `Scraper` port over HTTP. The client is shared and closed by its owner."""

    def __init__(
        self, client: httpx.AsyncClient, now: Callable[[], float], *, deadline: float = DEADLINE_SECONDS
    ) -> None:
        self._client, self._now, self._deadline = client, now, deadline
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def scrape(self, replicas: Sequence[Replica]) -> Sequence[Scrape]:
        return await asyncio.gather(*(self._one(replica) for replica in replicas))

    async def _one(self, replica: Replica) -> Scrape:
        async with self._slots:
            try:
                async with asyncio.timeout(self._deadline):
                    text = await self._page(replica)
            except TimeoutError:
                return _failed(replica, f"/metrics did not answer within {self._deadline:g} s", self._now())
            except httpx.HTTPStatusError as error:
                return _failed(replica, f"/metrics answered HTTP {error.response.status_code}", self._now())
            except httpx.HTTPError as error:
                return _failed(replica, f"/metrics: {error or type(error).__name__}", self._now())
        at = self._now()
        try:
            found = scrape_of(parse(text), replica, at)
        except ValueError as error:
            return _failed(replica, f"/metrics is not in the text format: {error}", at)
        return found or _failed(replica, "no vLLM metrics on its page (is --disable-log-stats set?)", at)

    async def _page(self, replica: Replica) -> str:
        host = f"[{replica.address}]" if ":" in replica.address else replica.address
        async with self._client.stream("GET", f"http://{host}:{replica.port}/metrics") as response:
            response.raise_for_status()
            body = bytearray()
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > MOST_BYTES:
                    raise httpx.DecodingError(f"larger than {MOST_BYTES} bytes", request=response.request)
        return body.decode("utf-8", errors="replace")


def _failed(replica: Replica, error: str, at: float) -> Scrape:
    return Scrape(
        replica=replica.name,
        uid=replica.uid,
        at=at,
        role=replica.role,
        in_rotation=replica.in_rotation,
        error=error[:300],
    )
