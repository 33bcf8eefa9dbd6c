"""Reads every wanted signal: one sample now, then windows from the history, with probes in parallel. Never raises.

Each source has its own deadline, and so have the windows of each length. What fails or is late is unknown, with its
reason.
"""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import structlog

from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.kernel.copies import copy_with
from bot.domain.kernel.durations import lasting
from bot.domain.kernel.errors import BotError, SourceError
from bot.domain.kernel.target import Target
from bot.domain.signals.comparison import Era, compare, is_counted, metrics_compared
from bot.domain.signals.sampling import SampledSpec, end_of, metrics_of, reach_of, read_window, span_of, with_target
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Reading, unknown
from bot.domain.signals.specs import ComparedSignal, MetricSignal, ProbeSignal, SignalSpec
from bot.domain.signals.window import NEEDED_SECONDS, SLICES, STALE_SECONDS, Window, coarse, coarse_within
from bot.flow.ports.readings import History, ProbeReader, ProbeRequest, ReadContext, Snapshots

DEADLINE_SECONDS = 5.0
LENGTHS_SECONDS = (600.0, 3600.0, 6 * 3600.0)
"""Windows up to the first of these lengths are read with one query, those up to the next one with another."""
COARSE_FROM_SECONDS = 3600.0
"""A longer window is read at a few samples, where the history can choose."""
PEAKS = ("max", "min", "p99")

log = structlog.get_logger()

# --- reading ----------------------------------------------------------------------------------------------------------


