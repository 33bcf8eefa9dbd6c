"""How many more replicas the namespace's ResourceQuotas admit. A dry run does not show it: quotas refuse pods, later.

What a LimitRange fills in and a webhook injects is known from a pod that runs the template. Without one, the result is
unknown if a quota counts a value that a container does not set; so it is for scopes, which are not evaluated here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from bot.domain.cluster.objects import dig, name_of
from bot.domain.cluster.pod_resources import containers_of, of_whole_pod
from bot.domain.cluster.rollout import new_and_old_pods
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
        admitted = [(_as_admitted(template, snapshot), pods) for template, pods in replica if snapshot.quotas]
        for template, pods in admitted:
            for name, amount in _cost(template).items():
                cost[name] = cost.get(name, Fraction(0)) + amount * pods
        templates = [template for template, _ in admitted]
        found = [room for quota in snapshot.quotas for room in _rooms(quota, cost, templates)]
    except _UnknownError as error:
        return str(error)
    except ValueError as error:
        return f"a ResourceQuota cannot be counted: {error}"
    return min(found, key=lambda room: room.replicas, default=None)


class _UnknownError(Exception):
    """The quota's effect on such a pod is unknown; the message is for people."""


def _rooms(quota: Obj, cost: Mapping[str, Fraction], templates: Sequence[Obj]) -> list[QuotaRoom]:
    named = f"ResourceQuota {name_of(quota)}"
    hard, used = dig(quota, "spec", "hard") or {}, dig(quota, "status", "used") or {}
    limits = {key: SHORT_NAMES.get(key, key) for key in hard if SHORT_NAMES.get(key, key).startswith(OF_PODS)}
    if limits and (dig(quota, "spec", "scopes") or dig(quota, "spec", "scopeSelector")):
        raise _UnknownError(f"{named} has scopes: whether it counts these pods is not known")
    rooms = []
    for key, name in sorted(limits.items()):
        if key not in used:
            raise _UnknownError(f"how much of {named} is used is not known yet")
        if name.endswith((".cpu", ".memory")) and (silent := next(filter(None, _silent(templates, name)), "")):
            raise _UnknownError(f"{named} counts {name}, which container {silent} of the pod template does not set")
        if name not in cost:
            continue
        left = max(Fraction(0), parse_quantity(hard[key]) - parse_quantity(used[key]))
        fit = int(left // cost[name])
        rooms.append(QuotaRoom(fit, f"{named} admits {fit} more ({key}: {used[key]} of {hard[key]} used)"))
    return rooms


def _silent(templates: Sequence[Obj], name: str) -> Iterator[str]:
    """Yields the first container of each template that does not say how much it needs of this; empty if all do."""
    part, _, resource = name.partition(".")
    for template in templates:
        is_of_pod = dig(template, "spec", "resources", part, resource) is not None
        silent = (each for each in containers_of(template) if resource not in _amounts(each, part))
        yield "" if is_of_pod else next((str(each.get("name")) for each in silent), "")


def _cost(template: Obj) -> dict[str, Fraction]:
    cost = {"pods": Fraction(1)}
    for part in ("requests", "limits"):
        amounts = of_whole_pod(template, functools.partial(_of_container, part))
        amounts |= _parsed(dig(template, "spec", "resources", part) or {})
        overhead = _parsed(dig(template, "spec", "overhead") or {})
        for name, amount in amounts.items():
            cost[f"{part}.{name}"] = amount + overhead.get(name, Fraction(0))
    return {name: amount for name, amount in cost.items() if amount > 0}


def _amounts(container: Obj, part: str) -> Obj:
    """Limits replace requests that are not set, as in the API server."""
    limits = dig(container, "resources", "limits") or {}
    return limits if part == "limits" else {**limits, **(dig(container, "resources", "requests") or {})}


def _of_container(part: str, container: Obj) -> dict[str, Fraction]:
    return _parsed(_amounts(container, part))


def _parsed(amounts: Mapping[str, str]) -> dict[str, Fraction]:
    return {name: parse_quantity(amount) for name, amount in amounts.items()}


def _as_admitted(template: Obj, snapshot: ClusterSnapshot) -> Obj:
    """Returns the template with what a pod of the workload's present one has got at its admission."""
    names = {each.get("name") for each in containers_of(template)}
    pods = (new_and_old_pods(snapshot) or ((), ()))[0]
    like = next((pod for pod in pods if names <= {each.get("name") for each in containers_of(pod)}), None)
    if like is None:
        return template
    spec = {**(template.get("spec") or {})}
    for field in ("containers", "initContainers"):
        own = {each.get("name"): each for each in spec.get(field) or []}
        there = dig(like, "spec", field) or []
        spec[field] = [_filled(own.get(each.get("name")), each) for each in there]
    if overhead := dig(like, "spec", "overhead"):
        spec["overhead"] = overhead
    return {**template, "spec": spec}


def _filled(own: Obj | None, admitted: Obj) -> Obj:
    """Returns the template's own container with the amounts that were filled in; an injected one as it is."""
    if own is None:
        return admitted
    resources = {
        part: {name: amount for name, amount in (dig(admitted, "resources", part) or {}).items() if "/" not in name}
        | (dig(own, "resources", part) or {})
        for part in ("requests", "limits")
    }
    return {**own, "resources": resources}
