"""Reading signals over fakes: every source has its own deadline, and no failure becomes a number."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType

import pytest

from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.kernel.errors import ClusterError, SourceError, StorageUnavailableError
from bot.domain.kernel.target import Target
from bot.domain.signals.scrape import Histogram, Scrape
from bot.domain.signals.signal import Reading
from bot.domain.signals.specs import (
    ComparedSignal,
    MeanSignal,
    MetricSignal,
    ProbeSignal,
    QuantileSignal,
    RatioSignal,
    ShareSignal,
    SignalSpec,
    StallSignal,
)
from bot.flow.ports.cluster import Replica
from bot.flow.ports.readings import ProbeReader, ProbeRequest, ReadContext
from bot.flow.read_signals import ReadSignals
from bot.flow.sample_replicas import PAGE_EACH, KeepSampling, LeftOut, SampledHistory, replicas_in
from tests.fakes.samples import FakeLoadLog, FakeSampleStore

pytestmark = pytest.mark.fast

CONTEXT = ReadContext(
    target=Target(cluster="c", namespace="serving", name="llm"),
    incident_id="INC-1",
    opened_at=900.0,
    picked={"bad": "llm-1"},
    settings={"window": 30.0},
)
USAGE = MetricSignal(metric="kv_cache_usage_perc", over="settings.window", take="max")
REPLICAS = [Replica(name="llm-0", uid="u0", address="10.0.0.1"), Replica(name="llm-1", uid="u1", address="10.0.0.2")]


class Scene:
    """One target with two replicas, a clock that is set by hand, and sources that can be made to fail."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.usage = {"llm-0": 0.2, "llm-1": 0.4}
        self.values: dict[str, float] = {}
        self.scraped = 0
        self.snapshots = 0
        self.fails: Exception | None = None
        self.store = FakeSampleStore()

    async def replicas(self, target: Target, *, incident_id: str) -> Sequence[Replica]:
        if self.fails is not None:
            raise self.fails
        return REPLICAS

    async def scrape(self, replicas: Sequence[Replica]) -> Sequence[Scrape]:
        self.scraped += 1
        return [
            Scrape(
                replica=replica.name,
                uid=replica.uid,
                at=self.now,
                ranks={"0": {"kv_cache_usage_perc": self.usage[replica.name], **self.values}},
            )
            for replica in replicas
        ]

    async def snapshot(self, target: Target, *, incident_id: str) -> ClusterSnapshot:
        self.snapshots += 1
        return ClusterSnapshot(at=self.now, workload=None)

    def history(self) -> SampledHistory:
        return SampledHistory(replicas=self, scraper=self, store=self.store, now=lambda: self.now)

    def signals(self, **probes: ProbeReader) -> ReadSignals:
        return ReadSignals(history=self.history(), probes=probes, cluster=self, now=lambda: self.now)


async def sampled(scene: Scene, signals: ReadSignals, times: int) -> None:
    for _ in range(times):
        await signals.sample(CONTEXT)
        scene.now += 5


async def test_a_window_is_read_from_the_history_with_a_fresh_sample_at_its_end() -> None:
    scene = Scene()
    signals = scene.signals()
    await sampled(scene, signals, 5)
    scene.usage["llm-1"] = 0.9
    reading = (await signals.read({"kv": USAGE}, CONTEXT))["kv"]
    assert reading.value == 0.9
    assert reading.at == scene.now
    assert (reading.name, reading.source, reading.window_seconds) == ("kv", "direct scrapes", 30.0)


async def test_a_window_that_has_only_begun_is_unknown() -> None:
    scene = Scene()
    reading = (await scene.signals().read({"kv": USAGE}, CONTEXT))["kv"]
    assert reading.unknown == "only 0 s of 30 s of history (llm-0, llm-1)"