class ReadSignals:
    """The `Signals` port."""

    def __init__(  # noqa: PLR0913 - the sources that it reads
        self,
        *,
        history: History,
        probes: Mapping[str, ProbeReader],
        cluster: Snapshots,
        now: Callable[[], float],
        shared: Snapshots | None = None,
        why_unsampled: Callable[[Target], str] = lambda _: "",
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        """`shared`: the cluster for contexts that share lists; None: the same. `why_unsampled`: see `LeftOut`."""
        self._history, self._probes, self._cluster, self._now = history, probes, cluster, now
        self._shared, self._deadline = shared or cluster, deadline_seconds
        self._why_unsampled = why_unsampled

    async def sample(self, context: ReadContext) -> None:
        try:
            async with asyncio.timeout(self._deadline):
                await self._history.sample(context)
        except (BotError, TimeoutError) as error:
            # Later readings must see the gap that this leaves in the history.
            log.warning("sample.failed", target=context.target.key, reason=self._reason(error, self._history.source))

    async def read(self, wanted: Mapping[str, SignalSpec], context: ReadContext) -> Mapping[str, Reading]:
        sampled = {name: spec for name, spec in wanted.items() if not isinstance(spec, ProbeSignal | ComparedSignal)}
        compared = {name: spec for name, spec in wanted.items() if isinstance(spec, ComparedSignal)}
        probed = {name: spec for name, spec in wanted.items() if isinstance(spec, ProbeSignal)}
        cluster = self._shared if context.shares_lists else self._cluster
        snapshot = _ReadOnce(lambda: cluster.snapshot(context.target, incident_id=context.incident_id))
        windows, comparisons, answers = await asyncio.gather(
            self._read_windows(sampled, context),
            self._compare_all(compared, context),
            asyncio.gather(*(self._ask(name, spec, context, snapshot) for name, spec in probed.items())),
        )
        await snapshot.close()
        return {**windows, **{reading.name: reading for reading in (*comparisons, *answers)}}

    async def _read_windows(self, wanted: Mapping[str, SampledSpec], context: ReadContext) -> dict[str, Reading]:
        if not wanted:
            return {}
        asked, readings = _asked(wanted, context, at=self._now())
        wanted = {**wanted, **{one.name: one.spec for one in asked}}
        try:
            async with asyncio.timeout(self._deadline):
                await self._history.sample(context)
        except (BotError, TimeoutError) as error:
            reason = self._reason(error, self._history.source)
            readings |= {one.name: unknown(one.name, reason, at=self._now()) for one in asked}
        else:
            now = self._now()
            ends = {one.end for one in asked}
            groups = [self._read_until(end, [one for one in asked if one.end == end], context, now) for end in ends]
            readings |= {reading.name: reading for group in await asyncio.gather(*groups) for reading in group}
        return {name: self._with_source(readings[name], spec, context) for name, spec in wanted.items()}

    async def _read_until(
        self, end: float | None, asked: Sequence[_Asked], context: ReadContext, now: float
    ) -> list[Reading]:
        """The windows that end together. Long ones are slow to read, so they come last and have their own deadlines."""
        until = now if end is None else min(end, now)
        readings: list[Reading] = []
        scrapes, since = list[Scrape](), until
        for together in _by_length(asked):
            longest = max(one.span + reach_of(one.spec) for one in together)
            start, step = until - longest, self._step(together)
            metrics = frozenset[str]().union(*(metrics_of(one.spec) for one in together))
            try:
                async with asyncio.timeout(self._deadline):
                    if scrapes and self._history.has_whole_pages:
                        before = math.nextafter(since, -math.inf)
                        scrapes = [*await self._history.between(context, metrics, start, before), *scrapes]
                    else:
                        scrapes = list(await self._history.between(context, metrics, start, until, step=step))
                since = start
                readings += [
                    read_window(one.name, one.spec, scrapes, window=_window(one, until, step), picked=context.picked)
                    for one in together
                ]
            except (BotError, TimeoutError) as error:
                # A failed query of the past or of a long time must not discard the other values.
                reason = self._reason_of_history(error, longest)
                readings += [unknown(one.name, reason, at=self._now()) for one in together]
        return readings

    def _step(self, together: Sequence[_Asked]) -> float:
        """Between two samples of windows that are read together. A peak that lasts for seconds needs all of them."""
        shortest = min(one.span for one in together)
        has_peaks = any(_is_peak(one.spec) for one in together)
        is_whole = has_peaks or shortest <= COARSE_FROM_SECONDS or self._history.has_whole_pages
        return 0.0 if is_whole else coarse(shortest)

    def _step_within(self, compared: SampledSpec, span: float) -> float:
        """The same for windows in a row, which are compared with one that is read at all its samples."""
        if self._history.has_whole_pages or _is_peak(compared):
            return 0.0
        return coarse_within(span, 1 if is_counted(compared) else SLICES)

    async def _compare_all(self, wanted: Mapping[str, ComparedSignal], context: ReadContext) -> list[Reading]:
        readings: list[Reading] = []
        alike: dict[_Past, dict[str, ComparedSignal]] = defaultdict(dict)
        for name, spec in wanted.items():
            try:
                span, back = span_of(spec.over, context.settings), span_of(spec.past, context.settings)
                end = end_of(spec.ending, context.moments)
            except ValueError as error:
                readings.append(unknown(name, str(error), at=self._now()))
            else:
                alike[_Past(span, back, end, self._step_within(spec.compared, span))][name] = spec
        groups = await asyncio.gather(*(self._compare(specs, past, context) for past, specs in alike.items()))
        readings += [reading for group in groups for reading in group]
        return [self._with_source(reading, wanted[reading.name], context) for reading in readings]

    async def _compare(
        self, wanted: Mapping[str, ComparedSignal], asked: _Past, context: ReadContext
    ) -> Sequence[Reading]:
        """Comparisons with one past, which is read once."""
        step = asked.step
        try:
            async with asyncio.timeout(self._deadline):
                await self._history.sample(context)
                # Steps are whole seconds.
                until = math.floor(self._now()) if step else self._now()
                now = Window(until - asked.span, until, longest_gap=max(step, STALE_SECONDS))
                end = asked.end
                past_end = now.start if end is None else min(math.floor(end) if step else end, now.start)
                past = Window(past_end - asked.back, past_end)
                metrics = frozenset[str]().union(*(metrics_compared(spec) for spec in wanted.values()))
                then, present = await asyncio.gather(
                    self._history.between(context, metrics, past.start, past.end, step=step),
                    self._history.between(context, metrics, now.start, now.end),
                )
                eras = {"now": Era(now, present), "past": Era(past, then)}
                # Reading a day of a fleet's samples takes a second: not on the loop that serves Slack and webhooks.
                return await asyncio.to_thread(
                    lambda: [compare(name, spec, picked=context.picked, **eras) for name, spec in wanted.items()]
                )
        except (BotError, TimeoutError) as error:
            reason = self._reason_of_history(error, asked.back)
            return [unknown(name, reason, at=self._now()) for name in wanted]

    def _with_source(self, reading: Reading, spec: SampledSpec | ComparedSignal, context: ReadContext) -> Reading:
        """Adds the source and the request to the reading, whatever its result: the timeline shows both."""
        query = reading.query or spec.model_dump_json(exclude_defaults=True)
        added = {"source": self._history.source, "query": query}
        if reading.unknown and (why := self._why_unsampled(context.target)):
            added["unknown"] = f"{reading.unknown}; {why}"
        return copy_with(reading, **added)

    async def _ask(self, name: str, spec: ProbeSignal, context: ReadContext, snapshot: _ReadOnce) -> Reading:
        probe = self._probes.get(spec.probe)
        if probe is None:
            return unknown(name, f"no source for '{spec.probe}' is configured", at=self._now())
        request = ProbeRequest(name, spec, context, self._now(), snapshot.get)
        try:
            async with asyncio.timeout(self._deadline):
                return _asked_of(await probe(request), request)
        except (BotError, TimeoutError) as error:
            failed = unknown(name, self._reason(error, spec.probe), at=self._now(), source=spec.probe)
            return _asked_of(failed, request)
        except Exception as error:
            # A bug in one probe must not discard the other readings, nor stop the run.
            log.exception("probe.failed", probe=spec.probe, target=context.target.key)
            reason = f"'{spec.probe}' itself failed: {type(error).__name__}"
            return _asked_of(unknown(name, reason, at=self._now(), source=spec.probe), request)

    def _reason_of_history(self, error: BotError | TimeoutError, seconds: float) -> str:
        """The source may have answered at once: what takes the time is often to read what it answered."""
        if isinstance(error, TimeoutError):
            error = SourceError(f"{lasting(seconds)} of samples could not be read within {self._deadline:g} s")
        return self._reason(error, self._history.source)

    def _reason(self, error: BotError | TimeoutError, source: str) -> str:
        if isinstance(error, TimeoutError):
            return f"{source} did not answer within {self._deadline:g} s"
        return f"{source}: {error}"


def _asked_of(reading: Reading, request: ProbeRequest) -> Reading:
    """Adds what a reader needs to verify the reading, even if the probe had no result."""
    probe = request.spec.probe
    added = {"source": reading.source or probe, "query": reading.query or probe, "at": reading.at or request.at}
    return copy_with(reading, **added)


class _ReadOnce:
    """Reads the cluster at most once for all waiting callers; one caller's cancellation does not affect the others."""

    def __init__(self, read: Callable[[], Awaitable[ClusterSnapshot]]) -> None:
        self._read = read
        self._task: asyncio.Future[ClusterSnapshot] | None = None

    async def get(self) -> ClusterSnapshot:
        if self._task is None:
            self._task = asyncio.ensure_future(self._read())
        return await asyncio.shield(self._task)

    async def close(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])


