"""How many more replicas the namespace's ResourceQuotas admit. A dry run does not show it: quotas refuse pods, later.

The result is unknown if a quota counts a value that the template does not set (a LimitRange may fill it in), or has a
scope that is not evaluated here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from bot.domain.cluster.objects import dig, name_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.quantity import parse_quantity

SHORT_NAMES = {"cpu": "requests.cpu", "memory": "requests.memory", "count/pods": "pods"}
OF_PODS = ("pods", "requests.", "limits.")


@dataclass(frozen=True)
class QuotaRoom:
    replicas: int
    text: str
    """The quota that admits the fewest, with its usage."""


def quota_room(snapshot: ClusterSnapshot, replica: Sequence[tuple[Obj, int]]) -> QuotaRoom | str | None:
    """`replica`: the templates of one replica, each with its number of pods. None without a quota."""
    if "quotas" in snapshot.unreadable:
        return f"the ResourceQuotas of the namespace cannot be read: {snapshot.unreadable['quotas']}"
    cost: dict[str, Fraction] = {}
    try:
        for template, pods in replica:
            for name, amount in _cost(template).items():
                cost[name] = cost.get(name, Fraction(0)) + amount * pods
        found = [room for quota in snapshot.quotas for room in _rooms(quota, cost)]
    except _UnknownError as error:
        return str(error)
    except ValueError as error:
        return f"a ResourceQuota cannot be counted: {error}"
    return min(found, key=lambda room: room.replicas, default=None)


class _UnknownError(Exception):
    """The quota's effect on such a pod is unknown; the message is for people."""


def _rooms(quota: Obj, cost: Mapping[str, Fraction]) -> list[QuotaRoom]:
    named = f"ResourceQuota {name_of(quota)}"
    hard, used = dig(quota, "spec", "hard") or {}, dig(quota, "status", "used") or {}
    limits = {key: SHORT_NAMES.get(key, key) for key in hard if SHORT_NAMES.get(key, key).startswith(OF_PODS)}
    if limits and (dig(quota, "spec", "scopes") or dig(quota, "spec", "scopeSelector")):
        raise _UnknownError(f"{named} has scopes: whether it counts these pods is not known")
    rooms = []
    for key, name in sorted(limits.items()):
        if key not in used:
            raise _UnknownError(f"how much of {named} is used is not known yet")
        if name not in cost:
            if name.endswith((".cpu", ".memory")):
                raise _UnknownError(f"{named} counts {name}, which the pod template does not set")
            continue
        left = max(Fraction(0), parse_quantity(hard[key]) - parse_quantity(used[key]))
        fit = int(left // cost[name])
        rooms.append(QuotaRoom(fit, f"{named} admits {fit} more ({key}: {used[key]} of {hard[key]} used)"))
    return rooms


def _cost(template: Obj) -> dict[str, Fraction]:
    """Limits replace requests that are not set, as in the API server."""
    cost = {"pods": Fraction(1)}
    for container in dig(template, "spec", "containers") or []:
        limits = dig(container, "resources", "limits") or {}
        parts = {"requests": {**limits, **(dig(container, "resources", "requests") or {})}, "limits": limits}
        for part, amounts in parts.items():
            for name, amount in amounts.items():
                cost[f"{part}.{name}"] = cost.get(f"{part}.{name}", Fraction(0)) + parse_quantity(amount)
    return {name: amount for name, amount in cost.items() if amount > 0}
