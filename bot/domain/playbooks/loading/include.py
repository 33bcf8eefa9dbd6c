"""Expands includes: a playbook with includes becomes one without, and every value keeps its original position.

They are hygienic macros: a value given to a fragment keeps the meaning it has where it is written, and a fragment's
names are its own. The result is bounded, whatever the files contain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bot.domain.kernel.errors import Fault
from bot.domain.playbooks.loading.fragment import Fragments
from bot.domain.playbooks.loading.include_layout import lay_out
from bot.domain.playbooks.loading.include_sites import (
    Faults,
    Site,
    TooBigError,
    Written,
    is_include,
    limit_around,
    text_of,
)
from bot.domain.playbooks.loading.text_roles import role_of
from bot.domain.playbooks.loading.weaving import Weaver
from bot.domain.playbooks.mistakes import Mistake, Path
from bot.domain.playbooks.source import Position, Source

MAX = 50_000
"""Limit on values, and on hundreds of characters in them."""


@dataclass(frozen=True)
class Expanded:
    """The playbook without includes; `broken` are states that could not be expanded."""

    source: Source | None
    """None if the result is too big."""
    faults: tuple[Fault, ...] = ()
    broken: frozenset[Path] = frozenset()
    unbuilt: frozenset[str] = frozenset()
    """Words that are unknown only because of a fault that is already reported."""
    fragments: tuple[Source, ...] = ()
    """The files of the included fragments."""
    unused: tuple[str, ...] = ()
    """Definitions that nothing mentions."""
    doubled: tuple[Fault, ...] = ()
    """Limits of includes whose start has its own. Stored playbooks may have them: there they have no effect."""


def expand(source: Source, fragments: Fragments) -> Expanded:
    """Expands every include. Faults are reported where they are written; one fault never hides another include's."""
    states = source.data.get("states")
    has_parts = isinstance(states, Mapping) and any(is_include(state) for state in states.values())
    if not isinstance(states, Mapping) or not (has_parts or source.data.get("define")):
        return Expanded(source)
    faults = Faults()
    try:
        layout = lay_out(source, fragments, faults)
        weaver = Weaver(layout.host, faults)
        built = _Expansion(layout.host, weaver, faults).built()
    except TooBigError as error:
        faults.report(Site(source), Mistake(("states",), str(error), "Split the playbook.", at_key=True))
        return Expanded(None, tuple(faults.found))
    return Expanded(
        built,
        tuple(faults.found),
        layout.broken,
        frozenset(faults.unbuilt),
        layout.used,
        weaver.definitions.unused(),
        tuple(faults.doubled),
    )


@dataclass
class _Sheet:
    """Positions of the values being built."""

    values: dict[Path, Position] = field(default_factory=dict)
    keys: dict[Path, Position] = field(default_factory=dict)


