"""Who owns a workload, which revision last served well, and today beside yesterday."""

from datetime import UTC, datetime
from typing import Any

import pytest

from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.incidents.run import Run
from bot.domain.kernel.target import Target
from bot.domain.signals.load_log import SLOT_SECONDS, LoadPoint
from bot.domain.signals.scrape import Histogram, Scrape
from bot.domain.signals.signal import Reading
from tests.builders import run
from tests.fakes.samples import FakeLoadLog
from tests.kit import probes
from tests.kit.probes import TARGET, Samples, request
from tests.probes.clusters import OPENED, revision, snapshot, template
from tests.probes.test_incident_history import Kept

pytestmark = pytest.mark.fast

HOURS, DAY = 60.0, 86400.0


async def ask(
    probe: str, seen: ClusterSnapshot | None = None, *scrapes: Scrape, loads: FakeLoadLog | None = None,
    runs: Kept | None = None,
    **parameters: Any,
) -> Reading:  # fmt: skip
    asked = request(probe, seen or snapshot(), at=OPENED, incident_id="INC-7", parameters=parameters)
    return await probes.ask(asked, history=Samples(*scrapes), runs=runs or Kept(), loads=loads)


# --- last good --------------------------------------------------------------------------------------------------------


def aged(number: int, hours: float, seqs: int, **more: Any) -> Obj:
    return revision(number, template(f"--max-num-seqs={seqs}"), minutes_before=hours * HOURS, **more)


@pytest.mark.parametrize(
    ("revisions", "number", "is_current", "hours"),
    [
        pytest.param([aged(2, 1, 256), aged(1, 200, 64)], 1, False, 199, id="a-fresh-deploy"),
        pytest.param([aged(2, 30, 256), aged(1, 200, 64)], 2, True, 30, id="the-current-one"),
        pytest.param([aged(3, 1, 9), aged(2, 5, 256), aged(1, 200, 64)], 1, False, 195, id="one-in-between-was-short"),
        pytest.param(
            [aged(2, 30, 256, stamp="INC-1/c1"), aged(1, 200, 64)], 1, False, 170, id="the-bots-own-does-not-count"
        ),
        pytest.param([aged(2, -1, 256), aged(1, 200, 64)], 1, False, 200, id="rolled-out-after-the-opening"),
    ],
)
async def test_the_last_good_revision_served_a_day_before_the_incident(
    revisions: list[Obj], number: int, is_current: bool, hours: float
) -> None:
    reading = await ask("last_good", snapshot(*revisions))
    assert reading.fields["found"] is True
    assert (reading.fields["revision"], reading.fields["is_current"]) == (number, is_current)
    assert reading.fields["hours"] == pytest.approx(hours)


async def test_going_back_says_what_it_means() -> None:
    reading = await ask("last_good", snapshot(aged(2, 1, 256), aged(1, 200, 64)))
    assert reading.fields["summary"] == "--max-num-seqs 256 → 64"


async def test_no_revision_that_served_long_enough_is_a_finding() -> None:
    reading = await ask("last_good", snapshot(aged(2, 1, 256), aged(1, 5, 64)))
    assert reading.fields == {"found": False}


async def test_a_revision_whose_time_is_unknown_is_not_called_good_or_bad() -> None:
    reading = await ask("last_good", snapshot(aged(3, 1, 256), aged(1, 200, 64, reused=True)))
    assert reading.fields == {}
    assert "no revision is known" in reading.unknown


async def test_a_roll_out_that_is_stuck_has_not_served() -> None:
    stuck = snapshot(aged(2, 30, 256), aged(1, 200, 64), status={"updatedReplicas": 1})
    assert (await ask("last_good", stuck)).fields["revision"] == 1


def incident(number: int, began: float, ended: float | None, **fields: Any) -> Run:
    """Hours before the present one opened."""
    opened, closed = OPENED - began * 3600, None if ended is None else OPENED - ended * 3600
    fields = {"target": TARGET, "ending": "fixed"} | fields
    return run(incident_id=f"INC-{number}", opened_at=opened, starts_at=opened, closed_at=closed, **fields)


