"""A bundle: a playbook and all that it may divert to, with the settings of that time. A run keeps one for good."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.language import PEOPLE, DivertState


@dataclass(frozen=True)
class Bundle:
    entry: str
    """The playbook that a run begins in."""
    playbooks: Mapping[str, CompiledPlaybook]
    """By name. A playbook that is diverted to and is not here was refused when the files were read."""
    offered: Mapping[str, Bundle] = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)
    """What a run may be taken over to by a person, by the name of its playbook; no part of what it started with."""

    @staticmethod
    def of(entry: CompiledPlaybook, library: Mapping[str, CompiledPlaybook] = MappingProxyType({})) -> Bundle:
        """`entry` and all of `library` that can be come to by diverts from it."""
        found = {entry.name: entry}
        todo = [entry]
        while todo:
            for name in diverts_of(todo.pop()):
                if name in library and name not in found:
                    found[name] = library[name]
                    todo.append(library[name])
        return Bundle(entry.name, found)

    @property
    def entry_playbook(self) -> CompiledPlaybook:
        return self.playbooks[self.entry]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what decides: the playbooks with fragments and without comments, and the settings."""
        decides = {name: playbook.decides() for name, playbook in self.playbooks.items()}
        text = json.dumps({"entry": self.entry, "playbooks": decides}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def stored(self) -> dict[str, str]:
        """All that is needed to build it again: the texts as they were, and the settings."""
        texts = {name: playbook.stored() for name, playbook in self.playbooks.items()}
        return {"entry": self.entry, "playbooks": json.dumps(texts, sort_keys=True)}


def diverts_of(playbook: CompiledPlaybook) -> tuple[str, ...]:
    """The playbooks that it diverts to itself."""
    states = playbook.playbook.states.values()
    names = [state.divert for state in states if isinstance(state, DivertState) and state.divert != PEOPLE]
    return tuple(dict.fromkeys(names))
