"""Rules of the controllers that need no server: order of removal, messages, permitted field values."""

from datetime import timedelta
from typing import Any

import pytest

from bot.sandbox.kubernetes import clock, schema
from bot.sandbox.kubernetes.access import Attributes, Denial
from bot.sandbox.kubernetes.controllers.cleaning import EventCleaner
from bot.sandbox.kubernetes.controllers.pod_template import same_template, template_hash
from bot.sandbox.kubernetes.controllers.replica_set import DELETION_COST, victims
from bot.sandbox.kubernetes.controllers.rollout_bounds import bounds_of
from bot.sandbox.kubernetes.controllers.scheduler import NOT_SCHEDULABLE, unschedulable_message
from bot.sandbox.kubernetes.errors import ApiError
from bot.sandbox.kubernetes.registry import Registry
from bot.sandbox.kubernetes.requests import parse_target
from bot.sandbox.kubernetes.resources import CONFIG_MAPS, EVENTS, NAMESPACES
from bot.sandbox.kubernetes.store import Store

pytestmark = pytest.mark.fast

Obj = dict[str, Any]


def pod(
    name: str,
    *,
    node: str = "n1",
    phase: str = "Running",
    ready: bool = True,
    cost: str = "0",
    ready_since: str = "2026-01-01T00:00:00Z",
) -> Obj:
    truth = "True" if ready else "False"
    return {
        "metadata": {
            "name": name,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {DELETION_COST: cost},
        },
        "spec": {"nodeName": node} if node else {},
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": truth, "lastTransitionTime": ready_since}],
        },
    }


@pytest.mark.parametrize(
    ("victim", "other"),
    [
        pytest.param(pod("v", node="", phase="Pending", ready=False), pod("o", cost="-5"), id="unscheduled-first"),
        pytest.param(pod("v", phase="Pending", ready=False), pod("o", ready=False), id="pending-before-unready"),
        pytest.param(pod("v", ready=False, cost="9"), pod("o"), id="unready-before-cheap"),
        pytest.param(pod("v", cost="-1"), pod("o", ready_since="2026-01-02T00:00:00Z"), id="cheap-before-new"),
        pytest.param(pod("v", cost="nonsense"), pod("o", cost="1"), id="a-broken-cost-is-0"),
        pytest.param(pod("v", ready_since="2026-01-02T00:00:00Z"), pod("o"), id="newer-first"),
    ],
)
def test_scaling_in_takes_the_pod_that_matters_least(victim: Obj, other: Obj) -> None:
    assert victims([other, victim], 1) == [victim]


def test_scaling_in_takes_from_the_crowded_node() -> None:
    pods = [pod("a", node="n2"), pod("b", node="n1"), pod("c", node="n1")]
    assert victims(pods, 1)[0]["spec"]["nodeName"] == "n1"


def test_the_scheduler_counts_each_obstacle() -> None:
    lacking = ["Insufficient nvidia.com/gpu"]
    message = unschedulable_message({"a": [NOT_SCHEDULABLE], "b": lacking, "c": lacking})
    assert message == (
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient nvidia.com/gpu. "
        "no new claims to deallocate, preemption: 0/3 nodes are available: "
        "1 Preemption is not helpful for scheduling, 2 No preemption victims found for incoming pod."
    )


def test_equal_templates_have_one_hash_whatever_their_hash_label() -> None:
    template = {"metadata": {"labels": {"app": "llm"}}, "spec": {"containers": []}}
    labelled = {"metadata": {"labels": {"app": "llm", "pod-template-hash": "x"}}, "spec": {"containers": []}}
    assert same_template(template, labelled)
    assert template_hash(template) == template_hash(labelled)
    assert template_hash(template) != template_hash({**template, "spec": {}})


@pytest.mark.parametrize(
    ("rolling", "replicas", "surge", "unavailable"),
    [
        pytest.param({"maxSurge": "25%", "maxUnavailable": "25%"}, 4, 1, 1, id="default"),
        pytest.param({"maxSurge": 1, "maxUnavailable": 0}, 4, 1, 0, id="numbers"),
        pytest.param({"maxSurge": "0%", "maxUnavailable": "10%"}, 4, 0, 1, id="nothing-and-nothing-is-one"),
    ],
)
def test_a_rollout_can_always_move(rolling: Obj, replicas: int, surge: int, unavailable: int) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
    bounds = bounds_of({"spec": {"replicas": replicas, "strategy": strategy}})
    assert (bounds.surge, bounds.unavailable) == (surge, unavailable)


def test_the_schema_is_that_of_the_official_client() -> None:
    from bot.sandbox.kubernetes.write_schema import build

    assert schema.types() == build() | schema.CUSTOM


def test_an_unknown_field_is_named_with_its_path() -> None:
    obj = {"spec": {"template": {"spec": {"containers": [{"name": "a", "imagee": "b"}]}}}}
    decoded = schema.decode("V1Deployment", obj)
    assert decoded.unknown == ["spec.template.spec.containers[0].imagee"]
    assert decoded.obj["spec"]["template"]["spec"]["containers"] == [{"name": "a"}]


