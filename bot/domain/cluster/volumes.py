"""Volume claims that one node, or one pod, uses at a time: a pod beside those that use one starts where they are.

The scheduler does not look at that for ReadWriteOnce: on another node the pod waits in ContainerCreating, without end.
"""

from __future__ import annotations

from bot.domain.cluster.objects import dig, name_of, namespace_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj

CLAIMS = "claims"
"""PersistentVolumeClaims, in a snapshot."""
SHARED = frozenset({"ReadWriteMany", "ReadOnlyMany"})
ONE_POD = "ReadWriteOncePod"


def claims_of(pod: Obj) -> set[str]:
    """Returns the names of the claims that such a pod mounts; not those that are made for it alone."""
    volumes = dig(pod, "spec", "volumes") or []
    return {str(name) for volume in volumes if (name := dig(volume, "persistentVolumeClaim", "claimName"))}


def nodes_without_claim(snapshot: ClusterSnapshot, template: Obj) -> dict[str, str]:
    """Maps each node to the claim of such a pod that cannot be attached there."""
    wanted = claims_of(template)
    shut: dict[str, str] = {}
    for claim in snapshot.claims:
        modes, name = set(dig(claim, "spec", "accessModes") or []), name_of(claim)
        used_on = {} if name not in wanted or modes & SHARED else _users(snapshot, name)
        is_for_one = ONE_POD in modes
        # In use on several nodes it is not attached at all, as NFS is not, whatever its mode says.
        if not used_on or (len(used_on) > 1 and not is_for_one):
            continue
        ((node, pod), *_) = used_on.items()
        why = f"is for one pod only, and {pod} has it" if is_for_one else f"is attached to {node} only"
        others = (one for one in map(name_of, snapshot.nodes) if is_for_one or one != node)
        shut |= dict.fromkeys(others, f"volume claim {name} {why}")
    return shut


def unread_claims(snapshot: ClusterSnapshot, template: Obj) -> str:
    """Returns why it is not known where such a pod's volumes can be attached; empty if it is."""
    why, wanted = snapshot.unreadable.get(CLAIMS, ""), claims_of(template)
    return f"where {', '.join(sorted(wanted))} can be attached could not be read: {why}" if why and wanted else ""


def _users(snapshot: ClusterSnapshot, claim: str) -> dict[str, str]:
    """Maps each node to a pod that runs there with the claim; one that is Pending may be waiting for it."""
    near = namespace_of(snapshot.workload or {})
    pods = [pod for pod in snapshot.all_pods if namespace_of(pod) == near and claim in claims_of(pod)]
    running = [pod for pod in pods if dig(pod, "status", "phase") == "Running"]
    return {str(dig(pod, "spec", "nodeName")): name_of(pod) for pod in running}
