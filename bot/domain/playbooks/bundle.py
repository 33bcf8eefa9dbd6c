"""A bundle: a playbook and all that it may divert to, with their settings at that time. A run keeps it for good."""

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
    """The playbook that a run starts in."""
    playbooks: Mapping[str, CompiledPlaybook]
    """By name. Loading refuses a playbook with a divert to a missing one."""
    offered: Mapping[str, Bundle] = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)
    """Playbooks that a person may move a run to, by name; not part of what the run started with."""

    @staticmethod
    def of(entry: CompiledPlaybook, library: Mapping[str, CompiledPlaybook] = MappingProxyType({})) -> Bundle:
        """Returns `entry` and all of `library` that its diverts can reach."""
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
        """SHA-256 of what affects decisions: the playbooks with fragments and without comments, and the settings."""
        digests = {name: playbook.digest for name, playbook in self.playbooks.items()}
        text = json.dumps({"entry": self.entry, "playbooks": digests}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def stored(self) -> dict[str, str]:
        """Returns all that is needed to rebuild it: the original texts and the settings."""
        texts = {name: playbook.stored() for name, playbook in self.playbooks.items()}
        return {"entry": self.entry, "playbooks": json.dumps(texts, sort_keys=True)}


def diverts_of(playbook: CompiledPlaybook) -> tuple[str, ...]:
    """Returns the playbooks that it diverts to directly."""
    states = playbook.playbook.states.values()
    names = [state.divert for state in states if isinstance(state, DivertState) and state.divert != PEOPLE]
    return tuple(dict.fromkeys(names))
