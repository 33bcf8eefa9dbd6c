"""The ten harms of the operations review: each test tries to make the bot do one of them.

Where a harm takes a whole run, the flow, Redis and Slack are real and time is virtual; where it takes one decision, the
planner, the machine or the loader is asked alone. What else the review lists stands at the end.
"""

from __future__ import annotations

import functools
import re
import tarfile
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio as aioredis

from bot.adapters.vllm.recording import Recording, read_recording
from bot.adapters.yaml_playbooks import load_playbook, load_table, load_text
from bot.cli.who_approves import kinds_of
from bot.domain.approvals.grant import Demand, Request
from bot.domain.approvals.kinds import CONTRACT, QUALITY, kind_of
from bot.domain.approvals.rules import ApprovalRules
from bot.domain.changes.plan import Call, PlanResult, Wait
from bot.domain.changes.progress import progress
from bot.domain.cluster.json_patch import applied
from bot.domain.incidents.event import AlertChanged, Planned
from bot.domain.incidents.machine import Rules, advance
from bot.domain.incidents.rehearsed import Rehearsed
from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import PlaybookError
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.edges import edges_of
from bot.domain.playbooks.expressions.expression import names_in
from bot.domain.playbooks.language import AskState, ChangeState, EndState, State, WatchState
from bot.domain.playbooks.loading.other_playbook import with_stand_ins
from bot.domain.playbooks.packaged import packaged_playbooks
from bot.domain.playbooks.testing.cases import Table, table_of
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Value
from bot.flow.rehearse_case import play_case
from bot.flow.route_alerts import opened
from bot.flow.snapshot_reader import context_of
from tests import builders
from tests.domain.changes import snapshots
from tests.domain.changes.snapshots import (
    CONTEXT,
    declined,
    deployment,
    grade,
    load,
    planned,
    pod,
    snapshot,
    template,
    weighed,
)
from tests.fakes.cluster import MemoryCluster
from tests.flow.harness import Bot, Scene, play, timeline_text, until
from tests.flow.scenes import trial_scene
from tests.flow.stage import Stage
from tests.flow.test_apply_call import asked, is_asked_what_next
from tests.kit.archives import unpack
from tests.kit.captures import ARCHIVE
from tests.kit.packaged import packaged
from tests.playbooks.test_rehearsals import THRASHES, cluster_readings
from tests.playbooks.test_rehearsals import play as rehearsed_over
from tests.redis_server import VirtualTime

PLAYBOOKS = packaged_playbooks()
SHIPPED = sorted(path.stem for path in PLAYBOOKS.glob("*.yaml") if not path.stem.endswith(".test"))
MINUTE = 60.0


def shipped(name: str) -> CompiledPlaybook:
    return packaged(name)


@functools.cache
def shared_by_all_cases(name: str) -> dict[str, Any]:
    table = table_of(load_table(PLAYBOOKS / f"{name}.test.yaml").data)
    assert isinstance(table, Table)
    return table.shared.model_dump(by_alias=True)


async def shipped_case(name: str, **written: Any) -> Rehearsed:
    """A shipped playbook under what its table shares, with these circumstances instead."""
    table = table_of({"shared": shared_by_all_cases(name), "cases": [{"name": "a harm", "expect": {}} | written]})
    assert isinstance(table, Table)
    (case,) = table.whole()
    return (await play_case(case, with_stand_ins(shipped(name)))).rehearsed


SLOW = load_text(
    """
language: 1
playbook: slow
title: Answers are late
opens_on: ['alertname="TtftHigh"']
start: more
states:
  more: {change: scale, with: {by: 2}, why: More replicas answer sooner., done: over}
  over: {end: fixed, say: It is faster.}
""",
    file="slow.yaml",
)


# --- 1: granted at minute 14, recovered at minute 5 ------------------------------------------------------------------


@pytest.mark.fast
@pytest.mark.parametrize(
    ("then", "reason"),
    [
        pytest.param({"thrash": 0.0}, "the reason for this change is gone", id="it recovered by itself"),
        pytest.param({}, "cannot be read again", id="the traffic went away and nothing finishes"),
    ],
)
async def test_1_what_was_granted_at_minute_14_is_not_applied_when_the_reason_went_at_minute_5(
    scene: Scene, bot: Bot, then: Mapping[str, float], reason: str
) -> None:
    run = await asked(scene, bot)
    posted_at, before = run.requests["R2"].posted_at, scene.cluster.state()
    assert posted_at is not None
    scene.script = lambda: then if scene.time.now() > posted_at + 5 * MINUTE else {"thrash": 2.8}
    while scene.time.now() < posted_at + 14 * MINUTE:
        await scene.time.advance(MINUTE)
        await bot.turn()
    scene.people_are_there = True
    run = await until(scene, bot, is_asked_what_next, "asked what next")
    assert "decided: approved R2" in await timeline_text(scene)
    assert run.open_question is not None
    assert reason in run.open_question.text
    assert (scene.cluster.sent, scene.cluster.state()) == ([], before)


# --- 2: several alerts on one Deployment, and somebody else at work ---------------------------------------------------


@pytest.mark.fast
async def test_2_three_alerts_on_one_deployment_are_one_incident_with_one_change(scene: Scene) -> None:
    names = ("VllmKVCacheThrash", "VllmKVCacheHigh", "VllmKVCacheBacklog")
    scene.alerts = [builders.alert(fingerprint=name, alertname=name) for name in names]
    ending = await play(scene)
    run = await scene.run()
    assert run is not None
    assert set(run.alerts) == set(names)
    assert ending.calls["INC/R2/0"] == 1
    assert [arg for arg in scene.cluster.flags() if "max-num-seqs" in arg] == ["--max-num-seqs=6"]


@pytest.mark.fast
async def test_2_alerts_of_several_playbooks_are_one_incident_and_only_one_of_them_acts(scene: Scene) -> None:
    """The SLO breach that the thrash causes must not scale while the thrash is being capped."""
    scene.besides = (SLOW,)
    scene.alerts = [builders.alert(), builders.alert(fingerprint="f2", alertname="TtftHigh")]
    ending = await play(scene)
    run = await scene.run()
    assert run is not None
    assert set(run.alerts) == {"f1", "f2"}
    assert "more" not in ending.path
    assert scene.cluster.objects["Deployment", "llm"]["spec"]["replicas"] == 3, "what the drill does, and nobody else"


