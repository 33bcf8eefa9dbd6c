"""Fills in a playbook's `defaults` where a state says nothing itself; a fault in them is reported where they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.domain.playbooks.language import Defaults
from bot.domain.playbooks.loading.filled import with_states
from bot.domain.playbooks.loading.structure import shape
from bot.domain.playbooks.mistakes import Path
from bot.domain.playbooks.source import Source

_OF_CANARY = ("try", "in_place", "by_owner")


def with_defaults(source: Source) -> Source:
    """Returns the playbook with its `defaults` in its states; wrong ones are left to `structure` to report."""
    states, defaults = source.data.get("states"), source.data.get("defaults")
    if not isinstance(states, Mapping) or defaults is None or any(shape(Defaults, defaults, ())):
        return source
    filled: dict[str, Any] = {}
    written: dict[Path, Path] = {}
    for name, state in states.items():
        filled[name] = state
        if not isinstance(state, Mapping):
            continue
        kind = next((kind for kind in defaults if kind in state), "")
        for key, value in defaults.get(kind, {}).items():
            if key not in state and not (key in _OF_CANARY and not _edits_flags(state)):
                filled[name] = {**filled[name], key: value}
                written["states", name, key] = ("defaults", kind, key)
    return with_states(source, filled, written)


def _edits_flags(recommends: Mapping[str, Any]) -> bool:
    options = recommends.get("options")
    written = options.values() if isinstance(options, Mapping) else ()
    return any(isinstance(option, Mapping) and option.get("change") == "set_flags" for option in written)
