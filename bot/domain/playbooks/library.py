"""All playbooks of a folder: the valid ones, and the faults of the others. A broken file hides no other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from types import MappingProxyType

from bot.domain.kernel.errors import Fault
from bot.domain.kernel.target import Target
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.slo_targets import with_slo
from bot.domain.signals.signal import Value

NO_LABELS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Library:
    playbooks: Mapping[str, CompiledPlaybook]
    """By name."""
    faults: Mapping[str, tuple[Fault, ...]] = field(default_factory=dict)
    """By file."""
    warnings: Mapping[str, tuple[Fault, ...]] = field(default_factory=dict)
    on_targets: Sequence[tuple[str, Mapping[str, Mapping[str, Value]]]] = ()
    """`namespace/workload` as a glob, with the settings that differ there, by playbook. Later entries win."""

    def bundle(self, name: str, target: Target, labels: Mapping[str, str] = NO_LABELS) -> Bundle | None:
        """Returns this playbook and all that it may divert to, with the settings for that target.

        `labels`: those of the alert, which may name the SLO targets.
        """
        playbooks = self.playbooks
        for glob, settings in self.on_targets:
            if fnmatchcase(f"{target.namespace}/{target.name}", glob):
                tuned = {
                    each: playbooks[each].with_settings(own) for each, own in settings.items() if each in playbooks
                }
                playbooks = {**playbooks, **tuned}
        playbooks = {each: with_slo(playbook, target, labels) for each, playbook in playbooks.items()}
        return Bundle.of(playbooks[name], playbooks) if name in playbooks else None

    def or_last_good(self, before: Library) -> Library:
        """Returns the library with the last good version of each playbook whose file now has faults."""
        kept = {
            name: playbook
            for name, playbook in before.playbooks.items()
            if name not in self.playbooks and playbook.file in self.faults
        }
        return replace(self, playbooks={**kept, **self.playbooks})

    def match(self, labels: Mapping[str, str]) -> list[CompiledPlaybook]:
        """Returns the playbooks that open on an alert with these labels, the highest priority first, then by name."""
        matching = [playbook for playbook in self.playbooks.values() if playbook.opens_on(labels)]
        return sorted(matching, key=lambda playbook: (-playbook.playbook.priority, playbook.name))