async def test_a_history_that_lacks_samples_because_too_many_workloads_are_open_says_so() -> None:
    scene = Scene()
    left_out = LeftOut()
    left_out.are([CONTEXT.target.key], of=65)
    signals = ReadSignals(
        history=scene.history(), probes={}, cluster=scene, now=lambda: scene.now, why_unsampled=left_out.why
    )
    reading = (await signals.read({"kv": USAGE}, CONTEXT))["kv"]
    assert reading.unknown == (
        "only 0 s of 30 s of history (llm-0, llm-1); it is scraped only when its incident reads: "
        "65 workloads have an open incident or are in the settings, and 64 are scraped all the time"
    )


ENDED = ReadContext(
    target=CONTEXT.target,
    incident_id="INC-1",
    opened_at=900.0,
    picked={},
    settings={"window": 30.0},
    moments={"incident.starts_at": 1030.0, "results.look.kv": 1040.0},
)


async def a_past(scene: Scene, signals: ReadSignals) -> None:
    """A minute at 0.4, from 1000 to 1055, then a minute at 0.9."""
    await sampled(scene, signals, 12)
    scene.usage["llm-1"] = 0.9
    await sampled(scene, signals, 12)


async def test_a_window_that_ends_in_the_past_says_nothing_of_the_present() -> None:
    scene = Scene()
    signals = scene.signals()
    await a_past(scene, signals)
    before = USAGE.model_copy(update={"ending": "incident.starts_at"})
    then = USAGE.model_copy(update={"ending": "results.look.kv"})
    found = await signals.read({"now": USAGE, "before": before, "then": then}, ENDED)
    assert {name: reading.value for name, reading in found.items()} == {"now": 0.9, "before": 0.4, "then": 0.4}
    assert {name: reading.at for name, reading in found.items()} == {"now": 1120, "before": 1030, "then": 1040}
    assert (
        found["before"].query
        == "max of kv_cache_usage_perc over 30 s ending at incident.starts_at, max across replicas"
    )


async def test_a_past_without_history_is_unknown() -> None:
    scene = Scene()
    scene.now = 1200.0
    signals = scene.signals()
    await sampled(scene, signals, 12)
    before = USAGE.model_copy(update={"ending": "incident.starts_at"})
    reading = (await signals.read({"before": before}, ENDED))["before"]
    assert reading.value is None
    assert reading.unknown == "no replica was scraped in the 60 s before the window's end: no history reaches there"


async def test_a_past_that_is_refused_does_not_take_the_present_with_it() -> None:
    scene = Scene()
    await a_past(scene, scene.signals())

    class Forgetful(SampledHistory):
        async def between(
            self, context: ReadContext, metrics: frozenset[str], start: float, end: float, *, step: float = 0.0
        ) -> Sequence[Scrape]:
            if end < scene.now:
                raise SourceError("too many samples")
            return await super().between(context, metrics, start, end)

    history = Forgetful(replicas=scene, scraper=scene, store=scene.store, now=lambda: scene.now)
    signals = ReadSignals(history=history, probes={}, cluster=scene, now=lambda: scene.now)
    before = USAGE.model_copy(update={"ending": "incident.starts_at"})
    found = await signals.read({"now": USAGE, "before": before}, ENDED)
    assert (found["now"].value, found["before"].unknown) == (0.9, "direct scrapes: too many samples")


async def hangs() -> None:
    await asyncio.Event().wait()


async def refuses() -> None:
    raise SourceError("too many samples")


class ShortSighted(SampledHistory):
    """`fails` where it is asked for more than ten minutes; `asked` are the lengths."""

    def __init__(self, scene: Scene, fails: Callable[[], Awaitable[None]]) -> None:
        super().__init__(replicas=scene, scraper=scene, store=scene.store, now=lambda: scene.now)
        self._fails, self.asked = fails, list[float]()

    async def between(
        self, context: ReadContext, metrics: frozenset[str], start: float, end: float, *, step: float = 0.0
    ) -> Sequence[Scrape]:
        self.asked.append(end - start)
        if end - start > 600:
            await self._fails()
        return await super().between(context, metrics, start, end)

    def signals(self, scene: Scene) -> ReadSignals:
        return ReadSignals(history=self, probes={}, cluster=scene, now=lambda: scene.now, deadline_seconds=0.2)


