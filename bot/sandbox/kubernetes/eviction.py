"""`pods/eviction`: deletes a pod only if its disruption budget allows it.

The order of the checks is the server's own, with its oddities: a pod that does not run yet skips the budget, an unready
one counts against it only while the budget is not met, and two budgets are an error.
"""

from typing import Any

from bot.sandbox.kubernetes import clock, errors
from bot.sandbox.kubernetes.registry import DeleteOptions, Registry
from bot.sandbox.kubernetes.resources import DISRUPTION_BUDGETS, PODS
from bot.sandbox.kubernetes.selectors import labels_of, matches
from bot.sandbox.kubernetes.store import Store, is_terminating, name_of, namespace_of

Obj = dict[str, Any]

REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
TWO_BUDGETS = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
RETRY_SECONDS = 10


def is_ready(pod: Obj) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def evict(registry: Registry, pod: Obj, options: DeleteOptions) -> Obj:
    """Returns the success `Status`; raises `ApiError` if the pod must stay."""
    if not _skips_budget(pod):
        _spend_budget(registry, pod, options)
    registry.delete(PODS, pod, options)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def budgets_of(store: Store, pod: Obj) -> list[Obj]:
    return [
        budget
        for budget in store.list(DISRUPTION_BUDGETS, namespace_of(pod))
        # A budget without a selector protects nothing.
        if budget["spec"].get("selector") and matches(budget["spec"]["selector"], labels_of(pod))
    ]


def _skips_budget(pod: Obj) -> bool:
    return pod["status"].get("phase") in ("Pending", "Succeeded", "Failed") or is_terminating(pod)


def _spend_budget(registry: Registry, pod: Obj, options: DeleteOptions) -> None:
    budgets = budgets_of(registry.store, pod)
    if not budgets:
        return
    if len(budgets) > 1:
        raise errors.ApiError(500, "", TWO_BUDGETS)
    budget = budgets[0]
    name, status = name_of(budget), budget["status"]
    if not is_ready(pod) and _unready_may_go(budget):
        return
    if status.get("observedGeneration", 0) < budget["metadata"]["generation"]:
        cause = f"The disruption budget {name} is still being processed by the server."
        raise errors.too_many_requests(REFUSED, cause, RETRY_SECONDS)
    if status["disruptionsAllowed"] == 0:
        cause = (
            f"The disruption budget {name} needs {status['desiredHealthy']} healthy pods "
            f"and has {status['currentHealthy']} currently"
        )
        raise errors.too_many_requests(REFUSED, cause, None)
    if not options.is_dry_run:
        registry.edit(DISRUPTION_BUDGETS, budget, lambda new: _spend_one(new, name_of(pod)), "status")


def _unready_may_go(budget: Obj) -> bool:
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget["status"]
    return bool(status["currentHealthy"] >= status["desiredHealthy"] > 0)


def _spend_one(budget: Obj, pod_name: str) -> None:
    status = budget["status"]
    status["disruptionsAllowed"] -= 1
    status["disruptedPods"] = {**status.get("disruptedPods", {}), pod_name: clock.stamp()}
