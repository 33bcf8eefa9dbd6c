"""A compiled playbook: three-valued choices, arguments, watches, and the part that a run keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.adapters.yaml_playbooks import StoredPlaybooks, load_text
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.compiled import Chosen
from bot.domain.playbooks.expressions.expression import Unknown
from bot.domain.signals.signal import Reading, Value

pytestmark = pytest.mark.fast

SMALL = (Path(__file__).parent / "small.yaml").read_text(encoding="utf-8")
PLAYBOOK = load_text(SMALL)
CALM: dict[str, Value] = {"restarts.oom": False, "thrash": 0.0, "usage": 0.4, "by_replica": {"a": 0.4}}


@pytest.mark.parametrize(
    ("data", "destination"),
    [
        pytest.param({}, "over", id="nothing-holds"),
        pytest.param({"thrash": 2.8, "usage": 0.99}, "cap", id="thrash"),
        pytest.param({"restarts.oom": True, "thrash": 2.8, "usage": 0.99}, "people", id="the-first-wins"),
        pytest.param({"usage": 0.4, "thrash": None}, "over", id="an-unknown-that-cannot-matter"),
    ],
)
def test_the_first_clause_that_is_not_false_decides(data: dict[str, Value | None], destination: str) -> None:
    known = {name: value for name, value in {**CALM, **data}.items() if value is not None}
    chosen = PLAYBOOK.choose("look", known)
    assert isinstance(chosen, Chosen)
    assert chosen.destination == destination


def test_a_clause_that_cannot_be_decided_stops_the_choice_there() -> None:
    chosen = PLAYBOOK.choose("look", {"thrash": 2.8, "usage": 0.99, "by_replica": {"a": 1.0}})
    assert chosen == Unknown("not known: restarts.oom", ("restarts.oom",))


def test_of_an_answer_that_came_the_part_that_is_missing_is_named_with_its_reason() -> None:
    why = {"oom": "no log was kept"}
    readings = {"restarts": Reading(name="restarts", fields={"count": 1.0}, unknown_parts=why, at=0)}
    missing = Unknown("not known: restarts.oom", ("restarts.oom",))
    assert PLAYBOOK.in_words(missing, readings) == "Restarts: oom could not be read (no log was kept)"
    silent = {"restarts": Reading(name="restarts", unknown="no answer", at=0)}
    assert PLAYBOOK.in_words(missing, silent) == "Restarts could not be read (no answer)"


@pytest.mark.parametrize(
    ("still", "words"),
    [
        pytest.param('restarts.oom || (picked.replica == "a" && thrash > 1)', "Preemptions 0", id="whole-readings"),
        pytest.param("restarts.oom", "Restarts: oom no", id="only-a-part"),
    ],
)
def test_a_reason_that_is_gone_is_described_by_what_people_read(still: str, words: str) -> None:
    playbook = load_text(SMALL.replace("still: thrash > settings.ratio", f"still: '{still}'"))
    assert playbook.no_longer("cap", {**CALM, "picked.replica": "b"}) == words


def test_a_number_beside_its_name_has_its_unit() -> None:
    still = SMALL.replace("still: thrash > settings.ratio", "still: thrash > settings.ratio || usage > 0.9")
    data, units = {**CALM, "thrash": 0.04, "usage": 0.4}, {"thrash": "per finished request", "usage": "ratio"}
    seen = load_text(still).no_longer("cap", data, units)
    assert "Preemptions 0.04 per finished request" in seen
    assert "40.0%" in seen


def test_a_choice_says_what_it_saw() -> None:
    chosen = PLAYBOOK.choose("look", {**CALM, "thrash": 2.8071, "usage": 0.99}, {"usage": "ratio"})
    assert chosen == Chosen(
        1,
        "cap",
        "thrash > settings.ratio && usage > 0.9 (settings.ratio = 0.1, thrash = 2.807, usage = 0.99)",
        seen="Preemptions 2.81, KV cache in use 99.0%",
        read_of=("thrash", "usage"),
    )


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        (("usage",), "KV cache in use could not be read"),
        (("restarts.oom", "restarts.last", "baseline.usage"), "Restarts, KV cache in use (before) could not be read"),
        (("results.look.restarts.oom",), "Restarts could not be read"),
        (("picked.replica", "answers.how_long"), "replica, how long could not be read"),
        ((), "division by zero"),
    ],
)
def test_what_could_not_be_read_has_the_names_that_people_know(missing: tuple[str, ...], words: str) -> None:
    assert PLAYBOOK.in_words(Unknown("division by zero", missing)) == words


def test_a_pick_names_the_replica_or_says_why_not() -> None:
    assert PLAYBOOK.picks("look", {"by_replica": {"a": 0.5, "b": 0.9}}) == {"replica": "b"}
    assert PLAYBOOK.picks("look", {}) == Unknown("not known: by_replica", ("by_replica",))


def test_the_arguments_of_a_change_are_rendered_with_their_types() -> None:
    assert PLAYBOOK.arguments("cap", {}) == {"edits": [{"flag": "--max-num-seqs", "value": 6}]}


def test_arguments_with_an_unknown_are_unknown() -> None:
    playbook = load_text(SMALL.replace("0.9, 4064, 608", "0.9, 4064, usage"))
    assert playbook.arguments("cap", {}) == Unknown("not known: usage", ("usage",))
    assert playbook.needs("cap") == ("usage", "thrash")


def test_what_people_were_asked_about_keeps_its_numbers() -> None:
    playbook = load_text(SMALL.replace("0.9, 4064, 608", "usage, 4064, 608"))
    moved = {"usage": 0.8, "results.cap.usage": 0.9}
    assert playbook.arguments("cap", moved, as_asked=True) == {"edits": [{"flag": "--max-num-seqs", "value": 6}]}
    assert playbook.arguments("cap", moved) == {"edits": [{"flag": "--max-num-seqs", "value": 5}]}
    assert playbook.arguments("cap", {"usage": 0.8}, as_asked=True) == playbook.arguments("cap", moved)


def test_each_part_of_a_watch_has_its_own_verdict() -> None:
    parts = PLAYBOOK.watch_parts("calm", {"thrash": 0.0, "usage": 0.95, "baseline.usage": 0.9})
    assert parts == {"calm": True, "better": False, "idle": Unknown("not known: bad_one", ("bad_one",))}


@pytest.mark.parametrize(("data", "places"), [({"restarts.oom": True}, (0,)), ({"restarts.oom": False}, ()), ({}, ())])
def test_only_what_is_certain_breaks_a_watch(data: dict[str, Value], places: tuple[int, ...]) -> None:
    assert PLAYBOOK.broke("calm", data) == places


@pytest.mark.parametrize(
    ("data", "holds"),
    [({"thrash": 0.5}, True), ({"thrash": 0.0}, False), ({}, Unknown("not known: thrash", ("thrash",)))],
)
def test_the_reason_of_a_change_is_three_valued(data: dict[str, Value], holds: bool | Unknown) -> None:
    assert PLAYBOOK.still_holds("cap", data) == holds


def test_a_state_needs_what_it_lists_and_what_its_expressions_mention() -> None:
    assert PLAYBOOK.needs("look") == ("usage", "thrash", "by_replica", "restarts")
    assert PLAYBOOK.needs("calm") == ("usage", "thrash", "bad_one", "restarts")
    assert PLAYBOOK.needs("people") == ()


def test_a_scope_holds_this_states_signals_and_what_states_leave_behind() -> None:
    scope = PLAYBOOK.scope_of("cap")
    assert scope["thrash"] == "number"
    assert scope["picked.replica"] == "text"
    assert scope["baseline.usage"] == "number"
    assert scope["results.look.restarts.oom"] == "flag"
    assert scope["answers.question"] == "text"
    assert "usage" not in scope


def test_a_duration_is_a_text_or_the_name_of_a_setting() -> None:
    assert PLAYBOOK.seconds("40m") == 2400
    assert PLAYBOOK.seconds("settings.window") == 300
    assert load_text(SMALL, {"window": "12s"}).seconds("settings.window") == 12


def test_the_digest_is_of_what_decides() -> None:
    digest = Bundle.of(PLAYBOOK).digest
    assert Bundle.of(load_text("# another comment\n" + SMALL)).digest == digest
    assert Bundle.of(load_text(SMALL, {"ratio": "0.2"})).digest != digest
    assert Bundle.of(load_text(SMALL.replace("usage > 0.9", "usage > 0.8"))).digest != digest


def test_copies_with_other_settings_share_what_does_not_depend_on_them() -> None:
    other = PLAYBOOK.with_settings({"ratio": 0.2})
    assert other.machine is PLAYBOOK.machine
    assert other.digest != PLAYBOOK.digest


def test_a_stored_playbook_that_is_in_force_is_not_compiled_again() -> None:
    begun = load_text(SMALL, {"window": "12s"}, file="small.yaml")
    stored = Bundle.of(begun).stored()
    live = load_text(SMALL, file="small.yaml")
    again = StoredPlaybooks(lambda: {"small": live})(stored).playbooks["small"]
    assert again.machine is live.machine
    assert again.settings == begun.settings
    edited = load_text(SMALL.replace("usage > 0.9", "usage > 0.8"), file="small.yaml")
    kept = StoredPlaybooks(lambda: {"small": edited})(stored).playbooks["small"]
    assert kept.digest == begun.digest


def test_a_run_gets_back_what_it_began_with() -> None:
    begun = load_text(SMALL, {"window": "12s"}, file="small.yaml")
    again = StoredPlaybooks()(Bundle.of(begun).stored())
    assert again.digest == Bundle.of(begun).digest
    kept = again.playbooks["small"]
    assert kept.settings == begun.settings
    assert kept.choose("look", CALM) == begun.choose("look", CALM)


def test_a_playbook_opens_on_all_matchers_of_any_line() -> None:
    playbook = load_text(SMALL.replace('severity!="info"\']', 'severity!="info"\', \'team="kv"\']'))
    assert playbook.opens_on({"alertname": "KVHigh", "severity": "page"})
    assert playbook.opens_on({"alertname": "Other", "team": "kv"})
    assert not playbook.opens_on({"alertname": "KVHigh", "severity": "info"})
