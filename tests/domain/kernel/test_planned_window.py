"""Windows that people plan: when they are open, and for which targets."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bot.domain.kernel.planned_window import PlannedWindow, WindowRule, last_of, open_windows
from bot.domain.kernel.schedule import open_until
from bot.domain.kernel.target import Target

pytestmark = pytest.mark.fast
LLM = Target(namespace="serving", name="llm-70b")


def at(text: str) -> float:
    """A time in the week of Monday, 23 November 2026: `tue 02:30`."""
    day, clock = text.split()
    date = 23 + ("mon", "tue", "wed", "thu", "fri", "sat", "sun").index(day)
    hour, minute = map(int, clock.split(":"))
    return datetime(2026, 11, date, hour, minute, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("hours", "days", "now", "ends"),
    [
        pytest.param("02:00-04:00", (), "tue 02:00", "tue 04:00", id="at its beginning"),
        pytest.param("02:00-04:00", (), "tue 04:00", None, id="at its end"),
        pytest.param("22:00-06:00", (), "tue 23:30", "wed 06:00", id="before midnight"),
        pytest.param("22:00-06:00", (), "wed 05:59", "wed 06:00", id="after midnight"),
        pytest.param("22:00-06:00", ("tue",), "wed 05:00", "wed 06:00", id="the night that began on Tuesday"),
        pytest.param("22:00-06:00", ("tue",), "tue 05:00", None, id="the night that began on Monday"),
        pytest.param("", ("tue",), "tue 12:00", "wed 00:00", id="a whole day"),
        pytest.param("", ("tue",), "wed 12:00", None, id="another day"),
        pytest.param("22:00-22:00", (), "tue 22:00", None, id="no time at all"),
    ],
)
def test_hours_of_some_days_are_open_until_they_end(
    hours: str, days: tuple[str, ...], now: str, ends: str | None
) -> None:
    assert open_until(hours, at(now), days) == (None if ends is None else at(ends))


def window(kind: str = "freeze", *targets: str, starts: str = "mon 08:00", ends: str = "mon 10:00") -> PlannedWindow:
    fields = {
        "kind": kind,
        "targets": targets,
        "starts_at": at(starts),
        "ends_at": at(ends),
        "why": "release",
        "by": "ana",
    }
    return PlannedWindow.model_validate(fields)


def test_a_window_says_what_it_is_until_when_and_why() -> None:
    assert str(window()) == "freeze until 23 Nov 10:00 UTC: release (ana)"


@pytest.mark.parametrize(
    ("targets", "expected"),
    [((), True), (("serving/*",), True), (("serving/llm",), False), (("chat/*", "*/llm-70b"), True)],
)
def test_a_window_covers_the_targets_that_it_names(targets: tuple[str, ...], expected: bool) -> None:
    assert window("freeze", *targets).covers(LLM) is expected


def test_of_several_windows_the_one_that_ends_last_counts() -> None:
    short, long = window("maintenance"), window("maintenance", "serving/*", ends="mon 12:00")
    assert last_of([short, long, window("freeze", ends="mon 23:00")], "maintenance", LLM) == long


def test_windows_of_the_settings_and_of_people_are_open_at_their_time() -> None:
    between = {"starts": datetime(2026, 11, 24, tzinfo=UTC), "ends": datetime(2026, 11, 26, tzinfo=UTC)}
    rules = [
        WindowRule(kind="maintenance", hours="02:00-04:00", days=("tue",), why="nightly"),
        WindowRule(kind="freeze", **between),
    ]
    assert open_windows([window()], rules, at("mon 11:00")) == []
    assert open_windows([window()], rules, at("mon 09:00")) == [window()]
    ends = [(each.kind, each.ends_at) for each in open_windows([window()], rules, at("tue 03:00"))]
    assert ends == [("maintenance", at("tue 04:00")), ("freeze", at("thu 00:00"))]
