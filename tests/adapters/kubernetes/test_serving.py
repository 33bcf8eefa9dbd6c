"""What sampling reads of the cluster: the same replicas as a whole snapshot shows, in a few requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from bot.adapters.kubernetes.client import Answer, KubernetesClient
from bot.adapters.kubernetes.cluster import KubernetesCluster, SharedSnapshots
from bot.adapters.kubernetes.credentials import Connection
from bot.adapters.kubernetes.reader import LISTS, OURS, KubernetesReader
from bot.adapters.kubernetes.serving import SHARED, ServingReader
from bot.domain.cluster.objects import uid_of
from bot.domain.cluster.rotation import pods_of_canary
from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.kernel.errors import ClusterError
from bot.flow.sample_replicas import SnapshotReplicas, replicas_in
from tests.adapters.kubernetes.lab import CONTEXT, TARGET, Lab

INCIDENT = CONTEXT.incident_id
INCIDENTS = (INCIDENT, "INC-9", "")
"""Whose canary it is, another one, and none, as between incidents."""
CAP = [{"flag": "--max-num-seqs", "value": 6.0}]


def long_shared(client: KubernetesClient) -> KubernetesReader:
    """Shares answers for longer than a test takes."""
    return KubernetesReader(client, cluster_wide_seconds=60, shared_seconds=60)


class Counting(KubernetesClient):
    """Counts what is read."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.read: Counter[str] = Counter()

    async def request(self, method: str, path: str, **how: Any) -> Answer:
        query: Mapping[str, str] = how.get("query") or {}
        self.read[" ".join([path.rsplit("/", 1)[-1], *query.values()])] += 1
        return await super().request(method, path, **how)


async def test_a_sample_sees_the_replicas_that_a_snapshot_sees(lab: Lab) -> None:
    await lab.carry_out(await lab.plan("canary", edits=CAP, rotation="in"))
    isolated = sorted(lab.serving(await lab.snapshot()))[0]
    await lab.carry_out(await lab.plan("isolate_replica", replica=isolated))
    whole = replicas_in(await lab.cluster.snapshot(TARGET, incident_id=INCIDENT))
    light = await SnapshotReplicas(ServingReader(lab.reader)).replicas(TARGET, incident_id=INCIDENT)
    assert {replica.uid: replica for replica in light} == {replica.uid: replica for replica in whole}
    assert [replica.name for replica in light if replica.in_rotation is False] == [isolated]
    assert [replica.role for replica in light].count("canary") == 1


async def test_a_shared_snapshot_shows_what_a_whole_one_shows(lab: Lab) -> None:
    await lab.carry_out(await lab.plan("canary", edits=CAP, rotation="in"))
    isolated = sorted(lab.serving(await lab.snapshot()))[0]
    await lab.carry_out(await lab.plan("isolate_replica", replica=isolated))
    whole = await lab.cluster.snapshot(TARGET, incident_id=INCIDENT)
    shared = await SharedSnapshots(KubernetesReader(lab.client)).snapshot(TARGET, incident_id=INCIDENT)
    assert versions(shared) == versions(whole)
    assert (shared.canary is not None, shared.unreadable) == (True, {})
    other = await SharedSnapshots(KubernetesReader(lab.client)).snapshot(TARGET, incident_id="INC-9")
    assert other.canary is None, "it is another incident's"


async def test_no_reader_lists_the_canary_of_another_incident(lab: Lab) -> None:
    await lab.carry_out(await lab.plan("canary", edits=CAP, rotation="in"))
    readers = (lab.cluster, SharedSnapshots(KubernetesReader(lab.client)), ServingReader(lab.reader))
    for reader in readers:
        assert [len(pods_of_canary(await reader.snapshot(TARGET, incident_id=who))) for who in INCIDENTS] == [1, 0, 0]


async def test_incidents_that_changed_nothing_share_the_lists_of_their_namespace(lab: Lab) -> None:
    async with Counting(Connection(url=lab.url)) as client:
        reader = long_shared(client)
        shared, whole = SharedSnapshots(reader), KubernetesCluster(client, name="test", reader=reader)
        await shared.snapshot(TARGET, incident_id=INCIDENT)
        client.read.clear()
        await shared.snapshot(TARGET, incident_id="INC-9")
        assert sum(client.read.values()) == 2, "its pods and its revisions"
        client.read.clear()
        await whole.snapshot(TARGET, incident_id=INCIDENT)
        assert sum(client.read.values()) >= 3 + len(LISTS) + len(OURS), "a plan reads everything"


def versions(snapshot: ClusterSnapshot) -> dict[str, list[str]]:
    """Each object of the snapshot, as it was read."""
    lists = {name: part for name, part in vars(snapshot).items() if isinstance(part, tuple)}
    return {
        name: sorted(f"{uid_of(obj)} {obj['metadata'].get('resourceVersion')}" for obj in part)
        for name, part in lists.items()
    }


async def test_workloads_of_a_namespace_share_all_lists_but_their_pods(lab: Lab) -> None:
    async with Counting(Connection(url=lab.url)) as client:
        serving = ServingReader(long_shared(client))
        for _ in range(3):
            await serving.snapshot(TARGET, incident_id=INCIDENT)
        assert sum(client.read.values()) == 1 + 3 + len(SHARED), "the workload and the lists once, and the pods"
        client.read.clear()
        absent = TARGET.model_copy(update={"name": "gone"})
        assert (await serving.snapshot(absent, incident_id="INC-9")).workload is None
        assert client.read == {"gone": 1}


@pytest.mark.parametrize(
    ("list_", "part"),
    [
        ("pods", "pods"),
        ("endpointslices", "endpoint_slices"),
        ("services", "services"),
        ("inferencepools", "inference_pools"),
    ],
)
async def test_a_list_that_cannot_be_read_is_named_and_read_again(lab: Lab, list_: str, part: str) -> None:
    serving = ServingReader(KubernetesReader(lab.client))
    await lab.fault(f"list {list_}", "403")
    seen = await serving.snapshot(TARGET, incident_id=INCIDENT)
    assert seen.unreadable[part].startswith("403")
    await lab.door.post("/__sandbox__/faults", json=[])
    assert (await serving.snapshot(TARGET, incident_id=INCIDENT)).unreadable == {}


async def test_what_is_no_workload_is_refused(lab: Lab) -> None:
    unknown = TARGET.model_copy(update={"kind": "Unknown"})
    with pytest.raises(ClusterError, match="is not a workload that can be read"):
        await ServingReader(lab.reader).snapshot(unknown, incident_id=INCIDENT)