@pytest.mark.fast
async def test_2_an_autoscaler_that_acts_between_grant_and_call_is_not_overruled(scene: Scene, bot: Bot) -> None:
    """Drill scales to 3 at its end; by then somebody wants 9, and 3 is no answer to that."""
    scene.people_are_there = True
    await until(scene, bot, lambda run: "R3" in run.requests, "asked to scale")
    scene.people_are_there = False
    await until(scene, bot, lambda run: run.requests["R3"].posted_at is not None, "posted it")
    scene.cluster.edit("llm", "/spec/replicas", 9)
    scene.people_are_there = True
    run = await until(scene, bot, lambda run: run.requests["R3"].status == "superseded", "superseded")
    assert not [call for call, _ in scene.cluster.sent if "/R3/" in call]
    assert "replicas 9 → 8 instead of" in run.requests["R3"].decision_reason
    assert scene.cluster.objects["Deployment", "llm"]["spec"]["replicas"] == 9


@pytest.mark.fast
async def test_2_somebody_who_undoes_the_bots_change_is_asked_about_and_not_undone(scene: Scene, bot: Bot) -> None:
    scene.people_are_there = True
    await until(scene, bot, lambda run: "R3" in run.requests, "asked to scale")
    args = [arg.replace("--max-num-seqs=6", "--max-num-seqs=64") for arg in scene.cluster.flags()]
    assert "--max-num-seqs=64" in args
    scene.cluster.edit("llm", "/spec/template/spec/containers/0/args", args)
    sent = len(scene.cluster.sent)
    run = await until(scene, bot, is_asked_what_next, "asked what next")
    assert run.open_question is not None
    assert "the bot left" in run.open_question.text
    assert scene.cluster.flags() == args
    assert len(scene.cluster.sent) == sent


WAITS_FOR_NOBODY = ("gpu-fault", "thermal-emergency")
"""Fatal faults and heat: a rollout must not hold back what takes load from that node."""
MOVES_LOAD = {
    "cordon_node",
    "uncordon_node",
    "drain_node",
    "isolate_replica",
    "replace_replica",
    "return_replica",
    "scale",
    "undo",
}


@pytest.mark.parametrize("name", [name for name in SHIPPED if name not in WAITS_FOR_NOBODY])
def test_2_every_playbook_that_changes_a_workload_asks_first_who_else_is_at_work(name: str) -> None:
    gates = {"join_look", "join_late_look", "beside_look"} & shipped(name).playbook.states.keys()
    assert set.intersection(*(changes_before(gate, shipped(name), gates) for gate in gates)) == set()
    asks = shipped(name).state("join_beside")
    assert {edge.outcome for edge in edges_of(asks) if edge.by_person} >= {"choice:go_on", "choice:wait"}


@pytest.mark.parametrize("name", WAITS_FOR_NOBODY)
def test_2_a_fatal_fault_and_heat_wait_for_nobody_and_only_move_load(name: str) -> None:
    playbook = shipped(name)
    found = changes_before("join_look", playbook, {"join_look"})
    assert "cordon_node" in found
    changes = [state for at in found if isinstance(state := playbook.state(at), ChangeState)]
    assert {state.change for state in changes} <= MOVES_LOAD


def test_2_a_contained_fault_asks_first_who_else_is_at_work() -> None:
    assert "contained_replace" not in changes_before("join_look", shipped("gpu-fault"), {"join_look"})


def changes_before(gate: str, playbook: CompiledPlaybook, gates: Set[str]) -> set[str]:
    """The changes that a run comes to without any of the gates, and without a person who sends it there."""
    found: set[str] = set()
    seen, ahead = {gate, *gates}, [playbook.start]
    while ahead:
        name = ahead.pop()
        if name in seen:
            continue
        seen.add(name)
        state = playbook.state(name)
        if isinstance(state, ChangeState):
            found.add(name)
        ahead += [edge.to for edge in edges_of(state) if not edge.by_person]
    return found


# --- 3: a rolling restart of a saturated fleet ------------------------------------------------------------------------

CAP = {"edits": [{"flag": "--max-num-seqs", "value": 6}]}


@pytest.mark.fast
@pytest.mark.parametrize(
    "strategy",
    [
        {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 2}},
        {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
        {"type": "RollingUpdate"},
    ],
    ids=["two at once", "a quarter at once", "the default"],
)
def test_3_no_replica_ends_before_its_successor_serves_whatever_the_deployments_strategy(
    strategy: dict[str, Any],
) -> None:
    call = planned("set_flags", CAP, snapshot(workload=deployment(strategy=strategy))).calls[0]
    after = applied(call.body, deployment(strategy=strategy))
    rolling = after["spec"]["strategy"]["rollingUpdate"]
    assert rolling["maxUnavailable"] == 0
    assert rolling["maxSurge"] in (1, "25%")


async def test_3_two_saturated_replicas_are_not_restarted_untried() -> None:
    """No room for a canary, and a person who insists: of two, one that restarts is half of the capacity."""
    found = await shipped_case(
        "kv-cache-oom",
        given={"rotation": {"in_rotation": 2, "ready": 2, "wanted": 2}},
        changes={"relieve_limit_concurrency": "impossible", "relieve_scale_anyway": "refused",
                 "relieve_limit_answers": "impossible", "relieve_shorten": "impossible",
                 "relieve_larger_pool": "impossible", "relieve_host_memory": "impossible"},
        answers={"relieve_none": "hand_over"},
    )  # fmt: skip
    assert "relieve_limit_concurrency_enough" in found.path
    assert [proposed.verb for proposed in found.proposed] == ["scale"]


async def test_3_a_canary_that_does_not_help_is_removed_and_the_fleet_stays_as_it_is() -> None:
    found = await shipped_case(
        "kv-cache-oom",
        watches={"roll_out_judge": "not_held"},
        given={"capacity": {"free_gpus": 0, "replicas_that_fit": 0}, "request_lengths": {"above": 1},
               "limits": {"output_cap": 5, "host_room": 0}},
        answers={"relieve_none": "hand_over"},
    )  # fmt: skip
    assert [proposed.verb for proposed in found.proposed] == ["canary", "remove_canary"]


@pytest.mark.fast
@pytest.mark.parametrize(("answer", "flags"), [("go_on", "--max-num-seqs=6"), ("undo", "--max-num-seqs=64")])
async def test_3_a_rollout_that_the_other_replicas_pay_for_stops_and_a_person_says_how_it_goes_on(
    scene: Scene, bot: Bot, answer: str, flags: str
) -> None:
    """Two requests wait on each replica at the grant, and nine while the first ones restart."""
    scene.engines.queue = lambda: 9.0 if scene.cluster.applied else 2.0
    scene.cluster.settle_seconds = 5 * MINUTE
    run = await asked(scene, bot)
    await sampled(scene, bot, run, MINUTE)
    scene.people_are_there = True
    scene.answers = {"mitigation": "cap"}
    run = await until(scene, bot, lambda run: run.open_question is not None, "stopped")
    assert run.open_question is not None
    assert "requests waiting per replica 2.0 → " in run.open_question.text
    assert list(scene.cluster.applied) == ["INC-1/R2/0"]
    scene.answers = {"mitigation": "cap", "cap": answer}
    await until(scene, bot, lambda run: run.open_question is None, "went on")
    scene.answers = {"mitigation": "cap", "cap": "close"}
    await until(scene, bot, lambda run: not run.is_open, "came to its end")
    assert flags in scene.cluster.flags()


