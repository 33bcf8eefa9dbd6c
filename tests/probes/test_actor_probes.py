"""Who else changes the workload: rollouts, people, autoscalers, our canary, an earlier version kept warm."""

import json
from typing import Any

import pytest

from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.signals.signal import Reading
from tests.domain.changes.test_broken_fleet import refused, with_crashes, with_two_pending
from tests.kit import probes
from tests.kit.probes import request
from tests.probes.clusters import OLD, OPENED, at, endpoints, revision, snapshot, template

pytestmark = pytest.mark.fast

SETTINGS = {"quiet": 900.0}


async def ask(probe: str, seen: ClusterSnapshot, **parameters: Any) -> Reading:
    return await probes.ask(
        request(probe, seen, at=OPENED, incident_id="INC-7", parameters=parameters, settings=SETTINGS)
    )


def gone(**unreadable: str) -> ClusterSnapshot:
    return ClusterSnapshot(at=OPENED, workload=None, unreadable=unreadable)


# --- rollout ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "running"),
    [
        pytest.param({"replicas": 4, "updatedReplicas": 4, "availableReplicas": 4}, False, id="done"),
        pytest.param({"replicas": 5, "updatedReplicas": 2, "availableReplicas": 4}, True, id="half-way"),
        pytest.param({"replicas": 4, "updatedReplicas": 4, "availableReplicas": 2}, False, id="two-replicas-crash"),
    ],
)
async def test_a_rollout_runs_while_old_replicas_are_there(status: Obj, running: bool) -> None:
    reading = await ask("rollout_progress", snapshot(OLD, status=status))
    assert (reading.fields["exists"], reading.fields["running"]) == (True, running)
    assert (
        reading.fields["detail"] == f"{status['updatedReplicas']} of 4 updated, {status['availableReplicas']} available"
    )


async def test_a_workload_that_is_gone_does_not_exist() -> None:
    reading = await ask("rollout_progress", gone())
    assert reading.fields == {"exists": False, "running": False, "detail": "the workload is not there"}


async def test_a_workload_that_cannot_be_read_may_exist() -> None:
    assert (await ask("rollout_progress", gone(workload="no answer"))).unknown == "workload: no answer"


# --- other actors -----------------------------------------------------------------------------------------------------


def written(*hands: tuple[str, float, str]) -> ClusterSnapshot:
    seen = snapshot(OLD)
    fields = [
        {"manager": manager, "time": at(OPENED - seconds), **({"subresource": part} if part else {})}
        for manager, seconds, part in hands
    ]
    metadata = {**(seen.workload or {})["metadata"], "creationTimestamp": at(OPENED - 5000), "managedFields": fields}
    return ClusterSnapshot(
        at=OPENED, workload={**(seen.workload or {}), "metadata": metadata}, replica_sets=seen.replica_sets
    )


@pytest.mark.parametrize(
    ("hand", "acted"),
    [
        pytest.param(("argocd-controller", 300, ""), True, id="a-sync"),
        pytest.param(("kubectl-edit", 899, ""), True, id="a-person"),
        pytest.param(("kubectl-edit", 1000, ""), False, id="long-ago"),
        pytest.param(("incident-bot", 60, ""), False, id="we-ourselves"),
        pytest.param(("kube-controller-manager", 60, "status"), False, id="the-controllers-status"),
        pytest.param(("kubectl-create", 5000, ""), False, id="its-creation"),
    ],
)
async def test_only_others_who_wrote_lately_have_acted(hand: tuple[str, float, str], acted: bool) -> None:
    reading = await ask("other_actors", written(hand), over="settings.quiet")
    assert reading.fields == {"acted": acted, "who": hand[0] if acted else ""}


async def test_a_time_that_is_no_duration_names_nobody() -> None:
    reading = await ask("other_actors", written(("kubectl-edit", 60, "")), over="soon")
    assert reading.unknown.startswith("'soon' is not a duration")


async def test_an_autoscaler_that_scaled_has_acted() -> None:
    scaler = {
        "metadata": {"name": "llm"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "llm"}, "maxReplicas": 8},
        "status": {"lastScaleTime": at(OPENED - 120)},
    }
    seen = written(("incident-bot", 60, ""))
    reading = await ask("other_actors", ClusterSnapshot(at=OPENED, workload=seen.workload, autoscalers=(scaler,)))
    assert reading.fields["acted"] is True
    assert "HorizontalPodAutoscaler llm" in reading.detail


async def test_the_autoscaler_that_keda_made_has_acted_for_keda() -> None:
    target = {"kind": "Deployment", "name": "llm"}
    scaled = {"metadata": {"name": "llm"}, "spec": {"scaleTargetRef": target, "maxReplicaCount": 8}, "status": {}}
    scaler = {
        "metadata": {"name": "keda-hpa-llm"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 8},
        "status": {"lastScaleTime": at(OPENED - 120)},
    }
    seen = ClusterSnapshot(
        at=OPENED, workload=written(("incident-bot", 60, "")).workload, scaled_objects=(scaled,), autoscalers=(scaler,)
    )
    assert str((await ask("other_actors", seen)).fields["who"]).startswith("ScaledObject llm")


