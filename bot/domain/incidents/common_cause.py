"""What many incidents have in common: one node, one rack, one deploy, one zone, one model, or else one alert.

It sorts a list for people. It proves nothing: a playbook finds the cause of its own incident.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from bot.domain.incidents.run import Run
from bot.domain.signals.signal import Reading

CauseKind = Literal["node", "rack", "deploy", "zone", "model", "alert"]
KINDS: tuple[CauseKind, ...] = ("node", "rack", "deploy", "zone", "model")
"""The narrowest first: of two that explain the same incidents, the earlier one says more."""
LABELS: Mapping[CauseKind, tuple[str, ...]] = {
    "node": ("node", "kubernetes_node", "nodename", "Hostname"),
    "rack": ("rack", "topology_rack", "topology_kubernetes_io_rack"),
    "deploy": ("release", "image", "version"),
    "zone": ("zone", "availability_zone", "topology_kubernetes_io_zone"),
    "model": ("model_name", "served_model_name", "model"),
    "alert": ("alertname",),
}
FIELDS: tuple[CauseKind, ...] = ("node", "rack", "zone")
"""Parts of readings that have the same names."""
PLACES = frozenset(FIELDS)
"""Names that two clusters may have in common by chance."""
LEAST_SHARED = 3
FEW_VALUES, MOST_OF_THEM = 3, 0.8
"""A kind sorts the list if a few of its values explain most of the incidents."""

Facts = Mapping[CauseKind, Sequence[str]]
"""What is known of one incident: the nodes that it is about, its model, and so on."""


@dataclass(frozen=True)
class Group:
    kind: CauseKind
    value: str
    incidents: tuple[str, ...]


def facts_of(run: Run) -> Facts:
    """Returns what its alerts and its readings say; empty where they say nothing."""
    found: dict[CauseKind, list[str]] = {kind: [] for kind in LABELS}
    alerts = [alert for alert in run.alerts.values() if alert.status == "firing"] or [*run.alerts.values()]
    for alert in alerts:
        for kind, labels in LABELS.items():
            found[kind] += filter(None, (alert.labels.get(label) for label in labels))
    for reading in run.latest.values():
        for kind in FIELDS:
            found[kind] += filter(None, [_text(reading, kind)])
        found["deploy"] += filter(None, [_deployed(reading)])
    where = f"{run.target.cluster}/" if run.target.among_several else ""
    named = {kind: [where + value if kind in PLACES else value for value in values] for kind, values in found.items()}
    return {kind: tuple(dict.fromkeys(values)) for kind, values in named.items() if values}


def _text(reading: Reading, field: str) -> str:
    value = reading.fields.get(field)
    return value if isinstance(value, str) else ""


def _deployed(reading: Reading) -> str:
    """What the last rollout changed, if it can be the cause; the same change of many workloads is one deploy."""
    if reading.fields.get("matters") is not True:
        return ""
    return _text(reading, "config_map") or _text(reading, "summary")


def groups(facts: Mapping[str, Facts]) -> list[Group]:
    """Sorts incidents by what they have in common, the largest group first; each is in one group at most.

    `facts`: by incident, in the order in which a group names them.
    """
    left, found = dict(facts), []
    while chosen := _shared_by_most(left) or _alerts(left):
        for group in chosen:
            # A workload on two bad nodes is counted at the first.
            members = tuple(name for name in group.incidents if name in left)
            if len(members) >= LEAST_SHARED:
                found.append(Group(group.kind, group.value, members))
                left = {name: known for name, known in left.items() if name not in members}
    return sorted(found, key=lambda group: -len(group.incidents))


def _shared_by_most(facts: Mapping[str, Facts]) -> list[Group]:
    """The groups of the first kind whose largest ones explain most incidents, else the one largest group of all."""
    by_kind = {kind: _largest(facts, kind) for kind in KINDS}
    for found in by_kind.values():
        members = {name for group in found[:FEW_VALUES] for name in group.incidents}
        if found and len(members) >= MOST_OF_THEM * len(facts):
            return found[:FEW_VALUES]
    every = [group for found in by_kind.values() for group in found[:1]]
    return [max(every, key=lambda group: len(group.incidents))] if every else []


def _alerts(facts: Mapping[str, Facts]) -> list[Group]:
    """Nothing else is known of these."""
    return _largest(facts, "alert")


def _largest(facts: Mapping[str, Facts], kind: CauseKind) -> list[Group]:
    members: defaultdict[str, list[str]] = defaultdict(list)
    for name, known in facts.items():
        for value in known.get(kind, ()):
            members[value].append(name)
    found = [Group(kind, value, tuple(names)) for value, names in members.items() if len(names) >= LEAST_SHARED]
    return sorted(found, key=lambda group: -len(group.incidents))