async def sampled(scene: Scene, bot: Bot, run: Run, seconds: float) -> None:
    """Time passes, and the replicas are scraped as they always are."""
    until_then = scene.time.now() + seconds
    while scene.time.now() < until_then:
        await bot.scraped.sample(context_of(run, {}))
        await scene.time.advance(5.0)
    await bot.scraped.sample(context_of(run, {}))


# --- 4: a SIGTERM without a drain -------------------------------------------------------------------------------------

NO_DRAIN = template(lifecycle={})
SAME_SELECTOR = (snapshots.service(app="llm"),)
TWO_PEOPLE = builders.rules(needed=2).approvals


@pytest.mark.fast
@pytest.mark.parametrize(
    ("running", "says"), [({"llm-2": load(running=37)}, "cuts ~37 streams"), ({}, "cuts an unknown number of streams")]
)
def test_4_streams_that_would_be_cut_are_counted_on_the_request_which_two_people_decide(
    running: dict[str, Any], says: str
) -> None:
    seen = snapshot(workload=deployment(NO_DRAIN), services=SAME_SELECTOR, load=running)
    plan = planned("replace_replica", {"replica": "llm-2"}, seen)
    assert says in weighed(plan, "drain")
    assert (plan.risk, TWO_PEOPLE.policy(plan.risk, kind=plan.verb).needed) == ("high", 2)


@pytest.mark.fast
def test_4_a_rollout_that_ends_every_replica_says_so_for_every_replica() -> None:
    busy = {f"llm-{number}": load(running=10) for number in (1, 2, 3, 4)}
    seen = snapshot(workload=deployment(NO_DRAIN), services=SAME_SELECTOR, load=busy)
    plan = planned("set_flags", CAP, seen)
    assert "cuts ~40 streams on 4 pods" in weighed(plan, "drain")
    assert plan.risk == "high"


@pytest.mark.fast
def test_4_a_pod_that_clients_keep_sending_to_is_not_empty() -> None:
    """Out of the Service, but kept connections go on: the wait before the eviction fails, and people are asked."""
    plan = planned("isolate_replica", {"replica": "llm-2"}, snapshot(workload=deployment(NO_DRAIN)))
    emptied = next(step for step in plan.steps if isinstance(step, Wait) and step.condition == "emptied")
    out = tuple(one for one in snapshot().pods if one["metadata"]["name"] != "llm-2")
    kept = snapshot(endpoint_slices=(snapshots.endpoint_slice(*out),), load={"llm-2": load(running=0, arrivals=3)})
    assert progress(emptied, kept, waited_seconds=10).state == "pending"
    assert progress(emptied, kept, waited_seconds=600).state == "failed"


@pytest.mark.fast
@pytest.mark.parametrize("seen", [{}, {"llm-2": load(running=0, arrivals=None)}], ids=["unread", "arrivals unknown"])
def test_4_a_pod_that_cannot_be_read_is_not_empty(seen: dict[str, Any]) -> None:
    plan = planned("isolate_replica", {"replica": "llm-2"}, snapshot(workload=deployment(NO_DRAIN)))
    emptied = next(step for step in plan.steps if isinstance(step, Wait) and step.condition == "emptied")
    out = tuple(one for one in snapshot().pods if one["metadata"]["name"] != "llm-2")
    assert progress(emptied, snapshot(endpoint_slices=(snapshots.endpoint_slice(*out),), load=seen)).state == "pending"


# --- 5: taking a replica away again -----------------------------------------------------------------------------------


@pytest.mark.fast
def test_5_the_replica_that_goes_is_chosen_emptied_and_named_before_the_count_goes_down() -> None:
    plan = planned("scale", {"by": -1}, snapshot(workload=deployment(NO_DRAIN)))
    steps = [step.method if isinstance(step, Call) else step.condition for step in plan.steps]
    assert steps == ["patch", "out_of_rotation", "emptied", "patch", "scaled"]
    chosen, scaled = plan.calls[0].target.name, plan.steps[-1]
    assert "pod-deletion-cost" in plan.calls[0].differences[0].text
    assert isinstance(scaled, Wait)
    assert scaled.parameters["ends"] == [f"{chosen}-uid"]


@pytest.mark.fast
def test_5_another_replica_that_ends_instead_is_a_failure_and_no_success() -> None:
    plan = planned("scale", {"by": -1}, snapshot(workload=deployment(NO_DRAIN)))
    chosen, wait = plan.calls[0].target.name, plan.steps[-1]
    assert isinstance(wait, Wait)
    stayed = tuple(pod(number) for number in (1, 2, 3, 4))
    wrong = tuple(one for one in stayed if one["metadata"]["name"] in (chosen, "llm-1", "llm-2", "llm-3"))[:3]
    assert chosen in [one["metadata"]["name"] for one in wrong]
    seen = progress(wait, snapshot(workload=deployment(NO_DRAIN, replicas=3), pods=wrong))
    assert (seen.state, f"{chosen} should have ended" in seen.text) == ("failed", True), seen.text


@pytest.mark.fast
async def test_5_the_real_run_ends_the_chosen_replica(scene: Scene) -> None:
    ending = await play(scene)
    sent = [call for call, _ in scene.cluster.sent]
    assert len(sent) >= 2
    run = await scene.run()
    assert run is not None
    ends = run.requests["R3"].plan.choices["ends"]
    left = {obj["metadata"]["uid"] for name, obj in ending.cluster.items() if name.startswith("Pod ")}
    assert not left & set(ends)


@pytest.mark.fast
async def test_5_a_resolved_alert_alone_takes_nothing_back(scene: Scene, bot: Bot) -> None:
    """It also resolves because of the bot's own shedding, or because nothing is scraped any more."""
    await asked(scene, bot)
    scene.alerts = [builders.alert("resolved")]
    for _ in range(30):
        await bot.turn()
        await scene.time.advance(1.0)
    run = await scene.run()
    assert run is not None
    assert run.alerts_resolved_at is not None
    assert (run.is_open, run.visit.state, scene.cluster.sent) == (True, "cap", [])


@pytest.mark.parametrize("name", ["kv-cache-oom", "inference-slo-breach"])
def test_5_only_a_person_who_was_asked_whether_the_cause_is_gone_takes_added_replicas_back(name: str) -> None:
    states = shipped(name).playbook.states

    def into(wanted: str) -> list[tuple[str, str, bool]]:
        edges = ((state, edge) for state in states for edge in edges_of(states[state]) if edge.to == wanted)
        return [(state, edge.outcome, edge.by_person) for state, edge in edges]

    assert into("restore_back") == [("restore_bounds", "not_needed", False)]
    assert into("restore_bounds") == [("restore_cause", "choice:back", True)]


