"""The bot's permissions: checked before people are asked, cached for a minute, and never more than the verbs need."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.adapters.kubernetes.client import KubernetesClient
from bot.adapters.kubernetes.cluster import KubernetesCluster
from bot.adapters.kubernetes.credentials import Connection
from bot.adapters.kubernetes.doctor import access
from bot.adapters.kubernetes.permissions import Permissions, changing, needed, permission_of
from bot.domain.changes.catalogue import VERBS
from bot.domain.changes.plan import Plan
from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.cluster.workload import KINDS
from bot.domain.kernel.errors import ClusterError
from tests.adapters.kubernetes.lab import TARGET
from tests.domain.changes import snapshots, test_canary, test_kinds
from tests.domain.changes.numbered import numbered_world
from tests.domain.changes.test_held_rollout import canary
from tests.domain.changes.test_probe_request import ASK
from tests.domain.changes.test_replicas import isolated_world
from tests.domain.changes.test_run_job import cron_job
from tests.processes import start

CAP = {"edits": [{"flag": "--max-num-seqs", "value": 6.0}]}


def plans(kind: str) -> list[Plan]:
    """One plan of each verb that this kind of workload has, and some for the ways that a verb has."""
    seen: ClusterSnapshot = {
        "Deployment": snapshots.snapshot,
        "StatefulSet": numbered_world,
        "LeaderWorkerSet": test_kinds.group_world,
    }[kind]()
    replica = next(iter(seen.pods))["metadata"]["name"]
    asked: list[tuple[str, dict[str, Any]]] = [
        ("scale", {"by": 1}),
        ("scale", {"by": -1}),
        ("set_flags", CAP),
        ("restart", {}),
    ]
    asked += [("isolate_replica", {"replica": replica}), ("replace_replica", {"replica": replica})]
    if kind != "LeaderWorkerSet":
        asked.append(("rollback", {}))
    if kind == "Deployment":
        asked.append(("canary", CAP))
    with_template = replace(seen, cron_jobs=(cron_job(),))
    made = [snapshots.planned(verb, arguments, seen) for verb, arguments in asked]
    return [*made, snapshots.planned("run_job", {"template": "eval-gsm8k"}, with_template)]


@pytest.mark.fast
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_verb_needs_covers_every_call_that_it_plans_and_takes_back(kind: str) -> None:
    for plan in plans(kind):
        wanted = {permission_of(each) for call in plan.calls for each in (call, *call.undo)}
        assert wanted <= set(changing(plan.verb, kind)), plan.verb
        taken_back = {permission_of(undo) for call in plan.calls for undo in call.undo}
        assert taken_back <= {*changing("undo", kind), *changing(plan.verb, kind)}, plan.verb


@pytest.mark.fast
@pytest.mark.parametrize(
    ("verb", "arguments", "seen"),
    [
        pytest.param("promote", {}, canary(rotation="out"), id="promote"),
        pytest.param("rotate_canary", {"rotation": "in"}, canary(rotation="out"), id="in"),
        pytest.param("rotate_canary", {"rotation": "out"}, test_canary.with_canary(), id="out"),
        pytest.param("remove_canary", {}, test_canary.with_canary(), id="remove"),
    ],
)
def test_what_is_done_with_the_canary_is_covered_too(
    verb: str, arguments: dict[str, Any], seen: ClusterSnapshot
) -> None:
    plan = snapshots.planned(verb, arguments, seen)
    wanted = {permission_of(each) for call in plan.calls for each in (call, *call.undo)}
    assert wanted <= set(changing(verb, "Deployment"))


@pytest.mark.fast
def test_a_generation_needs_no_permission_of_the_api_server() -> None:
    plan = snapshots.planned("probe_request", ASK, isolated_world())
    assert [call.method for call in plan.calls] == ["generate"]
    assert set(changing("probe_request", "Deployment")) == set()


@pytest.mark.fast
@pytest.mark.parametrize("verb", ["cordon_node", "drain_node"])
def test_touching_a_node_is_asked_of_the_whole_cluster_and_covers_its_own_way_back(verb: str) -> None:
    plan = snapshots.planned(verb, {"node": "gpu-node-1"}, snapshots.snapshot())
    wanted = {permission_of(each) for call in plan.calls for each in (call, *call.undo)}
    assert wanted <= set(changing(verb, "Deployment"))
    assert [each.is_cluster_wide for each in wanted if each.resource == "nodes"] == [True]


@pytest.mark.fast
def test_one_kind_of_workload_needs_no_permission_on_another() -> None:
    resources = {each.resource for each in needed(VERBS, ["Deployment"]) if each.verb not in ("get", "list")}
    assert resources.isdisjoint({"statefulsets", "leaderworkersets"})


async def test_a_missing_permission_is_reported_before_anybody_is_asked() -> None:
    plan = snapshots.planned("set_flags", CAP, snapshots.snapshot())
    with start("bot.sandbox.kubernetes", "--seed-world", "demo", "--deny", "patch:deployments") as running:
        async with KubernetesClient(Connection(url=running.url)) as client:
            cluster = KubernetesCluster(client, name="sandbox")
            reason = await cluster.lacking(plan.calls)
            allowed = await cluster.lacking(snapshots.planned("scale", {"by": 1}, snapshots.snapshot()).calls)
    assert reason == "the bot may not patch deployments.apps in serving: denied by the sandbox"
    assert allowed == ""


async def test_taking_a_change_back_has_to_be_allowed_too() -> None:
    plan = snapshots.planned("canary", CAP, snapshots.snapshot())
    with start("bot.sandbox.kubernetes", "--seed-world", "demo", "--deny", "delete:deployments") as running:
        async with KubernetesClient(Connection(url=running.url)) as client:
            assert "may not delete deployments.apps" in await Permissions(client).lacking(plan.calls)


async def test_an_answer_holds_for_a_minute_and_no_longer() -> None:
    plan = snapshots.planned("set_flags", CAP, snapshots.snapshot())
    seconds = 0.0
    with start("bot.sandbox.kubernetes", "--seed-world", "demo") as running:
        async with KubernetesClient(Connection(url=running.url)) as client:
            permissions = Permissions(client, now=lambda: seconds)
            assert await permissions.lacking(plan.calls) == ""
            running.stop()
            seconds = 59.0
            assert await permissions.lacking(plan.calls) == ""
            seconds = 61.0
            with pytest.raises(ClusterError):
                await permissions.lacking(plan.calls)


async def test_roles_in_single_namespaces_are_enough_for_the_doctor() -> None:
    with start("bot.sandbox.kubernetes", "--seed-world", "demo", "--only-in", "serving") as running:
        async with KubernetesClient(Connection(url=running.url)) as client:
            sampled = await access(client, verbs=VERBS, sampled=[("serving", "Deployment", "llm")])
            asked = await access(client, verbs=VERBS, namespaces=["serving", "batch"])
            unknown = await access(client, verbs=VERBS)
            snapshot = await KubernetesCluster(client, name="sandbox").snapshot(TARGET, incident_id="INC-42")
    assert [finding.grade for finding in sampled] == ["fine", "fine", "weak", "weak"]
    assert "in namespace serving" in sampled[1].what
    assert "list nodes" in sampled[2].what
    assert "patch nodes" in sampled[3].what
    assert [finding.grade for finding in asked] == ["fine", "fine", "broken", "weak", "weak"]
    assert "may not work in all namespaces" in unknown[1].what
    assert (snapshot.workload is not None, set(snapshot.unreadable)) == (
        True,
        {"nodes", "all_pods", "autoscaler_status"},
    )
