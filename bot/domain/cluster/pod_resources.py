"""What a whole pod asks for, as Kubernetes counts it for the scheduler and for quotas.

Containers run together, beside the native sidecars: init containers that restart always. Other init containers run one
at a time, beside the sidecars before them; the most that is needed at any time counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TypeVar

from bot.domain.cluster.objects import dig
from bot.domain.cluster.snapshot import Obj

Amount = TypeVar("Amount", int, Fraction)


def containers_of(template: Obj) -> list[Obj]:
    """Returns those that run together, then the init containers in their order."""
    return [*(dig(template, "spec", "containers") or []), *(dig(template, "spec", "initContainers") or [])]


def of_whole_pod(template: Obj, asked_by: Callable[[Obj], Mapping[str, Amount]]) -> dict[str, Amount]:
    """`asked_by`: the amounts of one container, by their names."""
    sidecars: dict[str, Amount] = {}
    most: dict[str, Amount] = {}
    for container in dig(template, "spec", "initContainers") or []:
        beside = _sum(sidecars, asked_by(container))
        most = _larger(most, beside)
        if container.get("restartPolicy") == "Always":
            sidecars = beside
    together = sidecars
    for container in dig(template, "spec", "containers") or []:
        together = _sum(together, asked_by(container))
    return _larger(most, together)


def _sum(one: Mapping[str, Amount], other: Mapping[str, Amount]) -> dict[str, Amount]:
    return {**one} | {name: one[name] + amount if name in one else amount for name, amount in other.items()}


def _larger(one: Mapping[str, Amount], other: Mapping[str, Amount]) -> dict[str, Amount]:
    return {**one} | {name: max(one.get(name, amount), amount) for name, amount in other.items()}
