"""A gateway and some engines in simulated time: the fleet process's work without a process, a clock or a socket."""

from __future__ import annotations

from dataclasses import dataclass

from bot.sandbox.fleet.engine import Engine, EngineLimits, Sequence
from bot.sandbox.fleet.workload import Load, Workload

TICK_SECONDS = 0.05
SCRAPE_EVERY_TICKS = 40
"""Two seconds, as the captures were scraped."""


class Replica:
    """One engine behind the gateway."""

    def __init__(self, name: str, limits: EngineLimits) -> None:
        self.name = name
        self.engine = Engine(limits)

    def send(self, prompt_tokens: int, max_tokens: int, now: float) -> Sequence | str:
        return self.engine.submit(prompt_tokens, max_tokens, now) or "shed"


@dataclass(frozen=True)
class Phase:
    """What scrapes and counters reported about one replica over a while."""

    usage: list[float]
    running: list[int]
    waiting: list[int]
    preemptions: int
    finished: int
    generated: int
    seconds: float

    @property
    def usage_p90(self) -> float:
        return sorted(self.usage)[int(0.9 * (len(self.usage) - 1))]

    @property
    def usage_average(self) -> float:
        return sum(self.usage) / len(self.usage)

    @property
    def waiting_average(self) -> float:
        return sum(self.waiting) / len(self.waiting)

    @property
    def preemptions_per_finished(self) -> float:
        return self.preemptions / max(1, self.finished)

    @property
    def tokens_per_second(self) -> float:
        return self.generated / self.seconds


class ClosedLoop:
    """Some replicas under one load; `run` lets simulated seconds pass and returns each replica's phase."""

    def __init__(self, *limits: EngineLimits, seed: int = 1) -> None:
        self.replicas = [Replica(f"replica-{index}", one) for index, one in enumerate(limits)]
        self.workload = Workload(seed)
        self._ticks = 0

    @property
    def now(self) -> float:
        return self._ticks * TICK_SECONDS

    def load(self, load: Load) -> None:
        self.workload.change(load, self.now)

    def run(self, seconds: float) -> list[Phase]:
        before = [_counters(replica.engine) for replica in self.replicas]
        scrapes: list[list[tuple[float, int, int]]] = [[] for _ in self.replicas]
        for _ in range(round(seconds / TICK_SECONDS)):
            self._tick()
            if self._ticks % SCRAPE_EVERY_TICKS == 0:
                for scraped, replica in zip(scrapes, self.replicas, strict=True):
                    engine = replica.engine
                    scraped.append((engine.usage, len(engine.running), len(engine.waiting)))
        return [
            _phase(scraped, start, _counters(replica.engine), seconds)
            for scraped, start, replica in zip(scrapes, before, self.replicas, strict=True)
        ]

    def _tick(self) -> None:
        now = self.now
        self.workload.tick(now, self.replicas)
        self._ticks += 1
        for replica in self.replicas:
            for sequence in replica.engine.advance(self.now):
                self.workload.ended(sequence, now)


def settled(loop: ClosedLoop, seconds: float = 120.0) -> list[Phase]:
    """Let the load settle for half a minute, then measure."""
    loop.run(30.0)
    return loop.run(seconds)


def _counters(engine: Engine) -> tuple[int, int, int]:
    measured = engine.measured
    return measured.preemptions, measured.finished_requests, measured.generation_tokens


def _phase(
    scraped: list[tuple[float, int, int]], start: tuple[int, int, int], end: tuple[int, int, int], seconds: float
) -> Phase:
    usage, running, waiting = (list(column) for column in zip(*scraped, strict=True))
    preemptions, finished, generated = (after - before for before, after in zip(start, end, strict=True))
    return Phase(
        usage=[float(one) for one in usage],
        running=[int(one) for one in running],
        waiting=[int(one) for one in waiting],
        preemptions=preemptions,
        finished=finished,
        generated=generated,
        seconds=seconds,
    )
