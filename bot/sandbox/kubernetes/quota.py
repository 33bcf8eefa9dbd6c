"""ResourceQuotas: their use by a namespace's pods, and why one more pod is refused. Scopes are not supported."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from bot.domain.kernel.quantity import parse_quantity
from bot.sandbox.kubernetes.quantities import canonical
from bot.sandbox.kubernetes.resources import PODS, RESOURCE_QUOTAS
from bot.sandbox.kubernetes.store import Store, name_of

Obj = dict[str, Any]
COMPUTE = ("cpu", "memory")
ALIASES = {"cpu": "requests.cpu", "memory": "requests.memory", "count/pods": "pods"}


def cost_of(pod: Obj) -> dict[str, Fraction]:
    """What one pod counts for, by the full name of the resource."""
    cost = {"pods": Fraction(1)}
    for container in pod["spec"]["containers"]:
        for part in ("requests", "limits"):
            for name, text in (container.get("resources", {}).get(part) or {}).items():
                key = f"{part}.{name}"
                cost[key] = cost.get(key, Fraction(0)) + parse_quantity(text)
    return cost


def used_of(store: Store, quota: Obj) -> dict[str, str]:
    ended = ("Succeeded", "Failed")
    pods = store.list(PODS, quota["metadata"]["namespace"])
    costs = [cost_of(pod) for pod in pods if pod["status"].get("phase") not in ended]
    hard = quota["spec"].get("hard") or {}
    used = {name: sum((cost.get(ALIASES.get(name, name), Fraction(0)) for cost in costs), Fraction(0)) for name in hard}
    return {name: _written(amount, hard[name]) for name, amount in used.items()}


def refusal_of(store: Store, pod: Obj) -> str:
    """Why this pod may not be created, in the wording of a real server; empty if it may."""
    cost = cost_of(pod)
    for quota in store.list(RESOURCE_QUOTAS, pod["metadata"]["namespace"]):
        hard = quota["spec"].get("hard") or {}
        unspecified = [name for name in sorted(hard) if _compute(name) and ALIASES.get(name, name) not in cost]
        if unspecified:
            main = pod["spec"]["containers"][0]["name"]
            must = "; ".join(f"{name} for: {main}" for name in unspecified)
            return f"failed quota: {name_of(quota)}: must specify {must}"
        used = used_of(store, quota)
        over = [name for name in sorted(hard) if _sum(used[name], cost, name) > parse_quantity(hard[name])]
        if over:
            asked = {name: _written(cost[ALIASES.get(name, name)], hard[name]) for name in over}
            parts = [("requested", asked), ("used", used), ("limited", hard)]
            return f"exceeded quota: {name_of(quota)}, " + ", ".join(
                f"{word}: " + ",".join(f"{name}={amounts[name]}" for name in over) for word, amounts in parts
            )
    return ""


def _compute(name: str) -> bool:
    return ALIASES.get(name, name).partition(".")[2] in COMPUTE


def _sum(used: str, cost: Mapping[str, Fraction], name: str) -> Fraction:
    return parse_quantity(used) + cost.get(ALIASES.get(name, name), Fraction(0))


def _written(amount: Fraction, like: str) -> str:
    """In the unit family of the limit."""
    whole = f"{amount.numerator}" if amount.denominator == 1 else f"{float(amount)}"
    return canonical(f"{amount.numerator / 1024:g}Ki") if like.endswith("i") and amount >= 1024 else canonical(whole)
