"""The machine: which outcome is legal where, and where it leads."""

from __future__ import annotations

import pytest

from bot.domain.playbooks.language import Playbook
from bot.domain.playbooks.machine import UNDO, PlaybookMachine

pytestmark = pytest.mark.fast

PLAYBOOK = Playbook.model_validate(
    {
        "language": 1,
        "playbook": "small",
        "title": "Small",
        "start": "look",
        "states": {
            "look": {
                "read": [], "go": [{"when": "true", "to": "ask_first"}, {"otherwise": "fix"}], "unknown": "people",
            },
            "ask_first": {
                "ask": "Fix?",
                "choices": {"yes": {"label": "Yes", "to": "fix"}, "no": {"label": "No", "to": "over"}},
                "expired": "people",
            },
            "fix": {"change": "scale", "with": {"by": 1}, "why": "because", "done": "calm", "refused": "ask_first"},
            "calm": {
                "watch": {"calm": "true"}, "for": "1m", "within": "5m",
                "held": "over", "broke": [{"when": "false", "to": "fix"}],
            },
            "people": {"divert": "people", "why": "help", "taken": "over", "expires": "1m", "expired": "look"},
            "over": {"end": "fixed"},
        },
    }
)  # fmt: skip
MACHINE = PlaybookMachine(PLAYBOOK)


@pytest.mark.parametrize(
    ("at", "outcome", "to"),
    [
        ("look", "go:ask_first", "ask_first"),
        ("look", "go:fix", "fix/planning"),
        ("look", "unknown", "people"),
        ("ask_first", "choice:yes", "fix/planning"),
        ("ask_first", "choice:no", "over"),
        ("ask_first", "expired", "people"),
        ("fix/planning", "planned", "fix/awaiting"),
        ("fix/awaiting", "granted", "fix/applying"),
        ("fix/awaiting", "refused", "ask_first"),
        ("fix/awaiting", "superseded", "fix/awaiting"),
        ("fix/applying", "superseded", "fix/awaiting"),
        ("fix/awaiting", "replan", "fix/planning"),
        ("fix/applying", "replan", "fix/planning"),
        ("fix/applying", "done", "calm"),
        ("calm", "held", "over"),
        ("calm", "broke:0", "fix/planning"),
        ("people", "taken", "over"),
        ("people", "expired", "look"),
        ("fix/applying", "again", "fix/planning"),
        ("fix/applying", "goto:calm", "calm"),
        ("calm", "goto:fix", "fix/planning"),
        ("over", "again", "over"),
        (f"{UNDO}/planning", "planned", f"{UNDO}/awaiting"),
        (f"{UNDO}/awaiting", "granted", f"{UNDO}/applying"),
        (f"{UNDO}/applying", "superseded", f"{UNDO}/awaiting"),
        (f"{UNDO}/applying", "goto:calm", "calm"),
        (f"{UNDO}/applying", "again", f"{UNDO}/planning"),
    ],
)
def test_an_outcome_leads_where_it_is_written(at: str, outcome: str, to: str) -> None:
    assert MACHINE.next(at, outcome) == to


@pytest.mark.parametrize(
    ("at", "outcome"),
    [
        pytest.param("look", "done", id="a-read-is-never-done"),
        pytest.param("look", "go:over", id="a-way-that-is-not-written"),
        pytest.param("fix/planning", "granted", id="granted-before-it-was-asked"),
        pytest.param("fix/applying", "granted", id="granted-twice"),
        pytest.param("fix/applying", "planned", id="planned-while-applying"),
        pytest.param("fix/applying", "failed", id="an-outcome-that-is-left-out-asks-people"),
        pytest.param("calm", "not_held", id="a-verdict-that-is-left-out-asks-people"),
        pytest.param("calm", "broke:1", id="a-break-that-is-not-written"),
        pytest.param("calm", "goto:look", id="a-state-that-does-not-follow"),
        pytest.param("over", "held", id="nothing-leaves-an-end"),
        pytest.param(f"{UNDO}/applying", "done", id="only-the-run-knows-what-an-undo-interrupted"),
        pytest.param("nowhere", "again", id="an-unknown-state"),
        pytest.param("look", "nonsense", id="an-unknown-outcome"),
        pytest.param("look", "", id="no-outcome"),
        pytest.param("fix", "done", id="a-change-is-always-in-a-phase"),
    ],
)
def test_what_is_not_legal_leads_nowhere(at: str, outcome: str) -> None:
    assert MACHINE.next(at, outcome) is None


def test_every_step_of_the_machine_is_taken_and_leads_to_a_known_state() -> None:
    known = {source for _, source, _ in MACHINE.steps}
    for outcome, source, to in MACHINE.steps:
        assert MACHINE.next(source, outcome) == to
        assert to in known


def test_no_outcome_leads_to_two_places() -> None:
    assert len({(outcome, source) for outcome, source, _ in MACHINE.steps}) == len(MACHINE.steps)


def test_a_state_costs_nothing_before_a_run_comes_there() -> None:
    machine = PlaybookMachine(PLAYBOOK)
    assert machine._tables == {}
    machine.next("look", "go:fix")
    machine.next("fix/planning", "planned")
    assert machine._tables.keys() == {"look", "fix"}


def test_asking_leaves_nothing_behind() -> None:
    before = MACHINE.next("look", "go:fix")
    MACHINE.next("fix/planning", "planned")
    assert MACHINE.next("look", "go:fix") == before == "fix/planning"


@pytest.mark.parametrize(
    ("state", "entry"), [("look", "look"), ("fix", "fix/planning"), (UNDO, f"{UNDO}/planning"), ("over", "over")]
)
def test_a_change_is_entered_by_planning(state: str, entry: str) -> None:
    assert MACHINE.entry(state) == entry
    assert MACHINE.written(entry) == state
