"""The picture for people on call: the sections of a playbook, each a row with what can happen in it.

It must be legible at the size of a file in a Slack thread. For a run, the sections that it visited list its steps, and
the current one lists what can come next; the other sections are only named.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.edges import edges_of, successors
from bot.domain.playbooks.language import AskState, ChangeState, DivertState, EndState, kind_of
from bot.domain.playbooks.picture.folding import rows_of_fragments, sections_of
from bot.domain.playbooks.picture.picture import (
    Exit,
    Line,
    Picture,
    Row,
    Sizes,
    height_of,
    label_of,
    lanes_of,
    picture,
    short,
    title_of,
    words,
)

SECTIONS = Sizes(
    width=480, left=12, lanes_at=410, targets_at=0, head=27, line=19, gap=14, top=44, small=9.5, normal=11.5, large=14
)
LINE_CHARACTERS = 56
MAX_LINES = 3
MAX_STEPS = 9
"""Limit per section; of more steps the last are drawn."""
MAX_NEXT = 6
LABEL_CHARACTERS = 24
STRONGEST = ("change", "recommend", "ask", "divert", "end", "return", "watch", "read")
PEOPLE = "people"
OTHER_SECTION = "# "
"""No state can have this name."""


def overview(compiled: CompiledPlaybook, *, path: Sequence[str] = (), current: str = "") -> Picture:
    """Draws every state if there are no headings, each fragment as one row: such a playbook is short."""
    sections = sections_of(compiled)
    if not sections:
        return picture(compiled.playbook, path=path, current=current, folded=rows_of_fragments(compiled))
    return _Overview(compiled, sections, path, current).picture()


def section_picture(compiled: CompiledPlaybook, section: str) -> Picture:
    """Draws the states below one heading; exits from it name the section that they lead to."""
    sections, fragments = sections_of(compiled), rows_of_fragments(compiled)
    elsewhere = {state: f"{OTHER_SECTION}{other}" for state, other in sections.items() if other != section}
    others = {f"{OTHER_SECTION}{other}": f"{other} ›" for other in sections.values() if other != section}
    made = picture(compiled.playbook, folded={**fragments, **elsewhere}, others=others)
    return replace(made, title=f"{compiled.playbook.title}: {section}")


@dataclass(frozen=True)
class _Text:
    text: str
    tone: str
    is_strong: bool = False


class _Overview:
    def __init__(
        self, compiled: CompiledPlaybook, sections: Mapping[str, str], path: Sequence[str], current: str
    ) -> None:
        self._playbook, self._sections = compiled.playbook, sections
        self._fragments = rows_of_fragments(compiled)
        self._path, self._current = path, current
        self._names = list(dict.fromkeys(sections.values()))
        through = [name for name, _ in groupby(sections[state] for state in path)]
        self._visited, self._taken = set(through), set(pairwise(through))
        self._here = sections[current] if current else ""

    def picture(self) -> Picture:
        rows = tuple(self._rows())
        height, titles = height_of(rows, SECTIONS), {name: name for name in self._names}
        return Picture(self._playbook.title, rows, lanes_of(rows), height, bool(self._path), titles, SECTIONS)

    def _rows(self) -> Iterator[Row]:
        sizes, y = SECTIONS, SECTIONS.top
        for name, below in zip(self._names, [*self._names[1:], ""], strict=True):
            texts = list(self._texts(name))
            under = y + sizes.head
            lines = tuple(
                Line(one.text, one.tone, under + sizes.line * (place + 0.5), one.is_strong)
                for place, one in enumerate(texts)
            )
            height = sizes.head + sizes.line * len(lines) + (5 if lines else 0)
            is_visited, is_current = name in self._visited, name == self._here
            exits = tuple(self._exits(name, below, y, height))
            yield Row(name, name, "section", y, height, exits, y + sizes.head / 2, is_visited, is_current, lines)
            y += height + sizes.gap

    def _exits(self, name: str, below: str, y: float, height: float) -> Iterator[Exit]:
        """Without labels: the section's own picture shows which condition leads where."""
        to = list(dict.fromkeys(self._sections[s] for state in self._members(name) for s in self._after(state)))
        others = [other for other in self._names if other in to and other not in (name, below)]
        step = (height - SECTIONS.head / 2 - 8) / (len(others) + 1)
        for place, other in enumerate(others, start=1):
            at = y + SECTIONS.head / 2 + 4 + step * place
            yield Exit("", other, at, (name, other) in self._taken, False)
        if below in to:
            yield Exit("", below, y + height, (name, below) in self._taken, True)

    def _after(self, state: str) -> tuple[str, ...]:
        return successors(self._playbook, state)

    def _members(self, section: str) -> list[str]:
        return [state for state in self._playbook.states if self._sections[state] == section]

    def _texts(self, section: str) -> Iterator[_Text]:
        if not self._path:
            yield from self._what_it_may_do(section)
        elif section in self._visited:
            yield from self._steps(section)

    def _what_it_may_do(self, section: str) -> Iterator[_Text]:
        states = [self._playbook.states[name] for name in self._members(section)]
        questions = sum(isinstance(state, AskState) for state in states)
        counted = f"{len(states)} step{'' if len(states) == 1 else 's'}"
        if questions:
            counted += f", {questions} question{'' if questions == 1 else 's'} to people"
        yield _Text(counted, "read")
        changes = [words(state.change).lower() for state in states if isinstance(state, ChangeState)]
        diverts = [state.divert for state in states if isinstance(state, DivertState)]
        ends = [words(state.end).lower() for state in states if isinstance(state, EndState)]
        others = [name for name in diverts if name != PEOPLE]
        if PEOPLE in diverts:
            others.append("people")
        yield from _listed("may change: ", changes, "change")
        yield from _listed("may go over to: ", others, "divert")
        yield from _listed("ends: ", ends, "end")

    def _steps(self, section: str) -> Iterator[_Text]:
        """Returns the run's steps here, in order; a fragment is one step."""
        through = [row for row, _ in groupby(self._row_of(state) for state in self._path)]
        times = Counter(through)
        here = [row for row in dict.fromkeys(through) if self._sections[self._state_of(row)] == section]
        if len(here) > MAX_STEPS:
            yield _Text(f"… {len(here) - MAX_STEPS} steps before", "read")
        for row in here[-MAX_STEPS:]:
            is_current = bool(self._current) and row == self._row_of(self._current)
            if not is_current:
                again = f" ×{times[row]}" if times[row] > 1 else ""
                title, kind = self._step(row)
                yield _Text(f"{short(title, LINE_CHARACTERS - 6)}{again}", kind)
        if section == self._here:
            yield from self._now()

    def _now(self) -> Iterator[_Text]:
        current, row = self._current, self._row_of(self._current)
        title = title_of(self._playbook, current)
        inside = "" if row == current else f"{words(row)}: "
        kind = kind_of(self._playbook.states[current])
        yield _Text(short(f"▶ {inside}{title}", LINE_CHARACTERS - 8), kind, is_strong=True)
        after: dict[str, list[str]] = {}
        for edge in edges_of(self._playbook.states[current]):
            after.setdefault(edge.to, []).append(label_of(edge))
        for to, labels in list(after.items())[:MAX_NEXT]:
            label = short(" / ".join(labels), LABEL_CHARACTERS)
            target = short(title_of(self._playbook, to), LINE_CHARACTERS - 10 - len(label))
            yield _Text(f"      {label} → {target}", "read")

    def _row_of(self, state: str) -> str:
        return self._fragments.get(state, state)

    def _state_of(self, row: str) -> str:
        """Returns the state that a row represents: itself, or one of its fragment's."""
        if row in self._playbook.states:
            return row
        return next(state for state, fragment in self._fragments.items() if fragment == row)

    def _step(self, row: str) -> tuple[str, str]:
        """Returns the name and kind of a step; for a fragment, of the strongest of its entered states."""
        if row in self._playbook.states:
            return title_of(self._playbook, row), kind_of(self._playbook.states[row])
        entered = [(kind_of(self._playbook.states[state]), state) for state in self._path if self._row_of(state) == row]
        kind, state = min(entered, key=lambda one: STRONGEST.index(one[0]))
        return f"{words(row)}: {title_of(self._playbook, state)}", kind


def _listed(head: str, names: Sequence[str], tone: str) -> Iterator[_Text]:
    if names:
        text = head + ", ".join(dict.fromkeys(names))
        for line in textwrap.wrap(text, LINE_CHARACTERS, break_on_hyphens=False, max_lines=MAX_LINES, placeholder=" …"):
            yield _Text(line, tone)
