"""The shipped playbook for KV-cache OOM: which way it takes for which readings, with the numbers of the captures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bot.adapters.yaml_playbooks import load_playbook
from bot.domain.playbook.compiled import Chosen
from bot.domain.playbook.expression import Unknown
from bot.domain.playbook.language import AskState
from bot.domain.signal import Value

pytestmark = pytest.mark.fast

FILE = Path(__file__).parents[3] / "playbooks" / "kv-cache-oom.yaml"
PLAYBOOK = load_playbook(FILE)
MISSING: Any = object()

FLEET: dict[str, Value] = {
    "node.fault": False,
    "node.thermal": False,
    "node.healthy": True,
    "restarts.oom": False,
    "restarts.crashed": False,
    "rollout.matters": False,
    "rollout.by_bot": False,
    "stall": False,
    "running": 44.0,
    "waiting": 4.0,
    "kv_usage": 0.99,
    "thrash": 1423 / 507,
    "arrivals": 1.7,
    "baseline.arrivals": 1.7,
    "ttft_p99": 0.4,
    "kv_budget.tokens": 4064.0,
    "prompt_length": 96.0,
    "output_length": 512.0,
    "thrash_by_replica": {"llm-a": 2.8, "llm-b": 2.6, "llm-c": 3.0},
    "usage_by_replica": {"llm-a": 0.99, "llm-b": 0.98, "llm-c": 0.99},
    "arrivals_by_replica": {"llm-a": 0.5, "llm-b": 0.6, "llm-c": 0.6},
}
"""The thrash of capture A, on every replica."""

ONE_BAD: dict[str, Value] = {"thrash_by_replica": {"llm-a": 0.0, "llm-b": 2.6, "llm-c": 0.01}}
AFTER: dict[str, Value] = {"waiting": 0.0, "running": 6.0}
"""What the readings of `capacity` are where the queue is gone."""


def walk(data: dict[str, Value], *, stop: str = "", **outcomes: str) -> list[str]:
    """The states that a run enters: readings decide, people press the first button, changes are done, watches hold.

    `outcomes` says what happens instead in a state, each time; `stop` ends the walk there. An unknown that no edge is
    written for ends it with a `?`.
    """
    data = {name: value for name, value in {**FLEET, **data}.items() if value is not MISSING}
    name, way = PLAYBOOK.start, [PLAYBOOK.start]
    while PLAYBOOK.kind(name) != "end" and name != stop and len(way) < 40:
        at = f"{name}/applying" if PLAYBOOK.kind(name) == "change" else name
        there = PLAYBOOK.machine.next(at, outcomes.get(name) or expected_outcome(name, data))
        if there is None:
            return [*way, "?"]
        name = PLAYBOOK.machine.written(there)
        way.append(name)
    return way


def expected_outcome(name: str, data: dict[str, Value]) -> str:
    match PLAYBOOK.kind(name):
        case "read":
            chosen = PLAYBOOK.choose(name, data)
            return f"go:{chosen.destination}" if isinstance(chosen, Chosen) else "unknown"
        case "ask":
            state = PLAYBOOK.state(name)
            assert isinstance(state, AskState)
            return f"choice:{next(iter(state.choices))}"
        case kind:
            return {"change": "done", "watch": "held", "divert": "taken"}[kind]


TO_CHOOSE = ["gather", "look", "node", "crash", "is_thrash", "changed", "scope", "choose"]
CAPPED = ["cap_binds", "spare", "spare_ok", "cap", "settle", "verify_load", "verify", "capacity"]


def test_a_thrash_is_capped_on_a_spare_first_and_verified_under_load() -> None:
    assert walk({**AFTER, "running": 44.0}) == [*TO_CHOOSE, *CAPPED, "remove_spare", "report", "fixed"]


def test_a_queue_that_is_left_is_a_verdict_of_its_own() -> None:
    way = walk({"waiting": 41.0}, capacity_ask="choice:accept")
    assert way == [*TO_CHOOSE, *CAPPED, "capacity_ask", "remove_spare_and_accept", "accepted_degraded"]
    assert walk({"waiting": 41.0}, stop="scale")[-2:] == ["capacity_ask", "scale"]


@pytest.mark.parametrize(
    ("data", "way"),
    [
        pytest.param({"running": MISSING}, ["gather", "look", "blind"], id="no-metrics"),
        pytest.param({"node.fault": True}, ["node", "to_node_people", "node_done"], id="node-fault"),
        pytest.param({"node.thermal": True, "node.healthy": False}, ["node", "to_node_people"], id="heat"),
        pytest.param({"node.healthy": False}, ["node", "ask_node"], id="node-neither-sick-nor-healthy"),
        pytest.param(
            {"node.fault": MISSING, "node.thermal": MISSING, "node.healthy": MISSING},
            ["node", "ask_node"],
            id="node-unknown",
        ),
        pytest.param({"restarts.oom": True}, ["crash", "to_oom_triage", "handed_over"], id="cuda-oom"),
        pytest.param({"restarts.crashed": True}, ["crash", "to_oom_triage"], id="crash-without-oom"),
        pytest.param({"restarts.oom": MISSING}, ["crash", "?"], id="restarts-unknown-ask-people"),
        pytest.param({"thrash": 0.0, "kv_usage": 0.95, "waiting": 30.0}, ["is_thrash", "busy"], id="busy"),
        pytest.param(
            {"thrash": 1 / 22, "kv_usage": 0.85}, ["is_thrash", "flap", "self_cleared"], id="shedding-is-fine"
        ),
        pytest.param({"thrash": 43 / 48, "kv_usage": 0.99}, ["is_thrash", "changed"], id="watermark-still-thrashes"),
        pytest.param(
            {"thrash": MISSING, "stall": True, "kv_usage": 1.0}, ["is_thrash", "changed"], id="a-stall-has-no-ratio"
        ),
        pytest.param({"thrash": MISSING, "kv_usage": 0.3}, ["is_thrash", "flap"], id="idle-has-no-ratio-and-is-fine"),
        pytest.param({"thrash": MISSING, "kv_usage": 0.99}, ["is_thrash", "?"], id="full-without-a-ratio-ask-people"),
        pytest.param({"rollout.matters": True}, ["changed", "offer_rollback", "rollback", "settle"], id="deploy"),
        pytest.param({"rollout.matters": True, "rollout.by_bot": True}, ["changed", "scope"], id="our-own-rollout"),
        pytest.param({"rollout.matters": MISSING}, ["changed", "?"], id="rollouts-unknown-ask-people"),
        pytest.param(
            ONE_BAD,
            ["scope", "one_replica", "isolate", "emptied", "replace", "returned", "verify_load"],
            id="one-replica",
        ),
        pytest.param(
            {**ONE_BAD, "arrivals_by_replica": {"llm-a": 0.5, "llm-b": 1.6, "llm-c": 0.6}},
            ["scope", "routing", "verify_load"],
            id="routing",
        ),
        pytest.param({"thrash_by_replica": {"llm-a": 2.8}}, ["scope", "choose"], id="a-fleet-of-one-has-no-outlier"),
        pytest.param({"thrash_by_replica": MISSING}, ["scope", "choose"], id="scope-unknown"),
        pytest.param(
            {**AFTER, "running": 5.0}, ["choose", "cap_binds", "no_cap", "scale"], id="a-cap-that-does-not-bind"
        ),
        pytest.param({"output_length": MISSING}, ["cap_binds", "lengths", "cap_binds"], id="nothing-finished-yet"),
        pytest.param({"arrivals": 0.5}, ["verify_load", "low_load", "load_back", "verify"], id="low-load"),
        pytest.param({"arrivals": MISSING}, ["verify_load", "?"], id="load-unknown-ask-people"),
        pytest.param({"waiting": 0.0, "ttft_p99": 2.0}, ["capacity", "capacity_ask"], id="slow-first-token"),
        pytest.param({"waiting": 0.0, "ttft_p99": MISSING}, ["capacity", "capacity_ask"], id="no-latency-to-judge"),
    ],
)
def test_the_readings_decide_the_way(data: dict[str, Value], way: list[str]) -> None:
    walked = walk(data)
    start = walked.index(way[0])
    assert walked[start : start + len(way)] == way


@pytest.mark.parametrize(
    ("outcomes", "way"),
    [
        pytest.param({"gather": "not_held"}, ["gather", "blind"], id="no-samples"),
        pytest.param({"spare": "impossible"}, ["spare", "no_spare", "choose"], id="no-room-for-a-spare"),
        pytest.param({"spare": "refused"}, ["spare", "choose"], id="spare-refused"),
        pytest.param({"spare": "failed"}, ["spare", "remove_bad_spare", "choose"], id="spare-does-not-start"),
        pytest.param({"spare_ok": "not_held"}, ["spare_ok", "remove_bad_spare", "choose"], id="spare-does-not-help"),
        pytest.param({"spare_ok": "unknown"}, ["spare_ok", "quiet_spare", "spare_ok"], id="spare-says-too-little"),
        pytest.param({"spare": "unclear"}, ["spare", "?"], id="unclear-asks-people"),
        pytest.param({"cap_binds": "unknown", "lengths": "unknown"}, ["lengths", "?"], id="nothing-ever-finishes"),
        pytest.param({"cap": "not_needed"}, ["cap", "verify_load"], id="gone-before-the-call"),
        pytest.param({"cap": "expired"}, ["cap", "hand_over", "handed_over"], id="nobody-approves"),
        pytest.param({"cap": "failed"}, ["cap", "undo_or_hold", "take_back", "choose"], id="rollout-fails"),
        pytest.param({"settle": "not_held"}, ["settle", "undo_or_hold", "take_back"], id="replicas-do-not-come-up"),
        pytest.param({"verify": "not_held"}, ["verify", "choose"], id="next-lever"),
        pytest.param({"verify": "broke:0"}, ["verify", "undo_or_hold", "take_back"], id="a-new-oom-undoes"),
        pytest.param({"choose": "expired"}, ["choose", "hand_over", "handed_over"], id="nobody-chooses"),
        pytest.param({"choose": "choice:scale"}, ["choose", "scale", "settle", "verify_load"], id="scale"),
    ],
)
def test_every_outcome_has_its_way(outcomes: dict[str, str], way: list[str]) -> None:
    walked = walk({}, **outcomes)
    start = walked.index(way[0])
    assert walked[start : start + len(way)] == way


@pytest.mark.parametrize(
    ("outcomes", "way"),
    [
        pytest.param({"isolate": "impossible"}, ["isolate", "choose"], id="no-way-to-drain"),
        pytest.param({"emptied": "not_held"}, ["emptied", "sticky", "emptied"], id="not-empty"),
        pytest.param(
            {"emptied": "not_held", "sticky": "expired"}, ["sticky", "put_back", "choose"], id="nobody-answers"
        ),
        pytest.param({"replace": "refused"}, ["replace", "put_back", "choose"], id="refused-goes-back-into-rotation"),
        pytest.param({"replace": "failed"}, ["replace", "put_back", "choose"], id="failed-goes-back-into-rotation"),
    ],
)
def test_an_isolated_replica_is_replaced_or_put_back(outcomes: dict[str, str], way: list[str]) -> None:
    walked = walk(ONE_BAD, **outcomes)
    start = walked.index(way[0])
    assert walked[start : start + len(way)] == way


def test_the_spare_and_the_fleet_get_the_cap_that_worked_in_the_capture() -> None:
    then: dict[str, Value] = {
        "results.cap_binds.kv_budget.tokens": 4064.0,
        "results.cap_binds.prompt_length": 96.0,
        "results.cap_binds.output_length": 512.0,
    }
    edits = {"edits": [{"flag": "--max-num-seqs", "value": 6}]}
    assert PLAYBOOK.arguments("spare", then) == edits
    assert PLAYBOOK.arguments("cap", then) == edits
    assert isinstance(PLAYBOOK.arguments("cap", {}), Unknown)


def test_a_verdict_needs_every_part_and_a_silent_counter_is_not_calm() -> None:
    healthy: dict[str, Value] = {"thrash": 0.0, "kv_usage": 0.61, "stall": False}
    stalled: dict[str, Value] = {"kv_usage": 1.0, "stall": True}
    assert PLAYBOOK.watch_parts("verify", healthy) == {"calm": True, "room": True, "moving": True}
    verdict = PLAYBOOK.watch_parts("verify", stalled)
    assert isinstance(verdict["calm"], Unknown)
    assert (verdict["room"], verdict["moving"]) == (False, False)


def test_every_wait_of_the_playbook_can_be_shortened_for_a_demo() -> None:
    waits = [name for name, setting in PLAYBOOK.playbook.settings.items() if isinstance(setting.default, str)]
    short = load_playbook(FILE, dict.fromkeys(waits, "2s"))
    states = short.playbook.states
    waited = [
        name for name in states if short.kind(name) == "watch" and short.seconds(vars(states[name])["within"]) > 2
    ]
    assert waited == []


def test_every_change_that_does_not_restore_says_its_reason() -> None:
    restoring = {"put_back", "remove_bad_spare", "take_back", "remove_spare", "remove_spare_and_accept"}
    changes = {name for name in PLAYBOOK.playbook.states if PLAYBOOK.kind(name) == "change"}
    assert {name for name in changes if PLAYBOOK.still(name) is None} == restoring


@pytest.mark.parametrize(
    ("labels", "opens"),
    [
        ({"alertname": "VLLMKVCacheHigh", "severity": "page"}, True),
        ({"alertname": "VLLMPreemptionThrash", "severity": "critical"}, True),
        ({"alertname": "VLLMCriticalMemoryUsage", "severity": "critical"}, True),
        ({"alertname": "VLLMKVCacheHigh", "severity": "info"}, False),
        ({"alertname": "NodeDown", "severity": "page"}, False),
    ],
)
def test_it_opens_on_kv_cache_alerts_that_are_more_than_information(labels: dict[str, str], opens: bool) -> None:
    assert PLAYBOOK.opens_on(labels) is opens
