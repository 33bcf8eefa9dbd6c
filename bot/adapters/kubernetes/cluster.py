"""The `Cluster` port: resolves an alert, reads the cluster, sends dry runs. It changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from bot.adapters.kubernetes.client import KubernetesClient
from bot.adapters.kubernetes.dry_run import DryRun
from bot.adapters.kubernetes.permissions import Permissions
from bot.adapters.kubernetes.reader import KubernetesReader
from bot.adapters.kubernetes.targets import TargetFinder
from bot.domain.changes.plan import Call
from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.target import Target


class KubernetesCluster:
    """`name` is the value of the `cluster` label of this cluster's alerts."""

    def __init__(self, client: KubernetesClient, *, name: str, reader: KubernetesReader | None = None) -> None:
        self.reader = reader or KubernetesReader(client)
        self._targets = TargetFinder(self.reader, cluster=name)
        self._dry_run = DryRun(client, self.reader)
        self._permissions = Permissions(client)

    async def resolve(self, alert: Alert) -> Target | None:
        return await self._targets.resolve(alert)

    async def workload(self, namespace: str, name: str) -> Target | None:
        return await self._targets.named(namespace, name)

    async def snapshot(self, target: Target, *, incident_id: str) -> ClusterSnapshot:
        return await self.reader.snapshot(target, incident_id=incident_id)

    async def lacking(self, calls: Sequence[Call]) -> str:
        return await self._permissions.lacking(calls)

    async def dry_run(self, call: Call) -> str:
        return await self._dry_run.dry_run(call)


class SharedSnapshots:
    """The `Snapshots` port, for incidents that have changed nothing: they share the lists of a namespace."""

    def __init__(self, reader: KubernetesReader) -> None:
        self._reader = reader

    async def snapshot(self, target: Target, *, incident_id: str) -> ClusterSnapshot:
        return await self._reader.shared_snapshot(target, incident_id=incident_id)
