"""The `SampleStore` port in memory."""

from collections import defaultdict
from collections.abc import Sequence

from bot.domain.scrape import Scrape


class FakeSampleStore:
    def __init__(self) -> None:
        self.kept: dict[str, list[Scrape]] = defaultdict(list)

    async def add(self, workload: str, scrapes: Sequence[Scrape]) -> None:
        self.kept[workload].extend(scrapes)

    async def between(self, workload: str, start: float, end: float) -> Sequence[Scrape]:
        return sorted((s for s in self.kept[workload] if start <= s.at <= end), key=lambda s: s.at)
