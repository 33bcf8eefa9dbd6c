"""Keys of the language that mean nothing any more: ignored, because playbooks of running incidents still have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from bot.domain.playbooks.mistakes import Mistake, Path
from bot.domain.playbooks.source import Source

FORMER = {"covers": "Name the row at the case that proves it, in the playbook's table of cases."}
"""Keys of states and of options, each with what to do instead."""


def without_former_keys(source: Source) -> Source:
    states = source.data.get("states")
    if not isinstance(states, Mapping):
        return source
    return replace(source, data={**source.data, "states": {name: _without(state) for name, state in states.items()}})


def former_keys(data: Mapping[str, Any]) -> Iterator[Mistake]:
    """Warns about each key that is ignored."""
    for path in _found(data):
        yield Mistake(path, f"'{path[-1]}' is ignored here", FORMER[str(path[-1])], at_key=True)


def _found(data: Mapping[str, Any]) -> Iterator[Path]:
    states = data.get("states")
    for name, state in states.items() if isinstance(states, Mapping) else ():
        for at, part in ((("states", name), state), *_options(name, state)):
            if isinstance(part, Mapping):
                yield from ((*at, key) for key in FORMER if key in part)


def _options(name: str, state: Any) -> Iterator[tuple[Path, Any]]:
    options = state.get("options") if isinstance(state, Mapping) else None
    for key, option in options.items() if isinstance(options, Mapping) else ():
        yield ("states", name, "options", key), option


def _without(state: Any) -> Any:
    if not isinstance(state, Mapping):
        return state
    kept = {key: value for key, value in state.items() if key not in FORMER}
    if isinstance(kept.get("options"), Mapping):
        kept["options"] = {key: _without(option) for key, option in kept["options"].items()}
    return kept