@pytest.mark.parametrize(
    ("before", "found"),
    [
        pytest.param(incident(1, 30, 29), 28, id="a-day-went-by-since"),
        pytest.param(incident(1, 12, 11), None, id="it-had-one-in-its-last-day"),
        pytest.param(incident(1, 210, 190), 189, id="it-was-rolled-out-while-one-was-open"),
        pytest.param(incident(1, 12, None), None, id="another-is-still-open"),
        pytest.param(incident(7, 12, 11), 199, id="the-present-one-does-not-count"),
        pytest.param(incident(1, 12, 11, ending="not_applicable"), 199, id="that-was-none"),
        pytest.param(incident(1, 12, 11, target=Target(namespace="serving", name="other")), 199, id="anothers"),
        pytest.param(incident(1, 0.5, 0.2), 199, id="the-next-revisions"),
    ],
)
async def test_a_revision_with_an_incident_in_its_last_day_was_not_good(before: Run, found: float | None) -> None:
    reading = await ask("last_good", snapshot(aged(2, 1, 256), aged(1, 200, 64)), runs=Kept(before))
    assert reading.fields.get("hours") == found
    assert reading.fields["found"] is (found is not None)


# --- traffic ----------------------------------------------------------------------------------------------------------


def served(end: float, per_second: float, prompt: float) -> list[Scrape]:
    """Half an hour of one replica that ends then."""
    found = []
    for step in range(61):
        at, count = end - 1800 + 30 * step, 30 * step * per_second
        values = {"request_success": count, "num_requests_running": 0.0, "num_requests_waiting": 0.0}
        lengths = {
            "request_prompt_tokens": Histogram(sum=count * prompt, count=count),
            "request_generation_tokens": Histogram(sum=count * 500, count=count),
        }
        found.append(Scrape(replica="llm-0", at=at, ranks={"0": values}, histograms={"0": lengths}))
    return found


async def test_traffic_is_shown_beside_the_same_time_yesterday() -> None:
    reading = await ask("traffic", None, *served(OPENED - DAY, 2, 100), *served(OPENED, 3, 400))
    assert reading.fields["arrivals_ratio"] == pytest.approx(1.5)
    assert reading.fields["prompt_ratio"] == pytest.approx(4)
    assert reading.fields["output_ratio"] == pytest.approx(1)
    assert reading.fields["arrivals"] == pytest.approx(3)
    assert (reading.source, reading.window_seconds) == ("pages", 1800)


async def test_without_yesterday_only_today_is_known() -> None:
    reading = await ask("traffic", None, *served(OPENED, 3, 400))
    assert reading.fields == {"arrivals": pytest.approx(3)}
    assert set(reading.unknown_parts) == {"arrivals_ratio", "prompt_ratio", "output_ratio"}
    assert reading.unknown_parts["arrivals_ratio"].startswith("yesterday: no replica was scraped")


async def test_without_prometheus_yesterday_is_what_the_bot_kept_of_it() -> None:
    slots = [OPENED - DAY - 1800 + SLOT_SECONDS * step for step in range(6)]
    kept = [LoadPoint(start=start, arrivals=2.0, finished=600.0, prompt=100.0, output=500.0) for start in slots]
    reading = await ask("traffic", None, *served(OPENED, 3, 400), loads=FakeLoadLog(*kept))
    assert reading.fields["arrivals_ratio"] == pytest.approx(1.5)
    assert reading.fields["prompt_ratio"] == pytest.approx(4)
    assert reading.fields["output_ratio"] == pytest.approx(1)


async def test_a_workload_that_is_sampled_for_an_hour_says_when_yesterday_will_be_known() -> None:
    kept = [LoadPoint(start=OPENED - 3600 + SLOT_SECONDS * step, arrivals=2.0) for step in range(12)]
    reading = await ask("traffic", None, *served(OPENED, 3, 400), loads=FakeLoadLog(*kept))
    assert reading.fields == {"arrivals": pytest.approx(3)}
    known = datetime.fromtimestamp(OPENED - 3600 + DAY + 1800, UTC)
    assert f"known from {known:%Y-%m-%d %H:%M} UTC on" in reading.unknown_parts["arrivals_ratio"]


async def test_yesterday_may_be_as_long_ago_as_is_asked() -> None:
    kept = [LoadPoint(start=OPENED - 7200 + SLOT_SECONDS * step, arrivals=2.0) for step in range(6)]
    hour_ago = (*served(OPENED - 3600, 2, 100), *served(OPENED, 3, 400))
    reading = await ask("traffic", None, *hour_ago, loads=FakeLoadLog(*kept), over="30m", ago="1h")
    assert reading.fields["arrivals_ratio"] == pytest.approx(1.5)


async def test_more_than_nothing_has_no_ratio() -> None:
    reading = await ask("traffic", None, *served(OPENED - DAY, 0, 0), *served(OPENED, 3, 400))
    assert "arrivals_ratio" in reading.unknown_parts


async def test_a_window_that_is_none_is_reported() -> None:
    assert (await ask("traffic", None, over="soon")).unknown.startswith("'soon' is not a duration")