async def test_an_object_without_field_owners_was_not_left_alone() -> None:
    assert (await ask("other_actors", snapshot(OLD))).unknown == "the API server does not say who wrote it"


# --- our canary -------------------------------------------------------------------------------------------------------


def with_canary(edits: list[Obj], *args: str, ready: bool = True) -> ClusterSnapshot:
    status = {"replicas": 4, "updatedReplicas": 4, "availableReplicas": 4}
    seen = snapshot(revision(2, template(*args), minutes_before=5), OLD, status=status)
    label = {"incident-bot/canary": "inc-7"}
    canary = {"metadata": {"name": "canary", "uid": "c", "annotations": {"incident-bot/edits": json.dumps(edits)}}}
    pod = {
        "metadata": {"name": "canary-0", "uid": "p", "labels": label},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]},
    }
    return ClusterSnapshot(
        at=OPENED, workload=seen.workload, replica_sets=seen.replica_sets, pods=(pod,), canary=canary
    )


HANDED_OUT = [{"flag": "--max-num-seqs", "value": 6}]


async def arrived(seen: ClusterSnapshot, edits: list[Obj] | None = None) -> Reading:
    return await probes.ask(request("handed_out", seen, at=OPENED, handed_out=HANDED_OUT if edits is None else edits))


@pytest.mark.parametrize(
    ("arguments", "live", "detail"),
    [
        pytest.param(["--max-num-seqs=6"], True, "all 4 replicas run it", id="joined"),
        pytest.param(["--max-num-seqs", "6"], True, "all 4 replicas run it", id="apart"),
        pytest.param(
            ["--max-num-seqs", "60"], False, "Deployment llm does not have --max-num-seqs", id="another-value"
        ),
        pytest.param([], False, "Deployment llm does not have --max-num-seqs", id="absent"),
    ],
)
async def test_a_patch_that_was_handed_out_has_arrived_when_the_workload_has_its_edits(
    arguments: list[str], live: bool, detail: str
) -> None:
    reading = await arrived(with_canary([], *arguments))
    assert reading.fields == {"given": True, "live": live, "edits": "--max-num-seqs", "detail": detail}


async def test_a_patch_that_is_being_rolled_out_has_not_arrived() -> None:
    seen = snapshot(revision(2, template("--max-num-seqs=6"), minutes_before=1), OLD, status={"replicas": 4})
    reading = await arrived(seen)
    assert reading.fields["live"] is False
    assert reading.fields["detail"] == "0 of 4 replicas run it so far"


@pytest.mark.parametrize(
    ("seen", "detail"),
    [
        pytest.param(with_two_pending(), "4 of 6 replicas run it, and there is no room for the others", id="pending"),
        pytest.param(refused(), "3 of 4 replicas run it, and there is no room for the others", id="quota"),
        pytest.param(with_crashes(1), "3 of 4 replicas run it so far", id="crashing"),
        pytest.param(
            with_two_pending(unreadable={"nodes": "403"}), "4 of 6 replicas run it so far", id="room-not-known"
        ),
    ],
)
async def test_a_patch_has_arrived_although_there_is_no_room_for_every_replica(
    seen: ClusterSnapshot, detail: str
) -> None:
    reading = await arrived(seen, [{"flag": "--max-num-seqs", "value": 64}])
    assert reading.fields["detail"] == detail
    assert reading.fields["live"] is ("no room" in detail)


async def test_without_a_patch_nothing_is_waited_for() -> None:
    reading = await ask("handed_out", snapshot(OLD))
    assert reading.fields == {"given": False}
    assert set(reading.unknown_parts) == {"live", "edits", "detail"}


async def test_flags_in_a_file_that_cannot_be_read_are_unknown() -> None:
    seen = snapshot(OLD, unreadable={"config_maps": "403"})
    reading = await arrived(seen)
    assert reading.unknown == "config_maps: 403"


async def test_variables_and_images_are_compared_too() -> None:
    image = [{"image": "vllm/vllm-openai:v0.32.0"}]
    assert (await arrived(with_canary([]), image)).fields["live"] is True
    assert (await arrived(with_canary([]), [*image, {"env": "A", "value": "1"}])).fields["live"] is False


async def test_what_was_edited_on_the_canary_is_named() -> None:
    edits: list[dict[str, Any]] = [
        {"flag": "--enable-prefix-caching", "value": True},
        {"env": "A", "value": None},
        {"image": "vllm:1"},
    ]
    assert (await ask("canary_edits", with_canary(edits))).fields["edits"] == "--enable-prefix-caching, A, image"


async def test_a_canary_that_is_not_ready_is_reported() -> None:
    assert (await ask("canary_edits", with_canary([], ready=False))).fields["ready"] is False


async def test_without_a_canary_nothing_is_compared() -> None:
    reading = await ask("canary_edits", snapshot(OLD))
    assert reading.fields == {"canary": False, "ready": False}
    assert set(reading.unknown_parts) == {"live", "edits"}


