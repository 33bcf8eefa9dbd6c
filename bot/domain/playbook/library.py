"""All playbooks of a folder: those that are sound, and the faults of the others. A broken file hides no other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bot.domain.errors import Fault
from bot.domain.playbook.bundle import Bundle
from bot.domain.playbook.compiled import CompiledPlaybook
from bot.domain.target import Target


@dataclass(frozen=True)
class Library:
    playbooks: Mapping[str, CompiledPlaybook]
    """By name."""
    faults: Mapping[str, tuple[Fault, ...]] = field(default_factory=dict)
    """By file."""
    warnings: Mapping[str, tuple[Fault, ...]] = field(default_factory=dict)

    def bundle(self, name: str, target: Target) -> Bundle | None:
        """This playbook and all that it may divert to."""
        entry = self.playbooks.get(name)
        return None if entry is None else Bundle.of(entry, self.playbooks)

    def match(self, labels: Mapping[str, str]) -> list[CompiledPlaybook]:
        """The playbooks that open on an alert with these labels, the highest priority first, then by name."""
        matching = [playbook for playbook in self.playbooks.values() if playbook.opens_on(labels)]
        return sorted(matching, key=lambda playbook: (-playbook.playbook.priority, playbook.name))
