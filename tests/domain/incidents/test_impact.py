"""When a change hurts the remaining replicas too much, and what stays unknown."""

from __future__ import annotations

import pytest

from bot.domain.incidents.impact import Impact, impact_in, takes_capacity, too_much
from bot.domain.signals.scrape import Histogram, Scrape
from bot.domain.signals.window import Window
from tests import builders
from tests.domain.changes.snapshots import deployment, planned, snapshot, template

pytestmark = pytest.mark.fast
NOW = 1000.0


def impact(ttft: float | None, waiting: float | None) -> Impact:
    return Impact(ttft_p99_seconds=ttft, waiting=waiting)


@pytest.mark.parametrize(
    ("before", "now", "text"),
    [
        pytest.param(impact(1.0, 4.0), impact(1.4, 7.9), "", id="below both factors"),
        pytest.param(impact(1.0, 4.0), impact(1.6, 4.0), "TTFT p99 1.00 s → 1.60 s", id="slower answers"),
        pytest.param(impact(1.0, 4.0), impact(1.0, 8.1), "requests waiting per replica 4.0 → 8.1", id="a queue"),
        pytest.param(impact(0.05, 0.0), impact(0.4, 1.9), "", id="many times nearly nothing is nearly nothing"),
        pytest.param(impact(0.3, 0.0), impact(0.6, 2.1), "TTFT p99 0.30 s → 0.60 s, requests waiting", id="both"),
        pytest.param(impact(None, None), impact(9.0, 90.0), "", id="nothing known of before"),
        pytest.param(impact(1.0, 4.0), impact(None, None), "", id="nothing known of now"),
        pytest.param(
            impact(None, 4.0), impact(9.0, 9.0), "requests waiting per replica 4.0 → 9.0", id="one of the two"
        ),
    ],
)
def test_a_rise_beyond_its_factor_is_described_with_both_values(before: Impact, now: Impact, text: str) -> None:
    found = too_much(before, now)
    assert found.startswith(text)
    assert bool(found) == bool(text)


def scrapes(replica: str, waiting: float, *, in_rotation: bool = True, slow: float = 0.0) -> list[Scrape]:
    found = []
    for at in range(0, 61, 5):
        buckets = {"0.5": at * (1 - slow), "2.5": float(at), "+Inf": float(at)}
        ttft = {"time_to_first_token_seconds": Histogram(buckets=buckets, sum=at, count=at)}
        found.append(
            Scrape(
                replica=replica, uid=replica, at=NOW - 60 + at, in_rotation=in_rotation,
                ranks={"0": {"num_requests_waiting": waiting}}, histograms={"0": ttft},
            )
        )  # fmt: skip
    return found


def test_it_is_read_over_the_replicas_that_serve() -> None:
    read = impact_in(
        [*scrapes("a", 4.0), *scrapes("b", 6.0), *scrapes("out", 90.0, in_rotation=False, slow=1.0)],
        Window(NOW - 60, NOW),
    )
    assert read.waiting == pytest.approx(5.0)
    assert read.ttft_p99_seconds is not None
    assert read.ttft_p99_seconds <= 0.5


def test_slow_answers_show_in_the_slowest_percent() -> None:
    read = impact_in(scrapes("a", 0.0, slow=0.05), Window(NOW - 60, NOW))
    assert read.ttft_p99_seconds is not None
    assert read.ttft_p99_seconds > 2.0


def test_what_was_not_sampled_is_unknown_and_not_zero() -> None:
    assert impact_in([], Window(NOW - 60, NOW)) == impact(None, None)
    assert impact_in(scrapes("a", 4.0)[-1:], Window(NOW - 60, NOW)).waiting is None


CAP = {"edits": [{"flag": "--max-num-seqs", "value": 6}]}


@pytest.mark.parametrize(
    ("verb", "arguments", "takes"),
    [
        ("set_flags", CAP, True),
        ("restart", {}, True),
        ("replace_replica", {"replica": "llm-2"}, True),
        ("isolate_replica", {"replica": "llm-2"}, True),
        ("scale", {"by": -1}, True),
        ("scale", {"by": 1}, False),
        ("canary", CAP, False),
    ],
)
def test_what_takes_replicas_from_users_is_watched_and_what_adds_some_is_not(
    verb: str, arguments: dict[str, object], *, takes: bool
) -> None:
    emptied_by_label = snapshot(workload=deployment(template(lifecycle={})))
    assert takes_capacity(planned(verb, arguments, emptied_by_label)) is takes


def test_going_back_is_never_held_up() -> None:
    rollout = planned("set_flags", CAP, snapshot())
    assert not takes_capacity(rollout.model_copy(update={"verb": "undo"}))
    assert not takes_capacity(builders.plan())


@pytest.mark.parametrize(
    ("verb", "arguments", "disruption"),
    [
        ("set_flags", CAP, "INC-1/R1"),
        ("restart", {}, "INC-1/R1"),
        ("scale", {"by": -1}, "INC-1/R1"),
        ("isolate_replica", {"replica": "llm-2"}, "replica llm-2-uid"),
        ("replace_replica", {"replica": "llm-2"}, "replica llm-2-uid"),
        ("scale", {"by": 1}, ""),
        ("canary", CAP, ""),
        ("cordon_node", {"replica": "llm-2"}, ""),
    ],
)
def test_the_breaker_counts_what_ends_serving_replicas_and_each_replica_once(
    verb: str, arguments: dict[str, object], disruption: str
) -> None:
    assert planned(verb, arguments, snapshot()).disruption("INC-1/R1") == disruption
