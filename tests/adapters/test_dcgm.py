"""GPU health: what is a fault, what is heat, and what nobody can know."""

from collections.abc import AsyncIterator, Mapping, Sequence

import pytest
from aiohttp import web

from bot.adapters.dcgm import GpuHealth, judge_gpu, readings_of
from bot.adapters.pod_pages import AddressPages
from bot.domain.change.world import Obj, World
from bot.domain.errors import ClusterError
from bot.domain.playbook.language import ProbeSignal
from bot.domain.signal import Reading
from bot.domain.target import Target
from bot.flow.ports import Question, ReadContext
from tests.fakes.samples import FakeSampleStore

pytestmark = pytest.mark.fast

WELL = {"xid": 0.0, "row_remap_failure": 0.0, "temperature": 60.0, "sm_clock": 1980.0, "busy": 100.0}


@pytest.mark.parametrize(
    ("now", "before", "reaches_back", "fault"),
    [
        pytest.param({}, [], False, False, id="well"),
        pytest.param({"xid": 79}, [{"xid": 0}], False, True, id="changed-in-the-incidents-time"),
        pytest.param({"xid": 79}, [{"xid": 79}], True, False, id="seen-not-recent"),
        pytest.param({"xid": 79}, [{"xid": 79}], False, None, id="age-not-known"),
        pytest.param({"xid": 79}, [], False, None, id="first-seen"),
        pytest.param({"xid": 31}, [{"xid": 0}], True, False, id="a-programs-fault"),
        pytest.param({"row_remap_failure": 1}, [], False, True, id="remap-failure"),
        pytest.param({"ecc_dbe": 3}, [{"ecc_dbe": 2}], True, True, id="memory-errors-rose"),
        pytest.param({"ecc_dbe": 3}, [{"ecc_dbe": 3}], True, False, id="old-memory-errors"),
    ],
)
def test_a_fault_is_a_change_in_the_incidents_time(
    now: dict[str, float], before: list[dict[str, float]], reaches_back: bool, fault: bool | None
) -> None:
    verdict = judge_gpu("n1/0", WELL | now, before, fastest=1980, reaches_back=reaches_back)
    assert verdict.fault is fault


@pytest.mark.parametrize("absent", ["xid", "row_remap_failure"])
def test_a_register_that_is_not_exported_is_unknown_and_not_clear(absent: str) -> None:
    values = {name: value for name, value in WELL.items() if name != absent}
    assert judge_gpu("n1/0", values, [], fastest=1980, reaches_back=True).fault is None


@pytest.mark.parametrize(
    ("now", "thermal"),
    [
        pytest.param({"clock_reasons": 0x1}, False, id="idle"),
        pytest.param({"clock_reasons": 0x4}, False, id="power-cap-at-full-load"),
        pytest.param({"clock_reasons": 0x20}, True, id="software-thermal"),
        pytest.param({"clock_reasons": 0x40 | 0x8}, True, id="hardware-thermal"),
        pytest.param({"clock_reasons": 0x80}, True, id="power-brake"),
        pytest.param({"clock_reasons": 0x8}, False, id="slowdown-at-full-clock"),
        pytest.param({"clock_reasons": 0x8, "sm_clock": 705}, True, id="slowdown-at-a-low-clock"),
        pytest.param({"event:hw_thermal": 1}, True, id="counted-event"),
        pytest.param({}, False, id="stock-exporter-cool"),
        pytest.param({"temperature": 91}, True, id="stock-exporter-hot"),
        pytest.param({"memory_temperature": 99}, True, id="stock-exporter-hot-memory"),
        pytest.param({"sm_clock": 705}, None, id="stock-exporter-slow-for-an-unknown-reason"),
        pytest.param({"sm_clock": 345, "busy": 0}, False, id="slow-because-idle"),
    ],
)
def test_heat_is_told_from_normal_clock_events(now: dict[str, float], thermal: bool | None) -> None:
    assert judge_gpu("n1/0", WELL | now, [], fastest=1980, reaches_back=False).thermal is thermal


def test_only_the_gpus_that_our_replicas_hold_are_looked_at() -> None:
    page = "\n".join(
        [
            'DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="a",pod="llm-0",namespace="serving"} 0',
            'DCGM_FI_DEV_XID_ERRORS{gpu="1",UUID="b",pod="other",namespace="x"} 79',
            'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="a",pod="llm-0"} 60',
            'DCGM_FI_DEV_MEMORY_TEMP{gpu="0",UUID="a",pod="llm-0"} 9223372036854775794',
        ]
    )
    assert readings_of(page, ["llm-0"]) == {"0": {"xid": 0.0, "temperature": 60.0}}
    assert set(readings_of(page.replace(',pod="llm-0"', "").replace(',pod="other"', ""), ["llm-0"])) == {"0", "1"}


def test_a_page_that_is_no_metrics_page_has_no_gpus() -> None:
    assert readings_of("<html>", ["llm-0"]) == {}
    assert readings_of("DCGM_FI_DEV_XID_ERRORS{", ["llm-0"]) == {}


# --- the probe --------------------------------------------------------------------------------------------------------