def test_a_boolean_is_no_number() -> None:
    with pytest.raises(schema.MistypedError, match="cannot unmarshal bool"):
        schema.decode("V1Deployment", {"spec": {"replicas": True}})


def test_a_quantity_may_be_written_as_a_number() -> None:
    decoded = schema.decode("V1Container", {"resources": {"limits": {"nvidia.com/gpu": 1}}})
    assert decoded.obj["resources"]["limits"] == {"nvidia.com/gpu": "1"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("/api/v1/pods", ("pods", "", "", ""), id="everywhere"),
        pytest.param("/api/v1/namespaces/n/pods/p", ("pods", "n", "p", ""), id="object"),
        pytest.param("/api/v1/namespaces/n/pods/p/eviction", ("pods", "n", "p", "eviction"), id="subresource"),
        pytest.param("/api/v1/namespaces/n", ("namespaces", "", "n", ""), id="namespace"),
        pytest.param("/api/v1/namespaces/n/status", ("namespaces", "", "n", "status"), id="namespace-status"),
        pytest.param("/api/v1/nodes/x/status", ("nodes", "", "x", "status"), id="cluster-scoped"),
        pytest.param("/apis/apps/v1/namespaces/n/deployments/d/scale", ("deployments", "n", "d", "scale"), id="group"),
    ],
)
def test_a_path_names_one_target(path: str, expected: tuple[str, str, str, str]) -> None:
    target = parse_target(path)
    assert (target.resource.plural, target.namespace, target.name, target.subresource) == expected


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/pods/p",
        "/api/v1/namespaces/n/nodes/x",
        "/api/v1/namespaces/n/pods/p/attach",
        "/api/v1/namespaces/n/pods/p/log/x",
        "/apis/apps/v2/deployments",
        "/elsewhere",
    ],
)
def test_a_path_that_names_nothing_answers_404(path: str) -> None:
    with pytest.raises(ApiError) as raised:
        parse_target(path)
    assert raised.value.code == 404


@pytest.mark.parametrize(
    ("denial", "verb", "resource", "subresource", "expected"),
    [
        pytest.param("patch:deployments", "patch", "deployments", "", True, id="exact"),
        pytest.param("patch:deployments", "patch", "deployments", "scale", False, id="not-its-parts"),
        pytest.param("create:pods/eviction", "create", "pods", "eviction", True, id="part"),
        pytest.param("*:nodes", "delete", "nodes", "", True, id="any-verb"),
    ],
)
def test_a_denial_covers_what_it_names(denial: str, verb: str, resource: str, subresource: str, expected: bool) -> None:
    attributes = Attributes(verb=verb, resource=resource, subresource=subresource)
    assert Denial.parse(denial).covers(attributes) is expected


def test_a_denial_that_cannot_be_read_says_how_it_should_look() -> None:
    with pytest.raises(ValueError, match="patch:deployments"):
        Denial.parse("deployments")


def test_a_history_that_is_full_makes_its_oldest_versions_too_old() -> None:
    store = Store(history=2)
    registry = Registry(store)
    registry.create(NAMESPACES, "", {"metadata": {"name": "default"}})
    start = store.version
    for name in ("a", "b", "c"):
        registry.create(CONFIG_MAPS, "default", {"metadata": {"name": name}})
    assert [change.obj["metadata"]["name"] for change in store.since(start + 1)] == ["b", "c"]
    with pytest.raises(ApiError) as raised:
        store.since(start)
    assert raised.value.code == 410


def test_a_stored_object_is_never_changed_by_a_later_write() -> None:
    registry = Registry(Store())
    registry.create(NAMESPACES, "", {"metadata": {"name": "default"}})
    made = registry.create(CONFIG_MAPS, "default", {"metadata": {"name": "a"}, "data": {"k": "1"}})
    registry.edit(CONFIG_MAPS, made, lambda new: new["data"].update(k="2"))
    assert made["data"] == {"k": "1"}


def test_an_event_is_forgotten_an_hour_after_it_was_last_recorded() -> None:
    registry = Registry(Store())
    registry.create(NAMESPACES, "", {"metadata": {"name": "default"}})
    hour_ago = clock.stamp(clock.now() - timedelta(hours=1, seconds=1))
    about = {"kind": "Pod", "name": "a", "namespace": "default"}
    for name, last in (("old", hour_ago), ("new", clock.stamp())):
        event = {"metadata": {"name": name}, "involvedObject": about, "lastTimestamp": last}
        registry.create(EVENTS, "default", event)
    cleaner = EventCleaner(registry)
    assert cleaner.reconcile(("default", "old")) is None
    assert cleaner.reconcile(("default", "new")) is not None
    assert [one["metadata"]["name"] for one in registry.store.list(EVENTS)] == ["new"]
