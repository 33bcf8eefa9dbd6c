"""Whether the PodDisruptionBudgets of a pod allow its eviction now, and ever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bot.domain.cluster.objects import condition, dig, is_ready, labels_of, name_of, selects
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj

Verdict = Literal["allowed", "not_now", "never", "unknown"]


@dataclass(frozen=True)
class Budget:
    verdict: Verdict
    text: str


def budget_for(pod: Obj, snapshot: ClusterSnapshot) -> Budget:
    if "pdbs" in snapshot.unreadable:
        return Budget("unknown", f"disruption budgets could not be read: {snapshot.unreadable['pdbs']}")
    found = [pdb for pdb in snapshot.pdbs if selects(dig(pdb, "spec", "selector"), labels_of(pod))]
    if not found:
        return Budget("allowed", "no disruption budget covers it")
    if dig(pod, "status", "phase") == "Pending":
        return Budget("allowed", "no disruption budget counts a pod that has not started")
    names = ", ".join(name_of(pdb) for pdb in found)
    if len(found) > 1:
        return Budget("never", f"{len(found)} disruption budgets cover it ({names}): the API server refuses to evict")
    if not is_ready(pod) and dig(found[0], "spec", "unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return Budget("allowed", f"budget {names} allows the eviction of any pod that is not Ready")
    status = dig(found[0], "status") or {}
    allowed, healthy = int(status.get("disruptionsAllowed") or 0), status.get("currentHealthy")
    wanted, expected = status.get("desiredHealthy"), status.get("expectedPods")
    if not is_ready(pod) and int(healthy or 0) >= int(wanted or 0) > 0:
        return Budget("allowed", f"budget {names} is met without it ({healthy} healthy, {wanted} needed)")
    synced = condition(found[0], "DisruptionAllowed")
    if synced.get("reason") == "SyncFailed":
        why = synced.get("message") or "without a reason"
        return Budget("not_now", f"budget {names} allows none while Kubernetes cannot work it out ({why})")
    if wanted is not None and expected is not None and int(expected) > 0 and int(wanted) >= int(expected):
        return Budget("never", f"budget {names} wants {wanted} of {expected} pods healthy: it never allows an eviction")
    if allowed > 0:
        return Budget("allowed", f"budget {names} allows {allowed} now")
    return Budget("not_now", f"budget {names} allows none now ({healthy} healthy, {wanted} needed)")
