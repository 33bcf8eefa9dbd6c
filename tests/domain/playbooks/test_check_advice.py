"""The check's advice about texts that are cut off, and about changes without a watch."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.adapters.yaml_playbooks import check_text
from bot.domain.playbooks.text_sizes import CHOICES, LABEL, NOTE, TEXT
from tests.domain.playbooks.including import marked

pytestmark = pytest.mark.fast

SMALL = (Path(__file__).parent / "small.yaml").read_text()
WAY_OUT = "{label: Cap, to: cap, style: primary}"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        pytest.param(
            "{label: Cap,", f"{{label: {'x' * (LABEL + 1)},", f"76 characters, and {LABEL} are shown", id="label"
        ),
        pytest.param("to: cap, style", f"to: cap, note: {'x' * (NOTE + 1)}, style", f"and {NOTE} are shown", id="note"),
        pytest.param("ask: What do you see?", f"ask: {'x' * (TEXT + 1)}", f"and {TEXT} are shown", id="question"),
        pytest.param("why: Fewer sequences fit.", f"why: {'x' * (TEXT + 1)}", f"and {TEXT} are shown", id="reason"),
        pytest.param("{end: fixed}", f"{{end: fixed, say: {'x' * (TEXT + 1)}}}", f"and {TEXT} are shown", id="closing"),
        pytest.param(
            f"      cap: {WAY_OUT}\n",
            "".join(f"      c{number}: {WAY_OUT}\n" for number in range(CHOICES)),
            f"{CHOICES + 1} choices, and a message has room for {CHOICES} buttons",
            id="choices",
        ),
    ],
)
def test_a_text_that_people_would_not_see_whole_is_a_fault(old: str, new: str, says: str) -> None:
    assert old in SMALL
    faults = check_text(SMALL.replace(old, new), {}).faults
    assert len(faults) == 1
    assert says in faults[0].what


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("{label: Cap,", "{label: 'Cap ${usage}',", id="a choice"),
        pytest.param("to: cap, style", "to: cap, note: 'at ${usage}', style", id="its note"),
        pytest.param("    ask: What do you see?", "    title: At ${usage}\n    ask: What do you see?", id="a title"),
        pytest.param("why: It crashes.", "why: It is at ${usage}.", id="the reason of a handover"),
        pytest.param("to: people}", "to: people, note: 'at ${usage}'}", id="the note of an exit"),
    ],
)
def test_a_value_where_none_is_inserted_is_a_fault(old: str, new: str) -> None:
    assert old in SMALL
    faults = check_text(SMALL.replace(old, new, 1), {}).faults
    assert [each.what for each in faults] == ["'${…}' would be shown as it stands"]


def test_a_text_of_just_the_size_is_sound() -> None:
    assert check_text(SMALL.replace("label: Cap,", f"label: {'x' * LABEL},"), {}).faults == ()


def warnings(text: str) -> list[str]:
    checked = check_text(text, {})
    assert checked.faults == ()
    return [f"{warning.what} {warning.hint}" for warning in checked.warnings]


def test_a_change_that_ends_well_by_itself_without_a_watch_is_a_warning() -> None:
    unwatched = SMALL.replace("done: calm", "done: read_it").replace(
        "  calm:\n", "  read_it: {read: [thrash], go: [{when: thrash > 9, to: calm}, {otherwise: over}]}\n  calm:\n"
    )
    assert warnings(unwatched) == ["after this change the run comes to 'over' without a watch Watch whether it helped."]


LOOK_AGAIN = "      look: {label: Look again"


@pytest.mark.parametrize(
    "edits",
    [
        pytest.param({}, id="a-watch"),
        pytest.param(
            {"done: calm": "done: question", LOOK_AGAIN: f"      calm: {{label: Calm, to: calm}}\n{LOOK_AGAIN}"},
            id="a-person",
        ),
        pytest.param(
            {
                "done: calm": "done: gone",
                "go:\n": "go:\n      - {when: thrash > 9, to: calm}\n",
                "  over: {end": "  gone: {end: unproven}\n  over: {end",
            },
            id="an-end-that-claims-nothing",
        ),
    ],
)
def test_a_watch_a_person_or_an_honest_end_after_a_change_is_enough(edits: dict[str, str]) -> None:
    text = SMALL
    for old, new in edits.items():
        assert old in text
        text = text.replace(old, new)
    assert warnings(text) == []


def test_what_cannot_be_read_and_ends_well_by_itself_is_a_warning() -> None:
    text = """\
language: 1
playbook: p
title: P
opens_on: ['alertname="A"']
signals: {usage: {metric: kv_cache_usage_perc, over: 5m}, thrash: {metric: num_preemptions, over: 5m, take: rate}}
start: look
states:
  look: {go: [{when: usage > 0.9, to: people}], otherwise: again}
  again: {go: [{when: thrash < 0.01, to: over}], otherwise: people}
  people: {end: handed_over}
  over: {end: fixed}
"""
    assert warnings(text) == [], "its end is a reading that is known"
    warning = (
        "what cannot be read ends as 'over', although nobody looked at it Lead it to a question, or to another end."
    )
    assert warnings(text.replace("otherwise: people}", "otherwise: over}")) == [warning, warning]
    assert warnings(text.replace("otherwise: people}", "otherwise: over}").replace("fixed", "not_applicable")) == []


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        pytest.param("why: It crashes.", "why: It crashes, see «#12", "#12", id="a reason"),
        pytest.param("why: It crashes.", "why: see  «#incidents, and #12", "#incidents,", id="a channel"),
        pytest.param("ask: What do you see?", "ask: Is it «#12?", "#12?", id="a question"),
        pytest.param("title: A small playbook", "title: A small playbook «#1", "#1", id="the title"),
    ],
)
def test_a_text_that_yaml_cuts_off_at_a_number_sign_is_a_warning(old: str, new: str, lost: str) -> None:
    text, place = marked(SMALL, old, new)
    checked = check_text(text, {}, file="p.yaml")
    assert [str(each) for each in (*checked.faults, *checked.warnings)] == [
        f"p.yaml:{place}: '{lost}' is not in this text: a '#' after a space begins a comment. "
        "Put the text in quotes, or write a space after the '#'."
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("why: It crashes.", "why: It crashes. # see 12", id="a comment"),
        pytest.param("why: It crashes.", "why: 'It crashes, see #12.'", id="in quotes"),
        pytest.param("why: It crashes.", "why: It crashes at C#12.", id="in a word"),
        pytest.param("why: It crashes.", "why: 'It crashes.' #12", id="after quotes"),
        pytest.param("start: look", "start: look #12", id="after a name"),
    ],
)
def test_a_comment_after_a_text_is_no_warning(old: str, new: str) -> None:
    text, _ = marked(SMALL, old, new)
    assert warnings(text) == []


UNLINKED = """
language: 1
playbook: p
title: P
opens_on: ['alertname="X"']
start: look
states:
  look: {go: [{otherwise: over}]}
  over: {end: fixed}
"""


@pytest.mark.parametrize(("url", "is_warned"), [("wiki/kv", True), ("javascript:x", True), ("https://wiki/kv", False)])
def test_an_address_of_a_runbook_that_cannot_be_a_link_is_named(url: str, *, is_warned: bool) -> None:
    related = f"related: [{{runbook: KV, url: '{url}'}}]\nstart: look"
    text = UNLINKED.replace("start: look", related).replace("go:", f"runbook: {{step: 2. KV, url: '{url}'}}, go:")
    warning = f"'{url}' cannot be a link, so none is shown Write https://… without spaces."
    assert warnings(text) == ([warning, warning] if is_warned else [])
