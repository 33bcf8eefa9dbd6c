"""Adds keys to the states of a playbook; a fault in one is reported where it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bot.domain.playbooks.mistakes import Path
from bot.domain.playbooks.source import Source


def with_states(source: Source, states: Mapping[str, Any], written: Mapping[Path, Path]) -> Source:
    """Returns the playbook with these states. `written`: by the path of each added value, where it is written."""
    values, keys = dict(source.values), dict(source.keys)
    for places in (values, keys):
        places |= {path: places[at] for path, at in written.items() if at in places}
    return replace(source, data={**source.data, "states": states}, values=values, keys=keys)
