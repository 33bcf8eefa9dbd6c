"""The windows that a playbook judges by, over scrapes of real servers: the source of its thresholds."""

from collections.abc import Callable

import pytest

from bot.domain.signals.sampling import SampledSpec, read_window
from bot.domain.signals.signal import Reading
from bot.domain.signals.specs import MeanSignal, MetricSignal, QuantileSignal, RatioSignal, StallSignal, Take
from bot.domain.signals.window import Window
from tests.kit.captures import Capture

pytestmark = pytest.mark.fast

A = "A_thrash_then_lower_max_num_seqs"
B = "B_thrash_8MiB_kv_auto"
C = "C_same_8MiB_kv_fp8"
E = "E_queue_limit_503"
PHASES = [(A, "healthy"), (A, "thrash"), (A, "capped"), (B, "thrash"), (C, "thrash"), (E, "shed")]
Captures = Callable[[str], Capture]


def read(capture: Capture, phase: str, spec: SampledSpec) -> Reading:
    return read_window("it", spec, capture.scrapes, window=capture.phase(phase), picked={})


def rise(capture: Capture, phase: str, metric: str) -> object:
    return read(capture, phase, MetricSignal(metric=metric, take="increase", across="sum")).value


@pytest.mark.parametrize(
    ("name", "phase", "preemptions", "finished"),
    [
        (A, "healthy", 0, 120),
        (A, "thrash", 1423, 507),
        (A, "capped", 0, 362),
        (B, "thrash", 889, 300),
        (C, "thrash", 193, 93),
        (E, "shed", 1, 22),
    ],
)
def test_preemptions_per_finished_request_are_counted_exactly(
    capture: Captures, name: str, phase: str, preemptions: int, finished: int
) -> None:
    assert rise(capture(name), phase, "num_preemptions") == preemptions
    assert rise(capture(name), phase, "request_success") == finished
    ratio = read(capture(name), phase, RatioSignal(ratio=("num_preemptions", "request_success")))
    assert ratio.value == preemptions / finished


@pytest.mark.parametrize(
    ("name", "phase", "p90", "average"),
    [(A, "healthy", 0.43, 0.24), (A, "thrash", 0.99, 0.79), (A, "capped", 0.60, 0.43), (E, "shed", 0.85, 0.48)],
)
def test_the_p90_of_the_usage_separates_a_thrash_from_a_busy_server_where_the_average_cannot(
    capture: Captures, name: str, phase: str, p90: float, average: float
) -> None:
    usage = MetricSignal(metric="kv_cache_usage_perc")
    assert read(capture(name), phase, usage).value == pytest.approx(p90, abs=0.005)
    of_average = usage.model_copy(update={"take": "avg"})
    assert read(capture(name), phase, of_average).value == pytest.approx(average, abs=0.005)


def test_a_restart_in_the_window_neither_loses_what_was_counted_nor_counts_backwards(capture: Captures) -> None:
    a = capture(A)
    both = Window(a.phase("thrash").start, a.phase("capped").end)
    spec = MetricSignal(metric="request_success", take="increase", across="sum")
    whole = read_window("it", spec, a.scrapes, window=both, picked={})
    # What the new process finished before the second phase's first scrape belongs to the whole.
    assert 507 + 362 <= float(str(whole.value)) <= 507 + 362 + 5


@pytest.mark.parametrize(
    "spec",
    [
        MetricSignal(metric="arrivals", take="rate", across="sum"),
        MetricSignal(metric="num_preemptions", take="increase", across="sum"),
        MeanSignal(mean="e2e_request_latency_seconds"),
    ],
    ids=lambda spec: spec.model_dump_json(exclude_defaults=True),
)
def test_a_page_without_its_start_time_leads_to_the_same_verdict_over_a_restart(
    capture: Captures, spec: SampledSpec
) -> None:
    a = capture(A)
    both = Window(a.phase("thrash").start, a.phase("capped").end)
    unstamped = [scrape.model_copy(update={"started_at": None}) for scrape in a.scrapes]
    known, guessed = (read_window("it", spec, each, window=both, picked={}).value for each in (a.scrapes, unstamped))
    assert guessed == pytest.approx(known, rel=0.01)


