"""`defaults`: what states of a kind say where they say nothing themselves, reported where it is written."""

from __future__ import annotations

import pytest

from bot.adapters.yaml_playbooks import check_text, load_text
from bot.domain.playbooks.language import AskState, ChangeState
from tests.domain.incidents.machine.recommendations import STAGED, TEXT
from tests.domain.playbooks.including import marked

pytestmark = pytest.mark.fast

ASK = """\
language: 1
playbook: p
title: P
opens: by_hand
settings: {answer_within: {default: 30m}}
defaults:
  ask: {expires: settings.answer_within, expired: gone}
start: first
states:
  first: {ask: Which?, choices: {a: {label: A, to: second}}}
  second: {ask: Sure?, choices: {a: {label: A, to: gone}}, expires: 5m, expired: first}
  gone: {end: handed_over}
"""


def asked(text: str, name: str) -> AskState:
    state = load_text(text).playbook.states[name]
    assert isinstance(state, AskState)
    return state


def test_a_state_that_says_nothing_takes_the_default_and_another_keeps_its_own() -> None:
    assert (asked(ASK, "first").expires, asked(ASK, "first").expired) == ("settings.answer_within", "gone")
    assert (asked(ASK, "second").expires, asked(ASK, "second").expired) == ("5m", "first")


def with_default(text: str, key: str) -> str:
    """The playbook with the first such line of its states as a default of recommendations."""
    line = next(line for line in text.splitlines() if line.strip().startswith(f"{key}:"))
    return text.replace(f"{line}\n", "", 1).replace("start:", f"defaults: {{recommend: {{{line.strip()}}}}}\nstart:", 1)


def test_an_option_takes_its_outcomes_from_the_defaults_of_recommendations() -> None:
    outcome = next(line for line in TEXT.splitlines() if line.strip().startswith("done:"))
    moved = TEXT.replace(f"{outcome}\n", "", 1).replace(
        "start:", f"defaults: {{recommend: {{{outcome.strip()}}}}}\nstart:", 1
    )
    before, after = load_text(TEXT).playbook.states, load_text(moved).playbook.states
    changes = [name for name, state in before.items() if isinstance(state, ChangeState) and state.option_of]
    assert changes
    assert [after[name] for name in changes] == [before[name] for name in changes]


def test_a_canary_is_a_default_only_where_flags_are_edited() -> None:
    tried = next(line for line in STAGED.splitlines() if line.strip().startswith("try:"))
    moved = STAGED.replace(f"{tried}\n", "", 1).replace(
        "start:", f"defaults: {{recommend: {{{tried.strip()}}}}}\nstart:", 1
    )
    assert load_text(moved).playbook.states == load_text(STAGED).playbook.states
    plain = TEXT.replace("start:", f"defaults: {{recommend: {{{tried.strip()}}}}}\nstart:", 1)
    assert load_text(plain).playbook.states == load_text(TEXT).playbook.states


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        pytest.param("expired: gone}", "expired: «gon}", "unknown state 'gon'. Did you mean 'gone'?", id="state"),
        pytest.param(
            "expires: settings.answer_within", "«expire: 3m", "unknown key 'expire'. Did you mean 'expires'?", id="key"
        ),
        pytest.param("  ask: {", "  «aks: {", "unknown key 'aks'. Did you mean 'ask'?", id="kind"),
        pytest.param(
            "expires: settings.answer_within",
            "expires: «settings.answer",
            "unknown setting 'answer'. Did you mean 'answer_within'?",
            id="setting",
        ),
    ],
)
def test_a_mistake_is_reported_once_where_the_default_is_written(old: str, new: str, fault: str) -> None:
    text, place = marked(ASK, old, new)
    assert [str(each) for each in check_text(text, {}, file="p.yaml").faults] == [f"p.yaml:{place}: {fault}"]