@pytest.mark.parametrize(
    ("fails", "reason"),
    [(hangs, "6 h of samples could not be read within 0.2 s"), (refuses, "too many samples")],
)
async def test_a_long_window_that_cannot_be_read_leaves_the_short_ones_known(
    fails: Callable[[], Awaitable[None]], reason: str
) -> None:
    scene = Scene()
    history = ShortSighted(scene, fails)
    signals = history.signals(scene)
    await sampled(scene, signals, 12)
    wanted = {over: USAGE.model_copy(update={"over": over}) for over in ("6h", "5m", "30s", "90m")}
    found = await signals.read(wanted, CONTEXT)
    assert (found["30s"].value, found["5m"].value) == (0.4, 0.4)
    assert found["90m"].unknown == found["6h"].unknown == f"direct scrapes: {reason}"
    assert history.asked == pytest.approx([300, 21300])


class CountedSamples(FakeSampleStore):
    """`read`: the time of each sample of the first replica that was read, as often as it was."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[float] = []

    async def between(self, workload: str, start: float, end: float) -> Sequence[Scrape]:
        found = await super().between(workload, start, end)
        self.read += [scrape.at for scrape in found if scrape.replica == "llm-0"]
        return found


class OnlyWhatIsAskedFor(SampledHistory):
    """`steps`: by the length that was asked for."""

    has_whole_pages = False
    steps: Mapping[float, float] = MappingProxyType({})

    async def between(
        self, context: ReadContext, metrics: frozenset[str], start: float, end: float, *, step: float = 0.0
    ) -> Sequence[Scrape]:
        self.steps = {**self.steps, round(end - start): step}
        return await super().between(context, metrics, start, end)


@pytest.mark.parametrize(("kind", "times_read"), [(SampledHistory, 1), (OnlyWhatIsAskedFor, 3)])
async def test_a_longer_window_reads_only_what_the_shorter_ones_have_not(
    kind: type[SampledHistory], times_read: int
) -> None:
    scene, store = Scene(), CountedSamples()
    history = kind(replicas=scene, scraper=scene, store=store, now=lambda: scene.now)
    signals = ReadSignals(history=history, probes={}, cluster=scene, now=lambda: scene.now)
    for _ in range(10):
        await signals.sample(CONTEXT)
        scene.now += 60
    wanted = {over: USAGE.model_copy(update={"over": over}) for over in ("30s", "5m", "12m", "90m")}
    found = await signals.read(wanted, CONTEXT)
    assert {over: reading.value for over, reading in found.items()} == {"30s": None, "5m": 0.4, "12m": 0.4, "90m": 0.4}
    assert store.read.count(scene.now) == times_read


async def test_a_long_window_is_read_at_fewer_samples_which_cover_it() -> None:
    scene = Scene()
    history = OnlyWhatIsAskedFor(replicas=scene, scraper=scene, store=scene.store, now=lambda: scene.now)
    signals = ReadSignals(history=history, probes={}, cluster=scene, now=lambda: scene.now)
    for _ in range(150):
        await signals.sample(CONTEXT)
        scene.now += 300
    context = dataclasses.replace(CONTEXT, moments={"incident.starts_at": scene.now - 300})
    level = USAGE.model_copy(update={"take": "p50", "ending": "incident.starts_at"})
    wanted = {over: level.model_copy(update={"over": over}) for over in ("5m", "1h", "90m", "6h", "12h")}
    found = await signals.read(wanted, context)
    assert history.steps == {300: 0, 3600: 0, 21600: 180, 43200: 300}
    assert found["12h"].value == 0.4
    peak = await signals.read({"12h": level.model_copy(update={"over": "12h", "take": "max"})}, context)
    assert (history.steps[43200], peak["12h"].unknown[:34]) == (0, "only 2 h 24 min of 12 h of history")


class AtEachStep(SampledHistory):
    """Answers as a Prometheus does: with a step the values of its last scrapes, at the times that it was asked for."""

    has_whole_pages = False
    samples_read = 0

    async def between(
        self, context: ReadContext, metrics: frozenset[str], start: float, end: float, *, step: float = 0.0
    ) -> Sequence[Scrape]:
        found = await super().between(context, metrics, start - 300, end)
        if not step:
            return [scrape for scrape in found if scrape.at >= start]
        times = [round(end, 3) - step * back for back in range(int((end - start) // step) + 1)]
        last = [[scrape for scrape in found if scrape.at <= at][-1:] for at in times]
        stepped = [scrape.model_copy(update={"at": at}) for at, (scrape,) in zip(times, last, strict=True)]
        self.samples_read += len(stepped)
        return stepped


@pytest.mark.parametrize(("over", "most"), [("5m", 73), ("10m", 73), ("33m", 99)])
async def test_what_was_counted_in_the_past_is_read_at_the_ends_of_its_windows(over: str, most: int) -> None:
    scene = Scene()
    for at in range(0, 8 * 3600, 30):
        counted = {"0.5": 0.9 * at, "1.0": 0.99 * at, "+Inf": 1.0 * at}
        page = {"request_success": 1.0 * at, "num_requests_running": 4.0, "num_requests_waiting": 0.0}
        latency = {"0": {"e2e_request_latency_seconds": Histogram(buckets=counted, sum=0.3 * at, count=1.0 * at)}}
        scrape = Scrape(replica="llm-0", uid="u0", at=at + 0.25, ranks={"0": page}, histograms=latency)
        await scene.store.add(CONTEXT.target.key, [scrape])
    scene.now = 8 * 3600 - 29.4
    spec = ComparedSignal(
        compared=QuantileSignal(quantile=0.95, histogram="e2e_request_latency_seconds", over=over), past="6h"
    )
    whole = AtEachStep(replicas=scene, scraper=Unscraped(), store=scene.store, now=lambda: scene.now)
    whole.has_whole_pages = True
    fewer = AtEachStep(replicas=scene, scraper=Unscraped(), store=scene.store, now=lambda: scene.now)
    of_all, of_few = [
        (
            await ReadSignals(history=history, probes={}, cluster=scene, now=lambda: scene.now).read(
                {"p95": spec}, CONTEXT
            )
        )["p95"]
        for history in (whole, fewer)
    ]
    assert of_few.value == pytest.approx(of_all.value)
    assert of_few.detail == of_all.detail
    assert (whole.samples_read, 0 < fewer.samples_read <= most) == (0, True)


class Recorder(SampledHistory):
    """`asked`: the metrics and the seconds of each read."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(replicas=scene, scraper=Unscraped(), store=scene.store, now=lambda: scene.now)
        self.asked: list[tuple[frozenset[str], float]] = []

    async def between(
        self, context: ReadContext, metrics: frozenset[str], start: float, end: float, *, step: float = 0.0
    ) -> Sequence[Scrape]:
        self.asked.append((metrics, end - start))
        return await super().between(context, metrics, start, end)


