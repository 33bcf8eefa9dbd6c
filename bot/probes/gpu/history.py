"""Earlier registers of GPUs, from the sample store and from Prometheus.

A register counts only if it changed in the incident's time, so each reading is compared with the ones before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bot.domain.kernel.errors import SourceError
from bot.domain.signals.scrape import Scrape
from bot.flow.ports.readings import ProbeRequest, RegisterRecord
from bot.probes.declaration import Sources

BEFORE_SECONDS = 1800.0
"""Registers of this time before the incident count: a fault comes before its alert."""
SLACK_SECONDS = 60.0


@dataclass(frozen=True)
class Readings:
    """What was read in one place, oldest first; the last one is the reading of now."""

    scrapes: Sequence[Scrape]
    reaches_back: bool
    """Whether the earlier readings begin where the asked time does."""

    @property
    def gone(self) -> list[str]:
        """GPUs of earlier readings that the reading of now lacks."""
        earlier = {gpu for scrape in self.scrapes[:-1] for gpu in scrape.ranks}
        return sorted(earlier - self.scrapes[-1].ranks.keys())

    def before(self, gpu: str) -> list[Mapping[str, float]]:
        return [scrape.ranks[gpu] for scrape in self.scrapes[:-1] if gpu in scrape.ranks]


class RegisterHistory:
    """Each probe has its own `kind` of keys.

    Probes read different GPUs of a node at different moments. In a shared history another probe's readings would make
    it reach back further than this probe watched its GPUs, and an XID of unknown age would be called old.
    """

    def __init__(self, kind: str, sources: Sources) -> None:
        self._kind, self._store, self._now = kind, sources.samples, sources.now

    async def add(self, place: str, gpus: Mapping[str, Mapping[str, float]], since: float) -> Readings:
        """Remember these registers by GPU. The readings of this place since then, with these."""
        key, now = f"{self._kind}/{place}", self._now()
        earlier = await self._store.between(key, since, now)
        scrape = Scrape(replica=place, at=now, ranks={gpu: dict(values) for gpu, values in gpus.items()})
        await self._store.add(key, [scrape])
        return Readings([*earlier, scrape], bool(earlier) and earlier[0].at <= since + SLACK_SECONDS)


@dataclass(frozen=True)
class Record:
    """The XIDs of one GPU's register in Prometheus, oldest first. `reaches_back`: over all of the incident's time."""

    xids: tuple[float, ...] = ()
    reaches_back: bool = False

    @property
    def readings(self) -> tuple[Mapping[str, float], ...]:
        return tuple({"xid": xid} for xid in self.xids)


NO_RECORD = Record()


async def recorded_xids(
    records: RegisterRecord | None, uuids: Iterable[str], request: ProbeRequest
) -> Mapping[str, Record]:
    """What Prometheus recorded in the incident's time, by GPU. It only adds to the bot's own readings."""
    named = [uuid for uuid in uuids if uuid]
    if records is None or not named:
        return {}
    since = start_of(request)
    try:
        found = await records.xids(named, since, request.at)
    except SourceError:
        return {}
    return {
        uuid: Record(tuple(xid for _at, xid in points), points[0][0] <= since + SLACK_SECONDS)
        for uuid, points in found.items()
        if points
    }


def start_of(request: ProbeRequest) -> float:
    """The moment from which registers, events and marks count."""
    return request.context.began_at - BEFORE_SECONDS


def place_of(request: ProbeRequest, node: str) -> str:
    return f"{request.context.target.cluster}/{node}"
