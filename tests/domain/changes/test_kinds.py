"""StatefulSets and LeaderWorkerSets: numbered replicas, groups of pods, and plain refusals."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from bot.domain.changes.context import PlanContext
from bot.domain.changes.plan import Call, LedgerEntry, Plan, Wait
from bot.domain.changes.progress import progress
from bot.domain.cluster.capacity import Capacity, capacity_for, capacity_of
from bot.domain.cluster.json_patch import applied
from bot.domain.cluster.rollout import digest_of
from bot.domain.cluster.rotation import rotation_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import pod_templates
from tests.domain.changes.numbered import kept, member, numbered_world, ready_pod, stateful_set
from tests.domain.changes.snapshots import (
    ARGS,
    NOW,
    budget,
    container,
    declined,
    endpoint_slice,
    grade,
    node,
    owner,
    planned,
    service,
    snapshot,
    template,
    weighed,
)

pytestmark = pytest.mark.fast
CAP = [{"flag": "--max-num-seqs", "value": 6.0}]
PREFIX = "leaderworkerset.sigs.k8s.io"


def group_set(**parts: Any) -> Obj:
    leader = template()
    leader["metadata"]["labels"] = {"role": "leader", "serving": "active"}
    worker = template()
    worker["metadata"]["labels"] = {"role": "worker"}
    worker["spec"]["containers"] = [container(command=["ray", "start"], args=["--block"])]
    templates = {"leaderTemplate": leader, "workerTemplate": worker, "size": 2} | parts
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "llm", "namespace": "serving", "uid": "lws-uid", "generation": 2},
        "spec": {"replicas": 2, "leaderWorkerTemplate": templates},
        "status": {"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2},
    }


def group(number: int, of: Obj) -> tuple[Obj, Obj]:
    templates = of["spec"]["leaderWorkerTemplate"]
    marks = {f"{PREFIX}/name": "llm", f"{PREFIX}/group-index": str(number)}

    def one(index: int, name: str, key: str, owners: list[Obj]) -> Obj:
        labels = templates[key]["metadata"]["labels"] | marks | {f"{PREFIX}/worker-index": str(index)}
        return ready_pod(name, labels, owners, templates[key]["spec"])

    leader = one(0, f"llm-{number}", "leaderTemplate", owner("StatefulSet", "llm", "leaders-uid"))
    worker = one(1, f"llm-{number}-1", "workerTemplate", owner("StatefulSet", f"llm-{number}", f"workers-{number}"))
    return leader, worker


def group_world(workload: Obj | None = None, **parts: Any) -> ClusterSnapshot:
    workload = workload or group_set()
    pods = (*group(0, workload), *group(1, workload))
    leaders = [pod for pod in pods if pod["metadata"]["labels"][f"{PREFIX}/worker-index"] == "0"]
    given = {
        "replica_sets": (),
        "pods": pods,
        "services": (service(**{f"{PREFIX}/name": "llm", "serving": "active"}),),
        "endpoint_slices": (endpoint_slice(*leaders),),
        "pdbs": (),
    }
    return replace(snapshot(), workload=workload, **given | {"all_pods": pods} | parts)


# --- StatefulSet ------------------------------------------------------------------------------------------------------


def test_flags_of_a_stateful_set_are_edited_in_its_template_and_cost_a_replica_at_a_time() -> None:
    plan = planned("set_flags", {"edits": CAP}, numbered_world())
    (call,) = plan.calls
    assert str(call.target) == "StatefulSet serving/llm"
    assert [d.text for d in call.differences] == ["--max-num-seqs 64 → 6"]
    assert grade(plan, "capacity") == "warning"
    assert "2 of 3 replicas stay" in plan.expected


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        pytest.param({"updateStrategy": {"type": "OnDelete"}}, "updated OnDelete", id="on-delete"),
        pytest.param({"updateStrategy": {"rollingUpdate": {"partition": 2}}}, "below 2 would keep", id="partition"),
    ],
)
def test_a_stateful_set_that_would_not_roll_is_not_edited(spec: Obj, reason: str) -> None:
    assert reason in declined("set_flags", {"edits": CAP}, numbered_world(stateful_set(**spec))).reason


def test_the_rollout_of_a_stateful_set_is_judged_by_the_revision_of_its_pods() -> None:
    seen = numbered_world()
    wait = next(s for s in planned("set_flags", {"edits": CAP}, seen).steps if isinstance(s, Wait))
    edited = stateful_set(template(*(arg.replace("=64", "=6") for arg in ARGS)))
    mixed = (member(0, revision="llm-a"), member(1), member(2))
    half = progress(wait, numbered_world(edited, pods=mixed))
    assert (half.state, half.text) == ("pending", "2 of 3 replicas run the new template")
    assert progress(wait, numbered_world(edited)).state == "done"


def test_a_stateful_set_is_rolled_back_to_what_its_revisions_keep() -> None:
    plan = planned("rollback", {}, numbered_world())
    (call,) = plan.calls
    assert plan.choices == {"revision": 1}
    assert "--max-num-seqs 64 → 128" in [d.text for d in call.differences]
    written = call.body[-1]["value"]
    assert ("$patch" in written, "creationTimestamp" in written["metadata"]) == (False, False)


def failing(number: int, *, revision: str = "llm-b") -> Obj:
    made = member(number, revision=revision)
    return {**made, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}}


STUCK = (member(0, revision="llm-a"), member(1, revision="llm-a"), failing(2))


def ledger_of(done: Plan) -> PlanContext:
    """After the first call of this plan."""
    call = done.calls[0]
    entry = LedgerEntry(
        call_id="INC-42/R1/0", state="s", verb=done.verb, title=call.title, target=call.target, undo=call.undo,
        applied_at=1.0,
    )  # fmt: skip
    return PlanContext(incident_id="INC-42", now=NOW, ledger=(entry,))


def steps_of(plan: Plan) -> list[str]:
    return [step.condition if isinstance(step, Wait) else f"{step.method} {step.target.name}" for step in plan.steps]


@pytest.mark.parametrize(("verb", "arguments"), [("rollback", {}), ("set_flags", {"edits": CAP}), ("restart", {})])
def test_a_pod_that_its_ordered_controller_would_wait_for_for_ever_is_ended(verb: str, arguments: Any) -> None:
    settled = stateful_set() | {"status": stateful_set()["status"] | {"currentRevision": "llm-b"}}
    pods = STUCK if verb == "rollback" else (member(0), member(1), failing(2))
    plan = planned(verb, arguments, numbered_world(settled, pods=pods))
    assert steps_of(plan) == ["patch llm", "observed", "evict llm-2", "rolled_out"]
    assert plan.expected.endswith("; llm-2, which is not Ready, is evicted")


def test_a_set_of_which_every_pod_crashes_is_replaced() -> None:
    settled = stateful_set() | {"status": stateful_set()["status"] | {"currentRevision": "llm-b"}}
    plan = planned("set_flags", {"edits": CAP}, numbered_world(settled, pods=tuple(map(failing, range(3)))))
    assert steps_of(plan) == ["patch llm", "observed", "evict llm-0", "evict llm-1", "evict llm-2", "rolled_out"]


@pytest.mark.parametrize(
    ("last", "steps"),
    [
        pytest.param(failing(2), ["patch llm", "observed", "evict llm-2", "rolled_out"], id="of-the-edit"),
        pytest.param(failing(2, revision="llm-a"), ["patch llm", "rolled_out"], id="of-before"),
    ],
)
def test_an_undo_ends_the_pod_of_the_edit_that_its_ordered_controller_would_wait_for(
    last: Obj, steps: list[str]
) -> None:
    done = planned("set_flags", {"edits": CAP}, numbered_world())
    edited = applied(done.calls[0].body, stateful_set())
    revisions = (kept(1, template()), kept(2, edited["spec"]["template"]))
    seen = numbered_world(edited, pods=(*STUCK[:2], last), revisions=revisions)
    plan = planned("undo", {}, seen, ledger_of(done))
    assert steps_of(plan) == steps
    assert all(call.restores for call in plan.calls)


def test_a_budget_that_keeps_the_pod_from_being_evicted_is_shown() -> None:
    refusing = budget(allowed=0, healthy=0, desired=2)
    plan = planned("rollback", {}, numbered_world(pods=(*STUCK[:2], failing(2)), pdbs=(refusing,)))
    assert grade(plan, "disruption_budget") == "warning"
    assert "somebody has to delete llm-2" in weighed(plan, "disruption_budget")


@pytest.mark.parametrize(
    ("workload", "pods"),
    [
        pytest.param(stateful_set(), (*STUCK[:2], member(2)), id="it-is-ready"),
        pytest.param(stateful_set(), (*STUCK[:2], failing(2, revision="llm-a")), id="it-runs-another-template"),
        pytest.param(stateful_set(podManagementPolicy="Parallel"), STUCK, id="the-controller-does-not-wait"),
        pytest.param(
            stateful_set() | {"status": stateful_set()["status"] | {"observedGeneration": 1}}, STUCK, id="not-known-yet"
        ),
    ],
)
def test_a_rollback_ends_no_pod_that_its_controller_ends_by_itself(workload: Obj, pods: tuple[Obj, ...]) -> None:
    plan = planned("rollback", {}, numbered_world(workload, pods=pods))
    assert [call.method for call in plan.calls] == ["patch"]
    assert "evicted" not in plan.expected


def test_a_stateful_set_is_restarted_by_one_edit_that_its_controller_rolls_out() -> None:
    plan = planned("restart", {}, numbered_world())
    assert [call.target.kind for call in plan.calls] == ["StatefulSet"]
    assert grade(plan, "capacity") == "warning"


def test_scaling_a_stateful_set_in_ends_its_highest_number_drained() -> None:
    bare = template("--max-num-seqs=64")
    seen = numbered_world(stateful_set(bare))
    plan = planned("scale", {"by": -1}, seen)
    assert plan.choices["ends"] == ["llm-2-uid"]
    assert [call.target.name for call in plan.calls] == ["llm-2", "llm"]
    assert "deletion-cost" not in str(plan.calls[0].body)


def test_scaling_in_names_the_replicas_that_end() -> None:
    assert planned("scale", {"to": 1}, numbered_world()).expected == "2 fewer replicas serve: llm-2, llm-1 end"


PARALLEL = stateful_set(podManagementPolicy="Parallel")


def test_scaling_in_does_not_end_the_only_replicas_that_serve() -> None:
    pods = (failing(0), failing(1), member(2))
    result = declined(
        "scale", {"by": -1}, numbered_world(PARALLEL, pods=pods, endpoint_slices=(endpoint_slice(pods[2]),))
    )
    assert result.reason == "scaling in to 2 ends the last replica in rotation: llm-2"


def test_scaling_in_ends_the_highest_numbers_also_where_a_lower_one_is_missing() -> None:
    seen = numbered_world(stateful_set(podManagementPolicy="Parallel", replicas=4), pods=tuple(map(member, (0, 1, 3))))
    assert planned("scale", {"to": 3}, seen).expected == "1 fewer replica serves: llm-3 ends"
    only = numbered_world(stateful_set(podManagementPolicy="Parallel", replicas=2), pods=(member(1),))
    only = replace(only, endpoint_slices=(endpoint_slice(member(1)),))
    assert declined("scale", {"to": 1}, only).reason == "scaling in to 1 ends the last replica in rotation: llm-1"


def test_a_set_whose_numbers_begin_later_ends_the_highest() -> None:
    workload = stateful_set(podManagementPolicy="Parallel", ordinals={"start": 5})
    seen = numbered_world(workload, pods=tuple(map(member, (5, 6, 7))))
    assert planned("scale", {"to": 2}, seen).expected == "1 fewer replica serves: llm-7 ends"


def test_the_undo_of_a_scale_out_from_none_ends_all_that_serve() -> None:
    done = planned("scale", {"to": 3}, numbered_world(stateful_set(replicas=0), pods=()))
    plan = planned("undo", {}, numbered_world(), ledger_of(done))
    assert plan.expected == "no replica serves any more: llm-2, llm-1, llm-0 end"


def crashing(number: int) -> Obj:
    made = failing(number)
    ended = {"exitCode": 1, "reason": "Error"}
    made["status"]["containerStatuses"] = [{"name": "vllm", "restartCount": 5, "lastState": {"terminated": ended}}]
    return made


BROKEN_BELOW = (member(0), crashing(1), member(2))


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [("scale", {"by": 1}), ("scale", {"by": -1}), ("replace_replica", {"replica": "llm-2"})],
)
def test_a_change_that_an_ordered_controller_would_not_carry_out_is_refused(verb: str, arguments: Any) -> None:
    assert "OrderedReady" in declined(verb, arguments, numbered_world(pods=BROKEN_BELOW)).reason
    assert planned(verb, arguments, numbered_world(PARALLEL, pods=BROKEN_BELOW))


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [("scale", {"to": 1}), ("replace_replica", {"replica": "llm-1"}), ("replace_replica", {"replica": "llm-0"})],
)
def test_a_broken_pod_that_the_controller_does_not_wait_for_refuses_nothing(verb: str, arguments: Any) -> None:
    assert planned(verb, arguments, numbered_world(pods=BROKEN_BELOW))


def test_a_numbered_replica_that_is_out_already_just_ends() -> None:
    out = member(2)
    out["metadata"]["labels"]["serving"] = "out-of-rotation"
    seen = numbered_world(stateful_set(template("--max-num-seqs=64")), pods=(member(0), member(1), out))
    assert [call.target.name for call in planned("scale", {"by": -1}, seen).calls] == ["llm"]


@pytest.mark.parametrize("seen", [numbered_world(), group_world()], ids=["StatefulSet", "LeaderWorkerSet"])
def test_a_canary_is_refused_where_replicas_have_names(seen: ClusterSnapshot) -> None:
    assert "names and volumes of their own" in declined("canary", {"edits": CAP}, seen).reason


# --- LeaderWorkerSet --------------------------------------------------------------------------------------------------


def test_a_replica_of_a_leader_worker_set_is_its_group() -> None:
    rotation = rotation_of(group_world())
    assert rotation is not None
    assert (rotation.in_rotation, rotation.wanted) == (("llm-0", "llm-1"), 2)


def test_a_worker_that_is_not_ready_makes_its_group_not_ready() -> None:
    seen = group_world()
    seen.pods[1]["status"]["conditions"][0]["status"] = "False"
    rotation = rotation_of(seen)
    assert rotation is not None
    assert rotation.ready == ("llm-1",)


def test_flags_of_a_group_are_edited_where_the_engine_receives_them() -> None:
    (call,) = planned("set_flags", {"edits": CAP}, group_world()).calls
    edited = [op["path"] for op in call.body if op["op"] == "replace"]
    assert edited == ["/spec/leaderWorkerTemplate/leaderTemplate/spec/containers/0/args"]


RAY_LEADER = "bash /examples/multi-node-serving.sh leader --ray_cluster_size=$(LWS_GROUP_SIZE)"
RAY_WORKER = "bash /examples/multi-node-serving.sh worker --ray_address=$(LWS_LEADER_ADDRESS)"
WAITS = "until [ $(ray status | grep -c node_) -eq $(LWS_GROUP_SIZE) ]; do sleep 1; done"
HEADLESS = "vllm serve m --nnodes 2 --node-rank $LWS_WORKER_INDEX --master-addr $LWS_LEADER_ADDRESS"


def scripted(leader: str, worker: str) -> Obj:
    """As the guides write it: both pods start by a script, the worker's without a word of the engine's flags."""
    made = group_set(workerTemplate=template())
    for key, script in (("leaderTemplate", leader), ("workerTemplate", worker)):
        started = made["spec"]["leaderWorkerTemplate"][key]["spec"]["containers"][0]
        del started["args"]
        started["command"] = ["sh", "-c", script]
    made["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]["labels"] = {"role": "worker"}
    return made


@pytest.mark.parametrize(
    ("leader", "worker", "edited"),
    [
        pytest.param(
            f"{RAY_LEADER}; python3 -m vllm.entrypoints.openai.api_server --model m --max-num-seqs 64 -tp 8",
            RAY_WORKER, ["leaderTemplate"], id="ray-script-then-server",
        ),
        pytest.param(
            f"{RAY_LEADER} && exec vllm serve m \\\n  --max-num-seqs=64 \\\n  --pipeline_parallel_size 2",
            RAY_WORKER, ["leaderTemplate"], id="ray-script-and-serve",
        ),
        pytest.param(
            f"ray start --head --port=6379\n{WAITS}\nvllm serve m --max-num-seqs 64",
            "ray start --block --address=$(LWS_LEADER_ADDRESS):6379", ["leaderTemplate"], id="ray-by-hand",
        ),
        pytest.param(
            f"{HEADLESS} --max-num-seqs 64", f"{HEADLESS} --headless --max-num-seqs 64",
            ["leaderTemplate", "workerTemplate"], id="without-ray",
        ),
    ],
)  # fmt: skip
def test_flags_in_the_script_of_a_leader_are_edited_in_it(leader: str, worker: str, edited: list[str]) -> None:
    workload = scripted(leader, worker)
    (call,) = planned("set_flags", {"edits": CAP}, group_world(workload)).calls
    written = {op["path"].split("/")[3]: op["value"][2] for op in call.body if op["op"] == "replace"}
    before = {"leaderTemplate": leader, "workerTemplate": worker}
    assert list(written) == edited
    for key, script in written.items():
        assert script == re.sub(r"(--max-num-seqs[ =])64", r"\g<1>6", before[key])


@pytest.mark.parametrize(
    ("leader", "reason"),
    [
        pytest.param(
            'if [ "$LWS_WORKER_INDEX" = 0 ]; then vllm serve m; else vllm serve m --headless; fi',
            "more than one engine command", id="one-script-for-both",
        ),
        pytest.param(RAY_LEADER, "no command of its shell script is recognised as the engine", id="hidden-in-a-file"),
        pytest.param(f"{RAY_LEADER}; vllm serve m $(cat /flags)", "may stand for flags", id="flags-from-elsewhere"),
    ],
)  # fmt: skip
def test_a_leader_whose_flags_are_not_sure_is_not_edited(leader: str, reason: str) -> None:
    found = declined("set_flags", {"edits": CAP}, group_world(scripted(leader, RAY_WORKER)))
    assert reason in found.reason


def test_flags_that_both_leader_and_workers_write_out_stay_equal() -> None:
    same = group_set(workerTemplate=template())
    (call,) = planned("set_flags", {"edits": CAP}, group_world(same)).calls
    edited = [op["path"].split("/")[3] for op in call.body if op["op"] == "replace"]
    assert edited == ["leaderTemplate", "workerTemplate"]


def test_a_group_never_runs_two_images() -> None:
    seen, edit = group_world(), {"edits": [{"image": "vllm/vllm-openai:v0.32.1"}]}
    plan = planned("set_flags", edit, seen)
    edited = [op["path"].split("/")[3] for op in plan.calls[0].body if op["op"] == "replace"]
    assert edited == ["leaderTemplate", "workerTemplate"]


def test_restarting_groups_marks_their_leaders_and_waits_for_all_of_them() -> None:
    seen = group_world()
    plan = planned("restart", {}, seen)
    (call,) = plan.calls
    edited = [op["path"] for op in call.body if op["op"] != "test"]
    assert edited[0].startswith("/spec/leaderWorkerTemplate/leaderTemplate/metadata")
    assert seen.workload is not None
    after = applied(call.body, seen.workload)
    wait = plan.steps[-1]
    assert isinstance(wait, Wait)
    assert wait.parameters["template"] == digest_of([each.template for each in pod_templates(after)])
    # Old versions of the controller do not say whether they have seen it: only the pods show it.
    assert progress(wait, group_world(after, pods=seen.pods)).text == "0 of 2 replicas run the new template"
    pods = (*group(0, after), *group(1, after))
    for pod in pods:
        is_leader = pod["metadata"]["labels"][f"{PREFIX}/worker-index"] == "0"
        pod["metadata"]["annotations"] = {"incident-bot/restart": "INC-42/1"} if is_leader else {}
    assert progress(wait, group_world(after, pods=pods)).state == "done"


def test_the_rollout_of_groups_is_judged_by_what_their_pods_run() -> None:
    seen = group_world()
    wait = next(s for s in planned("set_flags", {"edits": CAP}, seen).steps if isinstance(s, Wait))
    edited = group_set()
    spec = edited["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"]
    spec["containers"][0]["args"] = [arg.replace("=64", "=6") for arg in ARGS]
    half = progress(wait, group_world(edited, pods=(*group(0, group_set()), *group(1, edited))))
    assert half.state == "pending"
    assert half.text.startswith("1 of 2 replicas run the new template")
    assert progress(wait, group_world(edited)).state == "done"


def test_a_surge_group_whose_worker_has_no_room_lets_no_old_group_end() -> None:
    edited = group_set()
    spec = edited["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"]
    spec["containers"][0]["args"] = [arg.replace("=64", "=6") for arg in ARGS]
    edited["spec"]["rolloutStrategy"] = {"rollingUpdateConfiguration": {"maxSurge": 1, "maxUnavailable": 0}}
    wait = next(s for s in planned("set_flags", {"edits": CAP}, group_world()).steps if isinstance(s, Wait))
    leader, worker = group(2, edited)
    leader["status"]["conditions"][0]["status"] = "False"
    no_room = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node has room"}
    worker |= {"status": {"phase": "Pending", "conditions": [no_room]}}
    old = (*group(0, group_set()), *group(1, group_set()))
    stuck = progress(wait, group_world(edited, pods=(*old, leader, worker)))
    assert (stuck.state, "no node has room" in stuck.text) == ("failed", True), stuck.text


def test_isolating_any_pod_of_a_group_takes_its_leader_out_of_rotation() -> None:
    plan = planned("isolate_replica", {"replica": "llm-1-1"}, group_world())
    assert [call.target.name for call in plan.calls] == ["llm-1"]
    assert "the group of llm-1 (2 pods)" in plan.title
    assert weighed(plan, "others").startswith("1 of 2 replicas stay")


def test_replacing_a_group_evicts_its_leader_and_waits_for_all_of_it() -> None:
    seen = group_world()
    plan = planned("replace_replica", {"replica": "llm-1-1"}, seen)
    evict, wait = plan.steps
    assert isinstance(evict, Call)
    assert isinstance(wait, Wait)
    assert (evict.method, evict.target.name) == ("evict", "llm-1")
    again = group(1, group_set())
    again[0]["metadata"]["uid"] = "new-uid"
    assert progress(wait, replace(seen, pods=(*seen.pods[:2], again[0]))).state == "pending"
    assert progress(wait, replace(seen, pods=(*seen.pods[:2], *again))).state == "done"


def test_a_group_whose_pods_restart_one_by_one_is_not_replaced() -> None:
    seen = group_world(group_set(restartPolicy="None"))
    assert "not renewed as one" in declined("replace_replica", {"replica": "llm-1"}, seen).reason


def test_an_earlier_revision_of_groups_is_not_written_back() -> None:
    assert "not for a LeaderWorkerSet" in declined("rollback", {}, group_world()).reason


# --- room -------------------------------------------------------------------------------------------------------------


def test_a_group_fits_only_with_all_of_its_pods() -> None:
    nodes = (node(1, gpus=1), node(2, gpus=1), node(3, gpus=1))
    found = capacity_of(group_world(nodes=nodes, all_pods=()))
    assert isinstance(found, Capacity)
    assert (found.replicas_that_fit, found.free_total) == (1, 3)


def test_waiting_pods_take_their_room_first() -> None:
    waiting = member(9)
    del waiting["spec"]["nodeName"]
    found = capacity_for(snapshot(nodes=(node(1, gpus=2),), all_pods=(waiting,)), template())
    assert isinstance(found, Capacity)
    assert (found.replicas_that_fit, found.waiting) == (1, 1)
    assert "1 waiting pod will take some of it first" in found.explanation


def test_nodes_that_would_not_take_the_pod_are_named_with_the_reason() -> None:
    taint = {"key": "maintenance", "effect": "NoSchedule"}
    nodes = (node(1, unschedulable=True), node(2, taints=[taint]), node(3, is_ready=False))
    found = capacity_for(snapshot(nodes=nodes, all_pods=()), template())
    assert isinstance(found, Capacity)
    assert found.kept_out == {
        "gpu-node-1": "cordoned",
        "gpu-node-2": "taint maintenance:NoSchedule",
        "gpu-node-3": "not Ready",
    }


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [("replace_replica", {"replica": "llm-1"}), ("drain_node", {"node": "gpu-node-2"})],
)
def test_a_numbered_replica_on_a_silent_node_is_never_gone_so_it_is_not_made_again(verb: str, arguments: Any) -> None:
    lost = member(1)
    lost["spec"]["nodeName"] = "gpu-node-2"
    lost["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    pods, silent = (member(0), lost, member(2)), node(2)
    silent["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    seen = numbered_world(pods=pods, all_pods=pods, nodes=(node(1), silent, node(3)))
    result = declined(verb, arguments, seen)
    assert (result.outcome, "gpu-node-2 does not report" in result.reason) == ("impossible", True), result.reason
    assert "node.kubernetes.io/out-of-service" in result.hint
    assert planned(verb, arguments, replace(seen, nodes=(node(1), node(2, is_ready=False), node(3)))).calls


POD_IP = {"fieldRef": {"fieldPath": "status.podIP"}}


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        pytest.param(
            {"valueFrom": POD_IP}, {"valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}
        ),
        pytest.param({"value": ""}, {}),
        pytest.param({"value": "1"}, {"value": "1"}),
    ],
)
def test_a_group_runs_its_template_also_with_what_the_api_server_fills_in(written: Obj, stored: Obj) -> None:
    """It knows pods, and not the templates of a LeaderWorkerSet: the rollout would never end."""
    workload = group_set()
    containers = workload["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"]["containers"]
    containers[0]["env"] = [{"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", **written}]
    plan = planned("set_flags", {"edits": CAP}, group_world(workload))
    after = applied(plan.calls[0].body, workload)
    pods = (*group(0, after), *group(1, after))
    for each in (one for pod in pods for one in pod["spec"]["containers"] if "env" in one):
        each["env"] = [{"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", **stored}]
    wait = plan.steps[-1]
    assert isinstance(wait, Wait)
    assert progress(wait, group_world(after, pods=pods)).state == "done"