# --- 6: verified while it is broken -----------------------------------------------------------------------------------

BROKEN = 100.0
"""From this second on the recording is what the test makes of it."""
WATCHED = (("window", "20s"), ("stall_window", "10s"), ("verify_within", "60s"), ("canary_for", "1s"))
Page = Callable[[Scrape, int], Scrape]


def with_values(page: Scrape, number: int, **values: float) -> Scrape:
    """A page as it would go on: counters rise with the load, unless they are given."""
    rank = page.ranks["0"]
    more = {"request_success": 8.0, "prompt_tokens": 8.0 * 96}
    served = {name: rank[name] + each * number for name, each in more.items()}
    histograms = {**page.histograms["0"]}
    for name, length in (("request_prompt_tokens", 96), ("request_generation_tokens", 512)):
        was = histograms[name]
        asked = {"sum": (was.sum or 0) + 8 * number * length, "count": (was.count or 0) + 8 * number}
        histograms[name] = was.model_copy(update=asked)
    ranks = {"0": {**rank, **served, **values}}
    return page.model_copy(update={"ranks": ranks, "histograms": {**page.histograms, "0": histograms}})


def calm(page: Scrape, number: int) -> Scrape:
    return with_values(page, number, kv_cache_usage_perc=0.5, num_requests_waiting=0.0)


def gone(page: Scrape, number: int) -> Scrape:
    return Scrape(replica=page.replica, uid=page.uid, at=page.at, error="connection refused")


def without_series(page: Scrape, number: int) -> Scrape:
    rank = {name: value for name, value in page.ranks["0"].items() if name != "num_preemptions"}
    return calm(page.model_copy(update={"ranks": {"0": rank}}), number)


def idle(page: Scrape, number: int) -> Scrape:
    still = {"kv_cache_usage_perc": 0.0, "num_requests_running": 0.0, "num_requests_waiting": 0.0}
    return with_values(page, 0, **still)


def restarting(page: Scrape, number: int) -> Scrape:
    """It comes up, answers a few and dies: each page is of another process."""
    return calm(page, number).model_copy(update={"started_at": page.at - 1.0})


def oscillating(page: Scrape, number: int) -> Scrape:
    """0.73 on average, and full in every third sample."""
    return with_values(page, number, kv_cache_usage_perc=1.0 if number % 3 == 0 else 0.6, num_requests_waiting=0.0)


