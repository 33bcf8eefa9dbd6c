"""What a picture of an incident shows, from its timeline alone: lines, their limits, and what was decided when."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict, ValidationError

from bot.domain.incidents.series import MAX_POINTS, Limit, Series
from bot.domain.kernel.timeline import Chained
from bot.domain.reports.escaping import moment, one_line
from bot.domain.reports.facts import Decided, Report
from bot.domain.reports.reading import readings_of, report_of
from bot.domain.signals.signal import READ_TOGETHER_SECONDS, SHOWN_UNITS, Reading, Value, in_words

MAX_TITLE_LENGTH = 44
MAX_PANELS = 3
VERDICTS = {"held": "yes", "not_held": "no", "broke": "no", "unknown": "not known"}
MAX_MARKS = 9
"""One digit each; the report has them all."""
_REFERENCE = re.compile(r"^(\w+) [RQ]\d+\b")
"""`approved R1: …`: a picture has no room for the number."""
DONE = "done: "
MAX_MARK_LENGTH = 64
"""As wide as the picture; the report has all of it."""


class _Fact(BaseModel):
    model_config = ConfigDict(frozen=True)


class Mark(_Fact):
    at: float
    text: str
    is_change: bool = False


class Panel(_Fact):
    title: str
    unit: str
    """`ratio`: a share of a whole."""
    change: str
    """`baseline → last`, one where they are equal, empty where one is not known; the last is where the line ends."""
    points: tuple[tuple[float, float], ...]
    limits: tuple[Limit, ...]


class Chart(_Fact):
    title: str
    target: str
    begins_at: float
    ends_at: float
    panels: tuple[Panel, ...]
    marks: tuple[Mark, ...]
    marks_left_out: int


def chart_of(entries: Sequence[Chained], read_since: Sequence[Series] = ()) -> Chart | None:
    """None if there is no line: a single reading does not make a picture.

    `read_since`: lines that were read for this picture, newer than any on the timeline.
    """
    report = report_of(entries)
    lines = _most_relevant([line for line in _lines(entries, read_since) if line.points])
    if not lines:
        return None
    marks = sorted(_marks(report), key=lambda mark: mark.at)
    times = [at for line in lines for at, _ in line.points] + [mark.at for mark in marks]
    name = " ".join(filter(None, (report.incident, report.called)))
    return Chart(
        title=one_line(name, MAX_TITLE_LENGTH),
        target=one_line(report.target, MAX_MARK_LENGTH),
        begins_at=min(times),
        ends_at=max(times),
        panels=tuple(_panel(line, report) for line in lines),
        marks=tuple(_that_matter(marks)),
        marks_left_out=max(0, len(marks) - MAX_MARKS),
    )


def _most_relevant(lines: Sequence[Series]) -> list[Series]:
    """What users feel is written first and stays; of the rest, lines that passed a limit before calm ones."""
    by_need = sorted(range(len(lines)), key=lambda at: (at > 0, not lines[at].was_beyond_a_limit, at))
    return [lines[at] for at in sorted(by_need[:MAX_PANELS])]


def _lines(entries: Sequence[Chained], read_since: Sequence[Series]) -> list[Series]:
    """The newest that were drawn, with what only an earlier drawing still knew and what was read since.

    Where nothing was drawn, what each read found.
    """
    drawn = [list(_intact(kept)) for kept in _drawn(entries)] + ([list(read_since)] if read_since else [])
    lines: dict[str, Series] = {}
    for newer in drawn:
        lines = {line.signal: _with_beginning(line, lines.get(line.signal)) for line in newer}
    readings = _from_readings(entries)
    if not lines:
        return [line for line in readings.values() if len(line.points) > 1]
    return [_with_end(line, readings.get(name)) for name, line in lines.items()]


def _drawn(entries: Sequence[Chained]) -> Iterator[Sequence[object]]:
    for item in entries:
        kept = item.entry.data.get("series") if item.entry.kind == "chart" else None
        if isinstance(kept, list):
            yield kept


def _intact(raw: Sequence[object]) -> Iterator[Series]:
    for item in raw:
        try:
            line = Series.model_validate(item)
        except ValidationError:
            continue  # altered: the broken chain says so
        if all(_is_drawable(number) for point in line.points for number in point):
            yield line.model_copy(update={"points": line.points[:MAX_POINTS]})


def _is_drawable(number: float) -> bool:
    return abs(number) < 1e12


def _with_beginning(line: Series, earlier: Series | None) -> Series:
    """Samples are not kept for ever: an earlier drawing may know more of the beginning."""
    begins_at = min((at for at, _ in line.points), default=float("inf"))
    before = tuple(point for point in earlier.points if point[0] < begins_at) if earlier is not None else ()
    return line.model_copy(update={"points": (*before, *line.points)})


def _with_end(line: Series, readings: Series | None) -> Series:
    ends_at = max((at for at, _ in line.points), default=0.0)
    after = tuple(point for point in readings.points if point[0] > ends_at) if readings is not None else ()
    return line.model_copy(update={"points": (*line.points, *after)})


def _from_readings(entries: Sequence[Chained]) -> dict[str, Series]:
    """Those with the most points first."""
    points: dict[str, list[tuple[float, float]]] = {}
    units: dict[str, str] = {}
    for item in entries:
        if item.entry.kind != "read" or not _is_drawable(item.entry.at):
            continue
        for name, reading in readings_of(item.entry).items():
            if reading.is_number and isinstance(reading.value, float | int) and _is_drawable(reading.value):
                points.setdefault(name, []).append((item.entry.at, float(reading.value)))
                units[name] = reading.unit
    in_order = sorted(points.items(), key=lambda pair: -len(pair[1]))
    return {name: Series(signal=name, unit=units[name], points=tuple(found[-MAX_POINTS:])) for name, found in in_order}


def _panel(line: Series, report: Report) -> Panel:
    compared = next((one for one in report.readings if one.name == line.signal), None)
    before = compared.baseline.value if compared and compared.baseline else None
    last = _last(line, compared.last if compared else None)
    unit = SHOWN_UNITS.get(line.unit, "")
    ends = () if before is None or last is None else (in_words(before, unit), in_words(last, unit))
    change = " → ".join(dict.fromkeys(ends))
    return Panel(
        title=one_line(line.label or line.signal.replace("_", " "), 40),
        unit=one_line(line.unit, 40),
        change=one_line(change, 60),
        points=tuple(sorted(line.points)),
        limits=line.limits,
    )


def _last(line: Series, read: Reading | None) -> Value | None:
    """What was read last, or where the line came to after it."""
    newest = max(line.points)
    if read is None or newest[0] - read.at > READ_TOGETHER_SECONDS:
        return newest[1]
    return read.value


def _decided(decided: Decided, who: str) -> str:
    """What was approved is marked by its call, a moment later."""
    if decided.granted:
        return f"approved by {who}" if who else "approved"
    return _REFERENCE.sub(r"\1", decided.what) + (f" ({who})" if who else "")


def _that_matter(marks: Sequence[Mark]) -> list[Mark]:
    """Where not all have room: the first, the last and what was changed before anything else, in their order."""
    numbered = list(enumerate(marks))
    rank = sorted(numbered, key=lambda one: (not one[1].is_change, one[0] not in (0, len(marks) - 1), one[0]))
    return [mark for _, mark in sorted(rank[:MAX_MARKS], key=lambda one: one[0])]


def _marks(report: Report) -> Iterator[Mark]:
    def mark(at: float, what: str, *, is_change: bool = False) -> Mark:
        return Mark(at=at, text=one_line(f"{moment(at)[11:]} {what}", MAX_MARK_LENGTH), is_change=is_change)

    yield mark(report.opened_at, "opened")
    for decided in report.decisions:
        yield mark(decided.at, _decided(decided, report.people.get(decided.who, decided.who)))
    for called in report.calls:
        if called.done:
            yield mark(called.at, called.text.removeprefix(DONE), is_change=True)
    begun = min((called.at for called in report.calls if called.done), default=float("inf"))
    for verdict in report.verdicts:
        if verdict.at >= begun:  # what was watched before any change shows nothing about a fix
            name = verdict.title or verdict.state.replace("_", " ")
            name += "" if name.endswith("?") else ":"
            yield mark(verdict.at, f"{name} {VERDICTS.get(verdict.verdict, verdict.verdict.replace('_', ' '))}")
    if report.closed_at is not None:
        yield mark(report.closed_at, report.ending_in_words)
