"""GPU health: faults, heat, and unknowns."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from aiohttp import web

from bot.adapters.pod_pages import AddressPages
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.errors import ClusterError, SourceError
from bot.domain.signals.gpu_query import FIELDS, GpuQuery
from bot.domain.signals.signal import Reading
from bot.domain.signals.specs import STARTS_AT
from bot.probes.gpu import amd, smi
from bot.probes.gpu.exporters import gpus_on
from bot.probes.gpu.held import gpus_of
from bot.probes.gpu.node_events import about_nodes, judge_events
from bot.probes.gpu.nodes import judge_node
from bot.probes.gpu.nvidia import judge_gpu
from bot.probes.gpu.xids import xid_of
from tests.fakes.samples import FakeSampleStore
from tests.kit import probes
from tests.kit.probes import request
from tests.probes.gpu_nodes import Recorded, counted, gpu

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
        pytest.param({"ecc_dbe": 3}, [{"ecc_dbe": 3}], False, None, id="memory-errors-of-unknown-age"),
        pytest.param({"xid": 45, "ecc_dbe": 3}, [], False, None, id="memory-errors-first-seen"),
        pytest.param({"xid": 45, "counted:48": 1}, [], False, True, id="counted-in-the-exporters-last-minutes"),
        pytest.param({"xid": 45, "counted:31": 1}, [], False, False, id="a-programs-fault-counted"),
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
def test_heat_is_distinguished_from_normal_clock_events(now: dict[str, float], thermal: bool | None) -> None:
    assert judge_gpu("n1/0", WELL | now, [], fastest=1980, reaches_back=False).thermal is thermal


def registers(page: str, *, is_amd: bool = False) -> dict[str, Mapping[str, float]]:
    """Of the GPUs of llm-0."""
    return {gpu.index: gpu.values for gpu in gpus_of(gpus_on(page, is_amd=is_amd), cluster().pods)}


def test_only_the_gpus_that_our_replicas_hold_are_looked_at() -> None:
    ours, other = ',namespace="serving",pod="llm-0"', ',namespace="x",pod="other"'
    page = "\n".join(
        [
            f'DCGM_FI_DEV_XID_ERRORS{{gpu="0",UUID="a"{ours}}} 0',
            f'DCGM_FI_DEV_XID_ERRORS{{gpu="1",UUID="b"{other}}} 79',
            f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="a"{ours}}} 60',
            f'DCGM_FI_DEV_MEMORY_TEMP{{gpu="0",UUID="a"{ours}}} 9223372036854775794',
        ]
    )
    assert registers(page) == {"0": {"xid": 0.0, "temperature": 60.0}}
    assert set(registers(page.replace(ours, "").replace(other, ""))) == {"0", "1"}


def test_only_gpus_count_as_gpus() -> None:
    """The exporter describes switches, links and the CPUs of Grace on the same page, by other labels."""
    page = gpu(0) + "\n".join(
        [
            'DCGM_FI_DEV_NVSWITCH_TEMP_CELSIUS{nvswitch="nvswitch0",Hostname="n1"} 40',
            'DCGM_FI_DEV_NVSWITCH_LINK_THROUGHPUT_TX{nvlink="0",nvswitch="nvswitch0",hostname="n1"} 7',
            'DCGM_FI_DEV_CPU_UTIL_TOTAL{cpu="0",Hostname="n1"} 0.75',
            'DCGM_FI_DEV_CPU_CLOCK_CURRENT{cpucore="3",cpu="0",Hostname="n1"} 3200000',
        ]
    )
    assert set(registers(page)) == {"0"}


@pytest.mark.parametrize("xids", [(0, 94), (94, 0)])
def test_an_xid_of_one_slice_is_not_hidden_by_another_slice(xids: tuple[int, int]) -> None:
    page = "\n".join(
        f'DCGM_FI_DEV_XID_ERRORS{{gpu="0",UUID="a",GPU_I_PROFILE="1g.10gb",GPU_I_ID="{number}"}} {xid}'
        for number, xid in enumerate(xids)
    )
    assert registers(page) == {"0": {"xid": 94.0}}


@pytest.mark.parametrize("healths", [(0, 1), (1, 0)])
def test_a_healthy_partition_does_not_hide_one_that_is_not(healths: tuple[int, int]) -> None:
    held = 'namespace="serving",pod="llm-0"'
    page = "\n".join(
        f'gpu_health{{gpu_id="0",gpu_partition_id="{number}",{held}}} {health}' for number, health in enumerate(healths)
    )
    assert registers(page, is_amd=True) == {"0": {"gpu_health": 0.0}}


def test_the_exporters_count_of_readings_without_an_xid_counts_nothing() -> None:
    assert registers(gpu(0) + counted(0)) == registers(gpu(0))


def test_a_page_that_is_no_metrics_page_has_no_gpus() -> None:
    assert registers("<html>") == {}
    assert registers("DCGM_FI_DEV_XID_ERRORS{") == {}


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
    def __init__(self, *pods: Obj, events: Sequence[Obj] | None = ()) -> None:
        self.pods, self.events = pods, events

    async def node_events(self) -> Sequence[Obj]:
        if self.events is None:
            raise ClusterError("403 events is forbidden")
        return self.events

    async def pods_labelled(self, labels: Mapping[str, str]) -> Sequence[Obj]:
        if not self.pods:
            raise ClusterError("pods is forbidden in all namespaces")
        return [pod for pod in self.pods if labels.items() <= pod["metadata"]["labels"].items()]


def exporter_pod(port: int, node: str = "n1") -> Obj:
    container = {"name": "exporter", "ports": [{"name": "metrics", "containerPort": port}]}
    return {
        "metadata": {"name": "dcgm", "labels": {"app.kubernetes.io/name": "dcgm-exporter"}},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"podIP": "127.0.0.1"},
    }


def cluster(ready: str = "True") -> ClusterSnapshot:
    owner = {"kind": "Deployment", "uid": "d", "controller": True}
    replica_set = {"metadata": {"name": "rs", "uid": "rs", "ownerReferences": [owner]}}
    pod = {
        "metadata": {
            "name": "llm-0",
            "namespace": "serving",
            "uid": "u0",
            "ownerReferences": [{"kind": "ReplicaSet", "uid": "rs", "controller": True}],
        },
        "spec": {"nodeName": "n1", "containers": []},
        "status": {"phase": "Running"},
    }
    node = {"metadata": {"name": "n1"}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}
    workload = {"metadata": {"name": "llm", "uid": "d"}, "spec": {}}
    return ClusterSnapshot(at=0.0, workload=workload, replica_sets=(replica_set,), pods=(pod,), nodes=(node,))


async def ask(
    finder: Finder,
    store: FakeSampleStore,
    *,
    now: float = 1000.0,
    opened_at: float = 900.0,
    snapshot: ClusterSnapshot | None = None,
    shell: Shell | None = None,
    dcgm_labels: Mapping[str, str] | None = None,
    amd_labels: Mapping[str, str] | None = None,
    exporter_namespaces: Sequence[str] = (),
    registers: Recorded | None = None,
) -> Reading:
    asked = request("gpu_health", snapshot or cluster(), at=now, opened_at=opened_at, moments={STARTS_AT: 900.0})
    async with AddressPages() as pages:
        return await probes.ask(
            asked,
            finder=finder,
            pages=pages,
            samples=store,
            gpu_shell=shell,
            dcgm_labels=dcgm_labels,
            amd_labels=amd_labels,
            exporter_namespaces=exporter_namespaces,
            registers=registers,
        )


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
    assert reading.fields["detail"] == "GPU 0 of n1: XID 79 since the incident began (the GPU has fallen off the bus)"
    assert reading.by_replica == {"llm-0": 0.0}


async def test_an_xid_since_the_alert_is_a_fault_however_late_the_bot_received_it(exporter: Exporter) -> None:
    store, finder = FakeSampleStore(), Finder(exporter_pod(exporter.port))
    await ask(finder, store, now=1000.0)
    exporter.values["DCGM_FI_DEV_XID_ERRORS"] = 79
    reading = await ask(finder, store, now=9050.0, opened_at=9000.0)
    assert reading.fields["fault"] is True


async def test_an_xid_of_unknown_age_is_neither_healthy_nor_a_fault(exporter: Exporter) -> None:
    exporter.values["DCGM_FI_DEV_XID_ERRORS"] = 79
    reading = await ask(Finder(exporter_pod(exporter.port)), FakeSampleStore())
    assert reading.fields["thermal"] is False
    assert set(reading.unknown_parts) == {"healthy", "fault"}
    assert "its age is not known" in reading.unknown_parts["fault"]


BEGAN = 900.0


@pytest.mark.parametrize(
    ("points", "xid", "fault"),
    [
        pytest.param([(BEGAN - 900, 0.0), (BEGAN - 30, 79.0)], 79, True, id="changed"),
        pytest.param([(BEGAN - 900, 0.0), (BEGAN - 60, 79.0), (BEGAN - 30, 31.0)], 31, True, id="overwritten"),
        pytest.param([(BEGAN - 1790, 79.0), (BEGAN, 79.0)], 79, False, id="old"),
        pytest.param([(BEGAN - 600, 79.0)], 79, None, id="does-not-reach-back"),
        pytest.param([], 79, None, id="nothing-recorded"),
    ],
)
async def test_prometheus_dates_an_xid_that_the_bot_did_not_see_happen(
    exporter: Exporter, points: Sequence[tuple[float, float]], xid: int, fault: bool | None
) -> None:
    exporter.values["DCGM_FI_DEV_XID_ERRORS"] = xid
    reading = await ask(Finder(exporter_pod(exporter.port)), FakeSampleStore(), registers=Recorded(*points))
    assert reading.fields.get("fault") is fault


async def test_a_prometheus_that_does_not_answer_leaves_the_age_unknown(exporter: Exporter) -> None:
    exporter.values["DCGM_FI_DEV_XID_ERRORS"] = 79
    reading = await ask(Finder(exporter_pod(exporter.port)), FakeSampleStore(), registers=Recorded(fails="refused"))
    assert "its age is not known" in reading.unknown_parts["fault"]


async def test_a_node_that_is_not_ready_is_a_fault_whatever_its_gpus_say(exporter: Exporter) -> None:
    reading = await ask(Finder(exporter_pod(exporter.port)), FakeSampleStore(), snapshot=cluster("Unknown"))
    assert reading.fields["fault"] is True
    assert "n1: not Ready" in str(reading.fields["detail"])


async def test_without_an_exporter_nothing_is_healthy(exporter: Exporter) -> None:
    reading = await ask(Finder(exporter_pod(exporter.port, node="another")), FakeSampleStore())
    assert reading.unknown == "no exporter of NVIDIA or AMD on n1"
    exporter.refuses = True
    assert "503" in (await ask(Finder(exporter_pod(exporter.port)), FakeSampleStore())).unknown


@pytest.mark.parametrize(
    ("labels", "chosen"),
    [
        pytest.param({"app.kubernetes.io/name": "dcgm-exporter"}, {}, id="chart"),
        pytest.param({"app": "nvidia-dcgm-exporter"}, {}, id="gpu-operator"),
        pytest.param({"app": "our-dcgm-exporter"}, {"app": "our-dcgm-exporter"}, id="setting"),
    ],
)
async def test_nvidias_exporter_is_found_by_its_labels(
    exporter: Exporter, labels: dict[str, str], chosen: dict[str, str]
) -> None:
    pod = exporter_pod(exporter.port)
    pod["metadata"]["labels"] = labels
    reading = await ask(Finder(pod), FakeSampleStore(), dcgm_labels=chosen)
    assert reading.fields["healthy"] is True


async def test_a_pod_with_the_exporters_labels_in_another_namespace_does_not_speak_for_its_node(
    exporter: Exporter,
) -> None:
    exporter.values["DCGM_FI_DEV_ROW_REMAP_FAILURE"] = 1
    own, tenants = exporter_pod(exporter.port), exporter_pod(port=1)
    own["metadata"]["namespace"], tenants["metadata"]["namespace"] = "gpu-operator", "tenant"
    reading = await ask(Finder(own, tenants), FakeSampleStore(), exporter_namespaces=["gpu-operator"])
    assert reading.fields["fault"] is True
    alone = await ask(Finder(tenants), FakeSampleStore(), exporter_namespaces=["gpu-operator"])
    assert alone.unknown == "no exporter of NVIDIA or AMD on n1"


async def test_exporters_that_may_not_be_listed_are_an_error_for_the_reader_to_report() -> None:
    with pytest.raises(ClusterError, match="forbidden"):
        await ask(Finder(), FakeSampleStore())


# --- XIDs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        ("application", {13, 31, 43, 45}),
        ("contained", {94, 63}),
        ("fatal", {48, 64, 74, 79, 95, 119, 120, 140, 999}),
    ],
)
def test_each_xid_has_its_class_and_an_unlisted_one_is_judged_as_fatal(kind: str, numbers: set[int]) -> None:
    assert {xid_of(number).kind for number in numbers} == {kind}
    for number in numbers:
        verdict = judge_gpu("n1/0", WELL | {"xid": number}, [{"xid": 0}], fastest=1980, reaches_back=True)
        assert verdict.fault is (kind == "fatal")


def test_a_fatal_xid_that_a_later_one_overwrote_still_happened() -> None:
    before = [{"xid": 0.0}, {"xid": 79.0}]
    assert judge_gpu("n1/0", WELL | {"xid": 31.0}, before, fastest=1980, reaches_back=True).fault is True


# --- AMD --------------------------------------------------------------------------------------------------------------


AMD_WELL = {"gpu_health": 1.0, "gpu_junction_temperature": 70.0, "gpu_ecc_uncorrect_total": 0.0}
ECC = "gpu_ecc_uncorrect_total"
HEAT = "gpu_violation_hbm_thermal_residency"


@pytest.mark.parametrize(
    ("now", "before", "reaches_back", "fault", "thermal"),
    [
        pytest.param({}, [], False, False, False, id="well"),
        pytest.param({"gpu_health": 0}, [], False, True, False, id="unhealthy"),
        pytest.param({ECC: 2}, [{ECC: 0}], False, True, False, id="errors-rose"),
        pytest.param({ECC: 2}, [{ECC: 2}], True, False, False, id="old-errors"),
        pytest.param({ECC: 2}, [], False, None, False, id="age-not-known"),
        pytest.param({f"{amd.AFID}:0": 55}, [{"gpu_health": 1}], False, None, False, id="new-identifier"),
        pytest.param({f"{amd.AFID}:0": 55}, [{f"{amd.AFID}:0": 55}], True, False, False, id="old-identifier"),
        pytest.param({f"{HEAT}_percentage": 3}, [], False, False, True, id="throttled-by-heat"),
        pytest.param({f"{HEAT}_accumulated": 9}, [{f"{HEAT}_accumulated": 4}], False, False, True, id="residency-rose"),
        pytest.param({f"{HEAT}_accumulated": 9}, [{f"{HEAT}_accumulated": 9}], True, False, False, id="old-residency"),
        pytest.param({"gpu_violation_ppt_residency_percentage": 60}, [], False, False, False, id="power-limit"),
        pytest.param({"gpu_junction_temperature": 104}, [], False, False, True, id="hot"),
    ],
)
def test_an_amd_gpu_is_judged_by_what_changed(
    now: dict[str, float],
    before: list[dict[str, float]],
    reaches_back: bool,
    fault: bool | None,
    thermal: bool,
) -> None:
    verdict = amd.judge_gpu("n1/0", AMD_WELL | now, before, reaches_back=reaches_back)
    assert (verdict.fault, verdict.thermal) == (fault, thermal)


def test_an_amd_page_that_exports_nothing_is_not_healthy() -> None:
    verdict = amd.judge_gpu("n1/0", {}, [], reaches_back=True)
    assert (verdict.fault, verdict.thermal) == (None, None)
    assert verdict.notes[0] == "n1/0: health is not exported"


@pytest.mark.parametrize("prefix", ["", "amd_"])
def test_amd_readings_are_those_of_the_gpus_that_our_pods_hold(prefix: str) -> None:
    ours = 'gpu_id="0",namespace="serving",pod="llm-0"'
    lines = [
        f'{prefix}gpu_health{{{ours},serial_number="x"}} 1',
        f'{prefix}gpu_health{{gpu_id="1",namespace="serving",pod="another"}} 0',
        f'{prefix}gpu_afid_errors{{{ours},afid_index="0"}} 55',
        f'{prefix}gpu_afid_errors{{{ours},afid_index="1"}} 65',
        f'{prefix}gpu_clock{{gpu_id="0",clock_type="system"}} 132',
    ]
    found = registers("\n".join(lines) + "\n", is_amd=True)
    assert found == {"0": {"gpu_health": 1.0, "gpu_afid_errors:0": 55.0, "gpu_afid_errors:1": 65.0}}


@pytest.mark.parametrize(
    ("labels", "chosen"),
    [
        pytest.param({"app.kubernetes.io/name": "metrics-exporter"}, {}, id="gpu-operator"),
        pytest.param({"app": "exporter-amdgpu-metrics-exporter"}, {}, id="chart"),
        pytest.param({"app": "ours-amdgpu-metrics-exporter"}, {"app": "ours-amdgpu-metrics-exporter"}, id="setting"),
    ],
)
async def test_amds_exporter_is_found_beside_nvidias(
    exporter: Exporter, labels: dict[str, str], chosen: dict[str, str]
) -> None:
    exporter.values = {"gpu_health": 0, "gpu_junction_temperature": 60}
    pod = exporter_pod(exporter.port)
    pod["metadata"]["labels"] = labels
    reading = await ask(Finder(pod), FakeSampleStore(), amd_labels=chosen)
    assert (reading.fields["fault"], reading.fields["thermal"]) == (True, False)
    assert "its exporter calls it unhealthy" in str(reading.fields["detail"])


# --- nodes ------------------------------------------------------------------------------------------------------------


def node(*conditions: tuple[str, str, str], taints: Sequence[Obj] = (), cordoned: bool = False) -> Obj:
    ready = {"type": "Ready", "status": "True"}
    others = [{"type": t, "status": s, "lastTransitionTime": at, "reason": "It"} for t, s, at in conditions]
    return {"spec": {"taints": list(taints), "unschedulable": cordoned}, "status": {"conditions": [ready, *others]}}


NOW, LONG_AGO = "2026-11-20T12:00:00Z", "2026-10-01T00:00:00Z"
SINCE = 1795170000.0  # 2026-11-20 10:20 UTC


@pytest.mark.parametrize(
    ("seen", "fault"),
    [
        pytest.param(node(), False, id="well"),
        pytest.param(node(("GpuUnhealthy", "True", NOW)), True, id="condition-now"),
        pytest.param(node(("GpuUnhealthy", "True", LONG_AGO)), False, id="condition-long-ago"),
        pytest.param(node(("KernelDeadlock", "False", NOW)), False, id="no-deadlock"),
        pytest.param(node(("GpuHealthy", "True", NOW)), False, id="healthy-is-no-trouble"),
        pytest.param(node(taints=[{"key": "example.com/gpu-fault", "timeAdded": NOW}]), True, id="taint-now"),
        pytest.param(node(taints=[{"key": "example.com/gpu-fault"}]), None, id="taint-of-unknown-age"),
        pytest.param(node(taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]), False, id="plain-gpu-taint"),
        pytest.param(node(taints=[{"key": "pool.example.com/default"}]), False, id="taint-of-a-default-pool"),
        pytest.param(node(taints=[{"key": "example.com/no-change"}]), False, id="taint-against-changes"),
        pytest.param(node(cordoned=True), False, id="a-cordon-is-a-choice"),
    ],
)
def test_a_node_is_judged_by_marks_of_trouble_that_are_new(seen: Obj, fault: bool | None) -> None:
    assert judge_node("n1", seen, SINCE).fault is fault


def test_a_cordon_is_reported() -> None:
    assert judge_node("n1", node(cordoned=True), SINCE).notes == ("n1: cordoned",)


# --- events on nodes --------------------------------------------------------------------------------------------------


def event(reason: str, message: str = "", *, at: str = NOW, kind: str = "Warning", name: str = "n1") -> Obj:
    involved = {"kind": "Node", "name": name}
    return {"involvedObject": involved, "type": kind, "reason": reason, "message": message, "lastTimestamp": at}


DRIVER_LINE = "NVRM: Xid (PCI:0000:18:00): {xid}, pid=1234, name=python3"


@pytest.mark.parametrize(
    ("seen", "fault", "thermal"),
    [
        pytest.param(event("KernelLog", DRIVER_LINE.format(xid=79)), True, False, id="drivers-line"),
        pytest.param(event("KernelLog", DRIVER_LINE.format(xid=31)), False, False, id="a-programs-fault"),
        pytest.param(event("NvidiaXID74Error"), True, False, id="number-in-the-reason"),
        pytest.param(event("NodeProblem", "GPU 3 is unhealthy"), True, False, id="problem-detector"),
        pytest.param(event("GpuThermalViolation", "GPU 3 is throttled"), False, True, id="heat"),
        pytest.param(event("ImageGCFailed", "failed to free 12 GiB"), False, False, id="nothing-about-gpus"),
        pytest.param(event("GpuHealthy", "all GPUs work", kind="Normal"), False, False, id="recovery"),
        pytest.param(event("KernelLog", DRIVER_LINE.format(xid=79), at=LONG_AGO), False, False, id="long-ago"),
        pytest.param(event("NodeProblem", "GPU lost") | {"lastTimestamp": None}, False, False, id="without-a-date"),
    ],
)
def test_recent_events_on_a_node_distinguish_faults_heat_and_the_rest(seen: Obj, fault: bool, thermal: bool) -> None:
    verdict = judge_events("n1", [seen], SINCE)
    assert (verdict.fault, verdict.thermal) == (fault, thermal)


def test_an_event_that_is_recorded_again_counts_from_its_last_time() -> None:
    again = event("NodeProblem", "GPU lost", at=LONG_AGO) | {"series": {"count": 9, "lastObservedTime": NOW}}
    assert judge_events("n1", [again], SINCE).fault is True


def test_events_are_sorted_by_node_and_those_of_pods_are_left_out() -> None:
    of_pod = {"involvedObject": {"kind": "Pod", "name": "n1"}, "reason": "NodeProblem"}
    assert set(about_nodes([event("A"), event("B", name="n2"), of_pod])) == {"n1", "n2"}


async def test_a_fatal_xid_in_an_event_is_a_fault_although_the_exporter_saw_nothing(exporter: Exporter) -> None:
    lately = event("KernelLog", DRIVER_LINE.format(xid=79), at="1970-01-01T00:15:00Z")
    reading = await ask(Finder(exporter_pod(exporter.port), events=[lately]), FakeSampleStore())
    assert (reading.fields["fault"], reading.by_replica) == (True, {"llm-0": 0.0})
    assert reading.fields["detail"] == "n1: event KernelLog, XID 79 (the GPU has fallen off the bus)"


async def test_events_that_may_not_be_read_are_reported_and_take_nothing_from_the_exporters_word(
    exporter: Exporter,
) -> None:
    reading = await ask(Finder(exporter_pod(exporter.port), events=None), FakeSampleStore())
    assert reading.fields["healthy"] is True
    assert reading.detail == "events of nodes cannot be read: 403 events is forbidden"


# --- inside a replica -------------------------------------------------------------------------------------------------


H100 = "0, 38, 47, 1980, 100, 0, 0x0000000000000004, None"
"""As `nvidia-smi --format=csv,noheader,nounits` prints it: no units, `[N/A]` for what a GPU does not have."""


@pytest.mark.parametrize(
    ("line", "fault", "thermal"),
    [
        pytest.param(H100, False, False, id="well-at-its-power-cap"),
        pytest.param("0, 38, [N/A], 1980, 100, [N/A], 0x0000000000000001, None", False, False, id="without-ecc"),
        pytest.param(H100.replace("None", "Drain and Reset"), True, False, id="wants-a-reset"),
        pytest.param(H100.replace("None", "[N/A]"), None, False, id="no-recovery-action"),
        pytest.param(H100.replace("0x0000000000000004", "0x0000000000000060"), False, True, id="thermal-slowdown"),
        pytest.param(f"0{', [GPU is lost]' * 7}", True, None, id="lost"),
        pytest.param(f"0{', [GPU requires reset]' * 7}", True, None, id="requires-a-reset"),
    ],
)
def test_a_line_of_nvidia_smi_distinguishes_faults_heat_and_the_unknown(
    line: str, fault: bool | None, thermal: bool | None
) -> None:
    gpus = smi.nvidia_gpus(f"{line}\n", FIELDS)
    verdict = smi.judge_nvidia("llm-0/0", gpus["0"], (), fastest=1980)
    assert (verdict.fault, verdict.thermal) == (fault, thermal)


def test_memory_errors_that_rose_since_the_incident_began_are_a_fault() -> None:
    now = smi.nvidia_gpus(H100.replace("100, 0,", "100, 3,"), FIELDS)["0"]
    assert smi.judge_nvidia("x", now, ({"ecc_dbe": 3.0},), fastest=1980).fault is False
    assert smi.judge_nvidia("x", now, ({"ecc_dbe": 0.0},), fastest=1980).fault is True


ROCM = """WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status

