"""The layout of a playbook's picture: a row for each state with its ways out, and lanes that lead to where they go.

A layered graph of fifty states is three screens wide, or too small to read. Here the width is fixed, and each way out
is a line of text beside its lane; only the height grows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from bot.domain.playbook.edges import Edge, edges_of
from bot.domain.playbook.language import Playbook, kind_of

WIDTH = 700
LEFT = 14
LANES_AT = 566
"""Lanes begin here, and take what is left of the width."""
TARGETS_AT = 352
HEAD = 22
LINE = 15
GAP = 9
TOP = 40
LABEL_CHARACTERS = 56
TARGET_CHARACTERS = 40
TITLE_CHARACTERS = 70


@dataclass(frozen=True)
class WayOut:
    """All outcomes of a row that lead to the same other row, as one line."""

    label: str
    to: str
    y: float
    is_taken: bool
    is_next: bool
    """Whether it leads to the row below, which needs no lane."""


@dataclass(frozen=True)
class Row:
    name: str
    title: str
    kind: str
    y: float
    height: float
    ways: tuple[WayOut, ...]
    is_visited: bool = False
    is_current: bool = False

    @property
    def entry(self) -> float:
        """Where lanes come in: the middle of its head."""
        return self.y + HEAD / 2


@dataclass(frozen=True)
class Lane:
    """The way to one row from all the rows that lead there."""

    to: str
    number: int
    """Counted from the rows outwards; lanes that do not meet share a number."""
    begins: float
    ends: float
    entry: float
    sources: tuple[float, ...]
    taken: tuple[float, ...]
    """The sources that a run came from."""


@dataclass(frozen=True)
class Picture:
    title: str
    rows: tuple[Row, ...]
    lanes: tuple[Lane, ...]
    width: float
    height: float
    has_way: bool

    @property
    def lane_width(self) -> float:
        count = max((lane.number for lane in self.lanes), default=0) + 1
        return min(10.0, (self.width - LANES_AT - 18) / count)

    def lane_x(self, lane: Lane) -> float:
        return LANES_AT + 14 + lane.number * self.lane_width


def picture(
    playbook: Playbook,
    *,
    way: Sequence[str] = (),
    current: str = "",
    folded: Mapping[str, str] | None = None,
) -> Picture:
    """`way` are the states that a run entered; `folded` are states that are drawn as one row, by that row's name."""
    drawing = _Drawing(playbook, folded or {}, way, current)
    rows = tuple(drawing.rows())
    lanes = _numbered(_lanes(rows))
    height = rows[-1].y + rows[-1].height + GAP
    return Picture(playbook.title, rows, tuple(lanes), WIDTH, height, bool(way))


class _Drawing:
    def __init__(self, playbook: Playbook, folded: Mapping[str, str], way: Sequence[str], current: str) -> None:
        self._playbook, self._folded = playbook, folded
        self._way = [self._row_of(state) for state in way]
        self._taken = set(pairwise(self._way))
        self._current = self._row_of(current) if current else ""
        names = [self._row_of(state) for state in playbook.states]
        self._names = list(dict.fromkeys(names))

    def _row_of(self, state: str) -> str:
        return self._folded.get(state, state)

    def rows(self) -> Iterator[Row]:
        y = float(TOP)
        for number, name in enumerate(self._names):
            below = self._names[number + 1] if number + 1 < len(self._names) else ""
            ways = tuple(
                WayOut(
                    _short(" / ".join(labels), LABEL_CHARACTERS),
                    to,
                    y + HEAD + LINE * (place + 0.5),
                    (name, to) in self._taken,
                    to == below,
                )
                for place, (to, labels) in enumerate(self._ways_out(name).items())
            )
            height = HEAD + LINE * len(ways) + (4 if ways else 0)
            yield Row(
                name, self._title(name), self._kind(name), y, height, ways, name in self._way, name == self._current
            )
            y += height + GAP

    def _ways_out(self, row: str) -> dict[str, list[str]]:
        """Other row to the labels that lead there, in the order of the file."""
        found: dict[str, list[str]] = {}
        for state in self._members(row):
            for edge in edges_of(self._playbook.states[state]):
                to = self._row_of(edge.to)
                if to != row or row == state:
                    labels = found.setdefault(to, [])
                    label = _label(edge)
                    if label not in labels:
                        labels.append(label)
        return found

    def _members(self, row: str) -> list[str]:
        return [state for state in self._playbook.states if self._row_of(state) == row]

    def _title(self, row: str) -> str:
        if row not in self._playbook.states:
            return f"{_words(row)} ({len(self._members(row))} states of a piece)"
        return _short(self._playbook.states[row].title or _words(row), TITLE_CHARACTERS)

    def _kind(self, row: str) -> str:
        return kind_of(self._playbook.states[row]) if row in self._playbook.states else "piece"


def _lanes(rows: Sequence[Row]) -> Iterator[Lane]:
    for row in rows:
        coming = [
            (way.y, way.is_taken) for other in rows for way in other.ways if way.to == row.name and not way.is_next
        ]
        if coming:
            ys = [y for y, _ in coming] + [row.entry]
            taken = tuple(y for y, is_taken in coming if is_taken)
            yield Lane(row.name, 0, min(ys), max(ys), row.entry, tuple(y for y, _ in coming), taken)


def _numbered(lanes: Iterator[Lane]) -> list[Lane]:
    """The shortest lanes nearest to the rows; two share a number where they do not meet."""
    placed: list[list[Lane]] = []
    for lane in sorted(lanes, key=lambda one: one.ends - one.begins):
        number = next(
            (n for n, others in enumerate(placed) if not any(_meet(lane, other) for other in others)), len(placed)
        )
        if number == len(placed):
            placed.append([])
        placed[number].append(replace(lane, number=number))
    return [lane for others in placed for lane in others]


def _meet(one: Lane, other: Lane) -> bool:
    return one.begins <= other.ends + GAP and other.begins <= one.ends + GAP


def _label(edge: Edge) -> str:
    """Expressions without the prefix that all settings have, outcomes as words."""
    outcome = edge.label == edge.outcome or not edge.label
    return edge.outcome.replace("_", " ") if outcome else edge.label.replace("settings.", "")


def _words(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def target_title(picture: Picture, name: str) -> str:
    row = next(row for row in picture.rows if row.name == name)
    return _short(row.title, TARGET_CHARACTERS)
