"""Windows over samples, as tables. The numbers of real servers are in tests/adapters/vllm/test_captured_windows.py."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from bot.domain.kernel.durations import lasting
from bot.domain.signals.sampling import SampledSpec, loads_in, read_window, span_of, spec_fault, with_target
from bot.domain.signals.scrape import Histogram, Scrape
from bot.domain.signals.signal import Reading
from bot.domain.signals.specs import (
    MeanSignal,
    MetricSignal,
    QuantileSignal,
    RatioSignal,
    ShareSignal,
    SignalSpec,
    StallSignal,
)
from bot.domain.signals.window import Window, histogram_quantile, quantile

pytestmark = pytest.mark.fast

NOW = 1000.0
STARTED = 10.0


def scrape(
    at: float,
    replica: str = "a",
    /,
    *,
    started_at: float | None = STARTED,
    histograms: dict[str, Histogram] | None = None,
    **values: float,
) -> Scrape:
    """One page of one replica with one rank."""
    whole = {"num_requests_running": 0.0, "num_requests_waiting": 0.0, "request_success": 0.0} | values
    return Scrape(
        replica=replica,
        uid=f"uid-{replica}",
        at=at,
        started_at=started_at,
        ranks={"0": {name: float(value) for name, value in whole.items()}},
        histograms={"0": histograms} if histograms else {},
    )


def failed(at: float, replica: str = "a", error: str = "connection refused") -> Scrape:
    return Scrape(replica=replica, uid=f"uid-{replica}", at=at, error=error)


def read(spec: SampledSpec, scrapes: Sequence[Scrape], *, seconds: float = 60.0, now: float = NOW) -> Reading:
    return read_window("it", spec, scrapes, window=Window(now - seconds, now), picked={"bad": "b"})


def series(
    metric: str, values: Sequence[float], replica: str = "a", *, every: float = 10.0, **more: Any
) -> list[Scrape]:
    """Samples that end now, one each `every` seconds."""
    first = NOW - every * (len(values) - 1)
    pages: list[dict[str, Any]] = [{metric: value} | more for value in values]
    return [scrape(first + every * i, replica, **page) for i, page in enumerate(pages)]


USAGE = "kv_cache_usage_perc"
PREEMPTIONS = MetricSignal(metric="num_preemptions", take="increase", across="sum")
THRASH = RatioSignal(ratio=("num_preemptions", "request_success"))


# --- what a window takes of a gauge -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("take", "expected"),
    [("last", 0.2), ("avg", 0.5), ("max", 0.9), ("min", 0.2), ("p50", 0.5), ("p90", 0.78), ("p99", 0.888)],
)
def test_a_gauge_is_taken_over_the_window_as_promql_would(take: Any, expected: float) -> None:
    samples = series(USAGE, [0.3, 0.4, 0.5, 0.6, 0.6, 0.9, 0.2], every=10)
    assert read(MetricSignal(metric=USAGE, take=take), samples).value == pytest.approx(expected, abs=0.06)


@pytest.mark.parametrize("take", ["p50", "p90", "p99"])
def test_two_samples_are_too_few_for_a_quantile_however_far_apart(take: Any) -> None:
    spec = MetricSignal(metric=USAGE, take=take)
    assert read(spec, series(USAGE, [0.4, 0.5], every=50)).unknown == f"only 2 samples in 60 s; a {take} needs 3 (a)"
    assert read(spec, series(USAGE, [0.4, 0.4, 0.4], every=25)).value == 0.4


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], 0.01, id="rises"),
        pytest.param([0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1], -0.01, id="falls"),
        pytest.param([0.5] * 7, 0.0, id="stands"),
        pytest.param([0.1, 0.9, 0.1, 0.9, 0.1, 0.9, 0.1], 0.0, id="oscillates"),
    ],
)
def test_a_slope_is_the_change_per_second_of_the_line_through_all_samples(values: list[float], expected: float) -> None:
    reading = read(MetricSignal(metric=USAGE, take="slope"), series(USAGE, values))
    assert reading.value == pytest.approx(expected, abs=1e-9)
    assert reading.unit == "ratio/s"


def test_the_step_to_a_new_process_is_no_slope() -> None:
    old = [scrape(NOW - 60 + 10 * i, kv_cache_usage_perc=0.9) for i in range(2)]
    new = [scrape(NOW - 40 + 10 * i, started_at=NOW - 45, kv_cache_usage_perc=0.1) for i in range(5)]
    assert read(MetricSignal(metric=USAGE, take="slope"), old + new).value == pytest.approx(0.0, abs=1e-9)
    assert read(MetricSignal(metric=USAGE, take="slope"), old + new[:1], now=NOW - 40).unknown.startswith("only 0 s")


def test_a_counter_has_no_slope() -> None:
    assert "take rate or increase" in spec_fault(MetricSignal(metric="num_preemptions", take="slope"))


@pytest.mark.parametrize(("across", "expected"), [("max", 0.9), ("min", 0.3), ("avg", 0.6), ("sum", 1.2)])
def test_each_replica_is_taken_first_and_then_all_of_them(across: Any, expected: float) -> None:
    samples = series(USAGE, [0.9] * 7) + series(USAGE, [0.3] * 7, "b")
    reading = read(MetricSignal(metric=USAGE, across=across), samples)
    assert reading.value == pytest.approx(expected)
    assert reading.by_replica == {"a": 0.9, "b": 0.3}


def test_across_each_gives_a_number_for_each_replica() -> None:
    samples = series(USAGE, [0.9] * 7) + series(USAGE, [0.3] * 7, "b")
    assert read(MetricSignal(metric=USAGE, across="each"), samples).value == {"a": 0.9, "b": 0.3}


def test_ranks_of_one_replica_are_compared_for_a_share_and_added_for_an_amount() -> None:
    ranks = {
        "0": {USAGE: 0.9, "num_requests_running": 3.0},
        "1": {USAGE: 0.2, "num_requests_running": 4.0},
    }
    samples = [Scrape(replica="a", at=NOW - 60 + 10 * i, ranks=ranks) for i in range(7)]
    assert read(MetricSignal(metric=USAGE, across="each"), samples).value == {"a": 0.9}
    assert read(MetricSignal(metric="num_requests_running", across="each"), samples).value == {"a": 7.0}


def test_free_blocks_and_usable_tokens_leave_out_the_null_block() -> None:
    samples = [scrape(NOW, num_gpu_blocks=128, block_size=32, kv_cache_usage_perc=0.5)]
    assert read(MetricSignal(metric="usable_tokens", take="last"), samples).value == 4064
    assert read(MetricSignal(metric="free_blocks", take="last"), samples).value == 63.5


# --- counters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "started", "expected"),
    [
        pytest.param([5, 8, 20], [10, 10, 10], 15, id="rises"),
        pytest.param([50, 60, 4], [10, 10, 10], 14, id="falls-without-a-start-time"),
        pytest.param([50, 60, 70], [10, 10, 985], 80, id="restarted-and-overtook-the-old-count"),
        pytest.param([0, 0, 0], [10, 10, 10], 0, id="stands-still"),
        pytest.param([7, 9, 12], [955, 955, 955], 12, id="began-in-the-window-from-zero"),
    ],
)
def test_a_counter_rises_over_restarts(values: list[float], started: list[float], expected: float) -> None:
    times = [NOW - 40, NOW - 20, NOW]
    samples = [
        scrape(at, num_preemptions=value, started_at=start)
        for at, value, start in zip(times, values, started, strict=True)
    ]
    assert read(PREEMPTIONS, samples).value == expected


def test_another_pod_of_the_same_name_counts_from_zero() -> None:
    old = [scrape(NOW - 40, num_preemptions=5, started_at=None), scrape(NOW - 20, num_preemptions=6, started_at=None)]
    new = scrape(NOW, num_preemptions=9, started_at=None).model_copy(update={"uid": "another"})
    assert read(PREEMPTIONS, [*old, new]).value == 1 + 9


def test_a_rate_is_per_second_of_what_was_counted() -> None:
    samples = series("num_preemptions", [0, 10, 20, 30, 40])
    assert read(MetricSignal(metric="num_preemptions", take="rate"), samples).value == 1.0


STEADY = MetricSignal(metric="arrivals", take="steady", across="sum")


@pytest.mark.parametrize(
    ("finished", "expected"),
    [
        pytest.param([0, 20, 40, 60, 80, 100, 120], 2.0, id="even"),
        pytest.param([0, 20, 140, 160, 180, 200, 220], 2.0, id="a-burst-in-the-middle"),
        pytest.param([0, 120, 140, 160, 180, 200, 220], 2.0, id="a-burst-at-the-beginning"),
        pytest.param([0, 0, 0, 0, 0, 0, 0], 0.0, id="idle"),
        pytest.param([0, 6, 6, 6, 6, 6, 6], 0.1, id="too-rare-for-slices"),
    ],
)
def test_a_steady_rate_leaves_out_a_burst_of_clients_that_begin_at_once(finished: list[float], expected: float) -> None:
    assert read(STEADY, series("request_success", finished)).value == pytest.approx(expected)


def test_a_steady_rate_counts_over_a_restart() -> None:
    old = [scrape(NOW - 60 + 10 * i, request_success=100 + 20 * i) for i in range(4)]
    new = [scrape(NOW - 20 + 10 * i, request_success=20 + 20 * i, started_at=NOW - 30) for i in range(3)]
    assert read(STEADY, [*old, *new]).value == pytest.approx(2.0)


def test_a_steady_rate_of_two_samples_is_their_rate() -> None:
    assert read(STEADY, series("request_success", [0, 90], every=45)).value == pytest.approx(2.0)


def test_a_steady_rate_counts_from_the_start_of_a_process_that_began_in_the_window() -> None:
    samples = [scrape(NOW - 30 + 10 * i, request_success=20 + 20 * i, started_at=NOW - 40) for i in range(4)]
    assert read(STEADY, samples).value == pytest.approx(2.0)


def test_arrivals_are_what_finished_and_what_now_runs_or_waits() -> None:
    before = scrape(NOW - 40, request_success=100, num_requests_running=5, num_requests_waiting=1)
    after = scrape(NOW, request_success=110, num_requests_running=4, num_requests_waiting=12)
    spec = MetricSignal(metric="arrivals", take="increase")
    assert read(spec, [before, after]).value == 10 + 10


def test_arrivals_count_over_a_restart_that_only_a_falling_counter_reveals() -> None:
    old = [scrape(NOW - 60 + 10 * i, request_success=1000 + 20 * i, started_at=None) for i in range(4)]
    new = [scrape(NOW - 20 + 10 * i, request_success=20 + 20 * i, started_at=None) for i in range(3)]
    assert read(STEADY, [*old, *new]).value == pytest.approx(2.0)
    assert read(STEADY.model_copy(update={"take": "increase"}), [*old, *new]).value == 60 + 20 + 40


def test_arrivals_that_fall_while_no_counter_does_are_no_restart() -> None:
    """A finished request has left the engine before it is counted."""
    samples = series("num_requests_running", [9, 7, 9], every=20, started_at=None, request_success=50)
    assert read(STEADY.model_copy(update={"take": "increase"}), samples).value == 0


@pytest.mark.parametrize(
    "page_between",
    [
        pytest.param({}, id="at-once"),
        pytest.param({"kv_cache_usage_perc": 0.0}, id="after-a-page-without-counters"),
    ],
)
def test_any_counter_of_the_page_that_falls_reveals_a_restart(page_between: dict[str, float]) -> None:
    def page(at: float, **values: float) -> Scrape:
        return Scrape(replica="a", uid="u", at=at, ranks={"0": values})

    before = page(NOW - 60, num_preemptions=3, generation_tokens=90_000)
    between = [page(NOW - 30, **page_between)] if page_between else []
    after = page(NOW, num_preemptions=5, generation_tokens=800)
    assert read(PREEMPTIONS, [before, *between, after]).value == 5, "the new process counted five itself"


def test_tokens_are_those_of_prompts_and_of_answers() -> None:
    before, after = (scrape(NOW - 60 * i, prompt_tokens=900 - 600 * i, generation_tokens=90 - 60 * i) for i in (1, 0))
    assert read(MetricSignal(metric="tokens", take="rate"), [before, after]).value == 11.0


# --- what is not known ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "samples", "reason"),
    [
        pytest.param(PREEMPTIONS, [], "no replica was scraped", id="no-replica"),
        pytest.param(PREEMPTIONS, [scrape(NOW, num_preemptions=3)], "only one sample in 60 s", id="one-sample"),
        pytest.param(
            PREEMPTIONS, series("num_preemptions", [1, 2], every=12), "only 12 s of 60 s of history", id="short-history"
        ),
        pytest.param(MetricSignal(metric=USAGE), series(USAGE, [0.5, 0.5]), "only 10 s of 60 s", id="short-gauge"),
        pytest.param(MetricSignal(metric=USAGE), series("x", [1] * 7), f"no {USAGE} on its page", id="absent-metric"),
        pytest.param(PREEMPTIONS, [failed(NOW)], r"connection refused \(a\)", id="all-failed"),
        pytest.param(MetricSignal(metric=USAGE, of="canary"), series(USAGE, [1.0] * 7), "no canary", id="no-canary"),
        pytest.param(
            MetricSignal(metric=USAGE, of="picked.bad"), series(USAGE, [1.0] * 7), "picked.bad", id="picked-is-gone"
        ),
    ],
)
def test_what_cannot_be_read_is_unknown_with_its_reason(spec: SampledSpec, samples: list[Scrape], reason: str) -> None:
    reading = read(spec, samples)
    assert reading.value is None
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(reading.unknown)


def test_an_old_sample_says_nothing_about_now() -> None:
    samples = series(USAGE, [0.5] * 31)
    assert not read(MetricSignal(metric=USAGE), samples, seconds=300, now=NOW + 61).is_known
    assert read(MetricSignal(metric=USAGE), samples, seconds=300, now=NOW + 59).is_known


def test_a_hole_in_a_gauges_history_is_not_covered_by_its_ends() -> None:
    samples = [scrape(NOW - 300, kv_cache_usage_perc=0.1), scrape(NOW, kv_cache_usage_perc=0.1)]
    assert read(MetricSignal(metric=USAGE), samples, seconds=300).unknown.startswith("only 60 s of 5 min")


def test_replicas_that_failed_are_named_beside_the_value_of_the_others() -> None:
    samples = series(USAGE, [0.5] * 7) + series(USAGE, [0.7] * 7, "b") + [failed(NOW, "c")]
    reading = read(MetricSignal(metric=USAGE), samples)
    assert reading.value == pytest.approx(0.7)
    assert reading.detail == "not counted: connection refused (c)"


def test_a_minority_of_the_replicas_does_not_speak_for_the_others() -> None:
    samples = [*series(USAGE, [0.1] * 7), failed(NOW, "b", "timeout"), failed(NOW, "c", "timeout")]
    assert read(MetricSignal(metric=USAGE), samples).unknown == "timeout (b, c)"


WAITING = MetricSignal(metric="num_requests_waiting", take="p90", across="sum")


def ended(name: str, seconds: float) -> list[Scrape]:
    """A replica that was replaced so many seconds after the window began."""
    samples = [scrape(NOW - 60 + at, num_requests_waiting=2) for at in (0, seconds)]
    return [each.model_copy(update={"replica": name}) for each in samples]


def out_of_rotation(*scrapes: Scrape) -> list[Scrape]:
    return [scrape.model_copy(update={"in_rotation": False}) for scrape in scrapes]


def test_a_sum_without_one_of_the_replicas_is_not_the_fleets() -> None:
    samples = [each for name in "abc" for each in series("num_requests_waiting", [5] * 7, name)]
    samples.append(failed(NOW, "d", "timeout"))
    assert read(WAITING, samples).unknown == (
        "1 of 4 replicas could not be read: timeout (d); the other 3 together: 15 requests"
    )
    assert read(WAITING.model_copy(update={"across": "max"}), samples).value == 5


@pytest.mark.parametrize(
    ("other", "why"),
    [
        pytest.param(series("num_requests_waiting", [2, 2], "b"), "only 10 s of 60 s of history (b)", id="too-young"),
        pytest.param(
            [*out_of_rotation(failed(NOW - 30, "b")), *series("num_requests_waiting", [2, 2], "b")],
            "only 10 s of 60 s of history (b)",
            id="has-just-loaded-its-model",
        ),
        pytest.param(
            out_of_rotation(failed(NOW - 60, "b"), failed(NOW, "b")), "connection refused (b)", id="loads-its-model"
        ),
        pytest.param(ended("b", 20), "only 20 s of 60 s of history (b)", id="ended-in-the-window"),
    ],
)
def test_a_replica_that_was_not_there_for_the_window_is_missing_in_no_sum(other: list[Scrape], why: str) -> None:
    reading = read(WAITING, [*series("num_requests_waiting", [5] * 7), *other])
    assert (reading.value, reading.detail) == (5, f"not counted: {why}")


def test_a_replica_in_rotation_that_was_silent_until_a_moment_ago_is_missing_in_a_sum() -> None:
    back = [failed(NOW - 50, "b", "timeout"), *series("num_requests_waiting", [2, 2], "b")]
    reading = read(WAITING, [*series("num_requests_waiting", [5] * 7), *back])
    assert reading.unknown == (
        "1 of 2 replicas could not be read: only 10 s of 60 s of history (b); the other one: 5 requests"
    )


def test_a_ratio_of_sums_is_a_share_and_needs_only_most_of_the_replicas() -> None:
    assert read(THRASH, [*pair(30, 10), failed(NOW, "b", "timeout")]).value == 3.0


def test_a_replica_that_is_gone_is_not_counted_any_more() -> None:
    gone = [scrape(NOW - 90 + 5 * i, "b", kv_cache_usage_perc=1.0) for i in range(5)]
    reading = read(MetricSignal(metric=USAGE), series(USAGE, [0.2] * 13) + gone, seconds=120)
    assert reading.value == pytest.approx(0.2)
    assert reading.detail == ""


def test_one_missed_scrape_does_not_hide_what_was_read_a_moment_ago() -> None:
    samples = [*series(USAGE, [0.5] * 7), failed(NOW + 5)]
    assert read(MetricSignal(metric=USAGE), samples, now=NOW + 5).value == 0.5


# --- ratio, mean, quantile --------------------------------------------------------------------------------------------


def pair(risen: float, per: float, replica: str = "a", **more: Any) -> list[Scrape]:
    return [
        scrape(NOW - 60, replica, num_preemptions=5, request_success=50, **more),
        scrape(NOW, replica, num_preemptions=5 + risen, request_success=50 + per, **more),
    ]


def test_a_ratio_adds_both_sides_over_the_replicas_first() -> None:
    samples = pair(30, 10) + pair(0, 90, "b")
    assert read(THRASH, samples).value == 0.3
    assert read(THRASH.model_copy(update={"across": "max"}), samples).value == 3.0
    assert read(THRASH.model_copy(update={"across": "each"}), samples).value == {"a": 3.0, "b": 0.0}


def test_something_per_nothing_is_counted_as_per_one_and_says_so() -> None:
    reading = read(THRASH, pair(7, 0))
    assert reading.value == 7.0
    assert reading.detail == "no request_success on a: counted as one"


@pytest.mark.parametrize(
    ("running", "reason"),
    [(0, "no load: request_success did not rise in 60 s"), (3, "did not rise in 60 s although 3 requests run")],
)
def test_nothing_per_nothing_is_unknown_and_distinguishes_idle_from_stuck(running: int, reason: str) -> None:
    assert reason in read(THRASH, pair(0, 0, num_requests_running=running)).unknown


def test_a_ratio_of_each_leaves_out_a_replica_on_which_nothing_happened() -> None:
    reading = read(THRASH.model_copy(update={"across": "each"}), pair(1, 10) + pair(0, 0, "b"))
    assert reading.value == {"a": 0.1}
    assert reading.detail == "nothing to compare on b"


def test_a_ratio_of_a_replica_is_that_of_its_worst_rank() -> None:
    """One engine of eight that thrashes must not hide behind the seven others of its pod."""

    def page(at: float, preempted: float, finished: float) -> Scrape:
        well = {str(rank): {"num_preemptions": 0.0, "request_success": 100.0 * finished} for rank in range(7)}
        return Scrape(
            replica="a", at=at, ranks=well | {"7": {"num_preemptions": preempted, "request_success": finished}}
        )

    samples = [page(NOW - 60, 0, 0), page(NOW, 20, 10)]
    for across, expected in (("max", 2.0), ("each", {"a": 2.0}), ("min", 0.0), ("sum", 20 / 7010)):
        reading = read(THRASH.model_copy(update={"across": across}), samples)
        assert reading.value == pytest.approx(expected), across


def observed(buckets: dict[str, float], total: float) -> Histogram:
    return Histogram(buckets=buckets, sum=total, count=buckets["+Inf"])


def test_a_mean_is_of_the_windows_own_observations() -> None:
    name = "request_prompt_tokens"
    samples = [
        scrape(NOW - 60, histograms={name: observed({"+Inf": 10}, 5000)}),
        scrape(NOW, histograms={name: observed({"+Inf": 14}, 5400)}),
    ]
    assert read(MeanSignal(mean=name), samples).value == 100.0
    nothing = [samples[1].model_copy(update={"at": NOW - 60}), samples[1]]
    assert "observed in 60 s" in read(MeanSignal(mean=name), nothing).unknown


EACH = MeanSignal(mean="e2e_request_latency_seconds", across="each")
AT_EQUAL_LENGTHS = EACH.model_copy(update={"at_equal_lengths": True})


def finished(replica: str, whole: float, first: float, prompt: float, answer: float) -> list[Scrape]:
    """Ten requests, each with these seconds and tokens."""
    means = {
        "e2e_request_latency_seconds": whole,
        "time_to_first_token_seconds": first,
        "request_prompt_tokens": prompt,
        "request_generation_tokens": answer,
    }
    pages = [
        {name: observed({"+Inf": 10.0 * page}, 10.0 * page * mean) for name, mean in means.items()} for page in (0, 1)
    ]
    return [scrape(NOW - 60, replica, histograms=pages[0]), scrape(NOW, replica, histograms=pages[1])]


USUAL = finished("a", 6, 1, 500, 250) + finished("b", 6, 1, 500, 250)


@pytest.mark.parametrize(
    ("other", "seconds"),
    [
        pytest.param(finished("c", 18, 1, 500, 850), 6.0, id="longer-answers"),
        pytest.param(finished("c", 10, 5, 2500, 250), 6.0, id="longer-prompts"),
        pytest.param(finished("c", 18, 3, 500, 250), 18.0, id="slow"),
        pytest.param(finished("c", 33, 3, 500, 500), 18.0, id="slow-and-longer-answers"),
        pytest.param(finished("c", 3.5, 1, 500, 125), 3.5, id="shorter-answers"),
    ],
)
def test_a_replica_with_longer_requests_is_compared_as_if_they_were_not(other: list[Scrape], seconds: float) -> None:
    reading = read(AT_EQUAL_LENGTHS, USUAL + other)
    assert reading.value == pytest.approx({"a": 6.0, "b": 6.0, "c": seconds})
    assert reading.unit == "s"


def test_a_slow_replica_beside_one_with_longer_answers_is_the_worst() -> None:
    reading = read(AT_EQUAL_LENGTHS, USUAL + finished("long", 31, 1, 500, 1500) + finished("slow", 15, 2, 500, 250))
    assert isinstance(reading.value, dict)
    assert max(reading.value, key=reading.value.__getitem__) == "slow"
    assert reading.detail == "long needs 5.5 times as long for the lengths of its requests"


def test_without_lengths_a_replica_is_not_compared() -> None:
    bare = [
        one.model_copy(update={"histograms": {"0": {EACH.mean: one.histograms["0"][EACH.mean]}}})
        for one in finished("c", 18, 1, 500, 850)
    ]
    reading = read(AT_EQUAL_LENGTHS, USUAL + bare)
    assert reading.value == pytest.approx({"a": 6.0, "b": 6.0})
    assert reading.detail == "not counted: the lengths of its requests are not on its page (c)"
    assert not read(AT_EQUAL_LENGTHS, bare).is_known


def test_a_quantile_is_over_all_replicas_at_the_bounds_that_all_have() -> None:
    name = "time_to_first_token_seconds"
    zero = {"0.1": 0.0, "1.0": 0.0, "+Inf": 0.0}

    def two(replica: str, buckets: dict[str, float]) -> list[Scrape]:
        empty = observed(dict.fromkeys(buckets, 0.0), 0)
        return [
            scrape(NOW - 60, replica, histograms={name: empty}),
            scrape(NOW, replica, histograms={name: observed(buckets, 1)}),
        ]

    samples = two("a", zero | {"0.1": 10, "1.0": 10, "+Inf": 10}) + two("b", {"0.5": 5, "1.0": 10, "+Inf": 10})
    reading = read(QuantileSignal(quantile=0.5, histogram=name), samples)
    # Only 1.0 is common: 20 of 20 lie below it, so the middle is half of it.
    assert reading.value == 0.5
    assert reading.by_replica["a"] == pytest.approx(0.05)


def test_replicas_without_a_bound_in_common_have_no_quantile_together() -> None:
    name = "time_to_first_token_seconds"
    samples = [
        scrape(at, replica, histograms={name: observed({bound: count, "+Inf": count}, count)})
        for replica, bound in (("a", "0.1"), ("b", "0.5"))
        for at, count in ((NOW - 60, 0.0), (NOW, 10.0))
    ]
    reading = read(QuantileSignal(quantile=0.5, histogram=name), samples)
    assert (reading.value, reading.unknown) == (None, f"the replicas' {name} have no bound in common")


INTERVAL = "inter_token_latency_seconds"
NO_INTERVALS = observed({"0.1": 0, "+Inf": 0}, 0)
ABOVE = ShareSignal(share_above=0.05, histogram=INTERVAL)
P99 = QuantileSignal(quantile=0.99, histogram=INTERVAL)


def answers_of(tokens: float, count: float) -> list[Scrape]:
    """So many answers of so many tokens each, without any time between two tokens."""
    lengths = observed({"+Inf": count}, tokens * count)
    pages = [{INTERVAL: NO_INTERVALS, "request_generation_tokens": observed({"+Inf": 0}, 0)}]
    pages.append({INTERVAL: NO_INTERVALS, "request_generation_tokens": lengths})
    return [scrape(at, histograms=page) for at, page in zip((NOW - 60, NOW), pages, strict=True)]


@pytest.mark.parametrize("spec", [P99, ABOVE])
@pytest.mark.parametrize("tokens", [pytest.param(1, id="prefill-only"), pytest.param(0, id="embeddings")])
def test_where_answers_have_one_token_or_none_no_further_token_is_late(spec: SampledSpec, tokens: int) -> None:
    reading = read(spec, answers_of(tokens, 40))
    assert (reading.value, reading.unknown) == (0.0, "")
    assert reading.detail == "no answer had a second token"


@pytest.mark.parametrize("spec", [P99, ABOVE])
@pytest.mark.parametrize(
    "samples",
    [
        pytest.param(answers_of(0, 0), id="nothing-finished"),
        pytest.param(answers_of(200, 40), id="long-answers-whose-intervals-are-missing"),
        pytest.param([*answers_of(1, 40), failed(NOW, "b"), failed(NOW, "c")], id="unread"),
    ],
)
def test_else_no_time_between_tokens_is_unknown(spec: SampledSpec, samples: list[Scrape]) -> None:
    assert read(spec, samples).unknown


@pytest.mark.parametrize(
    ("q", "expected"),
    [(0.25, 0.05), (0.5, 0.1), (0.75, 0.55), (0.99, 1.0)],
)
def test_a_histogram_quantile_lies_between_two_bounds_and_never_beyond_the_last(q: float, expected: float) -> None:
    assert histogram_quantile({"0.1": 50, "1.0": 100, "+Inf": 100}, q) == pytest.approx(expected, abs=0.02)
    assert histogram_quantile({"0.1": 0, "+Inf": 10}, q) == 0.1


def test_an_empty_histogram_has_no_quantile() -> None:
    assert histogram_quantile({}, 0.5) is None
    assert histogram_quantile({"1.0": 0.0, "+Inf": 0.0}, 0.5) is None
    assert histogram_quantile({"+Inf": 5.0}, 0.5) is None


# --- stall ------------------------------------------------------------------------------------------------------------


def load(running: Sequence[float], waiting: Sequence[float], finished: Sequence[float]) -> list[Scrape]:
    return [
        scrape(NOW - 60 + 20 * i, num_requests_running=r, num_requests_waiting=w, request_success=f)
        for i, (r, w, f) in enumerate(zip(running, waiting, finished, strict=True))
    ]


@pytest.mark.parametrize(
    ("samples", "stalled"),
    [
        pytest.param(load([27, 20, 12, 7], [13, 20, 28, 32], [5, 5, 5, 5]), True, id="as-captured"),
        pytest.param(load([27, 20, 12, 7], [13, 20, 28, 32], [5, 5, 6, 6]), False, id="one-finished"),
        pytest.param(load([27, 27, 27, 27], [13, 20, 28, 32], [5, 5, 5, 5]), False, id="running-holds"),
        pytest.param(load([27, 20, 12, 7], [13, 9, 4, 2], [5, 5, 5, 5]), False, id="waiting-falls"),
        pytest.param(load([0, 0, 0, 0], [0, 0, 0, 0], [5, 5, 5, 5]), False, id="idle"),
        pytest.param(load([9, 9, 3, 0], [0, 0, 0, 0], [5, 5, 5, 5]), False, id="emptied"),
    ],
)
def test_a_stall_is_running_down_waiting_up_and_nothing_finished(samples: list[Scrape], stalled: bool) -> None:
    assert read(StallSignal(stall="engine"), samples).value is stalled


@pytest.mark.parametrize("late", [1, 20, 55])
@pytest.mark.parametrize(("finished", "stalled"), [(5, True), (6, False)])
def test_where_one_sample_a_minute_is_taken_a_stall_shows_between_the_last_two(
    late: float, finished: float, stalled: bool
) -> None:
    values = [(27, 13, 3), (27, 13, 5), (7, 32, finished)]
    samples = [
        scrape(NOW - late - 60 * (2 - i), num_requests_running=r, num_requests_waiting=w, request_success=f)
        for i, (r, w, f) in enumerate(values)
    ]
    assert read(StallSignal(stall="engine"), samples).value is stalled


# --- specs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        (MetricSignal(metric="kv_cache_usage"), "did you mean 'kv_cache_usage_perc'?"),
        (MetricSignal(metric="num_preemptions"), "take rate or increase, not p90"),
        (MetricSignal(metric=USAGE, take="rate"), "has no rate"),
        (MetricSignal(metric="request_prompt_tokens", take="last"), "is a histogram"),
        (RatioSignal(ratio=("num_preemptions", USAGE)), "is a gauge, not a counter"),
        (MeanSignal(mean="prompt_tokens"), "is a counter, not a histogram"),
        (
            MeanSignal(mean="request_prompt_tokens", across="each", at_equal_lengths=True),
            "at_equal_lengths is only for",
        ),
        (QuantileSignal(quantile=99, histogram="e2e_request_latency_seconds"), "between 0 and 1"),
    ],
)
def test_a_spec_that_can_never_be_read_says_why(spec: SignalSpec, fault: str) -> None:
    assert fault in spec_fault(spec)


@pytest.mark.parametrize("spec", [PREEMPTIONS, THRASH, MetricSignal(metric=USAGE), StallSignal(stall="engine")])
def test_a_spec_in_order_has_no_fault(spec: SignalSpec) -> None:
    assert spec_fault(spec) == ""


def test_a_window_is_a_duration_or_the_setting_that_holds_one() -> None:
    assert span_of("1h30m", {}) == 5400
    assert span_of("settings.window", {"window": 300.0}) == 300
    assert span_of("settings.window", {"window": "5m"}) == 300
    for wrong in ("5", "soon", "settings.other", "settings.flag"):
        with pytest.raises(ValueError, match="duration"):
            span_of(wrong, {"flag": True})


# --- load -------------------------------------------------------------------------------------------------------------


def test_the_load_of_a_replica_is_what_its_newest_page_says() -> None:
    samples = [
        scrape(NOW - 30, request_success=5, num_requests_running=2),
        scrape(NOW, request_success=9, num_requests_running=1, num_requests_waiting=4),
        scrape(NOW - 30, "b"),
        failed(NOW, "b"),
    ]
    loads = loads_in(samples, Window(NOW - 60, NOW))
    assert list(loads) == ["a"]
    assert (loads["a"].running, loads["a"].waiting) == (1, 4)
    assert (loads["a"].arrivals_in_window, loads["a"].window_seconds) == (4 + 3, 30)


STILL: dict[str, Any] = {
    "num_requests_running": 3.0,
    "request_success": 5.0,
    "generation_tokens": 90.0,
    "kv_cache_usage_perc": 0.4,
}


@pytest.mark.parametrize(
    ("later", "has_moved"),
    [
        pytest.param({}, False, id="nothing-moves"),
        pytest.param({"num_requests_waiting": 7.0}, False, id="requests-only-arrive"),
        pytest.param({"generation_tokens": 91.0}, True, id="a-token"),
        pytest.param({"request_success": 6.0}, True, id="one-finishes"),
        pytest.param({"kv_cache_usage_perc": 0.5}, True, id="reads-a-long-prompt"),
        pytest.param({"request_success": 0.0, "generation_tokens": 0.0}, True, id="another-process"),
    ],
)
def test_an_engine_has_moved_if_it_did_anything_with_its_requests(later: dict[str, Any], has_moved: bool) -> None:
    samples = [scrape(NOW - 30, **STILL), scrape(NOW, **STILL | later)]
    assert loads_in(samples, Window(NOW - 60, NOW))["a"].has_moved is has_moved


def test_whether_an_engine_has_moved_is_unknown_without_two_pages_that_say_it() -> None:
    assert loads_in([scrape(NOW, **STILL)], Window(NOW - 60, NOW))["a"].has_moved is None
    partly = {name: value for name, value in STILL.items() if name != "generation_tokens"}
    samples = [scrape(NOW - 30, **partly), scrape(NOW, **partly)]
    assert loads_in(samples, Window(NOW - 60, NOW))["a"].has_moved is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(12.4, "12 s"), (60, "60 s"), (119, "119 s"), (300, "5 min"), (5400, "90 min"), (7200, "2 h")]
)
def test_durations_read_as_people_write_them(seconds: float, text: str) -> None:
    assert lasting(seconds) == text


def test_a_quantile_of_one_value_is_that_value() -> None:
    assert quantile([0.4], 0.9) == 0.4
    assert math.isclose(quantile([0, 1], 0.9), 0.9)


# --- share above a target ---------------------------------------------------------------------------------------------

TTFT = "time_to_first_token_seconds"


def first_tokens(replica: str, *below: float, over: float = 60) -> list[Scrape]:
    """Cumulative counts at 0.25, 0.5, 1.0 and +Inf that came in the window."""
    bounds = ("0.25", "0.5", "1.0", "+Inf")
    empty = observed(dict.fromkeys(bounds, 0.0), 0)
    after = observed(dict(zip(bounds, below, strict=True)), 1)
    return [
        scrape(NOW - over, replica, histograms={TTFT: empty}),
        scrape(NOW, replica, histograms={TTFT: after}),
    ]


@pytest.mark.parametrize(
    ("target", "share"),
    [
        pytest.param(0.5, 0.2, id="on-a-bound"),
        pytest.param(0.75, 0.15, id="half-way-through-a-bucket"),
        pytest.param(1.0, 0.1, id="on-the-highest-finite-bound"),
        pytest.param(0.0, 1.0, id="nothing-is-quicker-than-nothing"),
    ],
)
def test_a_share_is_what_the_buckets_count_above_the_target(target: float, share: float) -> None:
    reading = read(ShareSignal(share_above=target, histogram=TTFT), first_tokens("a", 60, 80, 90, 100))
    assert reading.value == pytest.approx(share)
    assert reading.unit == "ratio"


def test_a_share_is_of_all_requests_and_not_the_mean_of_the_replicas_shares() -> None:
    samples = first_tokens("a", 0, 0, 10, 10) + first_tokens("b", 90, 90, 90, 90)
    reading = read(ShareSignal(share_above=0.5, histogram=TTFT), samples)
    assert reading.value == pytest.approx(0.1)
    assert reading.by_replica == {"a": 1.0, "b": 0.0}


@pytest.mark.parametrize(
    ("spec", "samples", "reason"),
    [
        pytest.param(
            ShareSignal(share_above=0.5, histogram=TTFT),
            first_tokens("a", 0, 0, 0, 0),
            f"no {TTFT} observed in 60 s",
            id="nothing-observed",
        ),
        pytest.param(
            ShareSignal(share_above=5.0, histogram=TTFT),
            first_tokens("a", 60, 80, 90, 100),
            f"5 lies beyond the highest bound of {TTFT}",
            id="beyond-the-bounds",
        ),
        pytest.param(
            ShareSignal(share_above=0.5, histogram=TTFT),
            first_tokens("a", 60, 80, 90, 100, over=20),
            "only 20 s of 60 s of history (a)",
            id="half-of-the-window-is-missing",
        ),
    ],
)
def test_a_share_that_cannot_be_computed_is_unknown_and_not_zero(
    spec: ShareSignal, samples: list[Scrape], reason: str
) -> None:
    assert read(spec, samples).unknown == reason


def test_a_reason_that_a_fleet_has_names_two_replicas_and_counts_the_others() -> None:
    signal = ShareSignal(share_above=0.5, histogram=TTFT)
    fleet = [each for name in "abcde" for each in first_tokens(name, 60, 80, 90, 100, over=20)]
    assert read(signal, fleet).unknown == "only 20 s of 60 s of history (a, b and 3 more)"
    three = [each for each in fleet if each.replica in "abc"]
    assert read(signal, three).unknown == "only 20 s of 60 s of history (a, b, c)"


def test_a_target_beyond_the_bounds_is_met_when_all_requests_lie_below_them() -> None:
    reading = read(ShareSignal(share_above=5.0, histogram=TTFT), first_tokens("a", 60, 80, 100, 100))
    assert reading.value == 0.0


@pytest.mark.parametrize(
    ("written", "target"), [(0.5, 0.5), ("0.5", 0.5), ("500ms", 0.5), ("settings.ttft_target", 0.8)]
)
def test_a_target_is_a_number_a_duration_or_a_setting(written: float | str, target: float) -> None:
    spec = with_target(ShareSignal(share_above=written, histogram=TTFT), {"ttft_target": 0.8})
    assert isinstance(spec, ShareSignal)
    assert spec.share_above == target


def test_a_target_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match=r"settings.absent is not a duration"):
        with_target(ShareSignal(share_above="settings.absent", histogram=TTFT), {})
