"""The uses of files in a playbook with includes: what is written in which, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.domain.kernel.errors import Fault
from bot.domain.playbooks.loading.fragment import Fragment
from bot.domain.playbooks.mistakes import Mistake, Path
from bot.domain.playbooks.source import Position, Source, Stretch

Woven = tuple[tuple[str, Stretch], ...]
"""A text in parts, each with its origin."""


def text_of(woven: Woven) -> str:
    return "".join(part for part, _ in woven)


def length_of(woven: Iterable[tuple[str, Stretch]]) -> int:
    return sum(len(part) for part, _ in woven)


def is_include(state: Any) -> bool:
    return isinstance(state, Mapping) and "include" in state


@dataclass(eq=False)
class Site:
    """One use of a file: the playbook itself, or one include of a fragment with its arguments."""

    source: Source
    prefix: str = ""
    fragment: Fragment | None = None
    parameters: Mapping[str, Written] = field(default_factory=dict)
    exits: Mapping[str, Written] = field(default_factory=dict)
    runbook: Written | None = None
    """The include's, or that of the include around it: for states without one."""
    limit: tuple[Written, ...] = ()
    """The include's `at_most` and `beyond`, for its start."""
    names: dict[str, str] = field(default_factory=dict)
    """Its own state names, with their names in the playbook."""
    inside: dict[str, Site] = field(default_factory=dict)

    def place(self, path: Path) -> Position:
        return self.source.values.get(path) or self._beginning()

    def place_of_key(self, path: Path) -> Position:
        return self.source.keys.get(path) or self._beginning()

    def _beginning(self) -> Position:
        return Position(1, 1, file=self.source.file if self.fragment else "")


@dataclass(frozen=True)
class Written:
    """A value as written: in which use of which file, and where."""

    site: Site
    path: Path
    value: Any

    def copied(self, text: str, offset: int | None) -> tuple[str, Stretch]:
        """Returns a part copied unchanged, `offset` characters into the value; None if it was not copied."""
        column = 0 if offset is None else offset + 1
        return text, Stretch(len(text), self.site.place(self.path), column)

    def renamed(self, name: str, offset: int) -> tuple[str, Stretch]:
        """Returns a new name for the text that starts `offset` characters into the value: all of it points there."""
        return name, Stretch(len(name), self.site.place(self.path).at_column(offset + 1))


class TooBigError(Exception):
    """The result would be larger than any playbook needs."""


@dataclass
class Faults:
    """Faults in the order in which they were found, each once."""

    found: dict[Fault, None] = field(default_factory=dict)
    doubled: dict[Fault, None] = field(default_factory=dict)
    """Limits of includes whose start has its own."""
    unbuilt: set[str] = field(default_factory=set)
    """Words that are unknown only because of a fault that was found."""

    def report(self, site: Site, mistake: Mistake, *unbuilt: str) -> None:
        self.found[site.source.fault(mistake)] = None
        self.unbuilt.update(unbuilt)


_LIMIT = ("at_most", "beyond")


def own_limit(site: Site, name: str, state: Mapping[str, Any]) -> tuple[Written, ...]:
    return tuple(Written(site, ("states", name, key), state[key]) for key in _LIMIT if key in state)


def limit_around(site: Site, name: str, state: Mapping[str, Any], faults: Faults) -> tuple[Written, ...]:
    """Returns the limit of the include around a state, which is for its start; that may be an include itself."""
    if not site.limit or site.fragment is None or name != site.fragment.start:
        return ()
    if not any(key in state for key in _LIMIT):
        return site.limit
    given = site.limit[0]
    what = f"the start of the fragment '{site.fragment.fragment}' has its own limit"
    mistake = Mistake(given.path, what, "Delete one of the two.", at_key=True)
    faults.doubled[given.site.source.fault(mistake)] = None
    return ()
