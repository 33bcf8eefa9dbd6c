"""Which GPUs of a node count as ours, and that a missing one is never sound."""

from __future__ import annotations

import pytest

from bot.domain.cluster.snapshot import Obj
from bot.domain.signals.signal import Reading
from bot.probes.gpu.exporters import gpus_on
from bot.probes.gpu.gpu_load import loads_of
from tests.fakes.samples import FakeSampleStore
from tests.kit import probes
from tests.probes.gpu_nodes import NOW, Cluster, asked_of, gpu, node, pod, snapshot

pytestmark = pytest.mark.fast

BOTH = pytest.mark.parametrize("probe", ["gpu_fault", "gpu_health"])


async def read(
    probe: str, *pages: str, pods: tuple[Obj, ...] = (pod("llm-a", "n1"),), on: Obj | None = None
) -> Reading:
    """The reading of the last page of the node of these pods, half a minute after the one before."""
    store, seen = FakeSampleStore(), snapshot([on or node("n1")], pods)
    for number, page in enumerate(pages):
        cluster, at = Cluster({"n1": page}), NOW + 30 * number
        reading = await probes.ask(asked_of(probe, seen, at=at), finder=cluster, pages=cluster, samples=store)
    return reading


def is_faulty(reading: Reading) -> bool | None:
    """None: unknown."""
    fault = reading.fields.get("kind", reading.fields.get("fault"))
    return None if fault is None else fault in ("fatal", True)


def reason(reading: Reading) -> str:
    return reading.unknown or "; ".join(reading.unknown_parts.values())


@BOTH
async def test_a_page_that_maps_no_gpu_to_us_may_show_ours(probe: str) -> None:
    sound = gpu(0) + gpu(1, "somebody")
    assert is_faulty(await read(probe, sound, sound)) is False
    assert is_faulty(await read(probe, sound, gpu(0, XID_ERRORS=79) + gpu(1, "somebody"))) is True


@BOTH
@pytest.mark.parametrize("holders", [("llm-a", "somebody"), ("somebody", "llm-a")])
async def test_a_gpu_that_another_pod_holds_too_is_ours(probe: str, holders: tuple[str, str]) -> None:
    before = "".join(gpu(0, holder) for holder in holders)
    now = "".join(gpu(0, holder, XID_ERRORS=79) for holder in holders)
    assert is_faulty(await read(probe, before, now)) is True


@BOTH
async def test_a_pod_of_our_name_in_another_namespace_is_not_ours(probe: str) -> None:
    theirs = [gpu(1, "llm-a", XID_ERRORS=xid).replace("serving", "staging") for xid in (0, 79)]
    assert is_faulty(await read(probe, *(gpu(0, "llm-a") + page for page in theirs))) is False


def test_the_memory_of_a_pod_of_our_name_in_another_namespace_is_not_ours() -> None:
    page = gpu(0, "llm-a", FB_FREE=300) + gpu(1, "llm-a", FB_FREE=2).replace("serving", "staging")
    assert loads_of(gpus_on(page, is_amd=False), [pod("llm-a", "n1")]) == [{"free": 300}]


@BOTH
async def test_a_gpu_that_left_the_page_is_unknown_and_named(probe: str) -> None:
    reading = await read(probe, gpu(0, "llm-a") + gpu(1, "llm-a"), gpu(0, "llm-a"))
    assert is_faulty(reading) is None
    assert "healthy" not in reading.fields
    assert "n1: GPU 1 is no longer on the exporter's page" in reason(reading)


@BOTH
async def test_a_gpu_that_is_on_the_page_again_is_judged_again(probe: str) -> None:
    whole = gpu(0, "llm-a") + gpu(1, "llm-a")
    assert is_faulty(await read(probe, whole, gpu(0, "llm-a"), whole)) is False


@BOTH
async def test_a_certain_fault_counts_although_a_gpu_is_missing(probe: str) -> None:
    reading = await read(probe, gpu(0, "llm-a") + gpu(1, "llm-a"), gpu(0, "llm-a", XID_ERRORS=79))
    assert is_faulty(reading) is True


@BOTH
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(gpu(0, "llm-a") + gpu(1, "somebody"), id="mapped"),
        pytest.param(gpu(0), id="pods-are-not-mapped"),
        pytest.param(gpu(0, "llm-b") + gpu(1, "llm-b"), id="only-another-of-ours-is-mapped"),
    ],
)
async def test_a_pod_with_fewer_gpus_on_the_page_than_its_limit_is_unknown(probe: str, page: str) -> None:
    reading = await read(probe, page, pods=(pod("llm-a", "n1", gpus=2), pod("llm-b", "n1")))
    assert is_faulty(reading) is None
    assert "of the 2 GPUs of llm-a" in reason(reading)


@BOTH
@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-SHARED"}, id="time-slices"),
        pytest.param({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"}, id="one-kind-of-mig-slice"),
        pytest.param({"nvidia.com/gpu.sharing-strategy": "mps"}, id="mps"),
    ],
)
async def test_a_pod_with_several_slices_may_have_them_on_one_gpu(probe: str, labels: dict[str, str]) -> None:
    shared = node("n1")
    shared["metadata"]["labels"] = labels
    page, pods = gpu(0, "llm-a") + gpu(1, "somebody"), (pod("llm-a", "n1", gpus=2),)
    assert is_faulty(await read(probe, page, page, pods=pods, on=shared)) is False
    lost = await read(probe, page, gpu(1, "somebody"), pods=pods, on=shared)
    assert (is_faulty(lost), "GPU 0 is no longer on the exporter's page" in reason(lost)) == (None, True)


@BOTH
async def test_a_pod_that_goes_away_may_hold_fewer_gpus_than_its_limit(probe: str) -> None:
    leaving = pod("llm-b", "n1", gpus=2)
    leaving["metadata"]["deletionTimestamp"] = "2026-11-20T10:00:00Z"
    assert is_faulty(await read(probe, gpu(0, "llm-a"), pods=(pod("llm-a", "n1", gpus=1), leaving))) is False


async def test_a_gpu_without_registers_is_not_healthy() -> None:
    """A GPU that fell off the bus may stay on the page with blank values."""
    blank = gpu(1, "llm-a", XID_ERRORS=0).splitlines()
    lost = "".join(f"{line.rsplit(' ', 1)[0]} 9223372036854775794\n" for line in blank)
    reading = await read("gpu_health", gpu(0, "llm-a") + lost)
    assert "healthy" not in reading.fields
    assert "GPU 1 of n1: XIDs are not exported" in reason(reading)
