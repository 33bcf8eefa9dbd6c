"""Foreign changes to objects that the run had changed; never the run's or the controllers' own."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from bot.domain.changes.interference import interference
from bot.domain.changes.plan import Call, LedgerEntry
from bot.domain.cluster.json_patch import applied
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from tests.domain.changes.snapshots import deployment, node, planned, snapshot, template

pytestmark = pytest.mark.fast
EDIT = {"edits": [{"flag": "--max-num-seqs", "value": 6}]}
ONE = {"replica": "llm-2"}


def ledger(*calls: Call, verb: str = "v") -> tuple[LedgerEntry, ...]:
    return tuple(
        LedgerEntry(
            call_id=f"INC-42/R1/{number}",
            state="s",
            verb=verb,
            title=call.title,
            target=call.target,
            undo=call.undo,
            no_undo=call.no_undo,
            applied_at=0.0,
        )
        for number, call in enumerate(calls)
    )


def edited(seen: ClusterSnapshot, **spec: Any) -> ClusterSnapshot:
    workload = copy.deepcopy(seen.workload or {})
    workload["spec"].update(spec)
    return replace(seen, workload=workload)


def after(seen: ClusterSnapshot, *calls: Call) -> ClusterSnapshot:
    """The snapshot once these calls have been carried out."""
    objects: dict[str, Obj] = {"": seen.workload or {}}
    pods, nodes = list(seen.pods), list(seen.nodes)
    for call in calls:
        if call.target.kind == "Deployment":
            objects[""] = applied(call.body, objects[""])
        for found in (pods, nodes):
            for index, obj in enumerate(found):
                if obj["metadata"]["uid"] == call.target.uid:
                    found[index] = applied(call.body, {**obj, "metadata": {"annotations": {}, **obj["metadata"]}})
    return replace(seen, workload=objects[""], pods=tuple(pods), nodes=tuple(nodes))


def texts(entries: tuple[LedgerEntry, ...], seen: ClusterSnapshot) -> list[str]:
    return [found.text for found in interference(entries, seen)]


def plans() -> list[tuple[str, dict[str, Any]]]:
    return [
        ("set_flags", EDIT),
        ("scale", {"by": 1}),
        ("isolate_replica", ONE),
        ("cordon_node", {"node": "gpu-node-1"}),
        ("restart", {}),
        ("rollback", {}),
    ]


@pytest.mark.parametrize(("verb", "arguments"), plans(), ids=lambda value: value if isinstance(value, str) else "")
def test_what_the_run_did_itself_is_no_interference(verb: str, arguments: dict[str, Any]) -> None:
    call = planned(verb, arguments, snapshot()).calls[0]
    assert texts(ledger(call), after(snapshot(), call)) == []


def test_a_scale_by_somebody_else_shows_both_values() -> None:
    call = planned("scale", {"by": 1}, snapshot()).calls[0]
    assert texts(ledger(call), edited(snapshot(), replicas=7)) == [
        "Deployment serving/llm: /spec/replicas is 7, the bot left 5"
    ]


def test_a_flag_edited_by_somebody_else_names_who_wrote_it() -> None:
    call = planned("set_flags", EDIT, snapshot()).calls[0]
    seen = after(snapshot(), call)
    assert seen.workload is not None
    seen.workload["spec"]["template"]["spec"]["containers"][0]["args"][2] = "--max-num-seqs=32"
    seen.workload["metadata"]["managedFields"] = [
        {"manager": "incident-bot", "time": "2027-01-15T09:00:00Z"},
        {"manager": "kubectl-edit", "time": "2027-01-15T08:00:00Z"},
        {"manager": "kubectl-create", "time": "2026-01-15T08:00:00Z"},
    ]
    (text,) = texts(ledger(call), seen)
    assert "--max-num-seqs=32" in text
    assert "--max-num-seqs=6" in text
    assert text.endswith("(written by kubectl-edit at 2027-01-15T08:00:00Z)")


def test_a_secret_in_an_edited_field_is_not_shown() -> None:
    call = planned("set_flags", {"edits": [{"env": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}]}, snapshot()).calls[0]
    seen = after(snapshot(), call)
    assert seen.workload is not None
    env = [{"name": "DB_PASSWORD", "value": "hunter2"}, {"name": "MODE", "value": "fast"}]
    seen.workload["spec"]["template"]["spec"]["containers"][0]["env"] = env
    (text,) = texts(ledger(call), seen)
    assert "DB_PASSWORD" in text
    assert "fast" in text
    assert "hunter2" not in text


def test_an_uncordon_by_somebody_else_is_noticed() -> None:
    call = planned("cordon_node", {"node": "gpu-node-1"}, snapshot()).calls[0]
    seen = after(snapshot(), call)
    seen.nodes[0]["spec"].pop("unschedulable")
    assert texts(ledger(call), seen) == ["Node gpu-node-1: /spec/unschedulable is not set, the bot left True"]


def test_a_deleted_replica_that_was_isolated_is_noticed_unless_the_run_rolled_since() -> None:
    call = planned("isolate_replica", ONE, snapshot()).calls[0]
    without = replace(snapshot(), pods=tuple(pod for pod in snapshot().pods if pod["metadata"]["name"] != "llm-2"))
    assert texts(ledger(call), without)[0].startswith("Pod serving/llm-2 was deleted")
    rolled = planned("set_flags", EDIT, snapshot()).calls[0]
    assert texts(ledger(call, rolled), after(without, rolled)) == []


def test_what_was_taken_back_is_not_compared() -> None:
    (entry,) = ledger(planned("scale", {"by": 1}, snapshot()).calls[0])
    assert texts((entry.model_copy(update={"undone_by": "INC-42/R2/0"}),), snapshot()) == []


def test_only_the_newest_value_of_a_field_counts() -> None:
    first = planned("scale", {"by": 1}, snapshot()).calls[0]
    grown = after(snapshot(), first)
    second = planned("scale", {"by": 1}, grown).calls[0]
    assert texts(ledger(first, second), after(grown, second)) == []


def test_an_object_made_again_is_not_the_one_that_was_changed() -> None:
    call = planned("cordon_node", {"node": "gpu-node-1"}, snapshot()).calls[0]
    again = node(1)
    again["metadata"]["uid"] = "another"
    assert texts(ledger(call), replace(snapshot(), nodes=(again,))) == ["Node gpu-node-1 was deleted and made again"]


def with_config(text: str) -> ClusterSnapshot:
    """A workload that reads its flags from a ConfigMap."""
    pod_template = template("serve", "m", "--config=/etc/vllm/config.yaml", command=["vllm"])
    pod_template["spec"]["volumes"] = [{"name": "c", "configMap": {"name": "vllm-config"}}]
    pod_template["spec"]["containers"][0]["volumeMounts"] = [{"name": "c", "mountPath": "/etc/vllm"}]
    held = {"metadata": {"name": "vllm-config", "namespace": "serving", "uid": "cm-uid"}, "data": {"config.yaml": text}}
    return snapshot(workload=deployment(pod_template), config_maps={"vllm-config": held}, services=())


def test_the_bots_own_edit_of_a_config_map_is_no_interference_and_anothers_is() -> None:
    seen = with_config("max-num-seqs: 64\n")
    call = planned("set_flags", EDIT, seen).calls[0]
    assert call.target.kind == "ConfigMap"
    assert texts(ledger(call), with_config("max-num-seqs: 6\n")) == []
    (text,) = texts(ledger(call), with_config("max-num-seqs: 32\n"))
    assert text.startswith("ConfigMap serving/vllm-config: /data/config.yaml is max-num-seqs: 32")


def test_an_autoscaler_of_the_workloads_name_is_not_taken_for_the_workload() -> None:
    autoscaler = {
        "metadata": {"name": "llm", "namespace": "serving", "uid": "hpa-uid"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "llm"}, "minReplicas": 2, "maxReplicas": 8},
    }
    seen = snapshot(autoscalers=(autoscaler,))
    call = planned("scale", {"by": 1}, seen).calls[0]
    assert texts(ledger(call), replace(seen, autoscalers=(applied(call.body, autoscaler),))) == []
    assert texts(ledger(call), replace(seen, autoscalers=(), unreadable={"autoscalers": "403"})) == []
    assert texts(ledger(call), replace(seen, autoscalers=())) == [
        f"HorizontalPodAutoscaler serving/llm was deleted; the bot did: {call.title}"
    ]


def test_a_rollout_of_any_kind_of_workload_ends_the_pods_that_were_isolated_before() -> None:
    isolated, rolled = ledger(
        planned("isolate_replica", ONE, snapshot()).calls[0], planned("set_flags", EDIT, snapshot()).calls[0]
    )
    of_a_set = rolled.model_copy(update={"target": rolled.target.model_copy(update={"kind": "StatefulSet"})})
    without = replace(snapshot(), pods=tuple(pod for pod in snapshot().pods if pod["metadata"]["name"] != "llm-2"))
    assert not [text for text in texts((isolated, of_a_set), without) if text.startswith("Pod")]


def test_what_cannot_be_read_is_not_called_interference() -> None:
    call = planned("isolate_replica", ONE, snapshot()).calls[0]
    assert texts(ledger(call), replace(snapshot(), pods=(), unreadable={"pods": "403"})) == []


def test_who_wrote_before_the_bot_is_not_blamed() -> None:
    call = planned("scale", {"by": 1}, snapshot()).calls[0]
    seen = edited(snapshot(), replicas=7)
    assert seen.workload is not None
    seen.workload["metadata"]["managedFields"] = [{"manager": "kubectl-create", "time": "2026-01-15T08:00:00Z"}]
    (entry,) = ledger(call)
    found = interference([entry.model_copy(update={"applied_at": 1_800_000_000.0})], seen)
    assert [one.text for one in found] == ["Deployment serving/llm: /spec/replicas is 7, the bot left 5"]
