"""The layout of a playbook's picture: a row for each state with its exits, and lanes to the rows they lead to.

A layered graph of fifty states is three screens wide, or too small to read. Here the width is fixed, and each exit is a
line of text beside its lane; only the height grows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from bot.domain.playbooks.edges import Edge, edges_of
from bot.domain.playbooks.language import Playbook, kind_of

LABEL_CHARACTERS = 56
TARGET_CHARACTERS = 40
TITLE_CHARACTERS = 70


@dataclass(frozen=True)
class Sizes:
    """Lengths of the layout in pixels, fonts in points."""

    width: float = 700
    left: float = 14
    lanes_at: float = 566
    """Lanes start here, and take the rest of the width."""
    targets_at: float = 352
    head: float = 22
    line: float = 15
    gap: float = 9
    top: float = 40
    small: float = 6.4
    normal: float = 7.4
    large: float = 10.0


EVERY_STATE = Sizes()


@dataclass(frozen=True)
class Line:
    """A line of text in a row; `tone` is the kind of state that it refers to."""

    text: str
    tone: str
    y: float
    is_strong: bool = False


@dataclass(frozen=True)
class Exit:
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
    exits: tuple[Exit, ...]
    entry: float
    """Where lanes enter: the middle of its head."""
    is_visited: bool = False
    is_current: bool = False
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True)
class Lane:
    """The path to one row from all the rows that lead there."""

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
    height: float
    has_path: bool
    titles: Mapping[str, str]
    """Titles of all destinations, including those not drawn here."""
    sizes: Sizes = EVERY_STATE

    @property
    def lane_width(self) -> float:
        count = max((lane.number for lane in self.lanes), default=0) + 1
        return min(10.0, (self.sizes.width - self.sizes.lanes_at - 18) / count)

    def lane_x(self, lane: Lane) -> float:
        return self.sizes.lanes_at + 14 + lane.number * self.lane_width


def picture(
    playbook: Playbook,
    *,
    path: Sequence[str] = (),
    current: str = "",
    folded: Mapping[str, str] | None = None,
    others: Mapping[str, str] | None = None,
) -> Picture:
    """Draws each state as a row.

    `path` has the states that a run entered; `folded` are states that are drawn as one row, by that row's name.
    `others` are rows that are not drawn, with their titles: exits lead there by name only.
    """
    drawing = _Drawing(playbook, folded or {}, path, current, others or {})
    rows = tuple(drawing.rows())
    return Picture(playbook.title, rows, lanes_of(rows), height_of(rows, EVERY_STATE), bool(path), drawing.titles())


def height_of(rows: Sequence[Row], sizes: Sizes) -> float:
    return rows[-1].y + rows[-1].height + sizes.gap


class _Drawing:
    def __init__(
        self,
        playbook: Playbook,
        folded: Mapping[str, str],
        path: Sequence[str],
        current: str,
        others: Mapping[str, str],
    ) -> None:
        self._playbook, self._folded, self._others = playbook, folded, others
        self._path = [self._row_of(state) for state in path]
        self._taken = set(pairwise(self._path))
        self._current = self._row_of(current) if current else ""
        names = [self._row_of(state) for state in playbook.states]
        self._names = list(dict.fromkeys(names))

    def _row_of(self, state: str) -> str:
        return self._folded.get(state, state)

    def titles(self) -> dict[str, str]:
        return {name: self._title(name) for name in self._names}

    def rows(self) -> Iterator[Row]:
        sizes = EVERY_STATE
        y = sizes.top
        names = [name for name in self._names if name not in self._others]
        for number, name in enumerate(names):
            below = names[number + 1] if number + 1 < len(names) else ""
            exits = tuple(
                Exit(
                    short(" / ".join(labels), LABEL_CHARACTERS),
                    to,
                    y + sizes.head + sizes.line * (place + 0.5),
                    (name, to) in self._taken,
                    to == below,
                )
                for place, (to, labels) in enumerate(self._exits(name).items())
            )
            height = sizes.head + sizes.line * len(exits) + (4 if exits else 0)
            entry, is_visited, is_current = y + sizes.head / 2, name in self._path, name == self._current
            yield Row(name, self._title(name), self._kind(name), y, height, exits, entry, is_visited, is_current)
            y += height + sizes.gap

    def _exits(self, row: str) -> dict[str, list[str]]:
        """Maps each other row to the labels that lead there, in the order of the file."""
        found: dict[str, list[str]] = {}
        for state in self._members(row):
            for edge in edges_of(self._playbook.states[state]):
                to = self._row_of(edge.to)
                if to != row or row == state:
                    labels = found.setdefault(to, [])
                    label = label_of(edge)
                    if label not in labels:
                        labels.append(label)
        return found

    def _members(self, row: str) -> list[str]:
        return [state for state in self._playbook.states if self._row_of(state) == row]

    def _title(self, row: str) -> str:
        if row in self._playbook.states:
            return short(title_of(self._playbook, row), TITLE_CHARACTERS)
        if row in self._others:
            return self._others[row]
        return f"{words(row)} ({len(self._members(row))} states of a fragment)"

    def _kind(self, row: str) -> str:
        return kind_of(self._playbook.states[row]) if row in self._playbook.states else "fragment"


def lanes_of(rows: Sequence[Row]) -> tuple[Lane, ...]:
    return tuple(_numbered(_lanes(rows)))


def _lanes(rows: Sequence[Row]) -> Iterator[Lane]:
    for row in rows:
        coming = [
            (each.y, each.is_taken)
            for other in rows
            for each in other.exits
            if each.to == row.name and not each.is_next
        ]
        if coming:
            ys = [y for y, _ in coming] + [row.entry]
            taken = tuple(y for y, is_taken in coming if is_taken)
            yield Lane(row.name, 0, min(ys), max(ys), row.entry, tuple(y for y, _ in coming), taken)


def _numbered(lanes: Iterator[Lane]) -> list[Lane]:
    """Numbers lanes: the shortest nearest to the rows; two share a number if they do not meet."""
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
    return one.begins <= other.ends + EVERY_STATE.gap and other.begins <= one.ends + EVERY_STATE.gap


def label_of(edge: Edge) -> str:
    """Returns expressions without the prefix that all settings have, outcomes as words."""
    outcome = edge.label == edge.outcome or not edge.label
    return edge.outcome.replace("_", " ") if outcome else edge.label.replace("settings.", "")


def title_of(playbook: Playbook, state: str) -> str:
    return playbook.states[state].title or words(state)


def words(name: str) -> str:
    return name.replace("_", " ").capitalize()


def short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def target_title(picture: Picture, name: str) -> str:
    return short(picture.titles[name], TARGET_CHARACTERS)