def _window(asked: _Asked, until: float, step: float) -> Window:
    needed = NEEDED_SECONDS if asked.end is None else math.inf
    return Window(until - asked.span, until, needed, max(step, STALE_SECONDS))


def _is_peak(spec: SampledSpec) -> bool:
    return isinstance(spec, MetricSignal) and spec.take in PEAKS


@dataclass(frozen=True)
class _Asked:
    """A signal with its target as a number, and its window: the seconds, and the end if that is a past moment."""

    name: str
    spec: SampledSpec
    span: float
    end: float | None


@dataclass(frozen=True)
class _Past:
    """What comparisons have in common that are read together: the windows, the time back and its end, and the step."""

    span: float
    back: float
    end: float | None
    step: float


def _by_length(asked: Sequence[_Asked]) -> list[list[_Asked]]:
    """The shortest windows first."""

    def length(one: _Asked) -> int:
        return bisect_left(LENGTHS_SECONDS, one.span)

    return [list(together) for _, together in groupby(sorted(asked, key=length), key=length)]


def _asked(
    wanted: Mapping[str, SampledSpec], context: ReadContext, *, at: float
) -> tuple[list[_Asked], dict[str, Reading]]:
    """Each signal's window, and a reading for those without one."""
    asked: list[_Asked] = []
    faulty: dict[str, Reading] = {}
    for name, spec in wanted.items():
        try:
            end = end_of(spec.ending, context.moments)
            asked.append(_Asked(name, with_target(spec, context.settings), span_of(spec.over, context.settings), end))
        except ValueError as error:
            faulty[name] = unknown(name, str(error), at=at)
    return asked, faulty
