"""Times of day and days of the week, in UTC."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, time, timedelta

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
HOURS = r"^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$|^$"
"""`22:00-06:00`; empty: the whole day."""


def open_until(hours: str, at: float, days: Collection[str] = ()) -> float | None:
    """Returns when the span of these hours that `at` is in ends, or None outside of them.

    Hours that end before they begin last over midnight, and belong to the day on which they begin. `days`: some of
    `DAYS`; empty: every day.
    """
    now = datetime.fromtimestamp(at, UTC)
    for day in (now.date(), now.date() - timedelta(days=1)):
        begins, ends = _span(hours)
        if begins == ends and hours:
            return None
        start = datetime.combine(day, begins, UTC)
        end = datetime.combine(day, ends, UTC) + timedelta(days=ends <= begins)
        if start <= now < end and (not days or DAYS[day.weekday()] in days):
            return end.timestamp()
    return None


def _span(hours: str) -> tuple[time, time]:
    if not hours:
        return time(), time()
    begins, ends = (time.fromisoformat(text.strip()) for text in hours.split("-"))
    return begins, ends
