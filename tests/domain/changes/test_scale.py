"""scale: how many replicas, whether they fit, who else owns the count, and which one is removed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.domain.approvals.announced import cleans_up
from bot.domain.changes.owners_edit import OwnersEdit
from bot.domain.changes.plan import Call, Wait
from bot.domain.cluster.capacity import Capacity, capacity_of
from bot.domain.cluster.json_patch import applied
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from tests.domain.changes.ledgers import entry, with_ledger
from tests.domain.changes.snapshots import (
    STAMP,
    declined,
    deployment,
    endpoint_slice,
    grade,
    load,
    node,
    planned,
    pod,
    snapshot,
    template,
    weighed,
)

pytestmark = pytest.mark.fast
NO_DRAIN = template(lifecycle={})


@pytest.mark.parametrize(
    ("arguments", "to", "risk"),
    [
        pytest.param({"by": 1}, 5, "low", id="one-more"),
        pytest.param({"by": 1.0}, 5, "low", id="numbers-from-expressions-are-floats"),
        pytest.param({"by": "1"}, 5, "low", id="numbers-may-be-text"),
        pytest.param({"to": 6}, 6, "medium", id="two-more"),
        pytest.param({"to": 7}, 7, "high", id="more-than-half"),
        pytest.param({"by": -1}, 3, "medium", id="one-fewer"),
    ],
)
def test_it_scales_through_the_scale_subresource(arguments: dict[str, Any], to: int, risk: str) -> None:
    plan = planned("scale", arguments, snapshot())
    call = plan.calls[-1]
    assert (call.subresource, call.stamped, plan.risk) == ("scale", False, risk)
    assert call.body == [
        {"op": "test", "path": "/metadata/uid", "value": "deploy-uid"},
        {"op": "test", "path": "/spec/replicas", "value": 4},
        {"op": "replace", "path": "/spec/replicas", "value": to},
    ]
    assert [d.text for d in call.differences] == [f"replicas 4 → {to}"]


@pytest.mark.parametrize(
    ("arguments", "outcome", "reason"),
    [
        pytest.param({"to": 4}, "not_needed", "has 4 replicas already", id="as-it-is"),
        pytest.param({"by": 0}, "not_needed", "has 4 replicas already", id="by-nothing"),
        pytest.param({"to": 0}, "impossible", "last replica", id="to-none"),
        pytest.param({"by": -4}, "impossible", "last replica", id="by-all"),
        pytest.param({}, "impossible", "either by or to", id="neither"),
        pytest.param({"by": 1, "to": 5}, "impossible", "either by or to", id="both"),
        pytest.param({"by": 1.5}, "impossible", "whole number", id="half-a-replica"),
        pytest.param({"by": "some"}, "impossible", "whole number", id="a-word"),
        pytest.param({"by": 1, "node": "x"}, "impossible", "does not take node", id="unknown-argument"),
        pytest.param({"by": 9}, "impossible", "room for 8, 9 needed", id="no-room"),
    ],
)
def test_a_count_that_cannot_be_or_changes_nothing_says_why(
    arguments: dict[str, Any], outcome: str, reason: str
) -> None:
    result = declined("scale", arguments, snapshot())
    assert (result.outcome, reason in result.reason) == (outcome, True), result.reason


def scaler(name: str = "llm", *, owned_by: str = "") -> Obj:
    owners = [{"controller": True, "kind": owned_by, "name": "llm-queue"}] if owned_by else []
    return {
        "metadata": {"name": "llm", "namespace": "serving", "uid": "hpa-uid", "ownerReferences": owners},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": name}, "minReplicas": 2, "maxReplicas": 8},
    }


@pytest.mark.parametrize(("to", "wanted"), [(4, 4), (1, 2)], ids=["within-its-bounds", "below-its-minimum"])
def test_a_workload_at_zero_is_scaled_itself_since_its_autoscaler_is_off(to: int, wanted: int) -> None:
    seen = snapshot(workload=deployment(replicas=0), pods=(), autoscalers=(scaler(),))
    plan = planned("scale", {"to": to}, seen)
    (call,) = plan.calls
    assert (call.subresource, call.body[-1]["value"], plan.choices) == ("scale", wanted, {"to": wanted})
    assert "HorizontalPodAutoscaler llm (min 2, max 8) is off at 0 replicas" in weighed(plan, "autoscaler")
    assert grade(plan, "autoscaler") == "note"


def test_a_workload_at_zero_is_not_scaled_above_the_maximum_of_its_autoscaler() -> None:
    seen = snapshot(workload=deployment(replicas=0), pods=(), autoscalers=(scaler(),))
    assert "allows at most 8 replicas" in declined("scale", {"to": 9}, seen).reason


def test_taking_a_scale_out_from_zero_back_says_that_nothing_serves_afterwards() -> None:
    stopped = snapshot(workload=deployment(replicas=0), pods=(), autoscalers=(scaler(),))
    (call,) = planned("scale", {"to": 2}, stopped).calls
    seen = snapshot(workload=deployment(replicas=2), pods=(pod(1), pod(2)), autoscalers=(scaler(),))
    plan = planned("undo", {}, seen, with_ledger(entry(call, verb="scale")))
    assert plan.expected == "no replica serves any more: llm-1, llm-2 end"


def test_kedas_floor_starts_a_workload_at_zero() -> None:
    seen = snapshot(workload=deployment(replicas=0), pods=(), scaled_objects=(scaled_object(),))
    (call,) = planned("scale", {"to": 4}, seen).calls
    assert call.target.kind == "ScaledObject"


def test_more_replicas_come_through_the_floor_of_the_autoscaler_that_owns_them() -> None:
    plan = planned("scale", {"by": 1}, snapshot(autoscalers=(scaler(),)))
    (call,) = plan.calls
    assert (call.target.kind, call.subresource) == ("HorizontalPodAutoscaler", "")
    assert [d.text for d in call.differences] == ["HorizontalPodAutoscaler llm: minReplicas 2 → 5"]
    assert [wait.condition for wait in plan.steps if isinstance(wait, Wait)] == ["grown"]
    assert call.undo[0].body[-1] == {"op": "replace", "path": "/spec/minReplicas", "value": 2}


@pytest.mark.parametrize(
    ("most", "title", "note"),
    [
        pytest.param(8, "(2 to 8 before)", "its floor is raised, and it may add even more", id="within"),
        pytest.param(5, "(2 to 5 before)", "exactly 5 replicas until its old bounds (2 to 5) are back", id="at-most"),
        pytest.param(4, "(2 to 4 before)", "exactly 5 replicas until its old bounds (2 to 4) are back", id="above"),
    ],
)
def test_an_autoscaler_with_a_raised_floor_names_its_old_bounds(most: int, title: str, note: str) -> None:
    bounded = scaler()
    bounded["spec"]["maxReplicas"] = most
    plan = planned("scale", {"to": 5, "above_maximum": True}, snapshot(autoscalers=(bounded,)))
    assert plan.calls[0].title == f"Let HorizontalPodAutoscaler llm keep at least 5 replicas {title}"
    assert note in weighed(plan, "autoscaler")


def test_a_floor_is_never_lowered_nor_written_again_as_it_is() -> None:
    """The autoscaler has not acted yet, or cannot."""
    for least in (5, 6):
        late = scaler()
        late["spec"]["minReplicas"] = least
        reason = declined("scale", {"by": 1}, snapshot(autoscalers=(late,))).reason
        assert f"keeps at least {least} replicas already, and 4 are requested now" in reason
    keda = scaled_object()
    keda["spec"] |= {"idleReplicaCount": 0, "minReplicaCount": 5}
    idle = snapshot(workload=deployment(replicas=0), pods=(), scaled_objects=(keda,))
    assert "keeps at least 5 replicas already" in declined("scale", {"to": 2}, idle).reason


def test_fewer_replicas_are_the_autoscalers_own_decision() -> None:
    result = declined("scale", {"by": -1}, snapshot(autoscalers=(scaler(),)))
    assert "decides itself when fewer are enough" in result.reason


def test_an_autoscaler_is_not_asked_for_more_than_its_most() -> None:
    result = declined("scale", {"to": 9}, snapshot(autoscalers=(scaler(),)))
    assert "allows at most 8 replicas" in result.reason


def test_its_most_is_raised_by_request_with_the_floor_and_comes_back_with_the_undo() -> None:
    full = scaler()
    full["spec"]["maxReplicas"] = 4
    seen = snapshot(autoscalers=(full,))
    plan = planned("scale", {"by": 1, "above_maximum": True}, seen)
    (call,) = plan.calls
    assert [d.text for d in call.differences] == [
        "HorizontalPodAutoscaler llm: maxReplicas 4 → 5",
        "HorizontalPodAutoscaler llm: minReplicas 2 → 5",
    ]
    assert grade(plan, "maximum") == "warning", "so no approval given ahead covers it"
    undone = {step["path"]: step["value"] for step in call.undo[0].body if step["op"] == "replace"}
    assert undone == {"/spec/maxReplicas": 4, "/spec/minReplicas": 2}


def test_a_most_that_is_high_enough_is_left_alone() -> None:
    (call,) = planned("scale", {"by": 1, "above_maximum": True}, snapshot(autoscalers=(scaler(),))).calls
    assert [d.text for d in call.differences] == ["HorizontalPodAutoscaler llm: minReplicas 2 → 5"]


def test_kedas_most_is_raised_on_its_own_object() -> None:
    full = scaled_object()
    full["spec"]["maxReplicaCount"] = 4
    (call,) = planned("scale", {"by": 1, "above_maximum": True}, snapshot(scaled_objects=(full,))).calls
    assert [d.text for d in call.differences] == [
        "ScaledObject llm-queue: maxReplicaCount 4 → 5",
        "ScaledObject llm-queue: minReplicaCount (not set) → 5",
    ]


def scaled_object(**parts: Any) -> Obj:
    metadata = {"name": "llm-queue", "namespace": "serving", "uid": "so-uid", **parts}
    spec = {"scaleTargetRef": {"name": "llm"}, "maxReplicaCount": 8}
    return {"metadata": metadata, "spec": spec}


def test_with_keda_the_floor_is_that_of_its_own_object() -> None:
    seen = snapshot(autoscalers=(scaler(owned_by="ScaledObject"),), scaled_objects=(scaled_object(),))
    (call,) = planned("scale", {"by": 1}, seen).calls
    assert str(call.target) == "ScaledObject serving/llm-queue"
    assert [d.text for d in call.differences] == ["ScaledObject llm-queue: minReplicaCount (not set) → 5"]
    assert call.undo[0].body[-1] == {"op": "remove", "path": "/spec/minReplicaCount"}


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        ("paused-replicas", "4"),
        ("paused-replicas", "0"),
        ("paused", "true"),
        ("paused", "yes"),
        ("paused-scale-out", "1"),
    ],
)
def test_a_paused_scaled_object_is_left_alone(annotation: str, value: str) -> None:
    paused = scaled_object(annotations={f"autoscaling.keda.sh/{annotation}": value})
    assert "is paused" in declined("scale", {"by": 1}, snapshot(scaled_objects=(paused,))).reason


def test_a_scaled_object_that_only_adds_nothing_still_takes_replicas_away() -> None:
    paused = scaled_object(annotations={"autoscaling.keda.sh/paused-scale-out": "true"})
    seen = snapshot(scaled_objects=(paused,))
    assert "decides itself when fewer are enough" in declined("scale", {"by": -1}, seen).reason
    plan = planned("restart", {}, seen)
    assert grade(plan, "scale_in") == "fine"
    assert (plan.calls[0].target.kind, plan.calls[0].body[-1]["value"]) == ("ScaledObject", 4)


@pytest.mark.parametrize("annotation", ["paused", "paused-replicas"])
def test_a_scaled_object_that_is_paused_takes_no_replica_away(annotation: str) -> None:
    paused = scaled_object(annotations={f"autoscaling.keda.sh/{annotation}": "4"})
    seen = snapshot(scaled_objects=(paused,))
    assert "is paused" in declined("scale", {"by": -1}, seen).reason
    assert {call.target.kind for call in planned("restart", {}, seen).calls} == {"Deployment"}


@pytest.mark.parametrize("value", ["false", "False", "0"])
def test_a_scaled_object_that_goes_on_after_a_pause_is_changed(value: str) -> None:
    resumed = scaled_object(annotations={"autoscaling.keda.sh/paused": value})
    assert planned("scale", {"by": 1}, snapshot(scaled_objects=(resumed,)))


def test_an_autoscaler_out_of_git_is_changed_in_git() -> None:
    kept = scaled_object(labels={"kustomize.toolkit.fluxcd.io/name": "serving"})
    result = declined("scale", {"by": 1}, snapshot(scaled_objects=(kept,)))
    assert "Flux Kustomization serving owns it" in result.reason
    assert result.hint.endswith("spec:\n  minReplicaCount: 5")


def test_keda_is_named_as_the_owner_of_its_autoscaler() -> None:
    result = declined("scale", {"by": 1}, snapshot(autoscalers=(scaler(owned_by="ScaledObject"),)))
    assert "maxReplicaCount of ScaledObject llm-queue" in result.hint


def test_another_workloads_autoscaler_does_not_matter() -> None:
    assert planned("scale", {"by": 1}, snapshot(autoscalers=(scaler(name="other"),)))


def test_unreadable_autoscalers_are_a_warning() -> None:
    plan = planned("scale", {"by": 1}, snapshot(unreadable={"autoscalers": "403"}))
    assert grade(plan, "autoscaler") == "warning"


def test_the_first_to_end_is_the_one_that_serves_least_and_the_plan_stays_the_same() -> None:
    pods = (pod(1), pod(2), pod(3, is_ready=False), pod(4))
    seen = snapshot(pods=pods, endpoint_slices=(endpoint_slice(pods[0], pods[1], pods[3]),))
    plan = planned("scale", {"by": -1}, seen)
    assert plan.choices["ends"] == ["llm-3-uid"]
    assert plan.digest == planned("scale", {"by": -1}, seen).digest


def test_a_native_drain_only_marks_the_victim() -> None:
    plan = planned("scale", {"by": -1}, snapshot())
    assert [type(step) for step in plan.steps] == [Call, Call, Wait]
    mark = applied(plan.calls[0].body, with_annotations(pod(1)))
    assert mark["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"] == "-1000"
    assert mark["metadata"]["labels"]["serving"] == "active"


def test_without_a_native_drain_the_victim_leaves_rotation_and_runs_empty_first() -> None:
    plan = planned("scale", {"by": -1}, snapshot(workload=deployment(NO_DRAIN)))
    steps = [step.condition if isinstance(step, Wait) else step.method for step in plan.steps]
    assert steps == ["patch", "out_of_rotation", "emptied", "patch", "scaled"]
    assert grade(plan, "drain") == "fine"
    victim = applied(plan.calls[0].body, with_annotations(pod(1)))
    assert victim["metadata"]["labels"]["serving"] == "out-of-rotation"


def test_a_scale_in_that_cuts_streams_counts_them() -> None:
    pods = tuple(pod(number) for number in (1, 2, 3, 4))
    seen = snapshot(workload=deployment(NO_DRAIN), pods=pods, services=(), load={"llm-1": load(running=7)})
    assert "cuts ~7 streams on 1 pod" in weighed(planned("scale", {"by": -1}, seen), "drain")


def test_scaling_up_needs_no_pods_to_be_readable() -> None:
    assert planned("scale", {"by": 1}, snapshot(unreadable={"pods": "403"}, pods=()))
    assert declined("scale", {"by": -1}, snapshot(unreadable={"pods": "403"})).outcome == "unknown"


def test_a_gpu_of_a_pod_that_is_still_ending_is_not_free() -> None:
    ending = pod(5)
    ending["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    pods = tuple(pod(number) for number in (1, 2, 3, 4))
    nodes = (node(1, gpus=2), node(2, gpus=2), node(3, gpus=1))
    assert planned("scale", {"by": 1}, snapshot(pods=pods, all_pods=pods, nodes=nodes))
    assert declined("scale", {"by": 1}, snapshot(pods=pods, all_pods=(*pods, ending), nodes=nodes))


def with_annotations(obj: Obj) -> Obj:
    """The writer makes the map of annotations where there is none."""
    obj["metadata"].setdefault("annotations", {})
    return obj


@pytest.mark.parametrize(
    ("more", "asked"),
    [pytest.param(7, (), id="one-stays-free"), pytest.param(8, ("serving", "platform"), id="none-stays-free")],
)
def test_who_answers_for_the_nodes_decides_too_about_the_last_free_accelerator(
    more: int, asked: tuple[str, ...]
) -> None:
    plan = planned("scale", {"by": more}, snapshot())
    assert plan.approved_by == asked
    assert ("last_room" in {each.name for each in plan.circumstances}) is bool(asked)


def test_where_room_is_not_known_platform_decides_too() -> None:
    plan = planned("scale", {"by": 1}, snapshot(unreadable={"nodes": "nodes is forbidden"}))
    assert plan.approved_by == ("serving", "platform")
    assert "is not known" in weighed(plan, "last_room")


def test_room_that_became_the_last_meanwhile_is_worse_than_what_was_approved() -> None:
    approved, now = (
        planned("scale", {"by": 1}, snapshot()),
        snapshot(nodes=(node(1, gpus=3), node(2, gpus=1), node(3, gpus=1))),
    )
    later = planned("scale", {"by": 1}, now)
    assert later.digest == approved.digest
    assert any("last room" in text for text in later.is_worse_than(approved))


def test_an_autoscalers_floor_that_takes_the_last_room_is_platforms_too() -> None:
    plan = planned(
        "scale", {"to": 8}, snapshot(autoscalers=(scaler(),), nodes=(node(1), node(2, gpus=3), node(3, gpus=1)))
    )
    assert plan.approved_by == ("serving", "platform")


def neighbour(amount: Any) -> Obj:
    other = pod(9, app="other")
    other["metadata"] |= {"name": "other", "namespace": "batch", "uid": "other-uid", "ownerReferences": []}
    other["spec"] = {
        "nodeName": "gpu-node-1",
        "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": amount}}}],
    }
    return other


@pytest.mark.parametrize("amount", ["3k", "1M", "0.5", "1e3", 3000, "lots"])
def test_what_a_pod_of_somebody_else_asks_for_never_prevents_a_plan(amount: Any) -> None:
    seen = snapshot()
    plan = planned("scale", {"by": 1}, replace(seen, all_pods=(*seen.all_pods, neighbour(amount))))
    assert (grade(plan, "room"), weighed(plan, "room")) == (
        "fine",
        "room for 7 more (free: gpu-node-1 1, gpu-node-2 3, gpu-node-3 3)",
    )


def test_a_pod_whose_accelerators_cannot_be_counted_is_a_warning() -> None:
    seen, other = snapshot(), neighbour("1")
    other["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "lots"
    plan = planned("scale", {"by": 1}, replace(seen, all_pods=(*seen.all_pods, other)))
    assert grade(plan, "room") == "warning"
    assert "not counted, so there may be less: batch/other asks for nvidia.com/gpu 'lots'" in weighed(plan, "room")


def test_a_node_whose_accelerators_cannot_be_counted_has_none_free() -> None:
    strange = node(3)
    strange["status"]["allocatable"]["nvidia.com/gpu"] = "many"
    plan = planned("scale", {"by": 1}, snapshot(nodes=(node(1), node(2), strange)))
    assert grade(plan, "room") == "warning"
    assert "not counted, so there may be less: gpu-node-3 has nvidia.com/gpu 'many'" in weighed(plan, "room")


def test_accelerators_of_the_workload_that_cannot_be_counted_leave_its_room_unknown() -> None:
    odd = template(resources={"limits": {"nvidia.com/gpu": "one"}})
    plan = planned("scale", {"by": 1}, snapshot(workload=deployment(odd)))
    assert grade(plan, "room") == "warning"
    assert "its pods ask for nvidia.com/gpu 'one', so its room is not known" in weighed(plan, "room")


@pytest.mark.parametrize(("amount", "fits"), [("1k", 4), ("1000", 4), ("2.5k", 0)])
def test_amounts_in_thousands_are_compared_as_numbers(amount: str, fits: int) -> None:
    wants = template(resources={"limits": {"example.com/gpumem": amount}})
    roomy = node(1)
    roomy["status"]["allocatable"]["example.com/gpumem"] = "4k" if fits else "2k"
    seen = snapshot(workload=deployment(wants), nodes=(roomy,), all_pods=())
    found = capacity_of(seen)
    assert isinstance(found, Capacity)
    assert found.replicas_that_fit == fits


# --- the floor during a rollout, and its way back ---------------------------------------------------------------------

CAP = {"edits": [{"flag": "--max-num-seqs", "value": 6}]}
HPA = "HorizontalPodAutoscaler"


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [("set_flags", CAP), ("restart", {}), ("rollback", {})],
    ids=["set_flags", "restart", "rollback"],
)
def test_an_autoscaler_takes_no_replica_away_during_a_rollout(verb: str, arguments: dict[str, Any]) -> None:
    plan = planned(verb, arguments, snapshot(autoscalers=(scaler(),)))
    first, *rest, last = plan.calls
    assert {call.target.kind for call in rest} == {"Deployment"}
    assert [d.text for d in first.differences] == [f"{HPA} llm: minReplicas for the rollout 2 → 4"]
    assert (first.undo[0].body, last.restores, last.undo) == (last.body, True, ())
    assert last.body[-1] == {"op": "replace", "path": "/spec/minReplicas", "value": 2}
    assert isinstance(plan.steps[-2], Wait), "it goes back once the rollout is over"
    assert grade(plan, "scale_in") == "fine"


def kept_by_helm() -> Obj:
    made = scaler()
    made["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "Helm"}
    return made


def kept_by_flux() -> Obj:
    made = scaler()
    made["metadata"]["labels"] = {"kustomize.toolkit.fluxcd.io/name": "serving"}
    return made


def with_floor(floor: int) -> Obj:
    made = scaler()
    made["spec"]["minReplicas"] = floor
    return made


@pytest.mark.parametrize(
    ("scalers", "note"),
    [
        pytest.param((), "", id="none"),
        pytest.param((with_floor(4),), "", id="its-floor-is-high-enough"),
        pytest.param((scaler(name="other"),), "", id="of-another-workload"),
        pytest.param((kept_by_flux(),), "its floor belongs to Flux Kustomization serving", id="owned"),
        pytest.param((scaler(owned_by="ScaledObject"),), "its floor belongs to ScaledObject llm-queue", id="kedas"),
    ],
)
def test_a_floor_is_held_only_where_it_has_to_be_and_can_be(scalers: tuple[Obj, ...], note: str) -> None:
    plan = planned("set_flags", CAP, snapshot(autoscalers=scalers))
    assert {call.target.kind for call in plan.calls} == {"Deployment"}
    notes = [each.text for each in plan.circumstances if each.name == "scale_in"]
    assert [note in text for text in notes] == ([True] if note else [])


def kept_by_argo(**ignored: Any) -> ClusterSnapshot:
    made = scaler()
    made["metadata"]["annotations"] = {"argocd.argoproj.io/tracking-id": "serving:autoscaling/HPA:serving/llm"}
    spec = {"syncPolicy": {"automated": {"selfHeal": True}}, "ignoreDifferences": [ignored]}
    return snapshot(autoscalers=(made,), applications=({"metadata": {"name": "serving"}, "spec": spec},))


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(snapshot(autoscalers=(kept_by_helm(),)), id="helm"),
        pytest.param(kept_by_argo(group="autoscaling", kind=HPA, jsonPointers=["/spec/minReplicas"]), id="ignored"),
    ],
)
def test_a_floor_is_held_if_its_owner_does_not_revert_that_by_itself(seen: ClusterSnapshot) -> None:
    first, *_, last = planned("set_flags", CAP, seen).calls
    assert [d.text for d in first.differences] == [f"{HPA} llm: minReplicas for the rollout 2 → 4"]
    assert last.body[-1] == {"op": "replace", "path": "/spec/minReplicas", "value": 2}


def test_an_owner_gets_the_replicas_and_the_bounds_as_fields_of_the_object() -> None:
    workload = deployment()
    workload["metadata"]["labels"] |= {"kustomize.toolkit.fluxcd.io/name": "llm"}
    edit = declined("scale", {"by": 2}, snapshot(workload=workload)).owners_edit
    assert edit == OwnersEdit(kind="Deployment", namespace="serving", name="llm", fields={"replicas": 6})
    full = scaler()
    full["metadata"]["labels"] = {"kustomize.toolkit.fluxcd.io/name": "llm"}
    full["spec"]["maxReplicas"] = 4
    edit = declined("scale", {"by": 1, "above_maximum": True}, snapshot(autoscalers=(full,))).owners_edit
    assert edit == OwnersEdit(kind=HPA, namespace="serving", name="llm", fields={"maxReplicas": 5, "minReplicas": 5})


def test_a_floor_that_argo_cd_heals_is_not_held() -> None:
    plan = planned("set_flags", CAP, kept_by_argo(group="autoscaling", kind=HPA, jsonPointers=["/spec/maxReplicas"]))
    assert "its floor belongs to Argo CD application serving" in weighed(plan, "scale_in")


def test_one_more_replica_with_claimed_devices_needs_platform_too() -> None:
    claims = [{"name": "gpus", "resourceClaimTemplateName": "eight-gpus"}]
    made = template()
    made["spec"] |= {"resourceClaims": claims}
    made["spec"]["containers"][0] |= {"resources": {"claims": [{"name": "gpus"}]}}
    plan = planned("scale", {"by": 1}, snapshot(workload=deployment(made)))
    assert "claim devices" in weighed(plan, "room")
    assert "is not known: platform decides too" in weighed(plan, "last_room")
    assert plan.approved_by


def test_a_floor_never_goes_above_the_maximum() -> None:
    small = scaler()
    small["spec"]["maxReplicas"] = 3
    first = planned("set_flags", CAP, snapshot(autoscalers=(small,))).calls[0]
    assert [d.text for d in first.differences] == [f"{HPA} llm: minReplicas for the rollout 2 → 3"]


def test_the_bounds_that_were_raised_go_back_and_nothing_else() -> None:
    full = scaler()
    full["spec"]["maxReplicas"] = 4
    (raised,) = planned("scale", {"by": 1, "above_maximum": True}, snapshot(autoscalers=(full,))).calls
    (edited,) = planned("set_flags", CAP, snapshot()).calls
    ledger = with_ledger(entry(raised, 0, verb="scale"), entry(edited, 1))
    seen = snapshot(autoscalers=(applied(raised.body, full),), workload=applied(edited.body, deployment()))
    plan = planned("undo", {"of": "autoscaler"}, seen, ledger)
    (call,) = plan.calls
    assert (call.target.kind, call.undoes) == (HPA, "INC-42/R1/0")
    assert applied(call.body, seen.autoscalers[0])["spec"] == full["spec"]
    assert cleans_up(plan, ledger.ledger), "it is announced, not approved"


def test_without_raised_bounds_none_go_back() -> None:
    result = declined("undo", {"of": "autoscaler"}, snapshot(autoscalers=(scaler(),)))
    assert (result.outcome, result.reason) == ("not_needed", "the bot raised no bounds of an autoscaler")


def test_a_pause_of_scale_in_only_does_not_keep_more_replicas_from_coming() -> None:
    paused = scaled_object(annotations={"autoscaling.keda.sh/paused-scale-in": "true"})
    assert planned("scale", {"by": 1}, snapshot(scaled_objects=(paused,)))


# --- the floor during an undo -----------------------------------------------------------------------------------------


def edited() -> tuple[Call, ClusterSnapshot]:
    """A flag edit, and the fleet that runs it, without an autoscaler."""
    (call,) = planned("set_flags", CAP, snapshot()).calls
    return call, snapshot(workload=applied(call.body, deployment()))


@pytest.mark.parametrize("drains_itself", [True, False], ids=["one-call", "drained-one-by-one"])
def test_an_autoscaler_takes_no_replica_away_during_the_undo_of_a_rollout(*, drains_itself: bool) -> None:
    before = deployment(template() if drains_itself else NO_DRAIN)
    calls = planned("set_flags", CAP, snapshot(workload=before)).calls
    present = before
    for call in calls:
        present = applied(call.body, present) if call.target.kind == "Deployment" else present
    ledger = with_ledger(*(entry(call, number) for number, call in enumerate(calls) if call.target.kind != "Pod"))
    plan = planned("undo", {"of": "last"}, snapshot(workload=present, autoscalers=(scaler(),)), ledger)
    first, *rest, last = plan.calls
    assert HPA not in {call.target.kind for call in rest}
    assert [d.text for d in first.differences] == [f"{HPA} llm: minReplicas for the rollout 2 → 4"]
    assert (first.undo[0].body, last.body[-1]["value"]) == (last.body, 2)
    assert isinstance(plan.steps[-2], Wait), "it goes back once the rollout is over"
    assert all(call.restores for call in plan.calls), "an undo is no change of its own"
    assert grade(plan, "scale_in") == "fine"


def test_an_undo_says_why_it_cannot_hold_a_floor() -> None:
    call, seen = edited()
    plan = planned("undo", {"of": "last"}, replace(seen, autoscalers=(kept_by_flux(),)), with_ledger(entry(call)))
    assert {call.target.kind for call in plan.calls} == {"Deployment"}
    assert "its floor belongs to Flux Kustomization serving" in weighed(plan, "scale_in")


def test_an_undo_that_rolls_nothing_out_holds_no_floor() -> None:
    (call,) = planned("canary", CAP, snapshot()).calls
    seen = snapshot(canary={**call.body, "metadata": {**call.body["metadata"], "uid": "c"}}, autoscalers=(scaler(),))
    plan = planned("undo", {"of": "last"}, seen, with_ledger(entry(call, verb="canary")))
    assert [each.method for each in plan.calls] == ["delete"]


def test_an_undo_that_scales_in_too_holds_no_more_replicas_than_it_leaves() -> None:
    """An autoscaler that was not there, or could not be read, when the bot scaled: a higher floor undid the undo."""
    (scaled,) = planned("scale", {"by": 1}, snapshot()).calls
    (call,) = planned("set_flags", CAP, snapshot(workload=deployment(replicas=5))).calls
    five = tuple(pod(number) for number in range(1, 6))
    seen = snapshot(workload=applied(call.body, deployment(replicas=5)), pods=five, autoscalers=(scaler(),))
    ledger = with_ledger(entry(scaled, verb="scale", call_id="INC-42/R1/0"), entry(call, call_id="INC-42/R2/0"))
    plan = planned("undo", {"of": "all"}, seen, ledger)
    floors = [each.body[-1]["value"] for each in plan.calls if each.target.kind == HPA]
    assert ([each.body[-1]["value"] for each in plan.calls if each.subresource], floors) == ([4], [4, 2])


@pytest.mark.parametrize("drains_itself", [True, False], ids=["one-call", "drained-one-by-one"])
def test_a_floor_that_is_raised_already_goes_back_after_the_rollout(*, drains_itself: bool) -> None:
    before = deployment(template() if drains_itself else NO_DRAIN)
    plan = planned("set_flags", CAP, snapshot(workload=before, autoscalers=(scaler(),)))
    hold, *calls = [call for call in plan.calls[:-1] if call.target.kind != "Pod"]
    present = before
    for call in calls:
        present = applied(call.body, present)
    ledger = with_ledger(*(entry(call, number) for number, call in enumerate((hold, *calls))))
    seen = snapshot(workload=present, autoscalers=(applied(hold.body, scaler()),))
    back = planned("undo", {"of": "last"}, seen, ledger)
    kinds = [call.target.kind for call in back.calls]
    assert (kinds[-1], kinds.count(HPA)) == (HPA, 1)
    assert applied(back.calls[-1].body, seen.autoscalers[0])["spec"] == scaler()["spec"]


def test_an_undo_that_only_held_the_floor_is_tried_again_with_the_change_itself() -> None:
    call, seen = edited()
    hold = planned("undo", {}, replace(seen, autoscalers=(scaler(),)), with_ledger(entry(call))).calls[0]
    held = replace(seen, autoscalers=(applied(hold.body, scaler()),))
    by_undo = entry(hold, verb="undo", call_id="INC-42/R2/0")
    again = planned("undo", {"of": "last"}, held, with_ledger(entry(call), by_undo))
    assert [each.target.kind for each in again.calls] == ["Deployment", HPA]


def test_an_undo_that_stopped_in_between_leaves_only_the_floor_to_put_back() -> None:
    (older,) = planned("scale", {"by": 1}, snapshot(workload=deployment(replicas=3))).calls
    call, seen = edited()
    hold = planned("undo", {}, replace(seen, autoscalers=(scaler(),)), with_ledger(entry(call))).calls[0]
    held = replace(snapshot(), autoscalers=(applied(hold.body, scaler()),))
    ledger = with_ledger(
        entry(older, verb="scale", call_id="INC-42/R0/0"),
        entry(call, undone_by="INC-42/R2/1"),
        entry(hold, verb="undo", call_id="INC-42/R2/0"),
    )
    again = planned("undo", {"of": "last"}, held, ledger)
    assert [each.target.kind for each in again.calls] == [HPA], "an earlier change stays"


@pytest.mark.parametrize(
    ("others", "chosen"),
    [
        pytest.param({}, "-1000", id="no-other-has-one"),
        pytest.param({1: "100"}, "-1000", id="a-higher-one"),
        pytest.param({1: "-1000", 2: "-5000"}, "-5001", id="a-lower-one"),
        pytest.param({1: "a lot"}, "-1000", id="not-a-number"),
    ],
)
def test_the_chosen_replica_has_the_lowest_deletion_cost(others: dict[int, str], chosen: str) -> None:
    pods = [pod(number) for number in (1, 2, 3, 4)]
    for number, cost in others.items():
        pods[number - 1]["metadata"]["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": cost}
    pods[3]["metadata"]["creationTimestamp"] = "2999-01-01T00:00:00Z"
    plan = planned("scale", {"by": -1}, snapshot(pods=tuple(pods)))
    assert plan.calls[0].target.name == "llm-4"
    assert plan.calls[0].differences[0].text == f"llm-4: pod-deletion-cost (not set) → {chosen}"


def test_nobody_chooses_who_ends_while_two_revisions_run() -> None:
    """A deletion cost counts within one ReplicaSet: the Deployment decides which of them loses a replica."""
    rolling = (pod(1, revision=1), *(pod(number) for number in (2, 3, 4)))
    result = declined("scale", {"by": -1}, snapshot(pods=rolling))
    assert (result.outcome, "replicas of two revisions run" in result.reason) == ("impossible", True), result.reason
    ended = ({**rolling[0], "metadata": {**rolling[0]["metadata"], "deletionTimestamp": STAMP}}, *rolling[1:], pod(5))
    assert planned("scale", {"by": -1}, snapshot(pods=ended)).calls
    assert planned("scale", {"by": 1}, snapshot(pods=rolling)).calls


def idling(at: int) -> Obj:
    made = scaled_object()
    made["spec"] |= {"minReplicaCount": 2, "idleReplicaCount": at}
    return made


def test_keda_goes_to_its_idle_number_whatever_its_floor_is() -> None:
    seen = snapshot(scaled_objects=(idling(0),))
    text = "while none of its triggers is active, it goes to 0 replicas all the same (idleReplicaCount)"
    more, rolled = planned("scale", {"by": 1}, seen), planned("set_flags", CAP, seen)
    assert text in weighed(more, "autoscaler")
    assert (grade(rolled, "scale_in"), text in weighed(rolled, "scale_in")) == ("note", True)
    assert rolled.calls[0].target.kind == "ScaledObject", "its floor is held for the time with traffic"
