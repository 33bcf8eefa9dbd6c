"""`otherwise`: where each outcome leads that a read, a change, a recommendation or a watch does not name."""

from __future__ import annotations

import pytest

from bot.adapters.yaml_playbooks import StoredPlaybooks, check_text, load_text
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.edges import edges_of
from tests.domain.incidents.machine.recommendations import TEXT
from tests.domain.playbooks.including import marked

pytestmark = pytest.mark.fast

SHORT = """\
language: 1
playbook: p
title: P
opens: by_hand
signals: {usage: {metric: kv_cache_usage_perc, over: 5m}}
start: restart
states:
  restart:
    change: restart
    why: It hangs.
    done: calm
    not_needed: fixed
    otherwise: people
  calm:
    watch: {low: usage < 0.9}
    for: 5m
    within: 10m
    held: fixed
    otherwise: people
  people: {end: handed_over}
  fixed: {end: fixed}
"""


def long(text: str, outcomes: tuple[str, ...], *, to: str) -> str:
    """The text with its first `otherwise` spelled out."""
    lines = "".join(f"    {outcome}: {to}\n" for outcome in outcomes)
    return text.replace(f"    otherwise: {to}\n", lines, 1)


def test_a_change_and_a_watch_name_their_good_outcome_and_one_place_for_the_others() -> None:
    spelled_out = long(SHORT, ("refused", "expired", "impossible", "failed"), to="people")
    spelled_out = long(spelled_out, ("not_held", "unknown"), to="people")
    assert "otherwise" not in spelled_out
    assert load_text(SHORT).playbook.states == load_text(spelled_out).playbook.states


READ = """\
  look:
    go: [{when: usage > 0.9, to: restart}]
    otherwise: calm
"""


def test_a_read_takes_it_if_no_condition_is_true_and_if_one_is_unknown() -> None:
    spelled_out = """\
  look:
    read: [usage]
    go:
      - {when: usage > 0.9, to: restart}
      - {otherwise: calm}
    unknown: calm
"""
    short, long_form = (
        load_text(SHORT.replace("start: restart\nstates:\n", f"start: look\nstates:\n{text}"))
        for text in (READ, spelled_out)
    )
    assert edges_of(short.state("look")) == edges_of(long_form.state("look"))
    assert short.needs("look") == long_form.needs("look") == ("usage",)
    assert short.kind("look") == "read"


def test_the_options_of_a_recommendation_take_it_too_and_so_does_that_none_is_possible() -> None:
    written = TEXT.replace("    expired: gone\n    none_possible: gone\n", "    otherwise: gone\n")
    spelled_out = long(written, ("not_needed", "expired", "impossible", "failed", "none_possible"), to="gone")
    assert written != TEXT
    assert load_text(written).playbook.states == load_text(spelled_out).playbook.states


def test_it_comes_before_the_defaults_of_the_playbook() -> None:
    written = TEXT.replace("    expired: gone\n    none_possible: gone\n", "    otherwise: gone\n")
    defaults = "defaults: {recommend: {expired: calm, failed: calm}}\nstart:"
    assert load_text(written.replace("start:", defaults, 1)).playbook.states == load_text(written).playbook.states


def test_an_incident_that_runs_such_a_playbook_keeps_it_as_it_is_written() -> None:
    bundle = Bundle.of(load_text(SHORT))
    assert StoredPlaybooks()(bundle.stored()).entry_playbook.playbook.states == bundle.entry_playbook.playbook.states


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        pytest.param(
            "start: restart\nstates:\n",
            "start: look\nstates:\n" + READ.replace("otherwise: calm", "otherwise: «clam"),
            "unknown state 'clam'. Did you mean 'calm'?",
            id="unknown state after a read",
        ),
        pytest.param(
            "start: restart\nstates:\n",
            "start: look\nstates:\n  look:\n    go: [{when: usage > 0.9, to: restart}, {otherwise: calm}]\n"
            "    «otherwise: calm\n",
            "'otherwise' is written twice: under 'go', and beside it. Write 'unknown' for where a condition that "
            "cannot be decided leads.",
            id="a read writes it twice",
        ),
        pytest.param(
            "start: restart\nstates:\n",
            "start: look\nstates:\n  look:\n    «go: []\n    otherwise: calm\n",
            "'go' is empty",
            id="a read without a condition",
        ),
        pytest.param(
            "held: fixed\n    otherwise: people",
            "held: fixed\n    otherwise: «peple",
            "unknown state 'peple'. Did you mean 'people'?",
            id="unknown state",
        ),
        pytest.param(
            "held: fixed\n    otherwise: people",
            "held: fixed\n    not_held: people\n    unknown: people\n    «otherwise: people",
            "'otherwise' stands for nothing: the state names every outcome. Remove it.",
            id="all are named",
        ),
        pytest.param(
            "people: {end: handed_over}",
            "people: {end: handed_over, «otherwise: fixed}",
            "unknown key 'otherwise'. Known: before, end, runbook, say, severity, title.",
            id="of an end",
        ),
        pytest.param(
            "people: {end: handed_over}",
            "people: {end: handed_over, say: Ana took it, «probably.}",
            "unknown key 'probably.'. Put a text with a comma in quotes.",
            id="one word after a comma",
        ),
        pytest.param(
            "start: restart\n",
            "«include: people\nstart: restart\n",
            "unknown key 'include'. It belongs to a state: write it below 'states'.",
            id="a state's key beside the states",
        ),
        pytest.param(
            "start: restart\n",
            "«xyz: 1\nstart: restart\n",
            "unknown key 'xyz'. Known: calm, defaults, define, diagnoses, form, language, opens, opens_on, playbook, "
            "priority, related, settings, signals, start, states, summary, tested_on, title, urgent, users, uses.",
            id="no key of a playbook",
        ),
    ],
)
def test_a_mistake_is_reported_once_where_it_is_written(old: str, new: str, fault: str) -> None:
    text, place = marked(SHORT, old, new)
    assert [str(each) for each in check_text(text, {}, file="p.yaml").faults] == [f"p.yaml:{place}: {fault}"]
