"""The `SampleStore` and `LoadLog` ports in memory."""

from collections import defaultdict
from collections.abc import Sequence

from bot.domain.signals.load_log import LoadPoint
from bot.domain.signals.scrape import Scrape


class FakeSampleStore:
    def __init__(self) -> None:
        self.kept: dict[str, list[Scrape]] = defaultdict(list)

    async def add(self, workload: str, scrapes: Sequence[Scrape]) -> None:
        self.kept[workload].extend(scrapes)

    async def between(self, workload: str, start: float, end: float) -> Sequence[Scrape]:
        return sorted((s for s in self.kept[workload] if start <= s.at <= end), key=lambda s: s.at)


class FakeLoadLog:
    """The `LoadLog` port in memory."""

    def __init__(self, *points: LoadPoint) -> None:
        self.kept = {point.start: point for point in points}

    async def add(self, workload: str, point: LoadPoint) -> None:
        self.kept[point.start] = point

    async def all(self, workload: str) -> Sequence[LoadPoint]:
        return [self.kept[start] for start in sorted(self.kept)]