async def test_comparisons_with_the_same_past_read_it_once() -> None:
    scene = Scene()
    history = Recorder(scene)
    signals = ReadSignals(history=history, probes={}, cluster=scene, now=lambda: scene.now)
    speed = ComparedSignal(compared=MetricSignal(metric="generation_tokens", take="rate"))
    usage = ComparedSignal(compared=USAGE.model_copy(update={"over": "5m"}))
    of_another_past = speed.model_copy(update={"past": "6h"})
    alone = [set[str](), set[str]()]
    for place, spec in enumerate((speed, usage)):
        await signals.read({"one": spec}, CONTEXT)
        alone[place] = {metric for metrics, _ in history.asked for metric in metrics}
        history.asked.clear()
    found = await signals.read({"speed": speed, "usage": usage, "other": of_another_past}, CONTEXT)
    days = [metrics for metrics, seconds in history.asked if seconds == 24 * 3600]
    assert days == [alone[0] | alone[1]]
    assert len(history.asked) == 4
    assert [(name, reading.query) for name, reading in found.items()] == [
        (name, (await signals.read({"one": spec}, CONTEXT))["one"].query)
        for name, spec in (("speed", speed), ("usage", usage), ("other", of_another_past))
    ]


class Unscraped:
    async def scrape(self, replicas: Sequence[Replica]) -> Sequence[Scrape]:
        return []


