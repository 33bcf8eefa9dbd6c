"""Rotation: which replicas get requests, and which label takes one out, by what sends the requests."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.changes.drain import drain_mode
from bot.domain.cluster.objects import name_of
from bot.domain.cluster.rotation import OUT_VALUE, in_order_of_leaving, is_in_rotation, rotation_of, router_unread
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from tests.domain.changes.snapshots import (
    declined,
    deployment,
    endpoint_slice,
    grade,
    planned,
    pod,
    service,
    snapshot,
    template,
    weighed,
)

pytestmark = pytest.mark.fast
NO_SERVICE: dict[str, Any] = {"services": (), "endpoint_slices": ()}


def pool(name: str = "llm", **labels: str) -> Obj:
    wanted = labels or {"app": "llm", "serving": "active"}
    return {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": {"name": name, "namespace": "serving"},
        "spec": {
            "selector": {"matchLabels": wanted},
            "targetPorts": [{"number": 8000}],
            "endpointPickerRef": {"name": f"{name}-epp", "port": {"number": 9002}},
        },
    }


def older_pool(**labels: str) -> Obj:
    spec = {"selector": labels, "targetPortNumber": 8000, "extensionRef": {"name": "llm-epp"}}
    return {
        "apiVersion": "inference.networking.x-k8s.io/v1alpha2",
        "kind": "InferencePool",
        "metadata": {"name": "llm", "namespace": "serving"},
        "spec": spec,
    }


def out(number: int) -> Obj:
    return pod(number, serving=OUT_VALUE)


def counted(seen: ClusterSnapshot) -> tuple[int, int, bool]:
    rotation = rotation_of(seen)
    assert rotation is not None
    return len(rotation.in_rotation), len(rotation.ready), not rotation.unread


PODS = (pod(1), pod(2, is_ready=False), pod(3), out(4))


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        pytest.param({}, (3, 3, True), id="service"),
        pytest.param({**NO_SERVICE, "inference_pools": (pool(),)}, (2, 3, True), id="pool"),
        pytest.param({**NO_SERVICE, "inference_pools": (pool(app="other"),)}, (3, 3, False), id="pool-of-others"),
        pytest.param(
            {**NO_SERVICE, "inference_pools": (older_pool(app="llm", serving="active"),)}, (2, 3, True), id="older-pool"
        ),
        pytest.param(
            {**NO_SERVICE, "inference_pools": (older_pool(matchLabels="llm"),)}, (3, 3, False), id="a-label-matchLabels"
        ),
        pytest.param(NO_SERVICE, (3, 3, False), id="a-router-that-cannot-be-read"),
        pytest.param({"endpoint_slices": ()}, (0, 3, True), id="a-service-without-endpoints"),
        pytest.param(
            {**NO_SERVICE, "unreadable": {"inference_pools": "403"}}, (3, 3, False), id="pools-cannot-be-listed"
        ),
    ],
)
def test_the_router_decides_who_gets_requests(parts: dict[str, Any], found: tuple[int, int, bool]) -> None:
    assert counted(snapshot(pods=PODS, **parts)) == found


def test_a_pod_that_a_pool_selects_leaves_rotation_with_its_label() -> None:
    seen = snapshot(**NO_SERVICE, inference_pools=(pool(),))
    plan = planned("isolate_replica", {"replica": "llm-2"}, seen)
    changed = {op["path"]: op["value"] for op in plan.calls[0].body if op["op"] in ("replace", "add")}
    assert changed["/metadata/labels/serving"] == OUT_VALUE
    assert not is_in_rotation(out(2), seen)
    assert is_in_rotation(pod(2), seen)


def test_a_label_has_to_count_for_service_and_pool_alike() -> None:
    both = {"services": (service(),), "inference_pools": (pool(app="llm"),)}
    assert drain_mode(snapshot(**both)).mode != "label"
    one = {"services": (service(),), "inference_pools": (pool(),)}
    plan = planned("isolate_replica", {"replica": "llm-2"}, snapshot(**one))
    assert any(op["path"] == "/metadata/labels/serving" for op in plan.calls[0].body)


def discovery(name: str = "llm-peers") -> Obj:
    """As the controllers of LeaderWorkerSets and Ray clusters make it, so that pods find each other by name."""
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": "llm"}}
    return {"metadata": {"name": name, "namespace": "serving"}, "spec": spec}


def slice_of(name: str, *pods: Obj) -> Obj:
    found = endpoint_slice(*pods)
    return {**found, "metadata": {"name": f"{name}-abc", "labels": {"kubernetes.io/service-name": name}}}


def test_a_service_by_which_pods_find_each_other_sends_no_requests() -> None:
    slices = (slice_of("llm", pod(1), pod(3)), slice_of("llm-peers", *PODS))
    seen = snapshot(pods=PODS, services=(service(), discovery()), endpoint_slices=slices)
    assert counted(seen) == (2, 3, True), "it lists pods that are not Ready, too"
    plan = planned("isolate_replica", {"replica": "llm-1"}, seen)
    assert any(op["path"] == "/metadata/labels/serving" for op in plan.calls[0].body)
    alone = snapshot(pods=PODS, services=(discovery(),), endpoint_slices=(slice_of("llm-peers", *PODS),))
    assert counted(alone) == (3, 3, False), "another router finds them"


def test_a_service_that_does_not_count_as_a_router_is_named() -> None:
    seen = snapshot(services=(discovery(),), endpoint_slices=())
    hint = "(Service llm-peers only lets pods find each other)"
    reason = declined("isolate_replica", {"replica": "llm-1"}, seen).reason
    assert f"no Service and no InferencePool selects it {hint}" in reason
    assert (
        router_unread(seen) == f"no Service and no InferencePool selects its pods {hint}, so another router finds them"
    )


def test_what_cannot_be_read_is_named_where_replicas_end_and_nowhere_else() -> None:
    edit = {"edits": [{"flag": "--max-num-seqs", "value": 6}]}
    plan = planned("set_flags", edit, snapshot(**NO_SERVICE))
    assert grade(plan, "rotation") == "note"
    assert "which replicas get requests cannot be read" in weighed(plan, "rotation")
    assert plan.serving is None, "an unknown number is enough for no approval given ahead"
    more = planned("scale", {"by": 1}, snapshot(**NO_SERVICE))
    assert "rotation" not in {each.name for each in more.circumstances}


@pytest.mark.parametrize("verb", ["isolate_replica", "probe_request"])
def test_nothing_counts_as_out_of_a_rotation_that_cannot_be_read(verb: str) -> None:
    arguments = {"replica": "llm-2"} | ({"max_tokens": 64} if verb == "probe_request" else {})
    assert declined(verb, arguments, snapshot(**NO_SERVICE)).outcome == "impossible"


def test_a_replica_that_may_get_requests_is_replaced_as_one_that_does() -> None:
    workload = deployment(template(lifecycle={}))
    plan = planned("replace_replica", {"replica": "llm-2"}, snapshot(**NO_SERVICE, workload=workload))
    assert plan.risk == "high", "its streams would be cut"
    assert grade(plan, "drain") == "warning"


def test_what_was_added_last_leaves_first_and_what_is_broken_before_it() -> None:
    pods = [pod(1), pod(2), pod(3), pod(4, is_ready=False)]
    pods[1]["metadata"]["creationTimestamp"] = "2999-01-01T00:00:00Z"
    seen = snapshot(pods=tuple(pods))
    assert [name_of(each) for each in in_order_of_leaving(pods, seen)] == ["llm-4", "llm-2", "llm-1", "llm-3"]


def test_replicas_leave_in_the_order_in_which_their_controller_ends_them() -> None:
    """Before it looks at any annotation, it ends those without a node, then those that have not started."""
    crashed, pulling, waiting = (pod(number, is_ready=False) for number in (4, 3, 2))
    crashed["metadata"]["creationTimestamp"] = "2999-01-02T00:00:00Z"
    pulling["metadata"]["creationTimestamp"] = "2999-01-01T00:00:00Z"
    del waiting["spec"]["nodeName"]
    for one in (pulling, waiting):
        one["status"]["phase"] = "Pending"
    pods = [pod(1), crashed, pulling, waiting]
    seen = snapshot(pods=tuple(pods))
    assert [name_of(each) for each in in_order_of_leaving(pods, seen)] == ["llm-2", "llm-3", "llm-4", "llm-1"]