class Exporter:
    """A dcgm-exporter with one GPU, over a real socket."""

    def __init__(self) -> None:
        self.values = {
            "DCGM_FI_DEV_XID_ERRORS": 0,
            "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
            "DCGM_FI_DEV_GPU_TEMP": 60,
            "DCGM_FI_DEV_SM_CLOCK": 1980,
        }
        self.port = 0
        self.refuses = False

    async def page(self, request: web.Request) -> web.Response:
        if self.refuses:
            raise web.HTTPServiceUnavailable
        lines = [f'{name}{{gpu="0",UUID="GPU-0"}} {value}' for name, value in self.values.items()]
        return web.Response(text="\n".join(lines) + "\n")


@pytest.fixture
async def exporter() -> AsyncIterator[Exporter]:
    made = Exporter()
    app = web.Application()
    app.router.add_get("/metrics", made.page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()


class Finder:
    def __init__(self, *pods: Obj) -> None:
        self.pods = pods

    async def pods_labelled(self, labels: Mapping[str, str]) -> Sequence[Obj]:
        if not self.pods:
            raise ClusterError("pods is forbidden in all namespaces")
        assert labels == {"app.kubernetes.io/name": "dcgm-exporter"}
        return self.pods


def exporter_pod(port: int, node: str = "n1") -> Obj:
    container = {"name": "exporter", "ports": [{"name": "metrics", "containerPort": port}]}
    return {
        "metadata": {"name": "dcgm"},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"podIP": "127.0.0.1"},
    }


def cluster(ready: str = "True") -> World:
    owner = {"kind": "Deployment", "uid": "d", "controller": True}
    replica_set = {"metadata": {"name": "rs", "uid": "rs", "ownerReferences": [owner]}}
    pod = {
        "metadata": {
            "name": "llm-0",
            "uid": "u0",
            "ownerReferences": [{"kind": "ReplicaSet", "uid": "rs", "controller": True}],
        },
        "spec": {"nodeName": "n1", "containers": []},
        "status": {"phase": "Running"},
    }
    node = {"metadata": {"name": "n1"}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}
    workload = {"metadata": {"name": "llm", "uid": "d"}, "spec": {}}
    return World(at=0.0, workload=workload, replica_sets=(replica_set,), pods=(pod,), nodes=(node,))


async def ask(finder: Finder, store: FakeSampleStore, *, now: float = 1000.0, world: World | None = None) -> Reading:
    async def read_world() -> World:
        return world or cluster()

    context = ReadContext(
        target=Target(cluster="c", namespace="serving", name="llm"),
        incident_id="INC-1",
        opened_at=900.0,
        picked={},
        settings={},
    )
    question = Question("node", ProbeSignal(probe="gpu_health"), context, now, read_world)
    async with AddressPages() as pages:
        return await GpuHealth(finder=finder, pages=pages, store=store, now=lambda: now)(question)


async def test_a_stock_exporter_without_trouble_is_healthy(exporter: Exporter) -> None:
    reading = await ask(Finder(exporter_pod(exporter.port)), FakeSampleStore())
    assert (reading.fields["healthy"], reading.fields["fault"], reading.fields["thermal"]) == (True, False, False)
    assert reading.by_replica == {"llm-0": 1.0}


async def test_an_xid_that_appears_while_we_look_is_a_fault(exporter: Exporter) -> None:
    store, finder = FakeSampleStore(), Finder(exporter_pod(exporter.port))
    await ask(finder, store, now=1000.0)
    exporter.values["DCGM_FI_DEV_XID_ERRORS"] = 79
    reading = await ask(finder, store, now=1030.0)
    assert (reading.fields["healthy"], reading.fields["fault"]) == (False, True)
    assert reading.fields["detail"] == "n1/0: XID 79 since the incident began"
    assert reading.by_replica == {"llm-0": 0.0}


async def test_an_xid_of_unknown_age_is_neither_healthy_nor_a_fault(exporter: Exporter) -> None:
    exporter.values["DCGM_FI_DEV_XID_ERRORS"] = 79
    reading = await ask(Finder(exporter_pod(exporter.port)), FakeSampleStore())
    assert reading.fields["thermal"] is False
    assert set(reading.unknown_parts) == {"healthy", "fault"}
    assert "its age is not known" in reading.unknown_parts["fault"]


async def test_a_node_that_is_not_ready_is_a_fault_whatever_its_gpus_say(exporter: Exporter) -> None:
    reading = await ask(Finder(exporter_pod(exporter.port)), FakeSampleStore(), world=cluster("Unknown"))
    assert reading.fields["fault"] is True
    assert "n1: not Ready" in str(reading.fields["detail"])


async def test_without_an_exporter_nothing_is_healthy(exporter: Exporter) -> None:
    reading = await ask(Finder(exporter_pod(exporter.port, node="another")), FakeSampleStore())
    assert reading.unknown == "no dcgm-exporter on n1"
    exporter.refuses = True
    assert "503" in (await ask(Finder(exporter_pod(exporter.port)), FakeSampleStore())).unknown


async def test_exporters_that_may_not_be_listed_are_an_error_for_the_reader_to_tell() -> None:
    with pytest.raises(ClusterError, match="forbidden"):
        await ask(Finder(), FakeSampleStore())
