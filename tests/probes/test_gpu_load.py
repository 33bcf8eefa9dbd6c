"""Free memory and work of the replicas' GPUs, and a day of history from Prometheus."""

from collections.abc import Sequence

import httpx
import pytest

from bot.adapters.prometheus.memory import PrometheusMemory, least_free_query
from bot.domain.kernel.errors import SourceError
from bot.domain.signals.signal import Reading
from bot.flow.ports.readings import PodPage
from bot.probes.gpu.exporters import AMD_LABELS, DCGM_LABELS, Exporters, gpus_on
from bot.probes.gpu.gpu_load import loads_of
from tests.kit import probes
from tests.kit.loop_turns import ReadyPages, turns_of_the_loop_while
from tests.kit.probes import request
from tests.probes.gpu_nodes import gpu, pod
from tests.probes.test_gpu_health import Finder, cluster, exporter_pod

pytestmark = pytest.mark.fast

DCGM = """
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-0",exported_namespace="serving",exported_pod="llm-0"} 4096
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-0",exported_namespace="serving",exported_pod="llm-0"} 77824
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-0",exported_namespace="serving",exported_pod="llm-0"} 0.5
DCGM_FI_DEV_FB_FREE{gpu="1",UUID="GPU-1",exported_namespace="serving",exported_pod="llm-0"} 1024
DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-1",exported_namespace="serving",exported_pod="llm-0"} 80896
DCGM_FI_DEV_FB_FREE{gpu="2",UUID="GPU-2",exported_namespace="serving",exported_pod="other"} 10
"""


class Pages:
    def __init__(self, text: str) -> None:
        self._text = text

    async def read(self, page: PodPage) -> str:
        if not self._text:
            raise SourceError("connection refused")
        return self._text


class Day:
    def __init__(self, mib: float) -> None:
        self._mib = mib

    async def least_free_mib(self, namespace: str, pods: Sequence[str]) -> float:
        if not self._mib:
            raise SourceError("no whole day")
        return self._mib


async def ask(page: str, day: Day | None = None, *, is_amd: bool = False) -> Reading:
    asked = request("gpu_load", cluster(), at=1000.0, opened_at=900.0)
    exporter = exporter_pod(9400)
    exporter["metadata"]["labels"] = (AMD_LABELS if is_amd else DCGM_LABELS)[0]
    return await probes.ask(asked, finder=Finder(exporter), pages=Pages(page), memory=day)


async def test_the_fullest_of_our_gpus_decides() -> None:
    reading = await ask(DCGM, Day(512))
    assert (reading.fields["least_free"], reading.fields["least_free_day"]) == (1.0, 0.5)
    assert reading.fields["total"] == 80.0
    assert "compute" in reading.unknown_parts, "one of the two GPUs does not export it"
    assert not reading.detail, "its parts say more than a number of GPUs"


async def test_a_day_that_nobody_remembers_is_unknown() -> None:
    assert "no Prometheus is configured" in (await ask(DCGM)).unknown_parts["least_free_day"]
    assert (await ask(DCGM, Day(0))).unknown_parts["least_free_day"] == "no whole day"


@pytest.mark.parametrize(
    "page",
    ["", 'DCGM_FI_DEV_FB_FREE{gpu="2",exported_namespace="serving",exported_pod="other"} 10\n', "no metrics at all"],
)
async def test_without_our_gpus_on_the_page_nothing_is_known(page: str) -> None:
    assert (await ask(page)).unknown == "nothing is exported of the GPUs on n1"


def test_amds_exporter_says_used_and_total() -> None:
    ours = '{gpu_id="0",namespace="serving",pod="llm-0"}'
    page = f"amd_gpu_total_vram{ours} 1000\namd_gpu_used_vram{ours} 900\n"
    assert loads_of(gpus_on(page, is_amd=True), cluster().pods) == [{"total": 1000, "used": 900}]


def amd_page(*activity: float, prefix: str = "") -> str:
    """One GPU for each of these percentages, all of them ours."""
    lines = [
        f'{prefix}{name}{{gpu_id="{gpu}",namespace="serving",pod="llm-0"}} {value}'
        for gpu, percent in enumerate(activity)
        for name, value in (("gpu_total_vram", 196_608), ("gpu_used_vram", 184_320), ("gpu_gfx_activity", percent))
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("prefix", ["", "amd_"])
async def test_amds_activity_is_compute_as_a_share(prefix: str) -> None:
    reading = await ask(amd_page(20, 40, prefix=prefix), is_amd=True)
    assert reading.fields["compute"] == pytest.approx(0.3)
    assert (reading.fields["least_free"], reading.fields["total"]) == (12.0, 192.0)


async def test_an_activity_that_no_gpu_has_is_unknown() -> None:
    """amd-smi writes 65535 for a value that it cannot read."""
    reading = await ask(amd_page(20, 65_535), is_amd=True)
    assert "compute" in reading.unknown_parts


def test_pods_that_share_a_gpu_each_have_their_own_load() -> None:
    gpus = gpus_on(gpu(0, "llm-0", FB_FREE=4096) + gpu(0, "x", FB_FREE=10), is_amd=False)
    loads = [loads_of(gpus, [pod(name, "n1")]) for name in ("llm-0", "x")]
    assert loads == [[{"free": 4096}], [{"free": 10}]]


# --- a day, from Prometheus -------------------------------------------------------------------------------------------


async def least(*results: tuple[str, str]) -> float:
    body = {
        "status": "success",
        "data": {"result": [{"metric": {"holder": pod}, "value": [0, mib]} for pod, mib in results]},
    }
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=body))
    async with httpx.AsyncClient(transport=transport) as client:
        return await PrometheusMemory(client, "http://prometheus").least_free_mib("serving", ["llm-0", "llm-1"])


async def test_the_least_of_a_whole_day_is_the_least_of_all_replicas() -> None:
    assert await least(("llm-0", "4096"), ("llm-1", "2048")) == 2048


async def test_a_replica_without_a_whole_day_makes_it_unknown() -> None:
    with pytest.raises(SourceError, match="no whole day of the GPU memory of llm-1"):
        await least(("llm-0", "4096"))


def test_only_names_of_kubernetes_get_into_a_query() -> None:
    with pytest.raises(SourceError, match="is not the name of a Kubernetes object"):
        least_free_query("serving", ['llm"} or vector(0)'])


async def test_the_pages_of_many_nodes_are_parsed_one_in_each_turn_of_the_loop() -> None:
    """A facility has hundreds of nodes, and their pages arrive together."""
    nodes = [f"n{number}" for number in range(50)]
    finder = Finder(*(exporter_pod(9400, node) for node in nodes))
    exporters = Exporters(probes.sources(1000.0, finder=finder, pages=ReadyPages(DCGM)))
    assert await turns_of_the_loop_while(exporters.read(nodes)) >= len(nodes)
