"""rollback and undo: back to the earlier state, with all consequences shown, and never over other changes."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.changes.context import PlanContext
from bot.domain.changes.plan import LedgerEntry, Wait
from bot.domain.cluster.json_patch import applied
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from tests.domain.changes.ledgers import after, entry, with_ledger
from tests.domain.changes.numbered import numbered_world, stateful_set
from tests.domain.changes.snapshots import (
    declined,
    deployment,
    grade,
    load,
    planned,
    pod,
    replica_set,
    snapshot,
    template,
    weighed,
)

pytestmark = pytest.mark.fast
EDIT = {"edits": [{"flag": "--max-num-seqs", "value": 6}]}


CAP_EDIT = {"edits": [{"flag": "--max-num-seqs", "value": 6.0}]}


def test_a_rollback_writes_the_newest_different_template_back_without_its_hash() -> None:
    seen = snapshot()
    plan = planned("rollback", {}, seen)
    back = after(seen, plan).workload or {}
    wanted = copy.deepcopy(seen.replica_sets[0]["spec"]["template"])
    del wanted["metadata"]["labels"]["pod-template-hash"]
    assert back["spec"]["template"] == wanted
    assert (plan.choices, plan.risk) == ({"revision": 1}, "high")


CRASHING: Obj = {
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-11-20T12:00:00Z"}],
    "containerStatuses": [{"name": "vllm", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
}


def stuck(crashing: Obj = CRASHING) -> ClusterSnapshot:
    """A rollout to revision 2 whose first pod crashes, while the four of revision 1 serve."""
    old = [pod(number, revision=1) for number in (1, 2, 3, 4)]
    new = pod(5, revision=2) | {"status": crashing}
    workload = deployment()
    workload["status"] |= {"updatedReplicas": 1, "replicas": 5, "unavailableReplicas": 1}
    busy = {f"llm-{number}": load(running=6, waiting=1) for number in (1, 2, 3, 4)}
    return snapshot(workload=workload, pods=(*old, new), load=busy)


def test_taking_a_stuck_rollout_back_ends_the_crashing_pod_alone() -> None:
    plan = planned("rollback", {}, stuck())
    assert plan.expected == "none: only llm-5 ends; the 4 replicas that serve run this template already"
    assert "0 streams are open on 1 pod" in weighed(plan, "drain")
    assert weighed(plan, "room") == "no room is needed: nothing has to start"


def test_a_replica_that_has_not_been_ready_since_its_engine_began_serves_nobody() -> None:
    running = {"name": "vllm", "state": {"running": {"startedAt": "2026-11-20T12:00:30Z"}}}
    assert "0 streams" in weighed(planned("rollback", {}, stuck(CRASHING | {"containerStatuses": [running]})), "drain")
    served = running | {"state": {"running": {"startedAt": "2026-11-20T11:00:00Z"}}}
    fell = stuck(CRASHING | {"containerStatuses": [served]})
    assert "an unknown number of streams" in weighed(planned("rollback", {}, fell), "drain"), "it served until now"


def test_a_rollback_lists_every_difference_with_flags_one_by_one() -> None:
    old = template("--served-model-name=tiny-llama", "--max-num-seqs=128", image="vllm/vllm-openai:v0.31.0")
    seen = snapshot(replica_sets=(replica_set(1, old), replica_set(2, template())))
    plan = planned("rollback", {}, seen)
    assert [d.text for d in plan.calls[0].differences] == [
        "--max-model-len 2048 → (not set)",
        "--max-num-seqs 64 → 128",
        "--shutdown-timeout 20 → (not set)",
        "image vllm/vllm-openai:v0.32.0 → vllm/vllm-openai:v0.31.0",
    ]
    assert weighed(plan, "differences").startswith("4 differences")


def test_the_undo_of_a_rollback_gives_the_identical_workload() -> None:
    seen = snapshot()
    plan = planned("rollback", {}, seen)
    assert applied(plan.calls[0].undo[0].body, after(seen, plan).workload or {}) == seen.workload


@pytest.mark.parametrize(
    ("revision", "outcome", "reason"),
    [
        pytest.param(2, "not_needed", "is what runs", id="present"),
        pytest.param(7.0, "impossible", "no revision 7", id="unknown"),
        pytest.param("x", "impossible", "whole number", id="a-word"),
    ],
)
def test_a_revision_that_cannot_be_says_why(revision: object, outcome: str, reason: str) -> None:
    result = declined("rollback", {"revision": revision}, snapshot())
    assert (result.outcome, reason in result.reason) == (outcome, True), result.reason


def test_there_is_nothing_to_go_back_to_when_all_revisions_are_the_same() -> None:
    seen = snapshot(replica_sets=(replica_set(1, template()), replica_set(2, template())))
    assert "no earlier revision" in declined("rollback", {}, seen).reason


def test_another_workloads_replica_sets_are_no_revisions_of_this_one() -> None:
    strange = replica_set(1, template("--seed=1"), of="other-uid", of_name="other")
    assert (
        "no earlier revision"
        in declined("rollback", {}, snapshot(replica_sets=(strange, replica_set(2, template())))).reason
    )


def test_a_rollback_of_the_bots_own_change_says_so() -> None:
    call = planned("set_flags", EDIT, snapshot()).calls[0]
    fixed = after(snapshot(), planned("set_flags", EDIT, snapshot())).workload or {}
    seen = snapshot(
        workload=fixed,
        replica_sets=(replica_set(2, template()), replica_set(3, fixed["spec"]["template"])),
    )
    plan = planned("rollback", {}, seen, with_ledger(entry(call)))
    assert grade(plan, "own_work") == "warning"


def test_an_undo_of_set_flags_restores_the_workload_and_waits_for_the_rollout() -> None:
    seen = snapshot()
    done = planned("set_flags", EDIT, seen)
    plan = planned("undo", {"of": "last"}, after(seen, done), with_ledger(entry(done.calls[0])))
    assert after(after(seen, done), plan).workload == seen.workload
    assert [s.condition for s in plan.steps if isinstance(s, Wait)] == ["rolled_out"]
    assert (plan.calls[0].undoes, plan.calls[0].restores, plan.risk) == ("INC-42/R1/0", True, "medium")
    assert plan.title == "Put the flags of llm back: --max-num-seqs 6 → 64"


def test_several_changes_are_taken_back_newest_first() -> None:
    seen = snapshot()
    first = planned("set_flags", EDIT, seen)
    second = planned("set_flags", {"edits": [{"flag": "--watermark", "value": 0.05}]}, after(seen, first))
    now = after(after(seen, first), second)
    ledger = with_ledger(entry(first.calls[0], 0), entry(second.calls[0], 1))
    plan = planned("undo", {"of": ["INC-42/R1/0", "INC-42/R1/1"]}, now, ledger)
    assert [call.undoes for call in plan.calls] == ["INC-42/R1/1", "INC-42/R1/0"]
    assert [s.condition for s in plan.steps if isinstance(s, Wait)] == ["rolled_out"]
    assert after(now, plan).workload == seen.workload
    back = "Put the flags of llm back: --watermark 0.05 → (not set); Put the flags of llm back: --max-num-seqs 6 → 64"
    assert plan.title == back


def test_an_older_change_cannot_be_taken_back_from_under_a_newer_one() -> None:
    seen = snapshot()
    first = planned("set_flags", EDIT, seen)
    second = planned("set_flags", {"edits": [{"flag": "--watermark", "value": 0.05}]}, after(seen, first))
    ledger = with_ledger(entry(first.calls[0], 0), entry(second.calls[0], 1))
    result = declined("undo", {"of": ["INC-42/R1/0"]}, after(after(seen, first), second), ledger)
    assert "the object changed since" in result.reason


def test_when_the_world_moved_on_both_sides_are_shown() -> None:
    done = planned("set_flags", EDIT, snapshot())
    moved = snapshot(workload=deployment(template("--max-num-seqs=32")))
    result = declined("undo", {}, moved, with_ledger(entry(done.calls[0])))
    assert result.outcome == "impossible"
    assert "--max-num-seqs=32" in result.reason
    assert "--max-num-seqs=6" in result.reason


def test_what_is_back_already_needs_no_undo() -> None:
    done = planned("set_flags", EDIT, snapshot())
    assert declined("undo", {}, snapshot(), with_ledger(entry(done.calls[0]))).outcome == "not_needed"


@pytest.mark.parametrize(
    ("ledger", "of", "outcome", "reason"),
    [
        pytest.param((), "last", "not_needed", "nothing is left", id="empty"),
        pytest.param((), ["INC-42/R9/0"], "impossible", "no call INC-42/R9/0", id="stranger"),
        pytest.param(
            (entry(planned("set_flags", EDIT, snapshot()).calls[0], undone_by="INC-42/R2/0"),),
            "last",
            "not_needed",
            "nothing is left",
            id="undone-before",
        ),
        pytest.param(
            (entry(planned("replace_replica", {"replica": "llm-2"}, snapshot()).calls[0]),),
            ["INC-42/R1/0"],
            "impossible",
            "the same template",
            id="no-inverse",
        ),
    ],
)
def test_an_undo_of_nothing_says_why(ledger: tuple[LedgerEntry, ...], of: Any, outcome: str, reason: str) -> None:
    result = declined("undo", {"of": of}, snapshot(), with_ledger(*ledger))
    assert (result.outcome, reason in result.reason) == (outcome, True), result.reason


def created(name_uid: str = "canary-uid", **annotations: str) -> Obj:
    body = planned("canary", EDIT, snapshot()).calls[0].body
    metadata = {**body["metadata"], "uid": name_uid}
    metadata["annotations"] = metadata["annotations"] | annotations
    return {**body, "metadata": metadata}


def test_the_undo_of_a_canary_deletes_it_by_the_uid_that_it_has_now() -> None:
    call = planned("canary", EDIT, snapshot()).calls[0]
    plan = planned("undo", {}, snapshot(canary=created()), with_ledger(entry(call, verb="canary")))
    assert (plan.calls[0].method, plan.calls[0].target.uid) == ("delete", "canary-uid")
    assert plan.title == "Remove the canary of llm"
    assert plan.steps[-1].model_dump()["condition"] == "gone"


def test_a_canary_of_another_incident_is_not_deleted_by_an_undo() -> None:
    call = planned("canary", EDIT, snapshot()).calls[0]
    strange = created(**{"incident-bot/incident": "INC-4"})
    result = declined("undo", {}, snapshot(canary=strange), with_ledger(entry(call, verb="canary")))
    assert "not ours" in result.reason


def test_the_undo_of_a_scale_out_ends_a_chosen_replica() -> None:
    done = planned("scale", {"by": 1}, snapshot())
    now = snapshot(workload=deployment(replicas=5), pods=tuple(pod(number) for number in (1, 2, 3, 4, 5)))
    plan = planned("undo", {}, now, with_ledger(entry(done.calls[0], verb="scale")))
    chosen, back = plan.calls
    assert (chosen.title, back.title) == ("Choose llm-1 as the replica that ends", "Scale llm back to 4")
    assert plan.title == "Scale llm back to 4"
    assert back.ends == (chosen.target.uid,), "what was recorded about the pod ends with it"
    assert plan.expected == "1 fewer replica serves: llm-1 ends"


def test_going_back_from_a_stuck_rollout_needs_no_free_gpu() -> None:
    seen = snapshot()
    done = planned("set_flags", EDIT, seen)
    stuck = after(seen, done)
    assert stuck.workload is not None
    stuck.workload["status"] |= {"updatedReplicas": 1, "availableReplicas": 4, "replicas": 5}
    stuck = replace(stuck, nodes=())
    plan = planned("undo", {}, stuck, with_ledger(entry(done.calls[0])))
    assert grade(plan, "room") == "fine"


@pytest.mark.parametrize(
    ("verb", "arguments", "source"),
    [("cordon_node", {"node": "gpu-node-1"}, "nodes"), ("isolate_replica", {"replica": "llm-2"}, "pods")],
)
def test_what_cannot_be_read_is_not_taken_for_taken_back(verb: str, arguments: dict[str, Any], source: str) -> None:
    held = entry(planned(verb, arguments, snapshot()).calls[0], verb=verb)
    unreadable = {source: "503 for now"}
    result = declined("undo", {}, snapshot(**{source: ()}, unreadable=unreadable), with_ledger(held))
    assert (result.outcome, "503 for now" in result.reason) == ("unknown", True), result


@given(
    now=st.integers(min_value=1, max_value=20),
    to=st.integers(min_value=1, max_value=20),
)
def test_a_scale_and_its_undo_give_the_same_count(now: int, to: int) -> None:
    if now == to:
        return
    seen = snapshot(workload=deployment(replicas=now), nodes=(), unreadable={"nodes": "not asked"})
    call = planned("scale", {"to": to}, seen).calls[-1]
    patched = applied(call.body, seen.workload or {})
    assert patched["spec"]["replicas"] == to
    assert applied(call.undo[0].body, patched) == seen.workload


def test_whose_deploy_is_taken_back_is_named_as_its_annotations_and_labels_say() -> None:
    mine = deployment()
    mine["metadata"]["labels"] = {**mine["metadata"].get("labels", {}), "example.com/team": "S0SERVING"}
    mine["metadata"]["annotations"] = {"kubernetes.io/change-cause": "the next deploy"}
    newest = replica_set(2, mine["spec"]["template"])
    newest["metadata"]["annotations"]["kubernetes.io/change-cause"] = "helm upgrade by ana"
    older = template("--served-model-name=tiny-llama", "--max-num-seqs=128")
    plan = planned("rollback", {}, snapshot(workload=mine, replica_sets=(replica_set(1, older), newest)))
    assert plan.told == ("change-cause=helm upgrade by ana", "team=S0SERVING")
    assert "not asked" in weighed(plan, "deployed_by")
    unnamed = snapshot(replica_sets=(replica_set(1, older), replica_set(2, mine["spec"]["template"])))
    assert (plan.approved_by, plan.digest) == ((), planned("rollback", {}, unnamed).digest)


def test_where_nothing_names_who_deployed_the_request_says_so() -> None:
    plan = planned("rollback", {}, snapshot())
    assert plan.told == ()
    assert "who deployed revision 2 is not known" in weighed(plan, "deployed_by")


def test_where_no_person_is_named_the_request_names_the_tool_that_wrote_the_template() -> None:
    mine = deployment()
    template_of_it: dict[str, Any] = {"fieldsV1": {"f:spec": {"f:template": {}}}}
    mine["metadata"]["managedFields"] = [
        {"manager": "helm", "time": "2026-11-20T10:00:00Z", **template_of_it},
        {"manager": "deploy-pipeline", "time": "2026-11-21T10:00:00Z", **template_of_it},
        {"manager": "hpa", "time": "2026-11-22T10:00:00Z", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
        {"manager": "kubelet", "time": "2026-11-23T10:00:00Z", "subresource": "status", **template_of_it},
    ]
    plan = planned("rollback", {}, snapshot(workload=mine))
    assert "deploy-pipeline deployed revision 2" in weighed(plan, "deployed_by")
    mine["metadata"]["managedFields"].append(
        {"manager": "incident-bot", "time": "2026-11-24T10:00:00Z", **template_of_it}
    )
    assert "is not known" in weighed(planned("rollback", {}, snapshot(workload=mine)), "deployed_by")


# --- what others did to the workload since ----------------------------------------------------------------------------


def since(kind: str = "Deployment", **spec: Any) -> tuple[ClusterSnapshot, PlanContext]:
    """A flag edit that has been rolled out, after which somebody edited the workload's spec."""
    before = snapshot() if kind == "Deployment" else numbered_world(stateful_set())
    plan = planned("set_flags", EDIT, before)
    seen = after(before, plan)
    workload = seen.workload or {}
    newest = (replica_set(3, workload["spec"]["template"]),) if kind == "Deployment" else ()
    changed = {**workload, "spec": workload["spec"] | spec}
    return replace(seen, workload=changed, replica_sets=(*seen.replica_sets, *newest)), with_ledger(
        entry(plan.calls[0])
    )