async def test_a_comparison_that_takes_too_long_says_how_much_there_was_to_read() -> None:
    scene = Scene()
    signals = ShortSighted(scene, hangs).signals(scene)
    reading = (await signals.read({"then": ComparedSignal(compared=USAGE)}, CONTEXT))["then"]
    assert reading.unknown == "direct scrapes: 24 h of samples could not be read within 0.2 s"


async def test_a_window_that_ends_at_what_was_not_read_yet_is_unknown() -> None:
    scene = Scene()
    later = USAGE.model_copy(update={"ending": "results.later.kv"})
    reading = (await scene.signals().read({"kv": later}, ENDED))["kv"]
    assert reading.unknown == "the window ends at results.later.kv, which was not read yet"


@pytest.mark.parametrize(
    "spec",
    [
        USAGE,
        USAGE.model_copy(update={"over": "soon"}),
        USAGE.model_copy(update={"metric": "kv_usage"}),
        USAGE.model_copy(update={"of": "canary"}),
        USAGE.model_copy(update={"ending": "results.never.kv"}),
        RatioSignal(ratio=("num_preemptions", "request_success")),
        MeanSignal(mean="request_prompt_tokens"),
        QuantileSignal(quantile=0.9, histogram="time_to_first_token_seconds"),
        ShareSignal(share_above="500ms", histogram="time_to_first_token_seconds"),
        ShareSignal(share_above="settings.absent", histogram="time_to_first_token_seconds"),
        StallSignal(stall="engine"),
    ],
    ids=lambda spec: spec.model_dump_json(exclude_defaults=True),
)
@pytest.mark.parametrize("fails", [None, SourceError("gone")])
async def test_every_reading_carries_source_time_and_question_whatever_became_of_it(
    spec: SignalSpec, fails: Exception | None
) -> None:
    scene = Scene()
    signals = scene.signals()
    await sampled(scene, signals, 5)
    scene.fails = fails
    reading = (await signals.read({"it": spec}, CONTEXT))["it"]
    assert reading.name == "it"
    assert reading.source == "direct scrapes"
    assert reading.at > 0
    assert reading.query
    assert reading.is_known != bool(reading.unknown)


async def test_the_picked_replica_is_read_alone() -> None:
    scene = Scene()
    signals = scene.signals()
    spec = MetricSignal(metric="kv_cache_usage_perc", over="30s", take="last", of="picked.bad")
    assert (await signals.read({"kv": spec}, CONTEXT))["kv"].by_replica == {"llm-1": 0.4}


async def test_samples_of_the_same_moment_are_taken_once() -> None:
    scene = Scene()
    signals = scene.signals()
    await asyncio.gather(*(signals.sample(CONTEXT) for _ in range(5)))
    assert scene.scraped == 1


@pytest.mark.parametrize("error", [ClusterError("403 on pods"), SourceError("gone")])
async def test_a_source_that_fails_makes_its_signals_unknown_and_raises_nothing(error: Exception) -> None:
    scene = Scene()
    scene.fails = error
    signals = scene.signals()
    await signals.sample(CONTEXT)
    assert (await signals.read({"kv": USAGE}, CONTEXT))["kv"].unknown == f"direct scrapes: {error}"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (MetricSignal(metric="kv_cache_usage_perc", over="soon"), "not a duration"),
        (MetricSignal(metric="kv_usage"), "unknown metric 'kv_usage'"),
        (ProbeSignal(probe="astrology"), "no source for 'astrology'"),
    ],
)
async def test_a_signal_that_nobody_can_read_is_unknown_beside_the_others(spec: SignalSpec, reason: str) -> None:
    scene = Scene()
    good = MetricSignal(metric="kv_cache_usage_perc", over="30s", take="last")
    readings = await scene.signals().read({"odd": spec, "good": good}, CONTEXT)
    assert reason in readings["odd"].unknown
    assert readings["good"].value == 0.4


