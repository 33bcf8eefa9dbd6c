"""The clients of the fleet: closed-loop workers or open-loop arrivals, and the results of their requests.

Pure and deterministic for a seed: its input is the time, the replicas in rotation and what ended, its output the
requests to send. A closed-loop worker waits for its answer, pauses, and sends the next request.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence as Many
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from bot.sandbox.fleet.engine import Sequence


@dataclass(frozen=True, slots=True)
class Load:
    """The clients' load; `workers` and `arrivals_per_second` may be used together. Defaults as captured."""

    workers: int = 0
    arrivals_per_second: float = 0.0
    prompt_tokens: tuple[int, int] = (80, 112)
    output_tokens: tuple[int, int] = (384, 640)
    ramp_seconds: float = 0.0
    burst: int = 0
    """Requests beside those of the workers, all at once when the ramp is over."""
    pause_seconds: float = 0.6


class Backend(Protocol):
    """One replica as the gateway sees it."""

    @property
    def name(self) -> str: ...

    def send(self, prompt_tokens: int, max_tokens: int, now: float) -> Sequence | str:
        """The accepted sequence, or why not: `shed` (503), `empty` (answered without a token), `down` (no answer)."""


@dataclass(slots=True)
class Seen:
    """Client-side statistics since the start of the fleet."""

    sent: int = 0
    finished: int = 0
    cut: int = 0
    shed: int = 0
    empty: int = 0
    refused: int = 0
    in_flight: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> int:
        """Streams that did not get all their tokens for a reason other than a proper 503."""
        return self.cut + self.empty + self.refused


@dataclass(frozen=True, slots=True)
class Sent:
    """Where a request went."""

    replica: str
    by_worker: bool
    is_retry: bool


class Workload:
    """Sends requests to the replicas in rotation, each time to the one with the fewest outstanding.

    A request that this one sheds goes to the next one once, as in routers: a replica that refuses at once is always the
    idlest, and would attract all requests.
    """

    RETRY_SECONDS = 1.0

    def __init__(self, seed: int = 0) -> None:
        self._random = Random(seed)  # noqa: S311 - a simulation, not a secret
        self.load = Load()
        self.seen = Seen()
        self._ramp_from = 0
        self._ramp_started = 0.0
        self._burst = 0
        self._due: list[float] = []
        self._busy_workers = 0
        self._next_arrival: float | None = None
        self._open: dict[Sequence, Sent] = {}
        self._shed: list[tuple[Sequence, Sent]] = []

    def change(self, load: Load, now: float) -> None:
        self._ramp_from = self.wanted_workers(now)
        self._ramp_started = now
        self._burst = load.burst
        self.load = load
        self._next_arrival = None

    def wanted_workers(self, now: float) -> int:
        if self.load.ramp_seconds <= 0:
            return self.load.workers
        share = min(1.0, max(0.0, (now - self._ramp_started) / self.load.ramp_seconds))
        return round(self._ramp_from + (self.load.workers - self._ramp_from) * share)

    @property
    def workers(self) -> int:
        return self._busy_workers + len(self._due)

    def tick(self, now: float, rotation: Many[Backend]) -> None:
        """Sends whatever is due now."""
        self._retry_shed(now, rotation)
        self._hire_and_retire(now)
        while self._due and self._due[0] <= now:
            heapq.heappop(self._due)
            self._send(now, rotation, by_worker=True)
        self._arrive(now, rotation)
        if now >= self._ramp_started + self.load.ramp_seconds:
            burst, self._burst = self._burst, 0
            for _ in range(burst):
                self._send(now, rotation, by_worker=False)

    def ended(self, sequence: Sequence, now: float) -> None:
        """A stream ended: complete if it has its tokens, refused as `send` says it, else it was cut."""
        sent = self._open.pop(sequence, None)
        if sent is None:
            return  # another client's request, not the gateway's
        self.seen.in_flight[sent.replica] -= 1
        reason = sequence.finished_reason
        if reason == "shed" and not sent.is_retry:
            self._shed.append((sequence, sent))  # its worker still waits for the answer
            return
        self._busy_workers -= sent.by_worker
        if reason in ("shed", "empty", "refused"):
            self._refuse(reason, now, by_worker=sent.by_worker)
            return
        if reason == "length":
            self.seen.finished += 1
        else:
            self.seen.cut += 1
        if sent.by_worker:
            self._pause(now)

    def _retry_shed(self, now: float, rotation: Many[Backend]) -> None:
        """A real replica sheds when its answer comes, not when it is asked."""
        shed, self._shed = self._shed, []
        for sequence, sent in shed:
            self._busy_workers -= sent.by_worker
            others = self._idlest([one for one in rotation if one.name != sent.replica])
            offered = self._offer(sequence.prompt_tokens, sequence.max_tokens, now, others[:1])
            self._accept(offered if others else ("", "shed"), now, by_worker=sent.by_worker, is_retry=True)

    def _hire_and_retire(self, now: float) -> None:
        wanted = self.wanted_workers(now)
        while self.workers < wanted:
            # If all came at once, their requests would be synchronised.
            if self.load.ramp_seconds > 0:
                self._pause(now)  # as if they were reading an answer, so that they ask as often as later on
            else:
                heapq.heappush(self._due, now + self._random.uniform(0, self.load.pause_seconds))
        while self.workers > wanted and self._due:
            self._due.pop()

    def _arrive(self, now: float, rotation: Many[Backend]) -> None:
        rate = self.load.arrivals_per_second
        if rate <= 0:
            return
        if self._next_arrival is None:
            self._next_arrival = now + self._random.expovariate(rate)
        while self._next_arrival <= now:
            self._next_arrival += self._random.expovariate(rate)
            self._send(now, rotation, by_worker=False)

    def _send(self, now: float, rotation: Many[Backend], *, by_worker: bool) -> None:
        prompt = self._random.randint(*self.load.prompt_tokens)
        output = self._random.randint(*self.load.output_tokens)
        self.seen.sent += 1
        answer = self._offer(prompt, output, now, self._idlest(rotation)[:2])
        self._accept(answer, now, by_worker=by_worker)

    def _idlest(self, rotation: Many[Backend]) -> list[Backend]:
        return sorted(rotation, key=lambda r: (self.seen.in_flight[r.name], self._random.random()))

    def _offer(self, prompt: int, output: int, now: float, replicas: Many[Backend]) -> tuple[str, Sequence | str]:
        """The first replica that does not shed it at once, and its answer."""
        offered: tuple[str, Sequence | str] = ("", "down")
        for replica in replicas:
            offered = (replica.name, replica.send(prompt, output, now))
            if offered[1] != "shed":
                break
        return offered

    def _accept(
        self, offered: tuple[str, Sequence | str], now: float, *, by_worker: bool, is_retry: bool = False
    ) -> None:
        replica, answer = offered
        if isinstance(answer, Sequence):
            self.seen.in_flight[replica] += 1
            self._open[answer] = Sent(replica, by_worker, is_retry)
            self._busy_workers += by_worker
        else:
            self._refuse(answer, now, by_worker=by_worker)

    def _refuse(self, why: str, now: float, *, by_worker: bool) -> None:
        if why == "shed":
            self.seen.shed += 1
        elif why == "empty":
            self.seen.empty += 1
        else:
            self.seen.refused += 1
        if by_worker:
            heapq.heappush(self._due, now + self.RETRY_SECONDS * self._random.uniform(0.5, 1.5))

    def _pause(self, now: float) -> None:
        mean = self.load.pause_seconds
        heapq.heappush(self._due, now + (self._random.expovariate(1 / mean) if mean > 0 else 0.0))
