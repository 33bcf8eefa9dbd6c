"""What the bad replicas of a workload have in common that the good ones do not: a node, a zone, a revision.

A replica that could not be judged is neither bad nor good: where it could change the answer, the answer is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bot.domain.cluster.capacity import capacity_of
from bot.domain.cluster.objects import (
    TEMPLATE_HASH_LABEL,
    ZONE_LABEL,
    controller_of,
    dig,
    is_going_away,
    labels_of,
    name_of,
    uid_of,
)
from bot.domain.cluster.rollout import revision_of
from bot.domain.cluster.rotation import is_replica_ready, replicas_present, whole_replica
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import LEADER_WORKER_SET_PREFIX, REVISION_HASH_LABEL

_REVISION_LABELS = (
    f"{LEADER_WORKER_SET_PREFIX}template-revision-hash",  # its pods carry the StatefulSet's label too
    REVISION_HASH_LABEL,
    TEMPLATE_HASH_LABEL,
)
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True)
class JudgedReplica:
    """A replica that serves, and where it runs; None is unknown."""

    name: str
    is_bad: bool | None
    node: str | None = None
    zone: str | None = None
    revision: str | None = None


@dataclass(frozen=True)
class InCommon:
    """What all bad replicas have and no good one has: empty if there is no such thing, None if it is not known."""

    bad: int
    judged: int
    unread: int
    node: str | None
    zone: str | None
    revision: str | None

    def summary(self, trouble: str, troubles: str) -> str:
        """Returns one line for people. `trouble` is what one replica does, `troubles` what several do."""
        found = f"{self.bad} of {self.judged} replicas {trouble if self.bad == 1 else troubles}"
        if self.unread:
            found += f" ({self.unread} more could not be read)"
        if self.bad < 2 or self.bad == self.judged:
            return found
        shared = [
            f"run on node {self.node}" if self.node else "",
            f"run in zone {self.zone}" if self.zone and not self.node else "",
            f"are of revision {self.revision}" if self.revision else "",
        ]
        if any(shared):
            return f"{found}; {_all(self.bad)} {' and '.join(filter(None, shared))}"
        unknown = [name for name in ("node", "zone", "revision") if getattr(self, name) is None]
        if unknown:
            return f"{found}; whether they share a {' or '.join(unknown)} is not known"
        return f"{found}; they share no node, zone or revision that the others do not have"


def in_common(replicas: Sequence[JudgedReplica]) -> InCommon:
    """Counts the bad ones, and finds what they share. Says nothing of one bad replica, or where none is good."""
    bad = [one for one in replicas if one.is_bad]
    good = [one for one in replicas if one.is_bad is False]
    unread = [one for one in replicas if one.is_bad is None]

    def shared(value: Callable[[JudgedReplica], str | None]) -> str | None:
        return shared_value([*map(value, bad)], [*map(value, good)], [*map(value, unread)])

    return InCommon(
        bad=len(bad),
        judged=len(bad) + len(good),
        unread=len(unread),
        node=shared(lambda one: one.node),
        zone=shared(lambda one: one.zone),
        revision=shared(lambda one: one.revision),
    )


def shared_value(
    bad: Sequence[str | None], good: Sequence[str | None], unread: Sequence[str | None] = ()
) -> str | None:
    """Returns the value that all bad ones have and no good one has; empty if there is none, None if it is not known.

    `unread`: the values of those that may be bad or good.
    """
    if len(bad) + len(unread) < 2 or not (good or unread):
        return ""
    values = set(bad) - {None}
    if len(values) > 1 or values & set(good):
        return ""
    if unread or len(bad) < 2 or None in bad or None in good:
        return None
    return values.pop()


def judged_replicas(snapshot: ClusterSnapshot, is_bad: Mapping[str, bool]) -> list[JudgedReplica]:
    """Returns the workload's replicas that are Ready and stay. `is_bad`: by the name of its pod, if it was read."""
    zones = {name_of(node): labels_of(node).get(ZONE_LABEL) for node in snapshot.nodes}
    numbers = {uid_of(one): revision_of(one) for one in snapshot.replica_sets}
    found = []
    for pod in replicas_present(snapshot):
        if is_going_away(pod) or not is_replica_ready(snapshot, pod):
            continue
        nodes = {dig(one, "spec", "nodeName") for one in whole_replica(snapshot, pod)}
        places = {zones.get(node) for node in nodes}
        found.append(
            JudgedReplica(
                name_of(pod),
                is_bad.get(name_of(pod)),
                # A group may span nodes: then it is on none of them.
                nodes.pop() if len(nodes) == 1 else None,
                places.pop() if len(places) == 1 else None,
                _revision(pod, numbers),
            )
        )
    return found


def starts_outside(snapshot: ClusterSnapshot, zone: str) -> bool | str:
    """Returns whether a new replica can only start outside of this zone, or why that is not known.

    The bot does not choose a node: only where the zone has no room it is certain.
    """
    room = []
    for inside in (True, False):
        nodes = tuple(node for node in snapshot.nodes if (labels_of(node).get(ZONE_LABEL) == zone) is inside)
        found = capacity_of(replace(snapshot, nodes=nodes))
        if isinstance(found, str):
            return found
        if found.is_quota_unknown or found.unread:
            return found.explanation
        room.append(found.replicas_that_fit)
    return room[0] < 1 <= room[1]


def _revision(pod: Obj, numbers: Mapping[str, int | None]) -> str | None:
    """Its number where the controller gives one, else its hash."""
    number = numbers.get(str((controller_of(pod) or {}).get("uid")))
    labels = labels_of(pod)
    return str(number) if number is not None else next(filter(None, map(labels.get, _REVISION_LABELS)), None)


def _all(count: int) -> str:
    if count == 2:
        return "both"
    return f"all {_NUMBERS[count] if count < len(_NUMBERS) else count}"