@pytest.mark.parametrize("error", [ClusterError("no answer"), StorageUnavailableError("away")])
async def test_a_comparison_whose_source_fails_is_unknown(error: Exception) -> None:
    scene = Scene()
    scene.fails = error
    spec = ComparedSignal(compared=USAGE)
    reading = (await scene.signals().read({"then": spec}, CONTEXT))["then"]
    assert reading.unknown == f"direct scrapes: {error}"
    assert reading.query


async def test_a_comparison_with_the_time_before_what_was_not_read_yet_is_unknown() -> None:
    spec = ComparedSignal(compared=USAGE, ending="results.look.usage")
    reading = (await Scene().signals().read({"then": spec}, CONTEXT))["then"]
    assert "was not read yet" in reading.unknown


async def test_sampling_all_the_time_gives_an_incident_a_history_from_before_it_opened() -> None:
    scene = Scene()
    signals = scene.signals()

    async def contexts() -> Sequence[ReadContext]:
        return [CONTEXT]

    keep = KeepSampling(signals, contexts)
    for _ in range(5):
        await keep.sample_all()
        scene.now += 5
    assert (await signals.read({"kv": USAGE}, CONTEXT))["kv"].value == 0.4


async def test_of_two_replicas_of_the_bot_one_samples_and_the_other_goes_on_when_it_ends() -> None:
    scene, sampler = Scene(), ["one"]

    async def contexts() -> Sequence[ReadContext]:
        return [CONTEXT]

    def replica(name: str) -> KeepSampling:
        async def may_sample() -> bool:
            return sampler == [name]

        return KeepSampling(scene.signals(), contexts, may_sample=may_sample)

    one, other = replica("one"), replica("other")
    for _ in range(3):
        await asyncio.gather(one.sample_all(), other.sample_all())
        scene.now += 5
    assert scene.scraped == 3
    sampler[:] = ["other"]
    await other.sample_all()
    assert scene.scraped == 4


async def test_a_workload_that_cannot_be_sampled_ends_the_sampling_of_no_other() -> None:
    scene = Scene()
    odd = dataclasses.replace(CONTEXT, target=CONTEXT.target.model_copy(update={"name": "odd"}))

    class Stumbling(ReadSignals):
        async def sample(self, context: ReadContext) -> None:
            if context is odd:
                raise KeyError("metadata")
            await super().sample(context)

    async def contexts() -> Sequence[ReadContext]:
        return [odd, CONTEXT]

    signals = Stumbling(history=scene.history(), probes={}, cluster=scene, now=lambda: scene.now)
    await KeepSampling(signals, contexts).sample_all()
    assert scene.scraped == 1


async def test_each_slot_of_five_minutes_leaves_one_point_of_load() -> None:
    scene, loads = Scene(), FakeLoadLog()
    scene.values = {"request_success": 0.0, "num_requests_running": 0.0, "num_requests_waiting": 0.0}
    history = SampledHistory(replicas=scene, scraper=scene, store=scene.store, now=lambda: scene.now, loads=loads)
    scene.now = 1200.0
    while scene.now < 1830.0:
        await history.sample(CONTEXT)
        scene.now += 10
        scene.values["request_success"] += 20
    # Two replicas, each with two arrivals a second; of the slot before the first sample nothing is known.
    assert {start: point.arrivals for start, point in loads.kept.items()} == {1200.0: 4.0, 1500.0: 4.0}


@pytest.mark.parametrize("error", [StorageUnavailableError("no answer"), ValueError("not a target's key")])
async def test_a_round_of_sampling_that_cannot_know_its_workloads_is_skipped(error: Exception) -> None:
    scene = Scene()

    async def contexts() -> Sequence[ReadContext]:
        raise error

    await KeepSampling(scene.signals(), contexts).sample_all()
    assert scene.scraped == 0