{"card0": {"Temperature (Sensor edge) (C)": "32.0", "Temperature (Sensor junction) (C)": "35.0",
"Temperature (Sensor memory) (C)": "43.0", "Temperature (Sensor HBM 0) (C)": "43.0"},
"card1": {"Temperature (Sensor edge) (C)": "N/A", "Temperature (Sensor junction) (C)": "104.0"},
"system": {"Driver version": "6.7.0"}}"""


def test_rocm_smi_reports_heat_and_leaves_faults_unknown() -> None:
    gpus = smi.amd_gpus(ROCM)
    assert gpus["card0"]["gpu_junction_temperature"] == 35.0
    assert set(gpus) == {"card0", "card1"}
    assert gpus["card1"] == {"gpu_junction_temperature": 104.0}
    verdicts = [amd.judge_gpu(gpu, values, (), reaches_back=False) for gpu, values in gpus.items()]
    assert [(one.fault, one.thermal) for one in verdicts] == [(None, False), (None, True)]
    assert smi.amd_gpus("ERROR: no devices") == {}


class Shell:
    """A replica's own word, by query; None is a program that the image does not have."""

    def __init__(self, answers: Mapping[GpuQuery, str]) -> None:
        self.answers, self.asked = answers, list[GpuQuery]()

    async def ask(self, namespace: str, pod: str, container: str, query: GpuQuery) -> str:
        self.asked.append(query)
        if query not in self.answers:
            raise SourceError(f"{query.command[0]}: executable file not found in $PATH")
        return self.answers[query]


