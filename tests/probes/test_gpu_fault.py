"""Which class of fault a GPU shows, on which node, and who else acts there."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from bot.adapters.prometheus.registers import PrometheusRegisters, xid_query
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.errors import SourceError
from bot.domain.signals.signal import Reading
from bot.probes.gpu.gpu_fault import Dated, judge_gpu
from bot.probes.gpu.remediators import remediators_of
from tests.fakes.samples import FakeSampleStore
from tests.kit import probes
from tests.kit.probes import request
from tests.probes.gpu_nodes import NOW, OPENED, Cluster, Recorded, asked_of, counted, gpu, node, pod, snapshot

pytestmark = pytest.mark.fast

WELL = {"xid": 0.0, "row_remap_failure": 0.0}


@pytest.mark.parametrize(
    ("now", "before", "reaches_back", "kind"),
    [
        pytest.param({}, [], False, "none", id="well"),
        pytest.param({"xid": 79}, [{"xid": 0.0}], False, "fatal", id="fell-off-the-bus-just-now"),
        pytest.param({"xid": 94}, [{"xid": 0.0}], False, "contained", id="contained-just-now"),
        pytest.param({"xid": 31}, [{"xid": 0.0}], False, "application", id="a-programs-fault-just-now"),
        pytest.param({"xid": 31}, [{"xid": 0.0}, {"xid": 79.0}], False, "fatal", id="overwritten-by-a-milder-one"),
        pytest.param({"xid": 999}, [{"xid": 0.0}], False, "", id="not-in-the-table-is-asked-about"),
        pytest.param({"xid": 79}, [{"xid": 79.0}], True, "stale", id="seen-not-recent"),
        pytest.param({"xid": 79}, [{"xid": 79.0}], False, "", id="age-not-known"),
        pytest.param({"xid": 79}, [], False, "", id="first-seen"),
        pytest.param({"xid": 31}, [], False, "stale", id="a-programs-fault-of-unknown-age-harms-nobody"),
        pytest.param({"xid": 79, "counted:79": 1}, [], False, "fatal", id="counted-in-the-exporters-last-minutes"),
        pytest.param({"xid": 154}, [{"xid": 0.0}, {"xid": 94.0}], True, "contained", id="154-repeats-what-came-before"),
        pytest.param({"xid": 154}, [{"xid": 0.0}], True, "", id="154-overwrote-what-came-before"),
        pytest.param({"row_remap_failure": 1}, [], False, "fatal", id="remap-failed"),
        pytest.param({"row_remap_pending": 1}, [], False, "contained", id="remap-waits-for-a-reset"),
        pytest.param(
            {"row_remap_pending": 1}, [{"xid": 0.0, "row_remap_pending": 1.0}], True, "none", id="remap-waits-for-long"
        ),
        pytest.param({"ecc_dbe": 3}, [{"xid": 0.0, "ecc_dbe": 2.0}], True, "fatal", id="memory-errors-rose"),
        pytest.param({"ecc_dbe": 3}, [{"xid": 0.0, "ecc_dbe": 3.0}], True, "none", id="old-memory-errors"),
        pytest.param({"ecc_dbe": 3}, [], False, "", id="memory-errors-of-unknown-age"),
        pytest.param({"xid": 45, "ecc_dbe": 3}, [], False, "", id="memory-errors-of-unknown-age-after-the-cleanup"),
    ],
)
def test_the_class_of_a_fault_is_that_of_the_gravest_change_in_the_incidents_time(
    now: dict[str, float], before: list[dict[str, float]], reaches_back: bool, kind: str
) -> None:
    assert judge_gpu(WELL | now, before, reaches_back=reaches_back).kind == kind


def test_an_event_dates_the_xid_that_the_register_keeps() -> None:
    assert judge_gpu(WELL | {"xid": 79}, [], Dated((79,)), reaches_back=False).kind == "fatal"
    assert judge_gpu(WELL | {"xid": 79}, [], Dated((31,)), reaches_back=False).kind == ""


def test_the_xid_that_follows_the_others_says_what_it_is() -> None:
    """As of driver 550: `Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)`."""
    found = judge_gpu(WELL | {"xid": 154}, [{"xid": 0.0}], reaches_back=True)
    assert found.note == "XID 154 since the incident began (the driver asks for a reset, a reboot or a drain)"


def test_registers_that_are_not_exported_are_unknown_and_not_clear() -> None:
    assert judge_gpu({"row_remap_failure": 0.0}, [], reaches_back=True).kind == ""


# --- the probe --------------------------------------------------------------------------------------------------------


async def ask(
    cluster: Cluster, seen: ClusterSnapshot, store: FakeSampleStore | None = None, *, at: float = NOW, **more: Any
) -> Reading:
    asked = asked_of("gpu_fault", seen, at=at, **more)
    return await probes.ask(asked, finder=cluster, pages=cluster, samples=store or FakeSampleStore())


TWO_NODES = (node("n1"), node("n2"))
OURS = (pod("llm-a", "n1"), pod("llm-b", "n2"))


async def test_the_evidence_names_node_gpu_and_replica() -> None:
    cluster = Cluster({"n1": gpu(0, "llm-a"), "n2": gpu(0) + gpu(3, "llm-b", XID_ERRORS=79) + counted(79, 3, "llm-b")})
    reading = await ask(cluster, snapshot(TWO_NODES, OURS))
    parts = {part: reading.fields[part] for part in ("kind", "xid", "node", "gpu", "bus_id", "replica", "here")}
    where = {"node": "n2", "gpu": "GPU-3", "bus_id": "0000:3B:00.0", "replica": "llm-b", "here": 1}
    assert parts == {"kind": "fatal", "xid": 79, **where}
    assert reading.fields["detail"] == "GPU 3 of n2: XID 79 since the incident began (the GPU has fallen off the bus)"


async def test_a_gpu_that_another_workload_holds_is_not_our_fault() -> None:
    cluster = Cluster({"n1": gpu(0, "llm-a") + gpu(1, "somebody", XID_ERRORS=79) + counted(79, 1, "somebody")})
    assert (await ask(cluster, snapshot(TWO_NODES[:1], OURS[:1]))).fields["kind"] == "none"


async def test_an_xid_that_appears_while_we_look_is_recent_and_the_next_incident_calls_it_old() -> None:
    cluster, store, seen = Cluster({"n1": gpu(0, "llm-a")}), FakeSampleStore(), snapshot(TWO_NODES[:1], OURS[:1])
    assert (await ask(cluster, seen, store)).fields["kind"] == "none"
    cluster.pages["n1"] = gpu(0, "llm-a", XID_ERRORS=79)
    assert (await ask(cluster, seen, store, at=NOW + 30)).fields["kind"] == "fatal"


async def test_of_several_new_xids_the_gravest_is_named() -> None:
    """A milder one came after it, and overwrote it in the register."""
    cluster, store, seen = Cluster({"n1": gpu(0, "llm-a")}), FakeSampleStore(), snapshot(TWO_NODES[:1], OURS[:1])
    for seconds, xid in ((0, 0), (30, 79), (60, 31)):
        cluster.pages["n1"] = gpu(0, "llm-a", XID_ERRORS=xid)
        reading = await ask(cluster, seen, store, at=NOW + seconds)
    assert (reading.fields["kind"], reading.fields["xid"], reading.fields["xids"]) == ("fatal", 79, "79, 31")


async def test_the_xid_that_follows_the_others_does_not_hide_their_class() -> None:
    cluster, store, seen = Cluster({"n1": gpu(0, "llm-a")}), FakeSampleStore(), snapshot(TWO_NODES[:1], OURS[:1])
    for seconds, xid in ((0, 0), (30, 94), (60, 154)):
        cluster.pages["n1"] = gpu(0, "llm-a", XID_ERRORS=xid)
        reading = await ask(cluster, seen, store, at=NOW + seconds)
    assert (reading.fields["kind"], reading.fields["xid"], reading.fields["xids"]) == ("contained", 94, "94, 154")


async def test_an_xid_of_unknown_age_has_no_class_and_the_reason_names_it() -> None:
    cluster = Cluster({"n1": gpu(0, "llm-a", XID_ERRORS=79)})
    reading = await ask(cluster, snapshot(TWO_NODES[:1], OURS[:1]))
    assert "kind" not in reading.fields
    assert (
        reading.unknown_parts["kind"]
        == "GPU 0 of n1: XID 79 seen, its age is not known (the GPU has fallen off the bus)"
    )
    assert reading.fields["node"] == "n1"


@pytest.mark.parametrize(
    ("pages", "silent", "reason"),
    [
        pytest.param({}, (), "no exporter of NVIDIA or AMD on n1", id="no-exporter"),
        pytest.param({"n1": ""}, ("n1",), "n1: its exporter: connection refused", id="no-answer"),
        pytest.param({"n1": "<html>"}, (), "n1: no GPU on the exporter's page", id="no-such-page"),
    ],
)
async def test_a_node_that_cannot_be_read_has_no_class(
    pages: Mapping[str, str], silent: Sequence[str], reason: str
) -> None:
    cluster = Cluster(pages)
    cluster.silent.update(silent)
    assert (await ask(cluster, snapshot(TWO_NODES[:1], OURS[:1]))).unknown_parts["kind"] == reason


async def test_a_certain_fatal_fault_counts_although_another_node_cannot_be_read() -> None:
    cluster = Cluster({"n2": gpu(0, "llm-b", XID_ERRORS=79) + counted(79, 0, "llm-b")})
    reading = await ask(cluster, snapshot(TWO_NODES, OURS))
    assert (reading.fields["kind"], reading.fields["node"]) == ("fatal", "n2")
    cluster.pages["n2"] = gpu(0, "llm-b", XID_ERRORS=94) + counted(94, 0, "llm-b")
    assert "kind" not in (await ask(cluster, snapshot(TWO_NODES, OURS))).fields


def xid_event(number: int, seconds: float) -> Obj:
    at = datetime.fromtimestamp(OPENED + seconds, UTC).isoformat()
    message = f"NVRM: Xid (PCI:0000:3b:00): {number}, pid=1"
    return {
        "involvedObject": {"kind": "Node", "name": "n1"},
        "type": "Warning",
        "reason": "XidError",
        "message": message,
        "lastTimestamp": at,
    }


@pytest.mark.parametrize(("seconds", "kind"), [(-60, "fatal"), (-1900, None)])
async def test_an_event_of_the_incidents_time_gives_the_class(seconds: float, kind: str | None) -> None:
    cluster = Cluster({"n1": gpu(0, "llm-a", XID_ERRORS=79)})
    cluster.events.append(xid_event(79, seconds))
    assert (await ask(cluster, snapshot(TWO_NODES[:1], OURS[:1]))).fields.get("kind") == kind


async def test_a_node_that_is_not_ready_is_trouble_without_a_class() -> None:
    gone = node("n1")
    gone["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    reading = await ask(Cluster({"n1": gpu(0, "llm-a")}), snapshot([gone], OURS[:1]))
    assert reading.unknown_parts["kind"] == "n1: not Ready"


async def test_others_pods_are_named_with_their_owners() -> None:
    others = [pod("train-0", "n1", ours=False, namespace="research"), pod("far", "n2", ours=False)]
    reading = await ask(Cluster({"n1": gpu(0, "llm-a")}), snapshot(TWO_NODES[:1], OURS[:1], others))
    assert reading.fields["others_pods"] == 1
    assert reading.fields["owners"] == "1 pod of others: 1 of ReplicaSet research/train-0-rs"


async def test_only_the_replica_that_holds_the_faulty_gpu_is_on_it() -> None:
    """Another of ours on the same node, on a sound GPU, answers right."""
    ours = (pod("llm-a", "n1"), pod("llm-b", "n1"))
    page = gpu(0, "llm-a", XID_ERRORS=79) + counted(79, 0, "llm-a") + gpu(1, "llm-b")
    reading = await ask(Cluster({"n1": page}), snapshot((node("n1"),), ours))
    assert (reading.fields["here"], reading.fields["on_gpu"], reading.fields["replica"]) == (2, 1, "llm-a")


async def test_a_picked_node_is_looked_at_after_our_replicas_have_left_it() -> None:
    cluster = Cluster({"n1": gpu(0, XID_ERRORS=79) + counted(79), "n2": gpu(0, "llm-b")})
    reading = await ask(cluster, snapshot(TWO_NODES, OURS[1:]), of="picked.node", picked="n1")
    assert (reading.fields["node"], reading.fields["here"], reading.fields["kind"]) == ("n1", 0, "fatal")


# --- who else acts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "who"),
    [
        pytest.param({}, (), id="nobody"),
        pytest.param({"unschedulable": True}, ("somebody else (cordon)",), id="a-persons-cordon"),
        pytest.param(
            {"unschedulable": True, "annotations": {"incident-bot/incident": "INC-1"}}, (), id="our-own-cordon"
        ),
        pytest.param(
            {"unschedulable": True, "annotations": {"incident-bot/incident": "INC-9"}},
            ("INC-9 (cordon)",),
            id="another-incidents-cordon",
        ),
        pytest.param(
            {"taints": [{"key": "karpenter.sh/disrupted"}]},
            ("Karpenter (taint karpenter.sh/disrupted)",),
            id="karpenter",
        ),
        pytest.param({"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}, (), id="a-pools-own-taint"),
        pytest.param({"labels": {"dgxc.nvidia.com/nvsentinel-state": "quarantined"}}, ("NVSentinel",), id="nvsentinel"),
        pytest.param({"labels": {"nvidia.com/gpu-driver-upgrade-state": "upgrade-done"}}, (), id="upgrade-done"),
        pytest.param(
            {"labels": {"nvidia.com/gpu-driver-upgrade-state": "drain-required"}},
            ("the GPU operator (driver upgrade)",),
            id="gpu-operator",
        ),
    ],
)
def test_whoever_repairs_a_node_is_known_by_what_they_write_on_it(fields: dict[str, Any], who: tuple[str, ...]) -> None:
    assert remediators_of(node("n1", **fields), "INC-1") == who


async def test_a_condition_of_node_problem_detector_is_reported_and_is_no_hand_on_the_node() -> None:
    marked = node("n1", conditions=[{"type": "GpuUnhealthy", "status": "True", "reason": "XidSeen"}])
    reading = await ask(Cluster({"n1": gpu(0, "llm-a")}), snapshot([marked], OURS[:1]))
    assert (reading.fields["others_act"], reading.fields["actors"]) == (False, "reported GpuUnhealthy: XidSeen")


async def test_whether_the_node_is_cordoned_is_a_part() -> None:
    async def read(seen: ClusterSnapshot) -> Reading:
        return await ask(Cluster({"n1": gpu(0, "llm-a", XID_ERRORS=79.0)}), seen)

    assert (await read(snapshot([node("n1", unschedulable=True)], OURS[:1]))).fields["cordoned"] is True
    assert (await read(snapshot([node("n1")], OURS[:1]))).fields["cordoned"] is False


# --- the alert's own proof --------------------------------------------------------------------------------------------


def alerted(**more: Any) -> Alert:
    """An alert about the GPU of `llm-a`, as the shipped rule makes it, unless `more` says otherwise."""
    given = {"labels": {"namespace": "serving", "pod": "llm-a"}, "annotations": {"description": "XID 79."}} | more
    labels = {"alertname": "GpuXidError", **given["labels"]}
    starts = datetime.fromtimestamp(OPENED, UTC)
    return Alert(fingerprint="f", status="firing", starts_at=starts, labels=labels, annotations=given["annotations"])


async def ask_after(
    alert: Alert, cluster: Cluster, store: FakeSampleStore | None = None, *, at: float = NOW
) -> Reading:
    seen = snapshot(TWO_NODES, OURS)
    asked = request("gpu_fault", seen, at=at, opened_at=OPENED, alerts=(alert,))
    return await probes.ask(asked, finder=cluster, pages=cluster, samples=store or FakeSampleStore())


@pytest.mark.parametrize(
    "alert",
    [
        pytest.param(alerted(), id="description"),
        pytest.param(alerted(annotations={"summary": "NVRM: Xid (PCI:0000:3b:00): 79, pid=1"}), id="driver-line"),
        pytest.param(alerted(labels={"exported_pod": "llm-a", "xid": "79"}, annotations={}), id="label"),
        pytest.param(alerted(labels={"Hostname": "n1", "err_code": "79"}, annotations={}), id="node-and-code"),
        pytest.param(alerted(labels={"UUID": "GPU-0", "xid": "79"}, annotations={}), id="uuid"),
    ],
)
async def test_an_alert_that_names_the_xid_proves_that_it_is_new(alert: Alert) -> None:
    cluster = Cluster({"n1": gpu(0, "llm-a", XID_ERRORS=79), "n2": gpu(1, "llm-b")})
    reading = await ask_after(alert, cluster)
    assert (reading.fields["kind"], reading.fields["node"], reading.fields["xid"]) == ("fatal", "n1", 79)


async def test_an_alert_counts_although_its_gpu_left_the_exporters_page() -> None:
    cluster = Cluster({"n1": gpu(1), "n2": gpu(0, "llm-b")})
    reading = await ask_after(alerted(), cluster)
    assert (reading.fields["kind"], reading.fields["node"], reading.fields["replica"]) == ("fatal", "n1", "llm-a")
    assert "the alert names XID 79" in str(reading.fields["detail"])


@pytest.mark.parametrize(
    "alert",
    [
        pytest.param(alerted(annotations={"description": "Its XID register changed 1 times."}), id="no-xid"),
        pytest.param(alerted(labels={"pod": "somebody"}), id="another-pod"),
        pytest.param(alerted(labels={"pod": "llm-a", "namespace": "batch"}), id="another-namespace"),
        pytest.param(alerted(annotations={"description": "XID 31"}), id="another-xid"),
    ],
)
async def test_an_alert_about_something_else_proves_nothing(alert: Alert) -> None:
    cluster = Cluster({"n1": gpu(0, "llm-a", XID_ERRORS=79), "n2": gpu(1, "llm-b")})
    assert "kind" not in (await ask_after(alert, cluster)).fields


async def test_an_alert_on_a_register_that_was_seen_before_proves_nothing() -> None:
    """A rule on the register itself fires again for an old XID, for example when its exporter restarts."""
    cluster, store = Cluster({"n1": gpu(0, "llm-a", XID_ERRORS=79), "n2": gpu(1, "llm-b")}), FakeSampleStore()
    await ask_after(alerted(), cluster, store, at=OPENED - 1790)
    assert (await ask_after(alerted(), cluster, store)).fields["kind"] == "stale"


# --- the registers in Prometheus --------------------------------------------------------------------------------------


async def registers(uuids: Sequence[str], *series: Any, fails: bool = False) -> Any:
    def answer(asked: httpx.Request) -> httpx.Response:
        if fails:
            raise httpx.ConnectError("connection refused")
        return httpx.Response(200, json={"status": "success", "data": {"result": list(series)}})

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        return await PrometheusRegisters(client, "http://prometheus").xids(uuids, OPENED, NOW)


async def test_the_series_of_a_gpu_that_changed_its_pod_are_one_record() -> None:
    now = {"metric": {"UUID": "GPU-0", "pod": "llm-b"}, "values": [[30, "79"]]}
    earlier = {"metric": {"UUID": "GPU-0", "pod": "llm-a"}, "values": [[10, "0"], [20, "0"]]}
    assert await registers(["GPU-0"], now, earlier) == {"GPU-0": [(10, 0), (20, 0), (30, 79)]}


async def test_a_prometheus_that_does_not_answer_gives_no_record() -> None:
    with pytest.raises(SourceError, match="connection refused"):
        await registers(["GPU-0"], fails=True)


def test_only_names_of_gpus_get_into_a_query() -> None:
    assert xid_query(["GPU-0", "GPU-1"], 1859.5) == 'DCGM_FI_DEV_XID_ERRORS{UUID=~"GPU-0|GPU-1"}[1860s]'
    of_east = xid_query(["GPU-0"], 60, {"cluster": "east"})
    assert of_east == 'DCGM_FI_DEV_XID_ERRORS{UUID=~"GPU-0",cluster="east"}[60s]'
    for strange in (['GPU"} or vector(0)'], []):
        with pytest.raises(SourceError, match="is not the name of a GPU"):
            xid_query(strange, 60)


async def ask_recorded(recorded: Recorded, xid: float = 79.0) -> Reading:
    cluster = Cluster({"n1": gpu(0, "llm-a", XID_ERRORS=xid)})
    asked = asked_of("gpu_fault", snapshot(TWO_NODES[:1], OURS[:1]))
    return await probes.ask(asked, finder=cluster, pages=cluster, samples=FakeSampleStore(), registers=recorded)


async def test_a_register_that_changed_in_prometheus_is_new() -> None:
    reading = await ask_recorded(Recorded((OPENED - 900, 0.0), (OPENED - 30, 79.0)))
    assert (reading.fields["kind"], reading.fields["xid"]) == ("fatal", 79)


async def test_a_register_that_a_milder_xid_overwrote_is_known_from_prometheus() -> None:
    recorded = Recorded((OPENED - 900, 0.0), (OPENED - 60, 79.0), (OPENED - 30, 31.0))
    assert (await ask_recorded(recorded, 31.0)).fields["kind"] == "fatal"


async def test_a_register_that_did_not_change_in_all_the_time_is_old() -> None:
    assert (await ask_recorded(Recorded((OPENED - 1790, 79.0), (OPENED, 79.0)))).fields["kind"] == "stale"


@pytest.mark.parametrize(
    "recorded",
    [
        pytest.param(Recorded((OPENED - 600, 79.0)), id="too-short"),
        pytest.param(Recorded(), id="nothing-recorded"),
        pytest.param(Recorded(fails="Prometheus: connection refused"), id="no-answer"),
    ],
)
async def test_without_the_whole_time_the_age_stays_unknown(recorded: Recorded) -> None:
    assert "its age is not known" in (await ask_recorded(recorded)).unknown_parts["kind"]