class _Expansion:
    """Copies what is written into the resulting playbook."""

    def __init__(self, host: Site, weaver: Weaver, faults: Faults) -> None:
        self._host, self._weaver, self._faults = host, weaver, faults
        self._sheet = _Sheet(dict(host.source.values), dict(host.source.keys))
        self._size = 0

    def built(self) -> Source:
        host = self._host
        data: dict[str, Any] = dict(host.source.data)
        data["states"] = self._states_of(host)
        if isinstance(data.get("define"), Mapping):
            data["define"], places = self._weaver.definitions.built()
            self._sheet.values |= places
        for section in ("calm", "users", "diagnoses"):
            if isinstance(data.get(section), Mapping | list):
                data[section] = self._copy(Written(host, (section,), data[section]), (section,), self._sheet)
        for section in ("settings", "signals"):
            if merged := self._merged(section, host, data.get(section)):
                data[section] = merged
        if isinstance(data.get("start"), str):
            data["start"] = host.names.get(data["start"], data["start"])
        return replace(host.source, data=data, values=self._sheet.values, keys=self._sheet.keys)

    def _states_of(self, site: Site) -> dict[str, Any]:
        built: dict[str, Any] = {}
        for name, state in site.source.data["states"].items():
            if name in site.inside:
                built |= self._states_of(site.inside[name])
            elif not is_include(state):
                final = site.prefix + name
                written = Written(site, ("states", name), state)
                self._sheet.keys["states", final] = site.place_of_key(written.path)
                built[final] = self._copy(written, ("states", final), self._sheet)
                self._add_from_include(site, name, final, built[final])
        return built

    def _add_from_include(self, site: Site, name: str, final: str, state: Any) -> None:
        if not isinstance(state, dict):
            return
        if site.runbook and "runbook" not in state:
            self._sheet.keys["states", final, "runbook"] = site.runbook.site.place_of_key(site.runbook.path)
            state["runbook"] = self._copy(site.runbook, ("states", final, "runbook"), self._sheet)
        for written in limit_around(site, name, state, self._faults):
            key = str(written.path[-1])
            self._sheet.keys["states", final, key] = written.site.place_of_key(written.path)
            state[key] = self._copy(written, ("states", final, key), self._sheet)

    def _merged(self, section: str, host: Site, own: Any) -> dict[str, Any]:
        """Returns the definitions of the playbook, and those of its fragments that it does not override."""
        if own is not None and not isinstance(own, Mapping):
            return {}
        merged: dict[str, Any] = dict(own or {})
        for name, written in self._defined_in(section, host).items():
            if name not in merged:
                self._sheet.keys[section, name] = written.site.place_of_key(written.path)
                merged[name] = self._copy(written, (section, name), self._sheet)
        return merged

    def _defined_in(self, section: str, site: Site) -> dict[str, Written]:
        """Returns the definitions of one use of a file: its own override those of the fragments in it."""
        own = site.source.data.get(section) or {}
        found: dict[str, Written] = {}
        for inside in site.inside.values():
            for name, written in self._defined_in(section, inside).items():
                if name in found and name not in own and not self._is_same(section, name, written, found[name]):
                    what = f"the {section.removesuffix('s')} '{name}' differs in {found[name].site.source.file}"
                    hint = f"Define '{name}' in the playbook."
                    self._faults.report(written.site, Mistake(written.path, what, hint, at_key=True))
                found.setdefault(name, written)
        if isinstance(own, Mapping) and site.fragment:
            found |= {name: Written(site, (section, name), value) for name, value in own.items()}
        return {name: written for name, written in found.items() if site.fragment or name not in own}

    def _is_same(self, section: str, name: str, one: Written, other: Written) -> bool:
        built = [self._copy(written, (section, name), _Sheet()) for written in (one, other)]
        return bool(built[0] == built[1])

    def _copy(self, written: Written, out: Path, sheet: _Sheet) -> Any:
        """Returns the value as it is in the playbook, with its positions; its references use the playbook's names."""
        site, path, value = written.site, written.path, written.value
        self._size += 1 + (len(value) // 100 if isinstance(value, str) else 0)
        if self._size > MAX:
            raise TooBigError("with its fragments the playbook becomes too big")
        if isinstance(value, str):
            return self._copy_text(written, out, sheet)
        sheet.values[out] = site.place(path)
        if isinstance(value, Mapping):
            copied: dict[str, Any] = {}
            for key, item in value.items():
                here, there = (*path, key), (*out, key)
                sheet.keys[there] = site.place_of_key(here)
                copied[key] = self._copy(Written(site, here, item), there, sheet)
            return copied
        if isinstance(value, list):
            return [self._copy(Written(site, (*path, i), item), (*out, i), sheet) for i, item in enumerate(value)]
        return value

    def _copy_text(self, written: Written, out: Path, sheet: _Sheet) -> Any:
        role = role_of(out)
        stands_for = self._weaver.stands_for(written, role)
        if stands_for is not None:
            return self._copy(stands_for, out, sheet)
        place = sheet.values[out] = written.site.place(written.path)
        woven = self._weaver.woven(written, role)
        text = text_of(woven)
        if text != written.value:
            sheet.values[out] = replace(place, text_column=None, stretches=tuple(stretch for _, stretch in woven))
        return text