@pytest.mark.parametrize(
    ("kind", "spec", "reason"),
    [
        ("Deployment", {"paused": True}, "Deployment llm is paused"),
        ("StatefulSet", {"updateStrategy": {"type": "OnDelete"}}, "updated OnDelete"),
        ("StatefulSet", {"updateStrategy": {"rollingUpdate": {"partition": 2}}}, "is partitioned"),
    ],
)
def test_an_undo_that_would_not_be_rolled_out_is_refused(kind: str, spec: Obj, reason: str) -> None:
    seen, context = since(kind)
    planned("undo", {}, seen, context)
    seen, context = since(kind, **spec)
    assert reason in declined("undo", {}, seen, context).reason


def test_an_undo_of_a_workload_that_is_scaled_to_zero_starts_nothing() -> None:
    seen, context = since(replicas=0)
    plan = planned("undo", {}, replace(seen, pods=(), all_pods=()), context)
    assert plan.expected == "none: llm is scaled to 0 replicas, and nothing starts"


# --- what was done since, and has no undo -----------------------------------------------------------------------------


def test_an_undo_names_what_was_done_since_and_stays() -> None:
    """A replacement has no undo: an earlier change is taken back, and the request says which, and what stays."""
    call = planned("set_flags", CAP_EDIT, snapshot()).calls[0]
    evicted = planned("replace_replica", {"replica": "llm-2"}, snapshot()).calls[0]
    replaced = entry(evicted, verb="replace_replica", call_id="INC-42/R2/0")
    seen = snapshot(workload=applied(call.body, deployment()))
    plan = planned("undo", {"of": "last"}, seen, with_ledger(entry(call), replaced))
    assert plan.title == "Put the flags of llm back: --max-num-seqs 6 → 64"
    assert weighed(plan, "stays") == "what was done since has no undo and stays: Evict llm-2"
    assert grade(plan, "stays") == "note"


