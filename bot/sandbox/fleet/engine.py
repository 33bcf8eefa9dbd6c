"""A model of one vLLM V1 engine: a pool of KV blocks, continuous batching, preemption by recompute.

It is pure: no clock, no randomness, no I/O. `advance` moves it to a moment, and the same calls give the same state. It
strides from event to event (a new block, an admission, an end) instead of token by token, because all steps between two
events are alike; that keeps eight busy replicas at a few percent of a core.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from math import ceil

from bot.sandbox.fleet.compaction import Compaction, Pass
from bot.sandbox.fleet.measurements import Measurements

SHARED_PREFIX_TOKENS = 32
"""The captured load began every prompt with the same 32 tokens, so its first block came from the prefix cache."""


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The limits from the flags. `blocks` counts the null block, which no request can use."""

    blocks: int = 128
    block_size: int = 32
    max_num_seqs: int = 256
    max_num_active_seqs: int | None = None
    max_num_batched_tokens: int = 8192
    max_num_queued_reqs: int | None = None
    watermark: float = 0.0
    prefix_caching: bool = True
    max_model_len: int = 2048
    offloads: bool = False
    """Whether computed blocks are kept in host memory too; a GiB of it holds more tokens than these pools."""
    compaction: Compaction | None = None

    @property
    def usable_blocks(self) -> int:
        return self.blocks - 1

    @property
    def running_cap(self) -> int:
        return min(self.max_num_seqs, self.max_num_active_seqs or self.max_num_seqs)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long one step takes; the defaults give the captured speeds (see the calibration tests)."""

    step_seconds: float = 0.0014
    per_sequence_seconds: float = 0.00025
    per_prefill_token_seconds: float = 0.00001
    slowdown: float = 1.0

    def step(self, sequences: int, prefill_tokens: int) -> float:
        prefill = self.per_prefill_token_seconds * prefill_tokens
        return (self.step_seconds + self.per_sequence_seconds * sequences + prefill) * self.slowdown


@dataclass(slots=True, eq=False)
class Sequence:
    """One request inside the engine."""

    prompt_tokens: int
    max_tokens: int
    arrived_at: float
    generated: int = 0
    blocks: int = 0
    preemptions: int = 0
    uncounted_preemptions: int = 0
    scheduled_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float = 0.0
    computed_prompt_tokens: int = 0
    evicted: int = 0
    """Tokens that a compression has removed from the cache since the last admission."""
    finished_reason: str | None = None

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.generated

    @property
    def cached_tokens(self) -> int:
        return self.tokens - self.evicted


class Engine:
    """Admission, growth, preemption and completion of sequences over simulated time."""

    def __init__(self, limits: EngineLimits, pace: Pace | None = None, *, now: float = 0.0) -> None:
        self.limits = limits
        self.pace = pace or Pace()
        self.clock = now
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.measured = Measurements()
        self._own_blocks = 0
        self._prefix_cached = False
        self._finished: list[Sequence] = []
        self._passes: list[Pass] = []

    # What a scrape sees

    @property
    def used_blocks(self) -> int:
        return self._own_blocks + (self._prefix_blocks if self.running else 0)

    @property
    def usage(self) -> float:
        return self.used_blocks / self.limits.usable_blocks

    @property
    def in_flight(self) -> int:
        return len(self.running) + len(self.waiting)

    # What a client does

    def submit(self, prompt_tokens: int, max_tokens: int, now: float) -> Sequence | None:
        """Queues a request; returns None if the queue limit sheds it. The caller keeps prompts below max_model_len."""
        limit = self.limits.max_num_queued_reqs
        if limit is not None and self.in_flight >= limit:
            self.measured.rejected += 1
            return None
        room = self.limits.max_model_len - prompt_tokens
        sequence = Sequence(prompt_tokens, max(1, min(max_tokens, room)), arrived_at=now)
        self.waiting.append(sequence)
        return sequence

    def abort(self, sequence: Sequence) -> None:
        """The client went away; unknown or finished sequences are left alone."""
        if sequence.finished_reason is not None:
            return
        if sequence in self.running:
            self._release(sequence)
            self.running.remove(sequence)
        else:
            self.waiting.remove(sequence)
        self._end(sequence, "abort")

    def take_passes(self) -> list[Pass]:
        """The compaction passes since the last call."""
        passes, self._passes = self._passes, []
        return passes

    def resize(self, blocks: int) -> None:
        """Sets another pool size; sequences that no longer fit are preempted."""
        self.limits = replace(self.limits, blocks=blocks)
        while self.running and self.used_blocks > self.limits.usable_blocks:
            self._preempt_last()

    # Time

    def advance(self, until: float) -> list[Sequence]:
        """Runs until the clock reaches `until` (a step is never cut short); returns what finished meanwhile."""
        while self.clock < until:
            preempted = self._grow()
            prefill_tokens = 0 if preempted else self._admit()
            if not self.running:
                self.clock = until
                break
            steps = 1 if preempted or prefill_tokens else self._steps_to_next_event(until)
            self._run(steps, prefill_tokens)
        finished, self._finished = self._finished, []
        return finished

    # Blocks

    @property
    def _prefix_blocks(self) -> int:
        return SHARED_PREFIX_TOKENS // self.limits.block_size if self.limits.prefix_caching else 0

    def _own_blocks_for(self, tokens: int) -> int:
        return max(1, ceil(tokens / self.limits.block_size) - self._prefix_blocks)

    def _grow(self) -> bool:
        """Gives each running sequence the block that its next token needs; True if that preempted one."""
        self._compact()
        preempted = False
        block_size, shared = self.limits.block_size, self._prefix_blocks
        index = 0
        while index < len(self.running):
            sequence = self.running[index]
            if sequence.cached_tokens > (sequence.blocks + shared) * block_size:
                # As V1's scheduler: take from the last admitted, which may be this very sequence.
                while self.used_blocks >= self.limits.usable_blocks:
                    preempted = True
                    if self._preempt_last() is sequence:
                        return True
                sequence.blocks += 1
                self._own_blocks += 1
            index += 1
        return preempted

    def _compact(self) -> None:
        compaction = self.limits.compaction
        if compaction is None:
            return
        for sequence in self.running:
            before = sequence.cached_tokens
            if before < compaction.passes_at:
                continue
            sequence.evicted += before - compaction.budget_tokens
            kept = self._own_blocks_for(sequence.cached_tokens)
            freed, sequence.blocks = sequence.blocks - kept, kept
            self._own_blocks -= freed
            self._passes.append(Pass(before, sequence.cached_tokens, freed, kept))

    def _preempt_last(self) -> Sequence:
        victim = self.running.pop()
        self._release(victim)
        victim.evicted = 0
        victim.preemptions += 1
        victim.uncounted_preemptions += 1
        self.waiting.appendleft(victim)
        return victim

    def _release(self, sequence: Sequence) -> None:
        self._own_blocks -= sequence.blocks
        sequence.blocks = 0

    # Admission

    def _admit(self) -> int:
        """Moves waiting sequences into the batch, first come first served; returns the tokens to prefill."""
        prefill_tokens = 0
        budget = self.limits.max_num_batched_tokens - len(self.running)
        while self.waiting and len(self.running) < self.limits.running_cap:
            head = self.waiting[0]
            need = self._own_blocks_for(head.tokens)
            cost = head.tokens - max(self._cached_tokens(head), self._loadable_tokens(head))
            if not self._has_room(need) or (prefill_tokens and prefill_tokens + cost > budget):
                break
            self.waiting.popleft()
            head.blocks = need
            self._own_blocks += need
            prefill_tokens += cost
            self.running.append(head)
            self._note_scheduled(head)
        return prefill_tokens

    def _has_room(self, need: int) -> bool:
        shared = 0 if self.running else self._prefix_blocks
        kept_free = int(self.limits.watermark * self.limits.blocks) if self.running else 0
        return self.used_blocks + shared + need + kept_free <= self.limits.usable_blocks

    def _cached_tokens(self, sequence: Sequence) -> int:
        """Whole blocks only, and the last prompt token is always computed, as in vLLM."""
        if not self._prefix_cached or sequence.prompt_tokens <= SHARED_PREFIX_TOKENS:
            return 0
        return self._prefix_blocks * self.limits.block_size

    def _loadable_tokens(self, sequence: Sequence) -> int:
        """What a preempted sequence loads from host memory again: its whole blocks, and never its last token."""
        if not self.limits.offloads or not sequence.preemptions:
            return 0
        return (sequence.tokens - 1) // self.limits.block_size * self.limits.block_size

    def _note_scheduled(self, sequence: Sequence) -> None:
        if sequence.scheduled_at is not None:
            return  # a resumed sequence: vLLM counts its prompt, its queueing and its cache hits only once
        sequence.scheduled_at = max(self.clock, sequence.arrived_at)
        cached = self._cached_tokens(sequence)
        sequence.computed_prompt_tokens = sequence.prompt_tokens - cached
        self.measured.prompt_tokens += sequence.prompt_tokens
        self.measured.cached_prompt_tokens += cached

    # Steps

    def _steps_to_next_event(self, until: float) -> int:
        block_size, shared = self.limits.block_size, self._prefix_blocks
        compaction = self.limits.compaction
        steps = ceil((until - self.clock) / self.pace.step(len(self.running), 0))
        for sequence in self.running:
            to_block = (sequence.blocks + shared) * block_size - sequence.cached_tokens + 1
            to_end = sequence.max_tokens - sequence.generated
            steps = min(steps, to_block, to_end)
            if compaction is not None:
                steps = min(steps, compaction.passes_at - sequence.cached_tokens)
        return max(1, steps)

    def _run(self, steps: int, prefill_tokens: int) -> None:
        batch = len(self.running)
        seconds = self.pace.step(batch, prefill_tokens)
        started = self.clock
        self.clock += steps * seconds
        measured = self.measured
        measured.generation_tokens += batch * steps
        new_prompt_tokens = 0
        steady = 0
        for sequence in self.running:
            sequence.generated += steps
            unbroken = sequence.last_token_at == started and not sequence.uncounted_preemptions
            if unbroken and sequence.first_token_at is not None:
                steady += 1
            else:
                new_prompt_tokens += self._first_token_of_a_stretch(sequence, seconds)
            sequence.last_token_at = self.clock
        measured.observe("vllm:inter_token_latency_seconds", seconds, steady * steps)
        measured.observe("vllm:iteration_tokens_total", batch + new_prompt_tokens, steps)
        self._prefix_cached = self._prefix_blocks > 0
        self._end_complete()

    def _first_token_of_a_stretch(self, sequence: Sequence, step_seconds: float) -> int:
        """The first token after an admission; returns the prompt tokens that the step counts as its own.

        vLLM's preemption counter lags: the event is reported with the victim's next token, which is this one.
        """
        measured = self.measured
        measured.preemptions += sequence.uncounted_preemptions
        sequence.uncounted_preemptions = 0
        if sequence.first_token_at is None:
            sequence.first_token_at = self.clock
            waited = max(step_seconds, self.clock - sequence.arrived_at)
            measured.observe("vllm:time_to_first_token_seconds", waited)
            return sequence.prompt_tokens
        measured.observe("vllm:inter_token_latency_seconds", self.clock - sequence.last_token_at)
        return 0

    def _end_complete(self) -> None:
        done = [s for s in self.running if s.generated >= s.max_tokens]
        if not done:
            return
        self.running = [s for s in self.running if s.generated < s.max_tokens]
        for sequence in done:
            self._release(sequence)
            self._end(sequence, "length")

    def _end(self, sequence: Sequence, reason: str) -> None:
        sequence.finished_reason = reason
        self._finished.append(sequence)
        measured = self.measured
        measured.finished[reason] += 1
        scheduled = sequence.scheduled_at if sequence.scheduled_at is not None else self.clock
        first = sequence.first_token_at if sequence.first_token_at is not None else scheduled
        last = max(first, sequence.last_token_at)
        observe = measured.observe
        observe("vllm:request_prompt_tokens", sequence.prompt_tokens)
        observe("vllm:request_generation_tokens", sequence.generated)
        observe("vllm:request_max_num_generation_tokens", sequence.generated)
        observe("vllm:request_params_n", 1)
        observe("vllm:request_params_max_tokens", sequence.max_tokens)
        observe("vllm:e2e_request_latency_seconds", max(0.0, self.clock - sequence.arrived_at))
        observe("vllm:request_queue_time_seconds", max(0.0, scheduled - sequence.arrived_at))
        observe("vllm:request_inference_time_seconds", last - scheduled)
        observe("vllm:request_prefill_time_seconds", first - scheduled)
        observe("vllm:request_decode_time_seconds", last - first)
        observe("vllm:request_num_preemptions", sequence.preemptions)
        observe("vllm:request_prefill_kv_computed_tokens", sequence.computed_prompt_tokens)
        if sequence.generated > 1:
            per_token = (last - first) / (sequence.generated - 1)
            observe("vllm:request_time_per_output_token_seconds", per_token)