async def test_a_canary_says_whether_all_run_its_edits_for_incidents_of_an_earlier_version() -> None:
    edits = [{"flag": "--max-num-seqs", "value": 6}]
    assert (await ask("canary_edits", with_canary(edits, "--max-num-seqs=6"))).fields["live"] is True
    assert (await ask("canary_edits", with_canary(edits, "--max-num-seqs=60"))).fields["live"] is False


# --- an earlier version -----------------------------------------------------------------------------------------------


def warm(name: str, owner: str, *, ready: bool = True) -> Obj:
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "namespace": "serving",
            "labels": {"app": "llm"},
            "ownerReferences": [{"kind": "ReplicaSet", "uid": owner, "controller": True}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


@pytest.mark.parametrize(
    ("pods", "count"),
    [
        pytest.param([warm("a", "rs-2")], 0, id="only-the-newest"),
        pytest.param([warm("a", "rs-2"), warm("b", "rs-1")], 1, id="one-of-the-revision-before"),
        pytest.param([warm("a", "rs-2"), warm("b", "rs-1", ready=False)], 0, id="one-that-is-not-ready"),
    ],
)
async def test_replicas_of_an_earlier_revision_are_warm(pods: list[Obj], count: float) -> None:
    newest = revision(2, template("--max-num-seqs=256"), minutes_before=5)
    reading = await ask("warm_previous", snapshot(newest, OLD, pods=tuple(pods)))
    assert reading.fields["ready"] == count


RUNNING = [warm("a", "rs-1"), warm("b", "rs-1"), warm("c", "rs-3", ready=False)]


@pytest.mark.parametrize(
    ("pods", "number"),
    [
        pytest.param(RUNNING, 1, id="one-revision"),
        pytest.param([*RUNNING, warm("d", "rs-2")], 0, id="two-revisions"),
        pytest.param([*RUNNING, warm("d", "rs-2", ready=False)], 1, id="of-the-other-none-is-ready"),
        pytest.param([warm("c", "rs-3")], 0, id="only-the-newest"),
    ],
)
async def test_the_revision_that_serves_beside_the_newest_is_named(pods: list[Obj], number: float) -> None:
    newer = [revision(n, template(f"--max-num-seqs={n}"), minutes_before=5) for n in (3, 2)]
    reading = await ask("warm_previous", snapshot(*newer, OLD, pods=tuple(pods)))
    assert reading.fields["revision"] == number


async def test_the_revision_of_a_stateful_set_that_serves_is_named() -> None:
    workload = {
        "kind": "StatefulSet",
        "metadata": {"name": "llm", "namespace": "serving", "uid": "d"},
        "spec": {"replicas": 2, "template": template()},
        "status": {"updateRevision": "llm-new"},
    }
    owner = {"kind": "StatefulSet", "uid": "d", "controller": True}
    kept = [
        {"metadata": {"name": f"llm-{name}", "ownerReferences": [owner]}, "revision": number}
        for name, number in (("new", 8), ("old", 7))
    ]
    pods = []
    for name in ("old", "new"):
        pod = warm(f"llm-{name}-0", "d", ready=name == "old")
        pod["metadata"]["labels"] = {"controller-revision-hash": f"llm-{name}"}
        pods.append(pod)
    seen = ClusterSnapshot(at=OPENED, workload=workload, revisions=tuple(kept), pods=tuple(pods))
    assert (await ask("warm_previous", seen)).fields["revision"] == 7


async def test_the_revision_that_serves_is_known_where_services_cannot_be_read() -> None:
    newest = revision(2, template("--max-num-seqs=256"), minutes_before=5)
    pods = (warm("a", "rs-2", ready=False), warm("b", "rs-1"))
    reading = await ask("warm_previous", snapshot(newest, OLD, pods=pods, unreadable={"services": "forbidden"}))
    assert (reading.fields, reading.unknown_parts) == ({"revision": 1}, {"ready": "services: forbidden"})


async def test_another_workload_behind_the_same_service_is_warm() -> None:
    stable = warm("stable-0", "rs-other")
    service = {"metadata": {"name": "llm", "namespace": "serving"}, "spec": {"selector": {"app": "llm"}}}
    seen = snapshot(OLD, services=(service,), endpoint_slices=(endpoints("stable-0"),), all_pods=(stable,))
    assert (await ask("warm_previous", seen)).fields == {"ready": 1, "revision": 0}


async def test_the_canary_of_another_incident_is_no_earlier_version() -> None:
    canary = warm("canary-0", "rs-other")
    canary["metadata"]["labels"]["incident-bot/canary"] = "inc-9"
    service = {"metadata": {"name": "llm", "namespace": "serving"}, "spec": {"selector": {"app": "llm"}}}
    seen = snapshot(OLD, services=(service,), endpoint_slices=(endpoints("canary-0"),), all_pods=(canary,))
    assert (await ask("warm_previous", seen)).fields == {"ready": 0, "revision": 0}


async def test_pods_that_cannot_be_listed_may_be_warm() -> None:
    assert "pods: forbidden" in (await ask("warm_previous", snapshot(OLD, unreadable={"pods": "forbidden"}))).unknown
