"""Disruption budgets: how many pods may be disrupted now.

An allowed eviction counts as gone before its pod is, so that two evictions in a row cannot spend one budget twice.
"""

from collections.abc import Iterable
from typing import Any

from bot.sandbox.kubernetes import clock
from bot.sandbox.kubernetes.controllers.loop import Key
from bot.sandbox.kubernetes.controllers.ownership import live_controller
from bot.sandbox.kubernetes.controllers.pods import is_ready, with_condition
from bot.sandbox.kubernetes.quantities import resolve_int_or_percent
from bot.sandbox.kubernetes.registry import Registry
from bot.sandbox.kubernetes.resources import DEPLOYMENTS, DISRUPTION_BUDGETS, PODS, REPLICA_SETS, STATEFUL_SETS
from bot.sandbox.kubernetes.selectors import labels_of, matches
from bot.sandbox.kubernetes.store import Change, is_terminating, name_of, namespace_of, uid_of

Obj = dict[str, Any]

# How long an eviction that deleted nothing still counts as a disruption.
DISRUPTED_SECONDS = 120.0


class DisruptionController:
    name = "disruption"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource is DISRUPTION_BUDGETS:
            yield namespace_of(change.obj), name_of(change.obj)
        elif change.resource is PODS:
            for budget in self._store.list(DISRUPTION_BUDGETS, namespace_of(change.obj)):
                if any(pod is not None and _covers(budget, pod) for pod in (change.obj, change.previous)):
                    yield namespace_of(budget), name_of(budget)
        elif change.resource in (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS):
            for budget in self._store.list(DISRUPTION_BUDGETS, namespace_of(change.obj)):
                yield namespace_of(budget), name_of(budget)

    def reconcile(self, key: Key) -> float | None:
        budget = self._store.find(DISRUPTION_BUDGETS, *key)
        if budget is None or is_terminating(budget):
            return None
        pods = [pod for pod in self._store.list(PODS, key[0]) if _covers(budget, pod)]
        disrupted = self._still_disrupted(budget, pods)
        healthy = sum(is_ready(pod) and not is_terminating(pod) and name_of(pod) not in disrupted for pod in pods)
        expected, desired = self._wanted(budget, pods)
        allowed = max(0, healthy - desired) if expected > 0 else 0
        status: Obj = {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "disruptionsAllowed": allowed,
            "observedGeneration": budget["metadata"]["generation"],
            "conditions": _conditions(budget, allowed),
            **({"disruptedPods": disrupted} if disrupted else {}),
        }
        self._registry.edit(DISRUPTION_BUDGETS, budget, lambda new: new.update(status=status), "status")
        ages = [clock.seconds_since(since) for since in disrupted.values()]
        return DISRUPTED_SECONDS - max(ages) + 1 if ages else None

    def _still_disrupted(self, budget: Obj, pods: list[Obj]) -> dict[str, str]:
        present = {name_of(pod) for pod in pods if not is_terminating(pod)}
        noted: dict[str, str] = budget["status"].get("disruptedPods") or {}
        return {
            name: since
            for name, since in noted.items()
            if name in present and clock.seconds_since(since) < DISRUPTED_SECONDS
        }

    def _wanted(self, budget: Obj, pods: list[Obj]) -> tuple[int, int]:
        """Expected pods, and how many of them must be healthy."""
        spec = budget["spec"]
        if "maxUnavailable" in spec:
            expected = self._expected_scale(pods)
            return expected, max(0, expected - resolve_int_or_percent(spec["maxUnavailable"], expected, round_up=True))
        least = spec.get("minAvailable", 1)
        if isinstance(least, int):
            return len(pods), least
        expected = self._expected_scale(pods)
        return expected, resolve_int_or_percent(least, expected, round_up=True)

    def _expected_scale(self, pods: list[Obj]) -> int:
        """The sum of the desired replicas of the controllers of the pods: a share is of the desired pods."""
        wanted: dict[str, int] = {}
        for pod in pods:
            owner = live_controller(self._store, REPLICA_SETS, pod) or live_controller(self._store, STATEFUL_SETS, pod)
            if owner is not None:
                owner = live_controller(self._store, DEPLOYMENTS, owner) or owner
                wanted[uid_of(owner)] = owner["spec"]["replicas"]
        return sum(wanted.values())


def _covers(budget: Obj, pod: Obj) -> bool:
    selector = budget["spec"].get("selector")
    return bool(selector) and matches(selector, labels_of(pod))


def _conditions(budget: Obj, allowed: int) -> list[Obj]:
    new: Obj = {
        "type": "DisruptionAllowed",
        "status": "True" if allowed else "False",
        "reason": "SufficientPods" if allowed else "InsufficientPods",
        "message": "",
        "observedGeneration": budget["metadata"]["generation"],
        "lastTransitionTime": clock.stamp(),
    }
    return with_condition(budget["status"].get("conditions") or [], new)
