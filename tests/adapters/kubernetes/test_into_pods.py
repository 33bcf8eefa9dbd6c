"""Pod access through the API server, with the real client over real sockets: pages by proxy, GPU queries by exec."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from bot.adapters.kubernetes.client import KubernetesClient
from bot.adapters.kubernetes.credentials import Connection
from bot.adapters.kubernetes.pod_exec import PodExec
from bot.adapters.kubernetes.pod_proxy import ProxyPages
from bot.adapters.kubernetes.reader import KubernetesReader
from bot.adapters.vllm.scraper import VllmScraper
from bot.domain.kernel.errors import SourceError
from bot.domain.kernel.target import Target
from bot.domain.signals.gpu_query import FIELDS, GpuQuery
from bot.flow.ports.readings import PodPage
from bot.flow.sample_replicas import SnapshotReplicas
from bot.probes.gpu.smi import nvidia_gpus
from tests.processes import start
from tests.sandbox.fleet.living_world import World, demo_world

TARGET = Target(cluster="sandbox", namespace="serving", name="llm")


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with demo_world() as running:
        yield running


@pytest.fixture
async def client(world: World) -> AsyncIterator[KubernetesClient]:
    async with KubernetesClient(Connection(url=world.cluster_url)) as made:
        yield made


async def test_nvidia_smi_lists_the_gpus_that_the_replica_holds(world: World, client: KubernetesClient) -> None:
    pod = world.in_rotation()[0]
    gpus = nvidia_gpus(await PodExec(client).ask("serving", pod, "vllm", GpuQuery.NVIDIA), FIELDS)
    limits = next(one for one in world.pods() if one["metadata"]["name"] == pod)["spec"]["containers"][0]["resources"]
    assert len(gpus) == int(limits["limits"]["nvidia.com/gpu"])
    assert (gpus["0"].recovery, gpus["0"].values["ecc_dbe"]) == ("None", 0.0)


async def test_the_output_of_a_program_that_failed_is_read_to_the_end(world: World, client: KubernetesClient) -> None:
    pod = world.in_rotation()[0]
    node = next(one for one in world.pods() if one["metadata"]["name"] == pod)["spec"]["nodeName"]
    world.post(f"/__sandbox__/nodes/{node}/gpu", {"xid": 79}).raise_for_status()
    try:
        output = await PodExec(client).ask("serving", pod, "vllm", GpuQuery.NVIDIA_OLD)
    finally:
        world.post(f"/__sandbox__/nodes/{node}/gpu", {"clear": True}).raise_for_status()
    assert "GPU is lost" in output


@pytest.mark.parametrize(
    ("container", "query", "reason"),
    [
        pytest.param("vllm", GpuQuery.AMD, r'rocm-smi: exec: "rocm-smi": executable file not found', id="no-program"),
        pytest.param("sidecar", GpuQuery.NVIDIA, "nvidia-smi may not be run: HTTP 400", id="no-container"),
    ],
)
async def test_a_program_that_cannot_be_run_is_reported_with_the_reason(
    world: World, client: KubernetesClient, container: str, query: GpuQuery, reason: str
) -> None:
    with pytest.raises(SourceError, match=reason):
        await PodExec(client).ask("serving", world.in_rotation()[0], container, query)


@pytest.mark.parametrize("verb", ["get", "create"])
async def test_exec_needs_both_verbs_and_a_refusal_is_no_answer_about_gpus(verb: str) -> None:
    with start("bot.sandbox.kubernetes", "--seed-world", "demo", "--deny", f"{verb}:pods/exec") as running:
        async with KubernetesClient(Connection(url=running.url)) as client:
            with pytest.raises(SourceError, match="HTTP 403"):
                await PodExec(client).ask("serving", "llm-0", "vllm", GpuQuery.NVIDIA)


async def test_every_replica_is_scraped_through_the_api_server(world: World, client: KubernetesClient) -> None:
    replicas = await SnapshotReplicas(KubernetesReader(client)).replicas(TARGET, incident_id="")
    scrapes = await VllmScraper(ProxyPages(client), lambda: 7.0).scrape(replicas)
    assert len(scrapes) == 4
    assert all(not scrape.error and "num_requests_running" in scrape.ranks["0"] for scrape in scrapes)


async def test_a_port_on_which_nothing_listens_is_reported(world: World, client: KubernetesClient) -> None:
    with pytest.raises(SourceError, match="503 error trying to reach service"):
        await ProxyPages(client).read(PodPage("serving", world.in_rotation()[0], "", 1))


async def test_proxy_needs_its_permission() -> None:
    with start("bot.sandbox.kubernetes", "--seed-world", "demo", "--deny", "get:pods/proxy") as running:
        async with KubernetesClient(Connection(url=running.url)) as client:
            with pytest.raises(SourceError, match=r"403 .*pods/proxy"):
                await ProxyPages(client).read(PodPage("serving", "llm-0", "", 8000))