def test_an_undo_after_many_replacements_names_two_and_counts_the_others() -> None:
    call = planned("set_flags", CAP_EDIT, snapshot()).calls[0]
    evicted = planned("replace_replica", {"replica": "llm-2"}, snapshot()).calls[0]
    replaced = entry(evicted, verb="replace_replica")
    done = [replaced.model_copy(update={"title": f"Evict llm-{n}", "call_id": f"INC-42/R{n}/0"}) for n in range(2, 22)]
    seen = snapshot(workload=applied(call.body, deployment()))
    plan = planned("undo", {"of": "last"}, seen, with_ledger(entry(call), *done))
    assert weighed(plan, "stays") == "what was done since has no undo and stays: Evict llm-2, Evict llm-3 and 18 more"


@pytest.mark.parametrize(
    "later",
    [
        pytest.param({"verb": "replace_replica", "call_id": "INC-42/R0/0"}, id="before"),
        pytest.param({"verb": "probe_request", "call_id": "INC-42/R2/0"}, id="a-test-request"),
        pytest.param({"verb": "run_job", "call_id": "INC-42/R2/0"}, id="a-job-that-has-ended"),
        pytest.param({"verb": "undo", "call_id": "INC-42/R2/0"}, id="an-undo"),
        pytest.param({"verb": "replace_replica", "call_id": "INC-42/R1/1"}, id="part-of-the-change"),
    ],
)
def test_an_undo_of_the_last_change_names_nothing_else(later: dict[str, Any]) -> None:
    call = planned("set_flags", CAP_EDIT, snapshot()).calls[0]
    other = entry(planned("replace_replica", {"replica": "llm-2"}, snapshot()).calls[0], **later)
    ledger = (other, entry(call)) if later["call_id"] == "INC-42/R0/0" else (entry(call), other)
    seen = snapshot(workload=applied(call.body, deployment()))
    plan = planned("undo", {"of": "last"}, seen, with_ledger(*ledger))
    assert not [each for each in plan.circumstances if each.name == "stays"]