def with_engine(**limits: str) -> ClusterSnapshot:
    seen = cluster()
    engine = {"name": "vllm", "command": ["vllm", "serve"], "resources": {"limits": limits}}
    pod = seen.pods[0] | {"spec": {"nodeName": "n1", "containers": [engine]}}
    return dataclasses.replace(seen, pods=(pod,))


async def ask_inside(shell: Shell, finder: Finder, **limits: str) -> Reading:
    return await ask(finder, FakeSampleStore(), snapshot=with_engine(**limits), shell=shell)


NO_EXPORTER = [{"metadata": {"name": "another", "labels": {}}}]


async def test_a_node_without_an_exporter_is_asked_inside_its_replicas() -> None:
    reading = await ask_inside(Shell({GpuQuery.NVIDIA: H100}), Finder(*NO_EXPORTER))
    assert (reading.fields["healthy"], reading.by_replica) == (True, {"llm-0": 1.0})


async def test_no_program_is_run_in_the_replicas_of_a_target_that_is_only_observed() -> None:
    shell = Shell({GpuQuery.NVIDIA: H100})
    asked = request("gpu_health", with_engine(), at=1000.0, moments={STARTS_AT: 900.0})
    given: dict[str, Any] = {"finder": Finder(*NO_EXPORTER), "samples": FakeSampleStore(), "gpu_shell": shell}
    async with AddressPages() as pages:
        reading = await probes.ask(asked, pages=pages, only_reads=lambda target: True, **given)
    assert (shell.asked, reading.is_known) == ([], False)


