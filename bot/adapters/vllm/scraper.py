"""Scrapes every replica in parallel, all within one deadline, however many there are and however many hang.

A replica that does not answer becomes a scrape with its reason, so that its silence is not taken for idleness.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bot.adapters.vllm.metrics import parse, scrape_of
from bot.domain.kernel.errors import SourceError
from bot.domain.signals.scrape import Scrape, of_group
from bot.flow.parse_in_turn import ParseInTurn
from bot.flow.ports.cluster import Replica
from bot.flow.ports.readings import PodPage, PodPages

DEADLINE_SECONDS = 2.0
AT_ONCE = 256
"""Few enough for the open files of a container; hanging replicas of a large fleet do not block the others."""

OTHER_ENGINES = {"SGLang": "sglang[:_]", "TGI": "tgi_", "TensorRT-LLM": "trtllm[:_]", "Triton": "nv_inference_"}
"""How the names of their metrics begin."""


class VllmScraper:
    """The `Scraper` port over the replicas' own pages."""

    def __init__(
        self,
        pages: PodPages,
        now: Callable[[], float],
        *,
        deadline: float = DEADLINE_SECONDS,
        aside: Callable[..., Awaitable[Any]] = asyncio.to_thread,
    ) -> None:
        self._pages, self._now, self._deadline = pages, now, deadline
        self._parsed = ParseInTurn(aside)
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def scrape(self, replicas: Sequence[Replica]) -> Sequence[Scrape]:
        until = asyncio.get_running_loop().time() + self._deadline
        return await asyncio.gather(*(self._one(replica, until) for replica in replicas))

    async def _one(self, replica: Replica, until: float) -> Scrape:
        if replica.unread:
            return _failed(replica, replica.unread, self._now())
        return of_group(await asyncio.gather(*(self._page(one, until) for one in replica.pages)))

    async def _page(self, replica: Replica, until: float) -> Scrape:
        try:
            async with asyncio.timeout_at(until), self._slots:
                page = PodPage(replica.namespace, replica.name, replica.address, replica.port)
                text = await self._pages.read(page)
        except TimeoutError:
            return _failed(replica, f"/metrics did not answer within {self._deadline:g} s", self._now())
        except SourceError as error:
            return _failed(replica, str(error), self._now())
        at = self._now()
        try:
            found = await self._parsed(lambda page: scrape_of(parse(page), replica, at), text)
        except ValueError as error:
            return _failed(replica, f"/metrics is not in the text format: {error}", at)
        return found or _failed(replica, _why_no_metrics(text), at)


def _why_no_metrics(text: str) -> str:
    if text.lstrip()[:1] == "<":
        return "/metrics is a web page, not metrics: something in front of the engine answers"
    for engine, prefix in OTHER_ENGINES.items():
        if re.search(rf"^{prefix}", text, re.MULTILINE):
            return f"its page has {engine}'s metrics, and the bot reads only vLLM's"
    return "no vLLM metrics on its page (is --disable-log-stats set?)"


def _failed(replica: Replica, error: str, at: float) -> Scrape:
    return Scrape(
        replica=replica.name,
        uid=replica.uid,
        at=at,
        role=replica.role,
        in_rotation=replica.in_rotation,
        error=error[:300],
    )
