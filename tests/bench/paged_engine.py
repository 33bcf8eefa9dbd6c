"""Models one vLLM V1 engine with a paged KV pool, coarse but fast: many decode steps at once while nothing happens.

Follows vLLM's V1 scheduler: first come first served, chunked prefill, blocks allocated as tokens are computed, a prefix
shared by running sequences held once, and the newest sequence preempted and recomputed when a block is missing. Blocks
are counted on average (each sequence wastes half of one), and no cached block survives without a sequence that uses it.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

Weighted = list[tuple[float, float]]
"""(value, seconds it lasted)"""


@dataclass(frozen=True)
class Request:
    """`hits` tokens of `prompt` may be in the prefix cache; requests of one `group` share them, those of 0 do not."""

    prompt: int
    output: int
    hits: int = 0
    group: int = 0


@dataclass(frozen=True)
class Hardware:
    """A GPU and its model: `pool` in tokens, times in seconds."""

    pool: int
    block: int
    chunk: int
    step: float
    per_sequence: float
    per_held_token: float
    per_prefilled_token: float


@dataclass(eq=False, slots=True)
class _Sequence:
    request: Request
    made: int = 0
    born: int = 0
    """The step at which it would have made its first token, had it never been preempted."""
    ends: int = 0
    prefilled: int = 0
    to_prefill: int = 0
    is_new: bool = True

    @property
    def private(self) -> int:
        return self.request.prompt - (self.request.hits if self.request.group else 0)


@dataclass
class Measured:
    """What the bot could read of one run, without its warm-up."""

    seconds: float = 0.0
    finished: list[Request] = field(default_factory=list)
    preemptions: int = 0
    queried: int = 0
    hits: int = 0
    usage: Weighted = field(default_factory=list)
    running: Weighted = field(default_factory=list)
    waiting: Weighted = field(default_factory=list)

    @property
    def thrash(self) -> float:
        return self.preemptions / max(1, len(self.finished))

    @property
    def tokens_per_second(self) -> float:
        """Tokens of finished requests, so that an answer cut by the end of the run counts for every cap alike."""
        return sum(each.prompt + each.output for each in self.finished) / self.seconds if self.seconds else 0.0

    @property
    def hit_share(self) -> float:
        return self.hits / self.queried if self.queried else 0.0


def quantile(weighted: Weighted, share: float) -> float:
    total, passed = sum(weight for _, weight in weighted), 0.0
    for value, weight in sorted(weighted):
        passed += weight
        if passed >= share * total:
            return value
    return 0.0


class Engine:
    """One run over `requests`, which arrive at `arrivals` (seconds, ascending) and start over when used up."""

    def __init__(self, hardware: Hardware, cap: int, requests: Sequence[Request], arrivals: Sequence[float]) -> None:
        self._hardware, self._cap = hardware, cap
        self._requests, self._arrivals = requests, arrivals
        self._arrived = 0
        self._time, self._steps = 0.0, 0
        self._waiting: deque[_Sequence] = deque()
        self._running: dict[_Sequence, None] = {}
        self._prefilling: deque[_Sequence] = deque()
        self._ends: list[tuple[int, int, _Sequence]] = []
        self._number = 0
        self._decoding = 0
        self._held = 0.0
        self._groups: Counter[int] = Counter()
        self._measured = Measured()

    def run(self, warm_up: int, until_finished: int, max_rounds: int = 400_000) -> Measured:
        """Measures from the `warm_up`-th finished request on; gives up after `max_rounds` rounds, as in a livelock."""
        self._rounds(warm_up, max_rounds)
        began, self._measured = self._time, Measured()
        self._rounds(until_finished, max_rounds)
        self._measured.seconds = self._time - began
        return self._measured

    def _rounds(self, finished: int, max_rounds: int) -> None:
        for _ in range(max_rounds):
            if len(self._measured.finished) >= finished or not self._round():
                return

    def _round(self) -> bool:
        """One step with prefill, or all steps until something happens. False when every request has been served."""
        self._take_arrivals()
        if not self._running and not self._waiting:
            if self._arrived >= len(self._arrivals):
                return False
            self._time = self._arrivals[self._arrived]
            return True
        if not self._make_room(self._decoding):
            self._admit()
        prefilled = self._prefill()
        steps = 1 if prefilled else self._idle_steps()
        self._decode(steps, prefilled)
        return True

    def _take_arrivals(self) -> None:
        while self._arrived < len(self._arrivals) and self._arrivals[self._arrived] <= self._time:
            self._waiting.append(_Sequence(self._requests[self._arrived % len(self._requests)]))
            self._arrived += 1

    def _make_room(self, tokens: int) -> bool:
        """Preempts the newest until `tokens` fit; whether it had to."""
        preempted = False
        while self._held + tokens > self._hardware.pool and len(self._running) > 1:
            self._preempt()
            preempted = True
            tokens = min(tokens, max(1, self._decoding))
        return preempted

    def _preempt(self) -> None:
        sequence, _ = self._running.popitem()
        if sequence.to_prefill:
            self._prefilling.remove(sequence)
            self._release(sequence, sequence.prefilled)
        else:
            sequence.made = self._steps - sequence.born
            self._decoding -= 1
            self._release(sequence, sequence.private + sequence.made)
        sequence.ends = 0
        self._measured.preemptions += 1
        self._waiting.appendleft(sequence)

    def _release(self, sequence: _Sequence, private: int) -> None:
        self._held -= private + self._hardware.block / 2
        group = sequence.request.group
        if group:
            self._groups[group] -= 1
            if not self._groups[group]:
                self._held -= sequence.request.hits

    def _admit(self) -> None:
        pending = sum(each.to_prefill for each in self._prefilling)
        budget = self._hardware.chunk - self._decoding - pending
        # What this step will take before anything new may start.
        taken = self._held + self._decoding + pending
        while self._waiting and len(self._running) < self._cap and budget > 0:
            sequence = self._waiting[0]
            request, cached = sequence.request, self._cached(sequence)
            missing = request.prompt + sequence.made - cached
            # A history is held besides what is missing; a prefix that nobody holds is part of it.
            history = 0 if request.group else cached
            prefix = request.hits if request.group and not cached else 0
            takes = history + prefix + min(missing - prefix, budget) + self._hardware.block
            if taken + takes > self._hardware.pool and self._running:
                return
            self._waiting.popleft()
            if sequence.is_new:
                self._measured.queried += request.prompt
                self._measured.hits += cached
            self._start(sequence, missing)
            taken += takes
            budget -= missing

    def _cached(self, sequence: _Sequence) -> int:
        group = sequence.request.group
        if group:
            return sequence.request.hits if self._groups[group] else 0
        # Of its own history nothing is left after a preemption.
        return sequence.request.hits if sequence.is_new else 0

    def _start(self, sequence: _Sequence, missing: int) -> None:
        """A shared prefix, and what the cache has of a history, is held at once; the rest grows with the chunks."""
        request = sequence.request
        sequence.to_prefill, sequence.prefilled = missing, 0
        if not request.group:
            sequence.prefilled = request.prompt + sequence.made - missing
            self._held += sequence.prefilled
        elif not self._groups[request.group]:
            self._held += request.hits
        self._groups[request.group] += 1
        self._held += self._hardware.block / 2
        sequence.is_new = False
        self._running[sequence] = None
        self._prefilling.append(sequence)

    def _prefill(self) -> int:
        budget = done = max(0, self._hardware.chunk - self._decoding)
        while self._prefilling and budget:
            sequence = self._prefilling[0]
            part = min(budget, sequence.to_prefill)
            grows = min(part, sequence.private + sequence.made - sequence.prefilled)
            if self._make_room(self._decoding + grows) and sequence not in self._running:
                break
            sequence.to_prefill -= part
            sequence.prefilled += grows
            self._held += grows
            budget -= part
            if not sequence.to_prefill:
                self._prefilling.popleft()
                sequence.born = self._steps - sequence.made
                sequence.ends = sequence.born + sequence.request.output
                self._decoding += 1
                self._number += 1
                heapq.heappush(self._ends, (sequence.ends, self._number, sequence))
        return done - budget

    def _idle_steps(self) -> int:
        """How many steps may pass until a sequence ends, the pool is full or a request arrives at an empty queue."""
        steps = 1_000_000
        while self._ends and self._is_stale(self._ends[0]):
            heapq.heappop(self._ends)
        if self._ends:
            steps = self._ends[0][0] - self._steps
        if self._decoding:
            steps = min(steps, int((self._hardware.pool - self._held) / self._decoding))
        if not self._waiting and self._arrived < len(self._arrivals):
            steps = min(steps, int((self._arrivals[self._arrived] - self._time) / self._seconds(1, 0)) + 1)
        return max(1, steps)

    @staticmethod
    def _is_stale(end: tuple[int, int, _Sequence]) -> bool:
        return end[2].ends != end[0]

    def _seconds(self, steps: int, prefilled: int) -> float:
        hardware, held = self._hardware, self._held + self._decoding * steps / 2
        each = hardware.step + hardware.per_sequence * self._decoding + hardware.per_held_token * held
        return steps * each + hardware.per_prefilled_token * prefilled

    def _decode(self, steps: int, prefilled: int) -> None:
        seconds = self._seconds(steps, prefilled)
        measured = self._measured
        measured.usage.append(((self._held + self._decoding * steps / 2) / self._hardware.pool, seconds))
        measured.running.append((len(self._running), seconds))
        measured.waiting.append((len(self._waiting), seconds))
        self._time += seconds
        self._steps += steps
        self._held += self._decoding * steps
        while self._ends and (self._ends[0][0] <= self._steps or self._is_stale(self._ends[0])):
            end = heapq.heappop(self._ends)
            if not self._is_stale(end):
                self._finish(end[2])

    def _finish(self, sequence: _Sequence) -> None:
        del self._running[sequence]
        self._decoding -= 1
        self._release(sequence, sequence.private + self._steps - sequence.born)
        sequence.ends = 0
        self._measured.finished.append(sequence.request)
