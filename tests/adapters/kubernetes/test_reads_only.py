"""Where the bot only observes everything, its client sends nothing that could change a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bot.adapters.kubernetes.client import READS_ONLY, KubernetesClient
from bot.adapters.kubernetes.cluster import KubernetesCluster
from bot.adapters.kubernetes.credentials import Connection, NotSentError
from bot.adapters.kubernetes.permissions import READING, check
from bot.adapters.kubernetes.pod_exec import PodExec
from bot.adapters.kubernetes.reader import KubernetesReader
from bot.adapters.kubernetes.writer import KubernetesWriter
from bot.domain.kernel.errors import ClusterError, SourceError
from bot.domain.signals.gpu_query import GpuQuery
from tests.adapters.kubernetes.lab import CAP, LLM, Lab, granted
from tests.domain.changes.snapshots import planned

JOURNAL = "/__sandbox__/mutations"


@pytest.fixture
async def client(lab: Lab) -> AsyncIterator[KubernetesClient]:
    async with KubernetesClient(Connection(url=lab.url), reads_only=True) as made:
        yield made


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_request_that_may_change_something_is_not_sent(method: str, lab: Lab, client: KubernetesClient) -> None:
    await lab.door.delete(JOURNAL)
    with pytest.raises(NotSentError, match="observe-only"):
        await client.request(method, LLM, body={}, query={"dryRun": "All"})
    assert (await lab.door.get(JOURNAL)).json() == []


async def test_reading_and_questions_about_permissions_work(client: KubernetesClient) -> None:
    assert (await client.request("GET", LLM)).is_ok
    assert all(each.is_allowed for each in await check(client, READING, namespace="serving"))


async def test_neither_a_granted_call_nor_its_dry_run_nor_a_program_in_a_pod_gets_through(
    lab: Lab, client: KubernetesClient
) -> None:
    reader = KubernetesReader(client)
    snapshot = await reader.snapshot(lab.target, incident_id="INC-1")
    plan = planned("set_flags", {"edits": CAP}, snapshot)
    sent = await KubernetesWriter(client, reader).send(granted(plan), plan.calls[0], call_id="INC-1/R1/0")
    assert (sent.result, READS_ONLY in sent.detail) == ("failed", True)
    with pytest.raises(ClusterError, match="observe-only"):
        await KubernetesCluster(client, name="sandbox", reader=reader).dry_run(plan.calls[0])
    with pytest.raises(SourceError, match="observe-only"):
        await PodExec(client).ask("serving", "llm-1", "vllm", GpuQuery.NVIDIA)