def answers(value: float) -> ProbeReader:
    async def probe(request: ProbeRequest) -> Reading:
        await request.snapshot()
        return Reading(name=request.name, value=value, at=request.at)

    return probe


async def raises_key_error(request: ProbeRequest) -> Reading:
    raise KeyError(request.name)


async def raises_source_error(request: ProbeRequest) -> Reading:
    raise SourceError("the exporter is away")


async def never_answers(request: ProbeRequest) -> Reading:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def test_one_probe_that_fails_takes_no_other_with_it() -> None:
    scene = Scene()
    signals = scene.signals(well=answers(1.0), broken=raises_key_error, away=raises_source_error)
    wanted = {name: ProbeSignal(probe=name) for name in ("well", "broken", "away")}
    readings = await signals.read(wanted, CONTEXT)
    assert readings["well"].value == 1.0
    assert readings["broken"].unknown == "'broken' itself failed: KeyError"
    assert readings["away"].unknown == "away: the exporter is away"


async def test_a_source_that_is_too_slow_is_unknown_and_does_not_hold_up_the_others() -> None:
    scene = Scene()
    signals = ReadSignals(
        history=scene.history(),
        probes={"late": never_answers, "well": answers(1.0)},
        cluster=scene,
        now=lambda: scene.now,
        deadline_seconds=0.2,
    )
    readings = await signals.read({name: ProbeSignal(probe=name) for name in ("late", "well")}, CONTEXT)
    assert readings["late"].unknown == "late did not answer within 0.2 s"
    assert readings["well"].value == 1.0


async def test_the_world_is_read_once_for_all_probes_of_a_reading() -> None:
    scene = Scene()
    signals = scene.signals(a=answers(1.0), b=answers(2.0))
    await signals.read({"a": ProbeSignal(probe="a"), "b": ProbeSignal(probe="b")}, CONTEXT)
    assert scene.snapshots == 1
    await signals.read({"a": ProbeSignal(probe="a")}, CONTEXT)
    assert scene.snapshots == 2


def pod(name: str, **changes: object) -> dict[str, object]:
    metadata = {"name": name, "uid": f"uid-{name}", "labels": {"app": "llm"}}
    container = {"name": "vllm", "ports": [{"name": "http", "containerPort": 8080}]}
    status = {"phase": "Running", "podIP": "10.0.0.7"}
    return {"metadata": metadata, "spec": {"nodeName": "n1", "containers": [container]}, "status": status} | changes


ENDPOINTS = {"endpoints": [{"addresses": ["10.0.0.7"], "targetRef": {"uid": "uid-a"}, "conditions": {"ready": True}}]}


def test_replicas_are_the_running_pods_at_their_own_addresses() -> None:
    snapshot = ClusterSnapshot(at=0.0, workload=None, pods=(pod("a"),), endpoint_slices=(ENDPOINTS,))
    expected = Replica(name="a", uid="uid-a", address="10.0.0.7", port=8080, in_rotation=True, node="n1")
    assert replicas_in(snapshot) == (expected,)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"status": {"phase": "Pending"}}, id="pending"),
        pytest.param({"status": {"phase": "Running"}}, id="no-address"),
        pytest.param({"metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}}, id="leaving"),
    ],
)
def test_a_pod_that_does_not_serve_is_no_replica(changes: dict[str, object]) -> None:
    assert replicas_in(ClusterSnapshot(at=0.0, workload=None, pods=(pod("a", **changes),))) == ()


def test_our_canary_has_its_role_and_an_unreadable_rotation_is_not_out_of_rotation() -> None:
    canary = pod("c", metadata={"name": "c", "labels": {"incident-bot/canary": "x"}})
    snapshot = ClusterSnapshot(at=0.0, workload=None, pods=(canary,), unreadable={"endpoint_slices": "403"})
    (found,) = replicas_in(snapshot)
    assert (found.role, found.in_rotation) == ("canary", None)


def test_a_pod_without_named_ports_is_asked_on_the_engines_own() -> None:
    bare = pod("a", spec={"nodeName": "n1", "containers": [{"name": "vllm"}]})
    assert replicas_in(ClusterSnapshot(at=0.0, workload=None, pods=(bare,)))[0].port == 8000