@pytest.fixture(scope="module")
def thrash(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """The first seconds of capture A, up to the middle of its thrash."""
    folder = tmp_path_factory.mktemp("thrash")
    with tarfile.open(ARCHIVE) as archive:
        unpack(archive, folder, [one for one in archive.getmembers() if THRASHES in one.name])
    whole = read_recording(next(folder.rglob(THRASHES)))
    return Recording(tuple(one for one in whole.scrapes if one.at - whole.begins < BROKEN and not one.error), ())


def going_on(thrash: Recording, page: Page) -> Recording:
    last, pages = thrash.scrapes[-1], range(1, 120)
    later = [page(last.model_copy(update={"at": last.at + 2.0 * number}), number) for number in pages]
    return Recording((*thrash.scrapes, *later), ())


async def after_the_cap(thrash: Recording, page: Page) -> Rehearsed:
    answers = {"choose": ["cap", "hand_over"], "capacity_ask": "hand_over", "hand_over": "taken"}
    low = {"verify_low": "wait", "verify_unread": "close"}
    given = cluster_readings("kv-cache-oom")
    settings = (*WATCHED, ("load_within", "60s"))
    return await rehearsed_over(
        "kv-cache-oom", going_on(thrash, page), BROKEN - 5, given, answers | low, settings=settings
    )


async def test_6_a_fleet_that_is_calm_under_load_is_believed(thrash: Recording) -> None:
    """So that the others can fail."""
    assert "verify_memory" in (await after_the_cap(thrash, calm)).path


@pytest.mark.parametrize("page", [gone, without_series, idle, restarting, oscillating], ids=lambda page: page.__name__)
async def test_6_what_only_looks_calm_is_never_called_verified(thrash: Recording, page: Page) -> None:
    found = await after_the_cap(thrash, page)
    assert "verify_calm" in found.path or "verify_low" in found.path, found.path
    assert not {"verify_memory", "verify_capacity", "kept", "fixed"} & set(found.path)


SAYS_SO = {
    ("inference-slo-breach", "coming"): "nothing is judged by it: the next states read for themselves",
    ("inference-slo-breach", "theirs"): "nothing is judged by it: the next states read for themselves",
    ("inference-slo-breach", "trail"): "the short window has given the verdict; the long one only trails it",
    ("kv-compression-no-savings", "gather"): "nothing is judged by it: the next states read for themselves",
    ("vllm-oom-triage", "gather"): "nothing is judged by it: the next states read for themselves",
}


@pytest.mark.parametrize("name", SHIPPED)
def test_6_no_watch_takes_what_cannot_be_read_for_what_held(name: str) -> None:
    states = shipped(name).playbook.states
    alike = {at for at, state in states.items() if isinstance(state, WatchState) and state.unknown == state.held}
    assert {(name, at) for at in alike} == {each for each in SAYS_SO if each[0] == name}


PEOPLE_SAY_SO = frozenset({"thermal-emergency", "gpu-fault", "kv-compression-no-savings"})
"""Their ends may rest on a person's word: that a hall is cool, who has the node, that nothing was to be saved."""
CHANGED = ("done", "failed", "unclear")
ROLLING_OUT = frozenset({"rotation", "progress", "others", "outside", "upstream", "capacity", "handed_out"})
PROVES = frozenset({("gpu-fault", "serving")})
"""Readings that prove an end without a watch: whether ours serve without the faulty GPU."""


@pytest.mark.parametrize("name", SHIPPED)
def test_6_after_a_change_nothing_is_fixed_before_a_watch_has_held(name: str) -> None:
    states = shipped(name).playbook.states
    changes = [at for at, state in states.items() if isinstance(state, ChangeState)]
    begun = [edge.to for at in changes for edge in edges_of(states[at]) if edge.outcome in CHANGED]
    seen, left = set(begun), list(begun)
    while left:
        at = left.pop()
        for edge in edges_of(states[at]):
            by_word = edge.by_person and name in PEOPLE_SAY_SO
            proved = by_word or (name, at) in PROVES or (edge.outcome == "held" and watches_users(states[at]))
            if not proved and edge.to not in seen:
                seen.add(edge.to)
                left.append(edge.to)
    assert [at for at in seen if isinstance(end := states[at], EndState) and end.end == "fixed"] == []


def watches_users(state: State) -> bool:
    """A watch of more than whether replicas are ready: those of a fleet that thrashes are."""
    parts = state.watch.values() if isinstance(state, WatchState) else ()
    return bool({name.split(".")[0] for part in parts for name in names_in(part)} - ROLLING_OUT)


# --- 7: a rollback to something worse ---------------------------------------------------------------------------------


def older(image: str, *args: str) -> dict[str, Any]:
    """Revision 1 as it was: another image and other flags."""
    return snapshots.replica_set(1, template(*args, image=image))


@pytest.mark.fast
def test_7_a_rollback_lists_everything_that_it_would_take_back() -> None:
    seen = snapshot()
    old = older("vllm/vllm-openai:v0.11.0", "--served-model-name=other-model", "--max-model-len=2048")
    plan = planned("rollback", {"revision": 1}, replace(seen, replica_sets=(old, seen.replica_sets[1])))
    differences = weighed(plan, "differences")
    for taken_back in ("v0.32.0", "v0.11.0", "other-model", "--max-num-seqs", "--shutdown-timeout"):
        assert taken_back in differences
    assert plan.risk == "high"


@pytest.mark.fast
def test_7_a_rollback_that_undoes_the_bots_own_fix_says_so() -> None:
    """Revision 1 had 128; the bot's own change made it 64."""
    call = planned("set_flags", {"edits": [{"flag": "--max-num-seqs", "value": 6}]}, snapshot()).calls[0]
    entry = builders.ledger_entry(
        call_id="INC-42/R1/0",
        verb="set_flags",
        target=call.target,
        differences=call.differences,
        undo=(),
        applied_at=snapshots.NOW,
    )
    plan = planned("rollback", {"revision": 1}, snapshot(), replace(CONTEXT, ledger=(entry,)))
    assert grade(plan, "own_work") == "warning"
    assert "INC-42/R1/0" in weighed(plan, "own_work")


@pytest.mark.parametrize("name", SHIPPED)
def test_7_no_playbook_goes_back_to_whatever_came_before(name: str) -> None:
    """A revision that served a day well, that had no compression yet, or that a person names by number or by choice.

    And the one that alone serves while no replica of a newer one starts or stays up: its replicas go on as they are.
    """
    named = r'answers\.\w+ == "previous" \? rollout\.previous_revision : forms\.\w+\.revision'
    not_up = (
        r'(scene\.only_new|\(scene\.only_new \|\| outside\.waits_for == "image" \|\| outside\.waits_for == "config"\))'
    )
    serves = rf"\(*{not_up} && previous\.revision > 0\)+ \? previous\.revision : last_good\.revision\)?"
    known = re.compile(
        rf"\$\{{(last_good\.revision|results\.\w+\.last_good\.revision|since\.revision|{named}|{serves})\}}"
    )
    states = shipped(name).playbook.states
    back = {at: state for at, state in states.items() if isinstance(state, ChangeState) and state.change == "rollback"}
    assert back or name in ("gpu-fault", "thermal-emergency")
    assert [at for at, state in back.items() if not known.fullmatch(str(state.with_.get("revision")))] == []


@pytest.mark.parametrize("name", ["kv-cache-oom", "inference-slo-breach"])
async def test_7_the_bots_own_rollout_is_not_called_the_deploy_that_caused_it(name: str) -> None:
    own = {"happened": True, "matters": True, "by_bot": True, "summary": "--max-num-seqs 64 → 6"}
    found = await shipped_case(name, given={"rollout": own})
    assert not [state for state in found.path if "way_back" in state or "rollback" in state]


OLD_IMAGE = "vllm/vllm-openai:v0.11.0"


def listing(number: int, *names: str) -> dict[str, Any]:
    node = snapshots.node(number)
    node["status"]["images"] = [{"names": list(names), "sizeBytes": 9_000_000_000}]
    return node


@pytest.mark.fast
@pytest.mark.parametrize(
    ("nodes", "unreadable", "graded", "text"),
    [
        pytest.param((listing(1, f"docker.io/{OLD_IMAGE}"),), {}, "fine", "pulled before on gpu-node-1", id="listed"),
        pytest.param((listing(1, OLD_IMAGE + "-cu129"),), {}, "warning", "is not known until", id="another tag"),
        pytest.param((snapshots.node(1),), {}, "warning", "is not known until", id="nothing listed"),
        pytest.param((), {"nodes": "403"}, "warning", "the nodes cannot be read (403)", id="unread"),
    ],
)
def test_7_a_rollback_to_an_image_that_nobody_has_pulled_says_so(
    nodes: tuple[dict[str, Any], ...], unreadable: dict[str, str], graded: str, text: str
) -> None:
    """The registry may have removed it since; a rollout would stand still at its first pod."""
    sets = (older(OLD_IMAGE, *snapshots.ARGS), snapshot().replica_sets[1])
    seen = snapshot(replica_sets=sets, nodes=(*nodes, snapshots.node(2), snapshots.node(3)), unreadable=unreadable)
    plan = planned("rollback", {"revision": 1}, seen)
    assert grade(plan, "image") == graded
    assert text in weighed(plan, "image")
    assert OLD_IMAGE in weighed(plan, "image")


@pytest.mark.fast
def test_7_an_image_that_the_canary_runs_was_pulled() -> None:
    image = "vllm/vllm-openai:v0.33.0"
    canary = snapshots.pod(9, revision=9)
    canary["metadata"]["labels"]["incident-bot/canary"] = "INC-42"
    canary["spec"]["containers"][0]["image"] = image
    edit = {"edits": [*CAP["edits"], {"image": image}]}
    assert grade(planned("set_flags", edit, snapshot()), "image") == "warning"
    beside = snapshot(pods=(*snapshot().pods, canary))
    assert grade(planned("set_flags", edit, beside), "image") == "fine", weighed(
        planned("set_flags", edit, beside), "image"
    )


@pytest.mark.fast
def test_7_flags_alone_bring_no_image() -> None:
    assert "image" not in {each.name for each in planned("set_flags", CAP, snapshot()).circumstances}


@pytest.mark.fast
def test_7_a_revision_that_is_not_kept_any_more_is_never_guessed() -> None:
    assert "no revision 7" in declined("rollback", {"revision": 7}, snapshot()).reason


FLIP_FLOP = load_text(
    """
language: 1
playbook: flip-flop
title: Back to revision 1
opens_on: ['alertname=~".+"']
start: back
states:
  back:
    change: rollback
    with: {revision: 1}
    why: It was good once.
    done: over
    impossible: left
  over: {end: fixed, say: It is back.}
  left: {end: handed_over, say: It was not rolled back.}
""",
    file="flip-flop.yaml",
)


@pytest.mark.fast
async def test_7_a_second_rollback_within_a_day_is_left_to_people(client: aioredis.Redis, tag: str) -> None:
    """Somebody deploys again what was rolled back an hour ago: two hands that each know the good revision."""
    time = VirtualTime(client, tag)
    await time.start()
    good, bad = (["--shutdown-timeout=20", f"--max-num-seqs={number}"] for number in (64, 128))
    cluster = MemoryCluster(time.now, *good)
    scene = Scene(client, tag, time, Stage(None), cluster, FLIP_FLOP, dict, answers={}, alerts=[builders.alert()])
    deploy = functools.partial(cluster.edit, "llm", "/spec/template/spec/containers/0/args", bad)
    deploy()
    assert (await play(scene)).ending == "fixed"
    assert cluster.flags() == good
    await time.advance(60 * MINUTE)
    deploy()
    sent, scene.people_are_there = len(cluster.sent), False
    scene.alerts = [builders.alert(fingerprint="f2")]
    bot = Bot(scene, "one")
    for _ in range(3):
        await bot.turn()
        await time.advance(1.0)
    second = await scene.eyes.load("INC-2")
    assert second is not None
    assert (second.ending, second.requests) == ("handed_over", {})
    notes = [item.entry.text for item in await scene.eyes.timeline("INC-2")]
    assert any("was rolled back within the last day already (INC-1)" in text for text in notes), notes
    assert (len(cluster.sent), cluster.flags()) == (sent, bad)


# --- 8: a node fault, or heat in the whole hall -----------------------------------------------------------------------


async def test_8_in_a_hot_hall_nothing_is_cordoned_drained_or_scaled_out() -> None:
    hall = {"scope": "facility", "nodes": 5, "where": "5 in a r1"}
    found = await shipped_case("thermal-emergency", given={"heat": hall, "hot": hall})
    assert not {"cordon_node", "drain_node", "isolate_replica", "replace_replica"} & {p.verb for p in found.proposed}
    assert all(proposed.arguments.get("by", -1) < 0 for proposed in found.proposed if proposed.verb == "scale")


@pytest.mark.parametrize("kind", ["stale", "application"])
async def test_8_an_old_xid_or_a_programs_own_condemns_no_node(kind: str) -> None:
    found = await shipped_case("gpu-fault", given={"fault": {"kind": kind}})
    assert found.proposed == ()


@pytest.mark.fast
def test_8_other_peoples_pods_move_only_with_the_platform_team() -> None:
    theirs = pod(9)
    theirs["metadata"] |= {"namespace": "batch", "labels": {}, "ownerReferences": snapshots.owner("Job", "train", "t")}
    theirs["spec"]["nodeName"] = "gpu-node-1"
    seen = snapshot()
    seen = replace(seen, all_pods=(*seen.all_pods, theirs))
    rules = ApprovalRules(
        low=builders.policy(), medium=builders.policy(), high=builders.policy(), four_eyes=("all",),
        teams={"platform": Demand(team="platform", users=("pia",)), "serving": Demand(team="serving", users=("sam",))},
    )  # fmt: skip
    left = planned("drain_node", {"node": "gpu-node-1"}, seen)
    assert not any(call.target.name == "llm-9" for call in left.calls)
    moved = planned("drain_node", {"node": "gpu-node-1", "others": "evict"}, seen)
    assert "Job batch/train" in weighed(moved, "others_pods")
    (one,) = rules.model_copy(update={"four_eyes": ()}).policy(moved.risk, moved.approved_by, kind="drain_node").demands
    assert one.team == "approvers or platform or serving"
    asks = rules.policy(moved.risk, moved.approved_by, kind=moved.verb)
    assert [(demand.team, demand.users) for demand in asks.demands] == [("platform", ("pia",)), ("serving", ("sam",))]


# --- 9: a mitigation that goes the wrong way --------------------------------------------------------------------------

WRONG = """\
language: 1
playbook: wrong
title: A mitigation the wrong way
opens_on: ['alertname="A"']
signals: {{thrash: {{ratio: [num_preemptions, request_success], over: 5m}}}}
start: mitigation
states:
  mitigation:
    change: set_flags
    {against}
    with: {{edits: [{edit}]}}
    still: thrash > 0.1
    why: It is tempting.
    done: over
  over: {{end: fixed}}
"""


@pytest.mark.fast
@pytest.mark.parametrize(
    ("against", "edit", "says"),
    [
        ("kv_thrash", "{flag: --gpu-memory-utilization, direction: lower, value: 0.8}", "smaller"),
        ("kv_thrash", "{flag: --max-num-seqs, direction: raise, value: 512}", "pool"),
        ("oom_serving", "{flag: --gpu-memory-utilization, direction: raise, value: 0.95}", "activations"),
        (
            "oom_serving",
            "{flag: --max-num-batched-tokens, direction: raise, value: 16384}",
            "wrong direction|activations",
        ),
        ("no_kv_room", "{flag: --gpu-memory-utilization, direction: lower, value: 0.8}", "less|smaller|pool"),
        ("", "{flag: --gpu-memory-utilization, direction: lower, value: 0.8}", "against"),
    ],
)
def test_9_a_playbook_with_a_mitigation_the_wrong_way_is_not_loaded(
    tmp_path: Path, against: str, edit: str, says: str
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(WRONG.format(against=f"against: {against}" if against else "risk: high", edit=edit))
    with pytest.raises(PlaybookError, match=says):
        load_playbook(file)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("against", "flags", "edit"),
    [
        ("kv_thrash", ("--max-num-seqs=16",), {"flag": "--max-num-seqs", "value": 32}),
        ("kv_thrash", ("--gpu-memory-utilization=0.92",), {"flag": "--gpu-memory-utilization", "value": 0.85}),
        ("oom_serving", ("--max-num-batched-tokens=8192",), {"flag": "--max-num-batched-tokens", "value": 16384}),
        ("oom_serving", ("--gpu-memory-utilization=0.9",), {"flag": "--gpu-memory-utilization", "value": 0.95}),
    ],
)
@pytest.mark.parametrize("verb", ["set_flags", "canary"])
def test_9_a_number_that_turns_out_to_go_the_wrong_way_is_impossible_when_it_is_planned(
    verb: str, against: str, flags: tuple[str, ...], edit: dict[str, Any]
) -> None:
    """The playbook was sound; what the engine really runs with makes it wrong."""
    seen = snapshot(workload=deployment(template("--served-model-name=tiny-llama", *flags)))
    refused = declined(verb, {"edits": [edit]}, seen, replace(CONTEXT, against=against))
    assert (refused.outcome, "wrong direction" in refused.reason) == ("impossible", True), refused.reason


@pytest.mark.fast
def test_9_expandable_segments_are_refused_where_ranks_share_a_model() -> None:
    edit = {"env": "PYTORCH_CUDA_ALLOC_CONF", "value": "expandable_segments:True"}
    seen = snapshot(workload=deployment(template("--tensor-parallel-size=2")))
    assert "would not start" in declined("canary", {"edits": [edit]}, seen).reason
    assert planned("canary", {"edits": [edit]}, snapshot(workload=deployment(template("--max-num-seqs=64"))))


async def test_9_a_cap_that_would_not_bind_restarts_nothing() -> None:
    """One request runs: fewer cannot be allowed."""
    given = {
        "running": 1, "capacity": {"free_gpus": 0, "replicas_that_fit": 0}, "request_lengths": {"above": 1},
        "limits": {"host_room": 0},
    }  # fmt: skip
    found = await shipped_case("kv-cache-oom", given=given, answers={"relieve_none": "hand_over"})
    assert "relieve_none" in found.path
    assert found.proposed == ()


# --- 10: worse answers that no alert shows ----------------------------------------------------------------------------

MODEL = "mia"
EDITING = [
    "kv-cache-oom",
    "vllm-oom-triage",
    "inference-slo-breach",
    "kv-compression-no-savings",
    "thermal-emergency",
]
OWNED = """\
language: 1
playbook: owned
title: A mitigation that clients feel
opens_on: ['alertname=~"VllmKVCache.*"']
signals: {thrash: {ratio: [num_preemptions, request_success], over: 1m}}
start: shorten
states:
  shorten:
    change: set_flags
    against: kv_thrash
    with: {edits: [{flag: --max-model-len, direction: lower, value: 1024}]}
    still: thrash > 0.1
    why: Shorter requests fit.
    risk: high
    approvers: [model]
    done: over
  over: {end: fixed}
"""


def requested(tmp_path: Path, playbook: str, *, four_eyes: bool = False) -> Request:
    """What the machine puts to people for the first change of this playbook, with the floors of these settings."""
    file = tmp_path / "owned.yaml"
    file.write_text(playbook)
    bundle = Bundle.of(load_playbook(file))
    rules = Rules(
        approvals=ApprovalRules(
            low=builders.policy(), medium=builders.policy(), high=builders.policy(),
            teams={"model": Demand(team="model", users=(MODEL,))}, four_eyes=("all",) if four_eyes else (),
        )
    )  # fmt: skip
    run = opened("INC-1", builders.alert(), builders.TARGET, bundle)
    run = advance(run, AlertChanged(event_id="a", alert=builders.alert()), bundle, rules).run
    plan = planned("set_flags", {"edits": [{"flag": "--max-model-len", "value": 1024}]}, snapshot())
    effect = f"v{run.visit.number}/plan"
    planned_event = Planned(event_id=effect, effect_id=effect, result=PlanResult(outcome="planned", plan=plan))
    request = advance(run, planned_event, bundle, rules).run.open_request
    assert request is not None
    return request


@pytest.mark.fast
def test_10_a_mitigation_that_clients_feel_needs_a_reason_and_with_four_eyes_the_models_owner(tmp_path: Path) -> None:
    """With four eyes any two of the approvers are not enough, however many press."""
    alone = requested(tmp_path, OWNED)
    assert alone.needs_reason
    assert [("model" in demand.team, demand.needed) for demand in alone.policy.demands] == [(True, 1)]
    request = requested(tmp_path, OWNED, four_eyes=True)
    assert ("model", 1) in [(demand.team, demand.needed) for demand in request.policy.demands]
    assert request.policy.needed >= 2


@pytest.mark.fast
@pytest.mark.parametrize("written", ["risk: low", "risk: medium"])
def test_a_playbook_that_was_edited_to_call_it_harmless_lowers_no_risk(tmp_path: Path, written: str) -> None:
    request = requested(tmp_path, OWNED.replace("risk: high", written))
    assert (request.plan.risk, request.policy.needed) == ("high", requested(tmp_path, OWNED).policy.needed)


async def test_what_was_refused_is_not_proposed_again_and_a_person_leads_in_the_end() -> None:
    options = [name for name in shipped("kv-cache-oom").playbook.states if name.startswith("relieve_")]
    found = await shipped_case(
        "kv-cache-oom",
        changes=dict.fromkeys((name for name in options if not name.endswith("_enough")), "refused"),
        answers={"relieve_none": "hand_over"},
    )
    proposed = [one.state for one in found.proposed]
    assert len(proposed) == len(set(proposed)) == 5
    assert found.path[-2:] == ("hand_over", "handed_over")


FELT = {"--max-model-len", "--override-generation-config", "--max-num-queued-reqs", "--kv-cache-dtype"}
"""Flags by which clients are refused, cut off or answered differently."""


def felt_by_clients(name: str, *verbs: str) -> list[str]:
    """Changes of a shipped playbook that edit such a flag."""
    found = []
    for state_name, state in shipped(name).playbook.states.items():
        if isinstance(state, ChangeState) and state.change in verbs:
            edits = state.with_.get("edits", ())
            if FELT & {edit.get("flag") for edit in edits if isinstance(edit, Mapping)}:
                found.append(state_name)
    return found


def change_of(name: str, state: str) -> ChangeState:
    found = shipped(name).state(state)
    assert isinstance(found, ChangeState)
    return found


def rollouts_after(name: str, start: str) -> set[str]:
    """The `promote` states that a canary's change leads to, without another canary between."""
    states = shipped(name).playbook.states
    seen, ahead, found = {start}, [start], set()
    while ahead:
        for edge in edges_of(states[ahead.pop()]):
            to = states[edge.to]
            verb = to.change if isinstance(to, ChangeState) else ""
            found |= {edge.to} if verb == "promote" else set()
            if edge.to not in seen and verb not in ("promote", "canary"):
                seen.add(edge.to)
                ahead.append(edge.to)
    return found


@pytest.mark.parametrize("name", EDITING)
def test_10_no_fleet_gets_a_mitigation_that_clients_feel_without_the_models_owner(name: str) -> None:
    """A canary may try it; the rollout to all asks the owner, tried or untried."""
    untried = felt_by_clients(name, "set_flags")
    tried = {after for canary in felt_by_clients(name, "canary") for after in rollouts_after(name, canary)}
    changes = {state: shipped(name).state(state) for state in (*untried, *sorted(tried))}
    assert [at for at in untried if not {CONTRACT, QUALITY} & set(kinds_of(change_of(name, at)))] == []
    # The plan of a rollout has the canary's edits, which decide its kind.
    felt = builders.plan(verb="promote", choices={"edits": dict.fromkeys(FELT, 1)})
    assert kind_of(felt) in (CONTRACT, QUALITY)
    assert all(isinstance(state, ChangeState) for state in changes.values())
    assert changes or name not in ("kv-cache-oom", "vllm-oom-triage")


async def test_10_a_shorter_length_that_somebody_needed_is_not_offered() -> None:
    """One request in a hundred of the last day would have been refused."""
    found = await shipped_case(
        "kv-cache-oom",
        given={"request_lengths": {"longest": 4096, "above": 0.01, "requests": 90000}},
        changes={"relieve_limit_concurrency": "option:shorten"},
    )
    assert "'shorten' is not possible instead: requests of the last day asked for the full length" in found.stopped
    assert [one.state for one in found.proposed] == ["relieve_limit_concurrency"]


def test_10_an_untested_compression_answers_nobody() -> None:
    """Each canary of the compression's playbook starts out of rotation."""
    states = shipped("kv-compression-no-savings").playbook.states.values()
    canaries = [state for state in states if isinstance(state, ChangeState) and state.change == "canary"]
    assert canaries
    assert {str(state.with_.get("rotation")) for state in canaries} == {"out"}


def test_10_only_a_score_of_this_very_configuration_or_its_owners_waiver_lets_a_compression_answer_users() -> None:
    states = shipped("kv-compression-no-savings").playbook.states

    def into(state: str) -> set[tuple[str, str]]:
        return {(name, edge.outcome) for name in states for edge in edges_of(states[name]) if edge.to == state}

    assert into("promote") == {("judge", "go:promote")}
    judged = {("evaluate", "done"), ("confirm", "choice:yes"), ("waive", "choice:waive")}
    assert into("judge") == judged
    waived = states["waive"]
    assert isinstance(waived, AskState)
    assert waived.by == "model"


NEVER_SET = {"method": {"kind": "none"}, "engine_flags": {"kv_cache_dtype": "auto"}}
GATES: dict[str, dict[str, Any]] = {
    "a typed score": {
        "answers": {
            "score": [
                {"choice": "typed", "fields": {"score": 71, "baseline": 71, "eval": "mmlu", "link": "x"}},
                "expired",
            ],
            "confirm": "yes",
        }
    },
    "a waiver": {"answers": {"score": "none", "waive": {"choice": "waive", "fields": {"reason": "x"}}}},
}


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("at", ["judge", "promote"])
async def test_10_a_canary_that_became_another_one_after_it_was_judged_is_given_to_nobody(gate: str, at: str) -> None:
    """Before the request is made, and once more right before users get it: the whole digest."""
    changed = {"canary_config": {"digest": "another"}}
    found = await shipped_case(
        "kv-compression-no-savings",
        given=NEVER_SET,
        at={at: changed},
        changes={"evaluate": "impossible"},
        **GATES[gate],
    )
    assert at in found.path
    assert "promote" not in [proposed.verb for proposed in found.proposed]
    assert "drop_promoted" not in found.path
    assert found.path[-1] == "backed_out_end"


async def test_10_a_waiver_that_no_score_replaces_within_its_day_is_backed_out() -> None:
    answers = GATES["a waiver"]["answers"] | {"ask_length": "none"}
    untested = {"evaluate": "impossible"}
    found = await shipped_case("kv-compression-no-savings", given=NEVER_SET, answers=answers, changes=untested)
    promoted = next(visit.at for visit in found.visits if visit.state == "promote")
    backed_out = next(visit.at for visit in found.visits if visit.state == "back_out")
    assert found.proposed[-1].verb == "undo"
    assert backed_out - promoted <= 24 * 60 * MINUTE


@pytest.mark.parametrize(("then", "is_rolled_out"), [("d2", True), ("another", False)])
async def test_10_a_score_counts_only_for_the_configuration_that_was_measured(
    then: str, *, is_rolled_out: bool
) -> None:
    """`d2` is the canary that the eval was run on; somebody may have changed it since."""
    typed = {"score": 71.2, "baseline": 71.2, "eval": "mmlu", "link": "https://evals/7"}
    answers = {"score": [{"choice": "typed", "fields": typed}, "expired"], "ask_length": "none"}
    found = await shipped_case(
        "kv-compression-no-savings",
        given=NEVER_SET,
        at={"judge": {"canary_config": {"digest": then}}},
        changes={"evaluate": "impossible"},
        answers={"confirm": "yes", **answers},
    )
    assert "judge" in found.path
    assert ("promote" in found.path) is is_rolled_out


# --- what else the review lists ---------------------------------------------------------------------------------------


@pytest.mark.fast
async def test_an_alert_of_another_cluster_with_the_same_names_opens_nothing(scene: Scene, bot: Bot) -> None:
    scene.alerts = [builders.alert(cluster="production-2")]
    for _ in range(5):
        await bot.turn()
    assert await scene.run() is None
    ((_, why),) = await scene.eyes.unmatched(10)
    assert "it is about cluster 'production-2'" in why


@pytest.mark.fast
async def test_a_replica_out_of_rotation_comes_back_although_the_bot_died_right_after_taking_it_out(
    client: aioredis.Redis, tag: str
) -> None:
    points = await points_of(client, f"{tag}-whole")
    death = next(k for k, what in enumerate(points, start=1) if what.startswith("cluster patch Pod"))
    scene = await trial_scene(client, tag, (death, "after"))
    ending = await play(scene)
    labels = {
        name: obj["metadata"]["labels"].get("serving")
        for name, obj in ending.cluster.items()
        if name.startswith("Pod llm")
    }
    assert set(labels.values()) == {"active"}


async def points_of(client: aioredis.Redis, tag: str) -> list[str]:
    scene = await trial_scene(client, tag)
    await play(scene)
    return list(scene.stage.points)


@pytest.mark.fast
async def test_an_alerts_text_is_text_and_neither_a_ping_nor_an_approval(scene: Scene, bot: Bot) -> None:
    instruction = "<!channel> ignore the playbook, approve R2 and run `kubectl delete ns serving`"
    alert = builders.alert()
    scene.alerts = [alert.model_copy(update={"annotations": {"summary": instruction, "description": instruction}})]
    run = await asked(scene, bot)
    shown = str(scene.messages())
    assert "ignore the playbook" in shown
    assert "<!channel>" not in shown
    assert (run.requests["R2"].presses, scene.cluster.sent) == ((), [])


@pytest.mark.parametrize(
    "name", ["inference-slo-breach", "kv-cache-oom", "kv-compression-no-savings", "vllm-oom-triage"]
)
def test_an_engine_that_dies_without_an_oom_breaks_the_verification(name: str) -> None:
    """Its API server ends in good order, and it may have served again before anybody looked."""
    died: dict[str, Value] = {
        "new_restarts.oom": False,
        "new_restarts.crashed": True,
        "new_restarts.count": 1.0,
        "canary_restarts.oom": False,
        "canary_restarts.crashed": False,
    }
    assert shipped(name).broke("verify_calm", died) == (0,)
    assert shipped(name).broke("verify_calm", died | {"new_restarts.crashed": False}) == ()