def test_what_only_cleaned_up_is_no_change_that_stays() -> None:
    (canary,) = planned("canary", CAP_EDIT, snapshot()).calls
    call = planned("set_flags", CAP_EDIT, snapshot()).calls[0]
    removed = entry(canary, verb="remove_canary", call_id="INC-42/R3/0", undo=(), no_undo="it takes back a change")
    ledger = (entry(canary, verb="canary", undone_by="INC-42/R3/0", call_id="INC-42/R2/0"), entry(call), removed)
    plan = planned("undo", {"of": "last"}, snapshot(workload=applied(call.body, deployment())), with_ledger(*ledger))
    assert not [each for each in plan.circumstances if each.name == "stays"]


@pytest.mark.parametrize("part", ["initContainers", "containers", "header"])
def test_a_literal_secret_is_not_shown_among_the_differences(part: str) -> None:
    secrets, made = ("correct-horse-1", "correct-horse-2"), []
    for secret in secrets:
        one = template()
        spec = one["spec"]
        if part == "header":
            headers = [{"name": "X-Api-Key", "value": secret}]
            spec["containers"][0]["livenessProbe"] = {"httpGet": {"path": "/", "port": 8000, "httpHeaders": headers}}
        else:
            env = [{"name": "AWS_SECRET_ACCESS_KEY", "value": secret}]
            spec.setdefault(part, []).append({"name": "fetch", "image": "fetch:1", "env": env})
        made.append(one)
    old, new = made
    seen = snapshot(workload=deployment(new), replica_sets=(replica_set(1, old), replica_set(2, new)))
    plan = planned("rollback", {}, seen)
    shown = [f"{each!r} {each.text}" for each in plan.calls[0].differences] + [each.text for each in plan.circumstances]
    assert not any(secret in text for secret in secrets for text in shown)
