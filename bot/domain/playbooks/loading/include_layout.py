"""Finds which fragment is where in a playbook, and the name that each state gets there. The result is bounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bot.domain.playbooks.expressions.expression import did_you_mean
from bot.domain.playbooks.loading.fragment import Fragment, Fragments, Include
from bot.domain.playbooks.loading.include_sites import (
    Faults,
    Site,
    TooBigError,
    Written,
    is_include,
    limit_around,
    own_limit,
)
from bot.domain.playbooks.loading.known_words import where_known
from bot.domain.playbooks.loading.structure import shape
from bot.domain.playbooks.mistakes import Mistake, Path
from bot.domain.playbooks.source import Source

MAX_STATES = 300
MAX_INCLUDES = 300
MAX_DEPTH = 4


@dataclass(frozen=True)
class Layout:
    host: Site
    """The playbook, with all that is in it."""
    broken: frozenset[Path]
    used: tuple[Source, ...]
    """The files of the included fragments."""


def lay_out(source: Source, fragments: Fragments, faults: Faults) -> Layout:
    """Raises `TooBigError`."""
    return _Arrangement(fragments, faults).of(source)


class _Arrangement:
    def __init__(self, fragments: Fragments, faults: Faults) -> None:
        self._fragments, self._faults = fragments, faults
        self._broken: set[Path] = set()
        self._used: dict[str, Source] = {}
        self._states = self._includes = 0

    def of(self, source: Source) -> Layout:
        host = Site(source)
        self._lay_out(host, ())
        self._no_collisions(host)
        return Layout(host, frozenset(self._broken), tuple(self._used.values()))

    def _lay_out(self, site: Site, chain: tuple[str, ...]) -> None:
        """Gives every state its name in the playbook, after visiting the includes."""
        for name, state in site.source.data["states"].items():
            site.names[name] = site.prefix + name
            if not is_include(state):
                self._states += 1
                if self._states > MAX_STATES:
                    raise TooBigError(f"with its fragments the playbook has more than {MAX_STATES} states")
                continue
            self._includes += 1
            if self._includes > MAX_INCLUDES:
                raise TooBigError(f"with its fragments the playbook has more than {MAX_INCLUDES} includes")
            inside = self._include(site, name, state, chain)
            if inside is None:
                self._broken.add(("states", site.prefix + name))
                self._faults.unbuilt.add(site.prefix + name)
                continue
            site.inside[name] = inside
            self._lay_out(inside, (*chain, state["include"]))
            assert inside.fragment is not None
            site.names |= {f"{name}_{local}": final for local, final in inside.names.items()}
            site.names[name] = inside.names[inside.fragment.start]

    def _include(self, site: Site, name: str, state: Mapping[str, Any], chain: tuple[str, ...]) -> Site | None:
        at: Path = ("states", name)
        mistakes = list(shape(Include, state, at))
        if not mistakes:
            mistakes += self._wrong_fragment((*at, "include"), str(state["include"]), chain)
        read = self._fragments[str(state["include"])] if not mistakes else None
        if read is not None and (read.fragment is None or read.source is None):
            self._faults.found |= dict.fromkeys(read.faults)
            return None
        if read is not None and read.fragment is not None:
            mistakes += _unlike(at, read.fragment, state)
        for mistake in mistakes:
            self._faults.report(site, mistake)
        if mistakes or read is None or read.source is None:
            return None
        self._used[str(state["include"])] = read.source
        given = {
            key: {k: Written(site, (*at, key, k), value) for k, value in state.get(key, {}).items()}
            for key in ("with", "exits")
        }
        runbook = Written(site, (*at, "runbook"), state["runbook"]) if "runbook" in state else site.runbook
        limit = limit_around(site, name, state, self._faults) or own_limit(site, name, state)
        prefix = f"{site.prefix}{name}_"
        return Site(read.source, prefix, read.fragment, given["with"], given["exits"], runbook, limit)

    def _wrong_fragment(self, at: Path, wanted: str, chain: tuple[str, ...]) -> Iterator[Mistake]:
        if wanted not in self._fragments:
            yield Mistake(
                at, f"unknown fragment '{wanted}'", did_you_mean(wanted, self._fragments) or where_known("fragment")
            )
        elif (read := self._fragments[wanted].fragment) is not None and not read.states:
            yield Mistake(at, f"the fragment '{wanted}' has no states", "Name it under 'uses' instead.")
        elif wanted in chain:
            yield Mistake(at, f"fragments include each other: {' → '.join([*chain, wanted])}")
        elif len(chain) >= MAX_DEPTH:
            yield Mistake(at, f"more than {MAX_DEPTH} fragments inside each other")

    def _no_collisions(self, host: Site) -> None:
        taken: dict[str, Path] = {}
        for site, name in _all_states(host):
            final, at = site.prefix + name, ("states", name)
            if final in taken:
                why = f"the state '{final}' would exist twice: one stands in an include"
                self._faults.report(site, Mistake(at, why, "Rename one.", at_key=True))
            taken[final] = at


def _all_states(site: Site) -> Iterator[tuple[Site, str]]:
    """Returns every state of the resulting playbook, the playbook's own first."""
    for name, state in site.source.data["states"].items():
        if not is_include(state):
            yield site, name
    for inside in site.inside.values():
        yield from _all_states(inside)


def _unlike(at: Path, fragment: Fragment, state: Mapping[str, Any]) -> Iterator[Mistake]:
    """Reports where an include does not match the fragment's declaration."""
    given, exits = state.get("with", {}), state.get("exits", {})
    for noun, key, known, used in (
        ("parameter", "with", fragment.parameters, given),
        ("exit", "exits", fragment.exits, exits),
    ):
        for name in used.keys() - known.keys():
            what = f"the fragment '{fragment.fragment}' has no {noun} '{name}'"
            yield Mistake((*at, key, name), what, did_you_mean(name, known), at_key=True)
    missing = [f"with: {name}" for name, p in fragment.parameters.items() if p.is_required and name not in given]
    missing += [f"exits: {name}" for name in fragment.exits if name not in exits]
    for what in missing:
        yield Mistake((*at, "include"), f"the fragment '{fragment.fragment}' needs '{what}'")
