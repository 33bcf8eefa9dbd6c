"""Adds what a playbook uses without defining it: signals and settings of the fragments in `uses`, and plain probes.

Only what is mentioned is added, so a playbook has no settings that change nothing. A definition of the playbook's own
always counts instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from bot.domain.kernel.errors import ExpressionError, Fault
from bot.domain.playbooks.expressions.expression import MAX_LENGTH, did_you_mean, mentions_in
from bot.domain.playbooks.expressions.template import split_template
from bot.domain.playbooks.loading.fragment import Fragments
from bot.domain.playbooks.loading.include import Expanded
from bot.domain.playbooks.loading.known_words import where_known
from bot.domain.playbooks.loading.text_roles import role_of
from bot.domain.playbooks.mistakes import Mistake, Path
from bot.domain.playbooks.source import Position, Source
from bot.domain.signals.probe_spec import Probes

_SETTING = re.compile(r"\bsettings\.([A-Za-z_]\w*)")


def with_shared_signals(expanded: Expanded, fragments: Fragments, probes: Probes) -> Expanded:
    """Adds to `expanded` what its states mention; an entry of `uses` that cannot be used is a fault."""
    if expanded.source is None:
        return expanded
    libraries, faults = _libraries(expanded, fragments)
    source = _added(expanded.source, libraries, probes)
    by_file = {one.file: one for one in [*expanded.fragments, *libraries]}
    return replace(
        expanded,
        source=source,
        faults=(*expanded.faults, *faults),
        fragments=tuple(by_file.values()),
    )


def _libraries(expanded: Expanded, fragments: Fragments) -> tuple[list[Source], tuple[Fault, ...]]:
    """The fragments that the playbook and its included fragments use, the playbook's first."""
    found: dict[str, Source] = {}
    faults: dict[Fault, None] = {}
    assert expanded.source is not None
    for source in (expanded.source, *expanded.fragments):
        uses = source.data.get("uses")
        for index, name in enumerate(uses if isinstance(uses, list) else ()):
            read = fragments.get(str(name))
            if read is None:
                hint = did_you_mean(str(name), fragments) or where_known("fragment")
                faults[source.fault(Mistake(("uses", index), f"unknown fragment '{name}'", hint))] = None
            elif read.fragment is None or read.source is None:
                faults |= dict.fromkeys(read.faults)
            elif read.fragment.states:
                what, hint = f"the fragment '{name}' has states", f"Include it in a state: {{include: {name}}}."
                faults[source.fault(Mistake(("uses", index), what, hint))] = None
            else:
                found.setdefault(str(name), read.source)
    return list(found.values()), tuple(faults)


def _added(source: Source, libraries: list[Source], probes: Probes) -> Source:
    data, values, keys = dict(source.data), dict(source.values), dict(source.keys)
    signals = data.get("signals") or {}
    settings = data.get("settings") or {}
    if not isinstance(signals, Mapping) or not isinstance(settings, Mapping):
        return source  # this fault is reported with the shape of the file
    signals, settings = dict(signals), dict(settings)
    sections = {"signals": signals, "settings": settings}

    def add(section: str, name: str) -> None:
        for library in libraries:
            defined = library.data.get(section) or {}
            if name in defined and name not in sections[section]:
                sections[section][name] = defined[name]
                _copy_places(library, (section, name), values, keys)

    for name in sorted(_signals_mentioned(data)):
        add("signals", name)
        if name not in signals and name in probes:
            signals[name] = {"probe": name}
    data["signals"] = signals
    for name in sorted(_settings_mentioned(data)):
        add("settings", name)
    data["settings"] = settings
    for section in [section for section, found in sections.items() if not found]:
        del data[section]
    return replace(source, data=data, values=values, keys=keys)


def _copy_places(library: Source, path: Path, values: dict[Path, Position], keys: dict[Path, Position]) -> None:
    for there, here in ((library.values, values), (library.keys, keys)):
        here |= {each: at for each, at in there.items() if each[: len(path)] == path}


def _signals_mentioned(data: Mapping[str, Any]) -> set[str]:
    """First words of the names in expressions, and what states read. Faulty expressions are reported elsewhere."""
    found: set[str] = set()
    for path, text in _texts(data, ()):
        if path[0] == "states" and path[2:3] == ("read",):
            found.add(text)
            continue
        for expression in _expressions(path, text):
            found |= {name.partition(".")[0] for name, _ in mentions_in(expression)}
    return found


def _expressions(path: Path, text: str) -> Iterator[str]:
    if len(text) > MAX_LENGTH:
        return
    match role_of(path):
        case "expression":
            yield text
        case "template":
            try:
                yield from (part for part, is_expression, _ in split_template(text) if is_expression)
            except ExpressionError:
                return
        case _:
            return


def _settings_mentioned(data: Mapping[str, Any]) -> set[str]:
    return {name for _, text in _texts(data, ()) for name in _SETTING.findall(text)}


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    match value:
        case str():
            yield path, value
        case dict():
            for key, item in value.items():
                yield from _texts(item, (*path, key))
        case list():
            for index, item in enumerate(value):
                yield from _texts(item, (*path, index))
        case _:
            return