async def test_an_exporter_that_answers_is_enough(exporter: Exporter) -> None:
    shell = Shell({GpuQuery.NVIDIA: H100})
    await ask_inside(shell, Finder(exporter_pod(exporter.port)))
    assert shell.asked == []


async def test_a_driver_that_does_not_know_a_field_is_asked_for_fewer() -> None:
    refusal = 'Field "gpu_recovery_action" is not a valid field to query.\n'
    old = H100.removesuffix(", None")
    shell = Shell({GpuQuery.NVIDIA: refusal, GpuQuery.NVIDIA_OLD: old})
    reading = await ask_inside(shell, Finder(*NO_EXPORTER))
    assert shell.asked == [GpuQuery.NVIDIA, GpuQuery.NVIDIA_OLD]
    assert (reading.fields["thermal"], set(reading.unknown_parts)) == (False, {"healthy", "fault"})


async def test_a_gpu_that_nvidia_smi_cannot_open_is_a_fault() -> None:
    output = "Unable to determine the device handle for GPU0000:CB:00.0: Unknown Error\n"
    reading = await ask_inside(Shell({GpuQuery.NVIDIA: output}), Finder(*NO_EXPORTER))
    assert reading.fields["fault"] is True


async def test_an_amd_replica_is_asked_with_amds_program_and_an_image_without_it_is_unknown() -> None:
    shell = Shell({})
    reading = await ask_inside(shell, Finder(*NO_EXPORTER), **{"amd.com/gpu": "1"})
    assert shell.asked == [GpuQuery.AMD]
    assert reading.unknown == "llm-0: rocm-smi: executable file not found in $PATH"