LWS = "leaderworkerset.sigs.k8s.io/"


def group(*command: str) -> ClusterSnapshot:
    """A LeaderWorkerSet's only group: a leader and a worker with this command line."""
    labels = [{LWS + "name": "llm", LWS + "group-index": "0", LWS + "worker-index": str(index)} for index in (0, 1)]
    container = {"name": "vllm", "command": ["bash", "-c", " ".join(command)]}
    pods = [
        pod(
            name,
            metadata={"name": name, "uid": f"uid-{name}", "labels": own},
            spec={"nodeName": name, "containers": [container]},
            status={"phase": "Running", "podIP": f"10.0.0.{index}"},
        )
        for index, (name, own) in enumerate(zip(("llm-0", "llm-0-1"), labels, strict=True))
    ]
    workload = {"kind": "LeaderWorkerSet", "metadata": {"name": "llm"}, "spec": {"leaderWorkerTemplate": {"size": 2}}}
    return ClusterSnapshot(at=0.0, workload=workload, pods=tuple(reversed(pods)))


@pytest.mark.parametrize(
    ("flags", "workers"),
    [
        pytest.param("--data-parallel-size 16 --data-parallel-hybrid-lb", (("llm-0-1", "10.0.0.1"),), id="hybrid"),
        pytest.param("--data_parallel_external_lb=true", (("llm-0-1", "10.0.0.1"),), id="external"),
        pytest.param("-dp 16 -dph", (("llm-0-1", "10.0.0.1"),), id="short"),
        pytest.param("--tensor-parallel-size 16 --nnodes 2", (), id="one-engine-over-both"),
        pytest.param("--data-parallel-size 16 --data-parallel-size-local 8", (), id="headless-workers"),
    ],
)
def test_workers_with_engines_of_their_own_are_read_with_their_leader(flags: str, workers: object) -> None:
    (found,) = replicas_in(group("vllm serve m", flags))
    assert (found.name, found.address, found.workers) == ("llm-0", "10.0.0.0", workers)


@pytest.mark.parametrize("flag", ["--data-parallel-multi-port-external-lb", "-dpm"])
def test_a_pod_with_a_page_for_each_engine_is_not_judged_by_the_first(flag: str) -> None:
    (found,) = replicas_in(group("vllm serve m -dp 16 -dpl 8", flag))
    assert (found.unread, found.workers) == (PAGE_EACH, ())


async def _silent(request: ProbeRequest) -> Reading:
    return Reading(name=request.name, unknown="nobody knows")


async def _breaks(request: ProbeRequest) -> Reading:
    raise RuntimeError("a fault of its own")


async def _refuses(request: ProbeRequest) -> Reading:
    raise SourceError("gone")


@pytest.mark.parametrize("probe", [_silent, _breaks, _refuses])
async def test_a_probe_that_comes_to_nothing_still_says_who_was_asked_and_when(probe: ProbeReader) -> None:
    scene = Scene()
    reading = (await scene.signals(rotation=probe).read({"it": ProbeSignal(probe="rotation")}, CONTEXT))["it"]
    assert reading.unknown
    assert (reading.source, reading.query, reading.at) == ("rotation", "rotation", scene.now)


async def test_only_a_context_that_shares_lists_reads_the_shared_cluster() -> None:
    whole, shared = Scene(), Scene()

    async def probe(request: ProbeRequest) -> Reading:
        await request.snapshot()
        return Reading(name="room", value=1.0, at=0.0)

    signals = ReadSignals(
        history=whole.history(), probes={"capacity": probe}, cluster=whole, shared=shared, now=lambda: whole.now
    )
    wanted = {"room": ProbeSignal(probe="capacity")}
    await signals.read(wanted, CONTEXT)
    assert (whole.snapshots, shared.snapshots) == (1, 0)
    await signals.read(wanted, dataclasses.replace(CONTEXT, shares_lists=True))
    assert (whole.snapshots, shared.snapshots) == (1, 1)
