"""The part of the cluster that shows which replicas serve: what sampling reads every few seconds.

A whole snapshot takes two dozen requests. This takes two for each workload, and six lists that all workloads of a
namespace share for a moment. The workload itself may be a second old.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from bot.adapters.kubernetes.reader import (
    LISTS,
    OURS,
    KubernetesReader,
    Part,
    merged,
    pods_query,
    without_other_canaries,
    workload_read,
)
from bot.domain.cluster.objects import CANARY_LABEL, TAKEN_FROM_LABEL, labels_of, uid_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.target import Target

SHARED: Mapping[str, tuple[str, Mapping[str, str] | None]] = {
    **{name: LISTS[name] for name in ("services", "endpoint_slices", "inference_pools", "older_pools")},
    **{name: (OURS[name].kind, {"labelSelector": OURS[name].label}) for name in ("canary_pods", "released_pods")},
}
"""Lists of a namespace, by kind and query, as the reader shares them. Pods that the bot labelled are few."""


class ServingReader:
    """The `Snapshots` port, for samples only: parts that do not show which replicas serve are left empty."""

    def __init__(self, reader: KubernetesReader) -> None:
        self._reader = reader

    async def snapshot(self, target: Target, *, incident_id: str) -> ClusterSnapshot:
        """Raises `ClusterError` if the workload cannot be read."""
        async with workload_read(target):
            return await self._serving(target, incident_id.lower())

    async def _serving(self, target: Target, slug: str) -> ClusterSnapshot:
        reader, at = self._reader, self._reader.now()
        workload = await reader.shared_find(target.kind, target.namespace, target.name)
        if workload is None:
            return ClusterSnapshot(at=at, workload=None)
        own, *lists = await asyncio.gather(
            reader.part("Pod", target.namespace, pods_query(target, workload)),
            *(
                reader.shared_part(f"{target.namespace}/{name}", kind, target.namespace, query)
                for name, (kind, query) in SHARED.items()
            ),
        )
        parts: dict[str, Part] = dict(zip(SHARED, lists, strict=True))
        parts["inference_pools"] = merged(parts["inference_pools"], parts.pop("older_pools"))
        own = without_other_canaries(own, slug)
        labelled = (parts.pop("canary_pods"), parts.pop("released_pods"))
        pods = {uid_of(pod): pod for pod in (*own.items, *_ours(workload, slug, *labelled))}
        unreadable = {name: part.unreadable for name, part in parts.items() if part.unreadable}
        if reason := next((part.unreadable for part in (own, *labelled) if part.unreadable), ""):
            unreadable["pods"] = reason
        return ClusterSnapshot(
            at=at,
            workload=workload,
            pods=tuple(pods.values()),
            services=parts["services"].items,
            endpoint_slices=parts["endpoint_slices"].items,
            inference_pools=parts["inference_pools"].items,
            unreadable=unreadable,
        )


def _ours(workload: Obj, slug: str, canaries: Part, released: Part) -> list[Obj]:
    """Pods of this incident's canary, and those that the bot released from this workload."""
    return [
        *(pod for pod in canaries.items if slug and labels_of(pod).get(CANARY_LABEL) == slug),
        *(pod for pod in released.items if labels_of(pod).get(TAKEN_FROM_LABEL) == uid_of(workload)),
    ]
