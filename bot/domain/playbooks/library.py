"""All playbooks of a folder: the valid ones, and the faults of the others. A broken file hides no other."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from types import MappingProxyType

from bot.domain.kernel.errors import Fault
from bot.domain.kernel.last_kept import keep_last
from bot.domain.kernel.target import SLO_ANNOTATIONS, Target
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.slo_targets import with_slo
from bot.domain.signals.signal import Value

BUNDLES_KEPT = 256
NO_LABELS: Mapping[str, str] = MappingProxyType({})
SETTINGS = "settings"
"""In place of a file name, for faults in an operator's own overrides."""


@dataclass(frozen=True)
class Library:
    playbooks: Mapping[str, CompiledPlaybook]
    """By name."""
    faults: Mapping[str, tuple[Fault, ...]] = field(default_factory=dict)
    """By file."""
    warnings: Mapping[str, tuple[Fault, ...]] = field(default_factory=dict)
    on_targets: Sequence[tuple[str, Mapping[str, Mapping[str, Value]]]] = ()
    """`namespace/workload` or `cluster/namespace/workload` as a glob, with the settings that differ there, by playbook.

    Later entries win.
    """
    _bundles: dict[Hashable, Bundle] = field(default_factory=dict, compare=False, repr=False)
    """Those asked for last: workloads with the same settings share one."""

    def bundle(self, name: str, target: Target, labels: Mapping[str, str] = NO_LABELS) -> Bundle | None:
        """Returns this playbook and all that it may divert to, with the settings for that target.

        `labels`: those of the alert, which may name the SLO targets.
        """
        if name not in self.playbooks:
            return None
        overrides = tuple(index for index, (glob, _) in enumerate(self.on_targets) if target.matches(glob))
        key = (name, overrides, target.slo, tuple(labels.get(each) for each in SLO_ANNOTATIONS))
        if key not in self._bundles:
            keep_last(self._bundles, key, self._bundle(name, overrides, target, labels), at_most=BUNDLES_KEPT)
        return self._bundles[key]

    def _bundle(self, name: str, overrides: Sequence[int], target: Target, labels: Mapping[str, str]) -> Bundle:
        playbooks = dict(self.playbooks)
        for index in overrides:
            for each, own in self.on_targets[index][1].items():
                if each in playbooks:
                    playbooks[each] = playbooks[each].with_settings(own)
        playbooks = {each: with_slo(playbook, target, labels) for each, playbook in playbooks.items()}
        return Bundle.of(playbooks[name], playbooks)

    def or_last_good(self, before: Library) -> Library:
        """Returns the library with the last good version of each playbook whose file now has faults.

        A new file with faults in a folder that comes first takes no playbook of a later one out of force. Settings of
        single targets stay with the version that they were checked for.
        """
        broken = {PurePath(file).stem for file in self.faults}
        kept = {n: playbook for n, playbook in before.playbooks.items() if n not in self.playbooks and n in broken}
        on_targets = self.on_targets
        if [glob for glob, _ in on_targets] == [glob for glob, _ in before.on_targets]:
            pairs = zip(on_targets, before.on_targets, strict=True)
            on_targets = [(glob, {**{n: old[n] for n in kept if n in old}, **now}) for (glob, now), (_, old) in pairs]
        return replace(self, playbooks={**kept, **self.playbooks}, on_targets=on_targets, _bundles={})

    def match(self, labels: Mapping[str, str]) -> list[CompiledPlaybook]:
        """Returns the playbooks that open on an alert with these labels, the highest priority first, then by name."""
        matching = [playbook for playbook in self.playbooks.values() if playbook.opens_on(labels)]
        return sorted(matching, key=lambda playbook: (-playbook.playbook.priority, playbook.name))
