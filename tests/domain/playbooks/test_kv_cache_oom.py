"""The shipped playbook for KV-cache OOM, beside its table: numbers of captures, unknowns, how it opens."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.adapters.yaml_playbooks import load_playbook
from bot.cli.who_approves import kinds_of
from bot.domain.changes.catalogue import VERBS
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.expressions.expression import Unknown
from bot.domain.playbooks.language import ChangeState, ReadState, WatchState
from bot.domain.signals.signal import Value
from bot.domain.signals.specs import MetricSignal
from tests.domain.signals.test_sampling import read, series
from tests.kit.packaged import packaged

pytestmark = pytest.mark.fast

FILE = Path(__file__).parents[3] / "playbooks" / "kv-cache-oom.yaml"
PLAYBOOK, COMPRESSION = packaged("kv-cache-oom"), packaged("kv-compression-no-savings")
THAT_VERIFY = pytest.mark.parametrize("playbook", [PLAYBOOK, COMPRESSION], ids=lambda playbook: playbook.name)


@pytest.mark.parametrize("playbook", [PLAYBOOK, packaged("inference-slo-breach")], ids=lambda playbook: playbook.name)
def test_people_are_asked_before_a_replica_that_starts_uses_up_the_time_for_relief(playbook: CompiledPlaybook) -> None:
    coming = playbook.state("coming")
    assert isinstance(coming, WatchState)
    assert playbook.seconds(coming.within) <= 10 * 60


@pytest.mark.parametrize("state", ["relieve_limit_concurrency", "relieve_limit_concurrency_in_place"])
def test_the_canary_and_the_fleet_get_the_cap_that_worked_in_the_capture(state: str) -> None:
    read: dict[str, Value] = {
        "kv_budget.tokens": 4064.0, "prompt_length": 96.0, "output_length": 512.0, "output_p95": 700.0,
        "limits.prefix_caching": True, "hit_rate": 0.02, "running": 20.0, "kv_usage": 0.99,
    }  # fmt: skip
    arguments = PLAYBOOK.arguments(state, {f"results.relieve.{name}": value for name, value in read.items()})
    assert not isinstance(arguments, Unknown)
    flags = ["--max-num-active-seqs", "--max-num-seqs"]
    assert arguments["edits"] == [{"first_of": flags, "direction": "lower", "value": 6}]
    assert isinstance(PLAYBOOK.arguments(state, {}), Unknown)


@pytest.mark.parametrize(
    ("data", "state"),
    [
        pytest.param(
            {"thrash": 43 / 48, "kv_usage": 0.99, "stall": False}, "join_look", id="a-watermark-still-thrashes"
        ),
        pytest.param({"thrash": 1 / 22, "kv_usage": 0.85, "stall": False}, "one_hangs", id="shedding-is-fine"),
        pytest.param({"stall": True, "kv_usage": 1.0}, "join_look", id="a-stall-has-no-ratio"),
        pytest.param({"stall": False, "kv_usage": 0.3}, "one_hangs", id="idle-has-no-ratio-and-is-fine"),
        pytest.param({"stall": False, "kv_usage": 0.99}, "", id="full-without-a-ratio-is-not-known"),
    ],
)
def test_the_numbers_of_the_captures_are_distinguished(data: dict[str, Value], state: str) -> None:
    chosen = PLAYBOOK.choose("is_thrash", {"waiting": 0.0, "no_progress.least": 0.0, **data})
    assert ("" if isinstance(chosen, Unknown) else chosen.destination) == state


def test_a_silent_counter_is_not_calm() -> None:
    healthy: dict[str, Value] = {"thrash": 0.0, "preempted": 0.0, "kv_usage": 0.61, "stall": False}
    load: dict[str, Value] = {"queue": 12.0}
    assert PLAYBOOK.watch_parts("verify_calm", healthy | load) == {"recovered": True, "enough_load": True}
    silent = PLAYBOOK.watch_parts("verify_calm", {"kv_usage": 0.61, "stall": False} | load)
    assert isinstance(silent["recovered"], Unknown)


@pytest.mark.parametrize(("bad", "is_calm"), [(0.0, True), (3.0, False)], ids=["none-hangs", "one-hangs"])
@pytest.mark.parametrize("playbook", [PLAYBOOK, packaged("inference-slo-breach")], ids=lambda playbook: playbook.name)
def test_an_incident_does_not_end_by_itself_while_a_replica_hangs(
    playbook: CompiledPlaybook, bad: float, is_calm: bool
) -> None:
    served: dict[str, Value] = {
        "thrash": 0.0, "preempted": 0.0, "kv_usage": 0.5, "stall": False, "waiting": 0.0, "running": 4.0,
        "arrivals": 2.0, "ttft_missed": 0.0, "tpot_missed": 0.0, "ttft_p99": 0.1, "tpot_p99": 0.01,
    }  # fmt: skip
    assert playbook.is_calm(served | {"no_progress.bad": bad}, changed=False) is is_calm
    assert isinstance(playbook.is_calm(served, changed=False), Unknown), "too few polls are not calm"


ASKED: dict[str, Value] = {"arrivals": 2.0, "asked_prompt": 108.0, "asked_answer": 500.0, "queue": 0.0}


@THAT_VERIFY
@pytest.mark.parametrize(
    ("now", "is_there"),
    [
        pytest.param({}, True, id="as-before"),
        pytest.param({"asked_answer": 230.0}, False, id="answers-half-as-long"),
        pytest.param({"arrivals": 1.2, "queue": 120.0}, True, id="a-cap-slows-clients-that-wait-for-each-other"),
        pytest.param({"arrivals": 1.2}, False, id="fewer-requests-and-no-queue"),
        pytest.param({"asked_answer": None, "queue": 120.0}, True, id="a-queue-before-anything-finished"),
        pytest.param({"asked_answer": None}, None, id="nothing-finished-and-no-queue"),
    ],
)
def test_load_is_what_is_asked_for_and_not_what_gets_done(
    playbook: CompiledPlaybook, now: dict[str, Value | None], is_there: bool | None
) -> None:
    before = {f"baseline.{name}": value for name, value in ASKED.items()}
    values = {name: value for name, value in {**ASKED, **now, **before}.items() if value is not None}
    load = playbook.watch_parts("verify_calm", values | {"picked.load": "compared"})["enough_load"]
    assert (None if isinstance(load, Unknown) else load) is is_there


@pytest.mark.parametrize(("arrivals", "is_there"), [(1.9, True), (1.2, None)])
def test_load_that_a_person_called_usual_is_compared_with_what_it_was_then(
    arrivals: float, is_there: bool | None
) -> None:
    then = {f"results.verify_usual.{name}": value for name, value in ASKED.items()}
    values = {**ASKED, **then, "arrivals": arrivals, "picked.load": "usual"}
    load = PLAYBOOK.watch_parts("verify_calm", values)["enough_load"]
    assert (None if isinstance(load, Unknown) else load) is is_there


@THAT_VERIFY
def test_the_clients_that_begin_at_once_are_no_load_that_lasts(playbook: CompiledPlaybook) -> None:
    arrivals = playbook.playbook.signals["arrivals"]
    assert isinstance(arrivals, MetricSignal)
    begun_at_once = series("request_success", [0, 120, 140, 160, 180, 200, 220])
    assert read(arrivals, begun_at_once).value == pytest.approx(2.0)


SERVED: dict[str, Value] = {
    "kv_usage": 0.6, "waiting": 0.0, "running": 20.0, "arrivals": 2.0, "ttft_p99": 0.3, "tpot_p99": 0.02,
}  # fmt: skip


@pytest.mark.parametrize(
    ("now", "are_served"),
    [
        pytest.param({}, True, id="served-in-time"),
        pytest.param({"ttft_p99": 10.0}, False, id="late-first-tokens"),
        pytest.param({"tpot_p99": 0.2}, False, id="slow-tokens"),
        pytest.param({"waiting": 40.0}, False, id="a-queue"),
        pytest.param({"ttft_p99": None}, None, id="first-tokens-that-nobody-read"),
        pytest.param({"ttft_p99": None, "arrivals": 0.0}, True, id="nobody-comes"),
    ],
)
def test_a_pool_with_room_is_not_enough_where_users_wait(now: dict[str, Value | None], are_served: bool | None) -> None:
    values = {name: value for name, value in {**SERVED, **now}.items() if value is not None}
    parts = PLAYBOOK.watch_parts("flap", values)
    assert parts["room_in_the_pool"] is True
    assert (None if isinstance(parts["users_in_time"], Unknown) else parts["users_in_time"]) is are_served


CANARY: dict[str, Value] = {
    "canary_tokens": 330.0,
    "peers_tokens": 560.0,
    "peers_ttft": 2.1,
    "canary_hits": 0.3,
    "baseline.hit_rate": 0.2,
}


@pytest.mark.parametrize(
    ("finished", "first_token", "is_high"),
    [
        pytest.param(0.56, 2.0, True, id="fewer-requests-finish"),
        pytest.param(0.9, 15.0, True, id="first-tokens-come-later"),
        pytest.param(0.9, 2.0, False, id="about-as-before"),
    ],
)
def test_the_request_for_the_fleet_has_what_the_canary_paid(finished: float, first_token: float, is_high: bool) -> None:
    read = {**CANARY, "canary_ttft": first_token, "canary_finished": finished, "peers_finished": 0.95}
    units = {"canary_ttft": "s", "peers_ttft": "s", "canary_hits": "ratio"}
    text = PLAYBOOK.text("roll_out_judge", "say", read, units)
    assert text.endswith(
        f"finishes {finished} requests/s (an average replica 0.95) and 330 tokens/s (560); "
        f"first token {first_token:g} s (the fleet 2.1 s)"
    )
    assert (
        "is high, in requests/s or time to first token." in PLAYBOOK.text("roll_out_roll_out", "why", read)
    ) == is_high


def test_a_price_that_nobody_could_read_is_not_called_low() -> None:
    assert PLAYBOOK.text("roll_out_roll_out", "why", {"peers_finished": 0.95}).endswith("is not known.")
    assert "not known requests/s (an average replica 0.95)" in PLAYBOOK.text(
        "roll_out_judge", "say", {"peers_finished": 0.95}
    )


@pytest.mark.parametrize(
    ("state", "read_in", "first_token"),
    [
        # The closing message has the line about users, at the diagnosis and now.
        ("fixed_end", "results.verify_capacity.", ""),
        ("accepted_degraded_end", "results.capacity_ask.", ""),
        ("capacity_ask", "", "first token 13 s → 39 s, "),
    ],
)
def test_the_verdict_has_what_the_fleet_paid(state: str, read_in: str, first_token: str) -> None:
    before: dict[str, Value] = {"finish_rate": 3.79, "token_rate": 2300.0, "ttft_p99": 13.0}
    now: dict[str, Value] = {"finish_rate": 2.25, "token_rate": 1360.0, "ttft_p99": 39.0}
    values = {f"baseline.{name}": value for name, value in before.items()}
    values |= {read_in + name: value for name, value in now.items()}
    text = PLAYBOOK.text(state, "why" if state == "capacity_ask" else "say", values, {"ttft_p99": "s"})
    assert f"{first_token}3.79 → 2.25 requests/s, 2,300 → 1,360 tokens/s" in text
    assert ("first token" in text) is bool(first_token)
    assert state != "capacity_ask" or text.endswith(", which is a high price.")


def test_the_gateway_is_advised_to_limit_prompts_by_their_lengths() -> None:
    read: dict[str, Value] = {"prompt_p95": 12_345.6, "output_p95": 700.0}
    advice = PLAYBOOK.text("relieve", "gateway.effect", read)
    assert "limit a prompt to 12,345 tokens, which 19 of 20 stay below" in advice
    assert "and an answer to 700." in advice
    assert "a prompt to not known tokens" in PLAYBOOK.text("relieve", "gateway.effect", {"output_p95": 700.0})


def test_replicas_that_crash_page_unless_the_old_ones_of_a_rollout_serve() -> None:
    state = PLAYBOOK.state("crash")
    assert isinstance(state, ReadState)
    assert [(go.destination, go.severity) for go in state.go] == [
        ("to_oom_triage", None),
        ("to_oom_triage", "page"),
        ("users", None),
    ]


@pytest.mark.parametrize("state", ["relieve_limit_answers", "relieve_shorten", "relieve_shorten_in_place"])
def test_what_clients_feel_is_of_the_kind_that_asks_the_models_owner_too(state: str) -> None:
    change = PLAYBOOK.playbook.states[state]
    assert isinstance(change, ChangeState)
    assert kinds_of(change) == ("client_contract",)


def test_flags_that_do_nothing_or_are_risky_are_in_its_report() -> None:
    state = PLAYBOOK.state("look")
    assert isinstance(state, ReadState)
    assert state.baseline
    assert "hygiene" in state.read


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


def test_the_request_and_the_outcome_show_how_often_the_prefix_cache_is_hit() -> None:
    read: dict[str, Value] = {"canary_hits": 0.42, "baseline.hit_rate": 0.02, "results.kept.hit_rate": 0.4}
    units = {"canary_hits": "ratio", "hit_rate": "ratio"}
    assert "prefix cache hits 42.0% (2.0% before)" in PLAYBOOK.text("roll_out_judge", "say", read, units)
    assert "prefix cache hits 2.0% → 40.0%." in PLAYBOOK.text("fixed_end", "say", read, units)
