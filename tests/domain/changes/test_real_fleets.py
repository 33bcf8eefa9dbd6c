"""Every verb against fleets as their charts and examples make them: what is planned, and why the rest is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.domain.changes.catalogue import VERBS
from bot.domain.changes.plan import Wait
from bot.domain.changes.planning import plan_change
from bot.domain.changes.progress import progress
from bot.domain.cluster.json_patch import applied
from bot.domain.cluster.locate import object_of
from bot.domain.cluster.missing_pods import waits_for
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from tests.domain.changes.real_fleets import karpenter_zones, kueue_groups, paused_by_hand, production_stack
from tests.domain.changes.snapshots import CONTEXT, declined, grade, planned, weighed

pytestmark = pytest.mark.fast
CAP = {"edits": [{"flag": "--max-num-seqs", "value": 32}]}
STACK, ZONES = "vllm-llama3-deployment-vllm", "llama-predictor"
NOTHING = {"promote", "remove_canary", "rotate_canary", "return_replica", "uncordon_node", "undo"}
"""Verbs for which these fleets have nothing to do."""


def tried(verb: str, replica: str, node: str) -> dict[str, Any]:
    by_verb: dict[str, dict[str, Any]] = {
        "set_flags": CAP,
        "canary": CAP,
        "scale": {"by": 1},
        "rotate_canary": {"rotation": "in"},
        "probe_request": {"replica": replica},
        "run_job": {"cron_job": "bench"},
        **{key: {"replica": replica} for key in ("replace_replica", "isolate_replica", "return_replica")},
        **{key: {"node": node} for key in ("cordon_node", "drain_node", "uncordon_node")},
    }
    return by_verb.get(verb, {})


FLEETS = {
    "production-stack": (production_stack(), f"{STACK}-2", "gpu-1"),
    "paused-by-hand": (production_stack(scaled_objects=(paused_by_hand(),)), f"{STACK}-2", "gpu-1"),
    "kueue": (kueue_groups(), "vllm-1", "h100-2"),
    "kueue-holds-a-group": (kueue_groups(gated=True), "vllm-1", "h100-2"),
    "kserve": (karpenter_zones(), f"{ZONES}-2", "karpenter-b"),
    "zones": (karpenter_zones(by_kserve=False), f"{ZONES}-2", "karpenter-b"),
}
ROLLOUTS = {"set_flags", "restart", "rollback"}
ONE_REPLICA = {"replace_replica", "isolate_replica"}
PLANNED = {
    "production-stack": {
        *ROLLOUTS,
        "canary",
        "scale",
        "replace_replica",
        "isolate_replica",
        "cordon_node",
        "drain_node",
    },
    "paused-by-hand": {*ROLLOUTS, "canary", "replace_replica", "isolate_replica", "cordon_node", "drain_node"},
    "kueue": {"set_flags", "restart", "scale", "replace_replica", "isolate_replica", "cordon_node"},
    "kueue-holds-a-group": {"scale", "replace_replica", "isolate_replica", "cordon_node"},
    "kserve": {"canary", "isolate_replica", "cordon_node"},
    "zones": {*ROLLOUTS, "canary", "scale", "isolate_replica", "cordon_node"},
}


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - NOTHING))
@pytest.mark.parametrize("name", FLEETS)
def test_each_verb_is_planned_or_says_why_not(name: str, verb: str) -> None:
    seen, replica, node = FLEETS[name]
    result = plan_change(verb, tried(verb, replica, node), seen, CONTEXT)
    assert (result.plan is not None) == (verb in PLANNED[name]), f"{result.outcome}: {result.reason}"
    assert result.plan is not None or (result.outcome, bool(result.reason)) == ("impossible", True)


@pytest.mark.parametrize("verb", sorted(NOTHING))
@pytest.mark.parametrize("name", FLEETS)
def test_what_has_nothing_to_do_says_so(name: str, verb: str) -> None:
    seen, replica, node = FLEETS[name]
    assert declined(verb, tried(verb, replica, node), seen).reason


@pytest.mark.parametrize("verb", sorted(ROLLOUTS | {"scale"}))
@pytest.mark.parametrize("name", FLEETS)
def test_what_is_planned_can_be_applied_and_taken_back(name: str, verb: str) -> None:
    seen, replica, node = FLEETS[name]
    plan = plan_change(verb, tried(verb, replica, node), seen, CONTEXT).plan
    objects: dict[str, Obj] = {}
    for call in plan.calls if plan else ():
        before = objects.get(call.target.uid, object_of(call.target, seen))
        assert before is not None
        objects[call.target.uid] = applied(call.body, before)
        for back in call.undo:
            assert applied(back.body, objects[call.target.uid])["spec"] == before["spec"]


def test_the_tag_of_another_project_is_no_version_of_the_engine() -> None:
    """`lmcache/vllm-openai:v0.3.7` has LMCache 0.3.7, and a vLLM that is many versions newer."""
    note = weighed(planned("set_flags", CAP, production_stack()), "flag_table")
    assert note.startswith("whether this image, whose tag does not say a version, has --max-num-seqs is not known")


@pytest.mark.parametrize("by", [1, -1])
def test_a_replica_count_that_people_have_fixed_is_not_called_the_autoscalers_decision(by: int) -> None:
    result = declined("scale", {"by": by}, production_stack(scaled_objects=(paused_by_hand(),)))
    assert "is paused: autoscaling.keda.sh/paused-replicas=4" in result.reason
    assert result.hint == "change the annotation, or remove it"


def test_a_queue_that_admits_pods_is_no_free_room() -> None:
    plan = planned("scale", {"by": 1}, kueue_groups())
    assert grade(plan, "room") == "warning"
    assert "Kueue's queue default decides when a new pod may start" in weighed(plan, "room")


def test_a_pod_that_a_scheduling_gate_holds_waits_for_its_queue_and_not_for_a_gpu() -> None:
    seen = kueue_groups(gated=True)
    held = "vllm-1 is held by scheduling gate kueue.x-k8s.io/admission, kueue.x-k8s.io/topology"
    assert waits_for(seen) == ("quota", held)
    assert held in declined("set_flags", CAP, seen).reason


def test_a_scale_out_that_a_queue_holds_says_so_while_it_waits() -> None:
    wait = planned("scale", {"by": 1}, replace(kueue_groups(), workload=smaller())).steps[-1]
    assert isinstance(wait, Wait)
    found = progress(wait, kueue_groups(gated=True))
    assert found.state == "pending"
    assert "vllm-1 is held by scheduling gate kueue.x-k8s.io/admission, kueue.x-k8s.io/topology" in found.text


def smaller() -> Obj:
    workload = kueue_groups().workload or {}
    return {**workload, "spec": workload["spec"] | {"replicas": 1}}


def test_pods_whose_owners_ask_for_no_disruption_are_named_before_they_are_evicted() -> None:
    seen: ClusterSnapshot = replace(karpenter_zones(by_kserve=False), pdbs=())
    evicted = planned("drain_node", {"node": "karpenter-b", "others": "evict"}, seen)
    assert "1 pod of others: 1 of Job training/finetune" in weighed(evicted, "others_pods")
    assert "1 of them asks not to be disturbed (karpenter.sh/do-not-disrupt)" in weighed(evicted, "others_pods")
    left = planned("drain_node", {"node": "karpenter-b"}, seen)
    assert "asks not to be disturbed" not in weighed(left, "others_pods")
