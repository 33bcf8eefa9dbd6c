"""One hot node or the facility, how far from the limit, and whether it rises."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from bot.domain.cluster.snapshot import Obj
from bot.domain.signals.signal import Reading
from bot.probes.gpu.exporters import Gpu
from bot.probes.gpu.thermal_scope import heat_of, scope_of
from tests.fakes.samples import FakeSampleStore
from tests.kit import probes
from tests.probes.gpu_nodes import NOW, Cluster, asked_of, gpu, node, pod, snapshot

pytestmark = pytest.mark.fast

HW_THERMAL, POWER_BRAKE, POWER_CAP = 0x40, 0x80, 0x4


@pytest.mark.parametrize(
    ("values", "hot", "margin"),
    [
        pytest.param({"temperature": 60, "memory_temperature": 70}, False, 25, id="cool"),
        pytest.param({"temperature": 86}, True, -1, id="limit-not-known"),
        pytest.param({"temperature": 86, "slowdown_temperature": 92}, False, 6, id="its-own-limit-is-higher"),
        pytest.param({"temperature": 84, "slowdown_temperature": 83}, True, -1, id="its-own-limit-is-lower"),
        pytest.param({"temperature": 70, "memory_temperature": 96}, True, -1, id="hot-memory"),
        pytest.param({"temperature": 70, "clock_reasons": HW_THERMAL}, True, 15, id="slowed-by-heat"),
        pytest.param({"temperature": 70, "clock_reasons": POWER_CAP}, False, 15, id="at-its-power-limit"),
        pytest.param({"temperature": 70, "event:sw_thermal": 1}, True, 15, id="counted-event"),
        pytest.param({}, None, None, id="nothing-exported"),
    ],
)
def test_a_gpu_is_hot_at_its_own_limit_or_when_heat_slows_it(
    values: Mapping[str, float], hot: bool | None, margin: float | None
) -> None:
    heat = heat_of(Gpu("0", values=values), fastest=1980)
    assert heat.is_hot is hot
    assert heat.margin == margin


def test_an_amd_gpu_is_measured_at_its_junction() -> None:
    seen = Gpu("0", values={"gpu_junction_temperature": 96, "gpu_edge_temperature": 70}, is_amd=True)
    assert (heat_of(seen, 0).margin, heat_of(seen, 0).is_hot) == (4, False)


@pytest.mark.parametrize(
    ("hot", "brakes", "scope"),
    [
        pytest.param([], 0, "none", id="none"),
        pytest.param([("a", "r1")], 1, "one", id="one-with-a-power-brake"),
        pytest.param([("a", "r1"), ("a", "r2")], 0, "one", id="two-in-two-racks"),
        pytest.param([("a", "r1"), ("a", "r1")], 0, "facility", id="two-in-one-rack"),
        pytest.param([("a", "r1"), ("b", "r1")], 0, "one", id="two-zones-with-a-rack-of-that-name"),
        pytest.param([("a", ""), ("a", "")], 0, "one", id="racks-not-known"),
        pytest.param([("a", ""), ("a", ""), ("b", "")], 0, "facility", id="three-anywhere"),
        pytest.param([("a", "r1"), ("b", "r2")], 2, "facility", id="two-power-brakes"),
    ],
)
def test_the_scope_is_the_facility_from_three_nodes_two_in_a_rack_or_two_power_brakes(
    hot: list[tuple[str, str]], brakes: int, scope: str
) -> None:
    assert scope_of(hot, brakes) == scope


# --- the probe --------------------------------------------------------------------------------------------------------

RACKED = {"topology.kubernetes.io/zone": "a", "topology.kubernetes.io/rack": "r1"}
OURS = (pod("llm-a", "n1"), pod("llm-b", "n1"), pod("llm-c", "n2"))


async def ask(
    cluster: Cluster,
    *nodes: Obj,
    store: FakeSampleStore | None = None,
    at: float = NOW,
    ours: Sequence[Obj] = OURS,
    **more: Any,
) -> Reading:
    seen = snapshot(nodes or [node(name, labels=RACKED) for name in cluster.pages], ours)
    asked = asked_of("thermal_scope", seen, at=at, **more)
    return await probes.ask(asked, finder=cluster, pages=cluster, samples=store or FakeSampleStore())


async def test_the_hottest_gpu_names_the_node_and_the_replica_to_move_first() -> None:
    hot = gpu(0, "llm-a", GPU_TEMP=86.0) + gpu(1, "llm-b", GPU_TEMP=91.0)
    reading = await ask(Cluster({"n1": hot, "n2": gpu(0, "llm-c")}))
    parts = {part: reading.fields[part] for part in ("scope", "node", "zone", "replica", "nodes", "ours", "margin")}
    assert parts == {
        "scope": "one", "node": "n1", "zone": "a", "replica": "llm-b", "nodes": 1, "ours": 2, "margin": -6,
    }  # fmt: skip
    assert reading.fields["where"] == "1 in a r1"


@pytest.mark.parametrize(
    ("page", "words"),
    [
        pytest.param(gpu(0, "llm-a", GPU_TEMP=91.0), "n1 91 °C (limit 85 °C)", id="hot"),
        pytest.param(gpu(0, GPU_TEMP=70.0, MEMORY_TEMP=97.0), "n1 memory 97 °C (limit 95 °C)", id="hot-memory"),
        pytest.param(gpu(0), "no hot node; the warmest is n1 60 °C (limit 85 °C)", id="cool"),
    ],
)
async def test_a_temperature_is_shown_beside_its_limit(page: str, words: str) -> None:
    assert (await ask(Cluster({"n1": page, "n2": gpu()}))).fields["detail"] == words


async def test_nodes_without_our_replicas_count_for_the_facility() -> None:
    hot = gpu(0, GPU_TEMP=90.0)
    reading = await ask(Cluster({"n1": gpu(0, "llm-a", GPU_TEMP=90.0), "n2": hot, "n8": hot, "n9": gpu()}))
    assert (reading.fields["scope"], reading.fields["nodes"]) == ("facility", 3)


async def test_a_rack_is_known_by_the_clusters_own_label() -> None:
    hot = {"n1": gpu(0, GPU_TEMP=90.0), "n2": gpu(0, GPU_TEMP=90.0)}
    nodes = [node(name, labels={"example.com/rack": "r7"}) for name in hot]
    assert (await ask(Cluster(hot), *nodes)).fields["scope"] == "one"
    assert (await ask(Cluster(hot), *nodes, rack="example.com/rack")).fields["scope"] == "facility"


async def test_no_heat_is_reported_only_when_every_node_could_be_read() -> None:
    cluster = Cluster({"n1": gpu(0, "llm-a"), "n2": gpu(0, "llm-c")})
    reading = await ask(cluster)
    assert (reading.fields["scope"], reading.fields["slowed"]) == ("none", False)
    cluster.silent.add("n2")
    reading = await ask(cluster)
    assert reading.unknown_parts["scope"] == "n2: its exporter: connection refused"
    assert "slowed" in reading.unknown_parts


async def test_an_unreadable_node_that_would_make_it_the_facility_leaves_the_scope_unknown() -> None:
    cluster = Cluster({"n1": gpu(0, GPU_TEMP=90.0), "n2": gpu(), "n3": gpu()})
    cluster.silent.add("n2")
    assert "scope" in (await ask(cluster)).unknown_parts
    apart = [node(f"n{number}", labels={"topology.kubernetes.io/zone": "a"}) for number in (1, 2, 3)]
    assert (await ask(cluster, *apart)).fields["scope"] == "one"


async def test_a_node_of_ours_without_an_exporter_may_be_hot() -> None:
    reading = await ask(Cluster({"n2": gpu(0, "llm-c")}), node("n1"), node("n2"))
    assert reading.unknown_parts["scope"] == "no exporter of NVIDIA or AMD on n1"
    assert "slowed" in reading.unknown_parts
    assert reading.fields["node"] == "n2"


async def test_a_leader_without_a_gpu_needs_no_exporter_on_its_node() -> None:
    ours = (pod("llm-leader", "n1"), pod("llm-worker", "n2", gpus=8))
    reading = await ask(Cluster({"n2": gpu(0, "llm-worker")}), node("n1"), node("n2", gpus=8), ours=ours)
    assert reading.fields["scope"] == "none"


async def test_nodes_with_gpus_and_without_an_exporter_may_make_it_the_facility() -> None:
    cluster = Cluster({"n1": gpu(0, "llm-a", GPU_TEMP=92.0), "n2": gpu(0, "llm-c")})
    nodes = [node(f"n{number}", gpus=8) for number in (1, 2, 3, 4)]
    missing = (await ask(cluster, *nodes)).unknown_parts["scope"]
    assert missing == "no exporter of NVIDIA or AMD on n3; no exporter of NVIDIA or AMD on n4"
    without_gpus = [node(f"n{number}") for number in (1, 2, 3, 4)]
    assert (await ask(cluster, *without_gpus)).fields["scope"] == "one"


async def test_a_cluster_without_exporters_has_no_heat_to_report() -> None:
    assert (await ask(Cluster({}), node("n1", gpus=8))).unknown == "no node has a GPU exporter"


async def test_how_fast_it_rises_is_known_once_it_was_watched() -> None:
    store, cluster = FakeSampleStore(), Cluster({"n1": gpu(0, "llm-a", GPU_TEMP=88.0)})
    reading = await ask(cluster, store=store)
    assert reading.unknown_parts["rising"] == "temperatures have been watched for less than 30 s"
    cluster.pages["n1"] = gpu(0, "llm-a", GPU_TEMP=90.0)
    assert (await ask(cluster, store=store, at=NOW + 60)).fields["rising"] == pytest.approx(2.0)


async def test_a_picked_node_is_looked_at_alone() -> None:
    cluster = Cluster({"n1": gpu(0), "n2": gpu(0, GPU_TEMP=90.0)})
    reading = await ask(cluster, of="picked.node", picked="n1")
    assert (reading.fields["node"], reading.fields["scope"]) == ("n1", "none")


async def test_without_temperatures_nothing_is_cool() -> None:
    reading = await ask(Cluster({"n1": 'DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="a"} 0\n'}))
    assert {"scope", "margin", "hottest", "slowed"} <= reading.unknown_parts.keys()
