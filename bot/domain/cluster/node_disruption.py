"""What cordoning or draining one more node takes from the fleet: the numbers that the node breaker checks.

Read right before the call. An unreadable fleet is unknown, and unknown releases no node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bot.domain.cluster.capacity import NODE_SOURCES, accelerators_of
from bot.domain.cluster.objects import dig, is_cordoned, name_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import pod_templates
from bot.domain.kernel.quantity import whole


@dataclass(frozen=True)
class NodeDisruption:
    node: str
    gpus: int = 0
    """Its accelerators that are not already out of reach: 0 for a node that is already cordoned."""
    fleet_gpus: int = 0
    """On all nodes; 0 if the workload requests no accelerator, so no share can be computed."""
    cordoned: Mapping[str, int] = field(default_factory=dict)
    """Other unschedulable nodes, cordoned by anybody, with their accelerators."""
    cluster: str = ""
    """The name of its cluster: nodes of two clusters may have one name."""


def node_disruption(snapshot: ClusterSnapshot, name: str) -> NodeDisruption | str:
    """Returns what taking node `name` out costs in accelerators of the workload's kind, or why it is unknown."""
    unread = next((snapshot.unreadable[source] for source in NODE_SOURCES if source in snapshot.unreadable), "")
    if unread:
        return unread
    node = next((node for node in snapshot.nodes if name_of(node) == name), None)
    if node is None:
        return f"there is no node {name}"
    kinds = {kind for each in pod_templates(snapshot.workload) for kind in accelerators_of(each.template)}
    try:
        gpus = {name_of(each): sum(_installed(each, kind) for kind in kinds) for each in snapshot.nodes}
    except ValueError as error:
        return f"the accelerators of a node cannot be counted: {error}"
    cordoned = {name_of(each) for each in snapshot.nodes if is_cordoned(each)}
    return NodeDisruption(
        node=name,
        gpus=0 if name in cordoned else gpus[name],
        fleet_gpus=sum(gpus.values()),
        cordoned={other: gpus[other] for other in sorted(cordoned - {name})},
    )


def _installed(node: Obj, kind: str) -> int:
    """Broken accelerators count too: a device plugin takes them from `allocatable` and leaves `capacity` as it was."""
    sizes = (dig(node, "status", where, kind) or 0 for where in ("capacity", "allocatable"))
    return max(map(whole, sizes))
