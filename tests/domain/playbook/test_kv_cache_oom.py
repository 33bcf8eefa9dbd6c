"""The shipped playbook for KV-cache OOM, beside its table: numbers of captures, what is unknown, how it opens."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.adapters.yaml_playbooks import load_playbook
from bot.domain.playbook.expression import Unknown
from bot.domain.playbook.language import ChangeState
from bot.domain.playbook.vocabulary import VERBS
from bot.domain.signal import Value
from tests.flow.test_harms import shipped_case

pytestmark = pytest.mark.fast

FILE = Path(__file__).parents[3] / "playbooks" / "kv-cache-oom.yaml"
PLAYBOOK = load_playbook(FILE)


@pytest.mark.parametrize("state", ["cap_spare", "cap_in_place"])
def test_the_spare_and_the_fleet_get_the_cap_that_worked_in_the_capture(state: str) -> None:
    then: dict[str, Value] = {
        "results.cap_binds.kv_budget.tokens": 4064.0,
        "results.cap_binds.prompt_length": 96.0,
        "results.cap_binds.output_length": 512.0,
        "results.cap_binds.prompt_p95": 120.0,
        "results.cap_binds.output_p95": 700.0,
    }
    arguments = PLAYBOOK.arguments(state, then)
    assert not isinstance(arguments, Unknown)
    assert arguments["edits"] == [{"flag": "--max-num-seqs", "direction": "lower", "value": 6}]
    assert isinstance(PLAYBOOK.arguments(state, {}), Unknown)


@pytest.mark.parametrize(
    ("data", "state"),
    [
        pytest.param({"thrash": 43 / 48, "kv_usage": 0.99, "stall": False}, "changed", id="a-watermark-still-thrashes"),
        pytest.param({"thrash": 1 / 22, "kv_usage": 0.85, "stall": False}, "early", id="shedding-is-fine"),
        pytest.param({"stall": True, "kv_usage": 1.0}, "changed", id="a-stall-has-no-ratio"),
        pytest.param({"stall": False, "kv_usage": 0.3}, "early", id="idle-has-no-ratio-and-is-fine"),
        pytest.param({"stall": False, "kv_usage": 0.99}, "", id="full-without-a-ratio-is-not-known"),
    ],
)
def test_the_numbers_of_the_captures_are_told_apart(data: dict[str, Value], state: str) -> None:
    chosen = PLAYBOOK.choose("is_thrash", {"waiting": 0.0, **data})
    assert ("" if isinstance(chosen, Unknown) else chosen.destination) == state


def test_a_silent_counter_is_not_calm() -> None:
    healthy: dict[str, Value] = {"thrash": 0.0, "kv_usage": 0.61, "stall": False}
    load: dict[str, Value] = dict.fromkeys(("arrivals", "baseline.arrivals"), 2.0)
    load |= dict.fromkeys(("prompt_rate", "baseline.prompt_rate"), 216.0)
    assert PLAYBOOK.watch_parts("verify_calm", healthy | load) == {"calm": True, "load": True}
    silent = PLAYBOOK.watch_parts("verify_calm", {"kv_usage": 0.61, "stall": False} | load)
    assert isinstance(silent["calm"], Unknown)


async def test_who_chooses_a_lever_again_reads_what_was_tried() -> None:
    answers, changes = {"choose": ["cap", "expired"]}, {"cap_active_spare": "refused"}
    found = await shipped_case("kv-cache-oom", answers=answers, changes=changes)
    first, second = [one.evidence for one in found.run.questions.values() if one.state == "choose"]
    assert not any(line.startswith("tried") for line in first)
    assert [line for line in second if line.startswith("tried")] == [
        f"tried: R2 {found.run.requests['R2'].plan.title}: refused"
    ]


def test_replicas_that_crash_page_unless_the_old_ones_of_a_rollout_serve() -> None:
    states = PLAYBOOK.playbook.states
    assert (states["to_oom_triage"].severity, states["to_stuck_rollout"].severity) == ("page", None)


@pytest.mark.parametrize("lever", ["emergency", "emergency_reserve", "shorten"])
def test_what_clients_feel_needs_the_models_owner_and_untried_a_lead_too(lever: str) -> None:
    in_place, roll = (PLAYBOOK.playbook.states[name] for name in (f"{lever}_in_place", "roll_out_cut_roll"))
    assert isinstance(in_place, ChangeState)
    assert isinstance(roll, ChangeState)
    assert set(in_place.approvers) == {"lead", "model"}
    assert set(roll.approvers) == {"model"}


def test_every_wait_of_the_playbook_can_be_shortened_for_a_demo() -> None:
    waits = [name for name, setting in PLAYBOOK.playbook.settings.items() if isinstance(setting.default, str)]
    short = load_playbook(FILE, dict.fromkeys(waits, "2s"))
    states = short.playbook.states
    waited = [
        name for name in states if short.kind(name) == "watch" and short.seconds(vars(states[name])["within"]) > 2
    ]
    assert waited == []


def test_every_change_that_does_not_restore_says_its_reason() -> None:
    changes = {name: state.change for name, state in PLAYBOOK.playbook.states.items() if isinstance(state, ChangeState)}
    silent = {name for name in changes if PLAYBOOK.still(name) is None}
    assert {name for name in silent if not VERBS[changes[name]].restores} == set()


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