def test_while_the_server_is_down_nothing_is_known_and_nothing_is_zero(capture: Captures) -> None:
    a = capture(A)
    down = next(scrape for scrape in a.scrapes if scrape.error)
    spec = MetricSignal(metric="kv_cache_usage_perc", over="1s", take="last")
    reading = read_window("it", spec, a.scrapes, window=Window(down.at - 1, down.at), picked={})
    assert reading.value is None
    assert down.error in reading.unknown


def test_arrivals_are_what_finished_and_what_came_to_run_or_wait(capture: Captures) -> None:
    thrash = capture(A)
    # A closed loop of 48 clients: 44 joined the 4 whose requests already ran, and each that ends brings another.
    assert rise(thrash, "thrash", "arrivals") == 510
    assert rise(capture(A), "healthy", "arrivals") == 120


def test_a_queue_that_stays_proves_load_where_the_throughput_has_fallen(capture: Captures) -> None:
    queue = MetricSignal(metric="num_requests_waiting", take="p50")
    lasting = [(A, "healthy"), (A, "thrash"), (A, "capped"), (E, "shed")]
    read_as = {(name, phase): read(capture(name), phase, queue).value for name, phase in lasting}
    assert read_as == {(A, "healthy"): 0, (A, "thrash"): 24, (A, "capped"): 41, (E, "shed"): 0}


def test_the_clients_that_begin_at_once_are_not_part_of_a_steady_rate(capture: Captures) -> None:
    a = capture(A)
    begun, over = a.phase("thrash").start, a.phase("thrash").end

    def arrivals(take: Take, window: Window) -> object:
        spec = MetricSignal(metric="arrivals", take=take)
        return read_window("it", spec, a.scrapes, window=window, picked={}).value

    first = Window(begun, begun + 60)
    assert arrivals("rate", Window(begun + 50, over)) == pytest.approx(4.35, abs=0.01)
    assert arrivals("rate", first) == pytest.approx(5.10, abs=0.01)
    assert arrivals("steady", first) == pytest.approx(4.47, abs=0.01)


def test_the_mean_final_length_gives_the_cap_that_cured_the_thrash(capture: Captures) -> None:
    prompt = read(capture(A), "thrash", MeanSignal(mean="request_prompt_tokens")).value
    generated = read(capture(A), "thrash", MeanSignal(mean="request_generation_tokens")).value
    tokens = read(capture(A), "thrash", MetricSignal(metric="usable_tokens", take="last", across="min")).value
    assert tokens == 4064
    assert isinstance(prompt, float)
    assert isinstance(generated, float)
    assert int(0.9 * 4064 / (prompt + generated)) == 6


def test_time_to_first_token_shows_what_the_clients_felt(capture: Captures) -> None:
    ttft = QuantileSignal(quantile=0.5, histogram="time_to_first_token_seconds")
    assert read(capture(A), "healthy", ttft).value == pytest.approx(0.014, abs=0.001)
    assert read(capture(A), "capped", ttft).value == pytest.approx(7.0, abs=0.1)


@pytest.mark.parametrize(("name", "phase"), PHASES)
def test_no_captured_phase_is_a_full_stall(capture: Captures, name: str, phase: str) -> None:
    assert read(capture(name), phase, StallSignal(stall="engine")).value is False


def test_the_moment_in_which_nothing_finished_and_the_counter_stood_still_is_a_stall(capture: Captures) -> None:
    b = capture(B)
    # Scrapes 12 and 13: running 45 to 9, waiting 3 to 39, nothing finished, no preemption counted.
    at = [scrape.at for scrape in b.scrapes]
    moment = Window(at[12], at[13])
    reading = read_window("it", StallSignal(stall="engine"), b.scrapes, window=moment, picked={})
    assert reading.value is True
    preempted = MetricSignal(metric="num_preemptions", take="increase")
    assert read_window("it", preempted, b.scrapes, window=moment, picked={}).value == 0
