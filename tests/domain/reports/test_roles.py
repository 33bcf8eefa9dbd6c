"""A report without names: the same person has the same role everywhere, and nobody's id or name is left."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bot.adapters.pictures.charts import drawn
from bot.domain.kernel.timeline import GENESIS, Chained, Entry, EntryKind, chain
from bot.domain.reports import Roles, as_json, html, markdown, report_of
from tests.builders import START
from tests.domain.incidents.machine.steps import Story
from tests.domain.reports.test_report import fixed

pytestmark = pytest.mark.fast


def test_no_name_and_no_id_is_left_in_any_format() -> None:
    timeline = fixed().timeline
    roles = Roles(timeline)
    people = report_of(timeline).people
    assert people == {"ana": "Ana"}
    pages = [
        markdown(timeline, roles=roles),
        as_json(timeline, roles=roles),
        html(timeline, lambda chart: drawn(chart, "svg"), roles=roles),
    ]
    for page in pages:
        assert "approver 1" in page
        assert not [name for name in ("Ana", "`ana`", '"ana"', "<@ana>") if name in page]


def written(text: str, *, kind: EntryKind = "note", who: str = "U0ANA", **data: Any) -> list[Chained]:
    """A timeline with one entry of a person whose display name is `max`."""
    named = {"user": "U0ANA", "user_name": "max"}
    return list(chain([Entry(kind=kind, at=START, text=text, who=who, data=named | data)], head=GENESIS, length=0))


def masked(timeline: list[Chained]) -> Entry:
    shown = json.loads(as_json(timeline, roles=Roles(timeline)))
    return Chained.model_validate(shown["timeline"][0]).entry


def test_a_name_that_is_also_a_word_alters_nothing_else() -> None:
    timeline = written("set --max-num-seqs: max is 7", edits={"--max-num-seqs": "7", "max": "7"})
    entry = masked(timeline)
    assert (entry.text, entry.data["edits"]) == (timeline[0].entry.text, {"--max-num-seqs": "7", "max": "7"})
    assert (entry.who, entry.data["user"], entry.data["user_name"]) == ("person 1",) * 3


@pytest.mark.parametrize("name", ["note", "look"])
def test_a_name_that_is_also_a_kind_or_a_state_leaves_them_as_they_are(name: str) -> None:
    entry = Entry(kind="note", at=START, text="x", who=name, state="look", data={"user": name, "user_name": name})
    shown = masked(list(chain([entry], head=GENESIS, length=0)))
    assert (shown.kind, shown.state, shown.who) == ("note", "look", "person 1")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<@U0EVE> and <@W1EVE|Eve> saw it", "person 2 and person 3 saw it"),
        ("led by U0123ABCD", "led by person 2"),
        ("<@U0ANA> handed over, as U0ANA said", "person 1 handed over, as person 1 said"),
        ("Cap — request R1 was refused by max: too much", "Cap — request R1 was refused by person 1: too much"),
        ("closed: resolved_by_hand — max closed it: over", "closed: resolved_by_hand — person 1 closed it: over"),
        ("max wants to close it. Still in place: cap", "person 1 wants to close it. Still in place: cap"),
        ("closed: resolved_by_hand — U0ANA closed it.", "closed: resolved_by_hand — person 1 closed it."),
        ("waits for: Eve Lind wants to close it.", "waits for: a person wants to close it."),
        ("Scale — max chose it instead", "Scale — person 1 chose it instead"),
        ("freeze until 23 Nov 18:00 UTC: release (v2) (Eve)", "freeze until 23 Nov 18:00 UTC: release (v2) (a person)"),
        ("freeze until 23 Nov 18:00 UTC (the settings)", "freeze until 23 Nov 18:00 UTC (the settings)"),
        ("Freeze ended by max", "Freeze ended by person 1"),
    ],
)
def test_people_are_masked_where_the_bot_names_them(text: str, shown: str) -> None:
    timeline = written(text)
    assert masked(timeline).text == shown
    assert Roles(timeline).of(timeline[0]).entry.text == shown


def test_who_pinned_a_message_is_masked() -> None:
    assert masked(written("it is slow", pinned_by="U0EVE")).data["pinned_by"] == "person 2"


def test_the_machine_names_people_only_where_they_are_masked() -> None:
    refused = Story().asked().presses("refuse", reason="too much")
    closed = Story().opened().says("resolve", user_name="Ana Lind")
    for story in (refused, closed):
        timeline = list(chain(story.entries, head=GENESIS, length=0))
        page = markdown(timeline, roles=Roles(timeline)) + as_json(timeline, roles=Roles(timeline))
        assert not [name for name in ("Ana", '"ana"', "`ana`", "by ana") if name in page]


def test_the_chain_is_checked_before_names_are_replaced() -> None:
    timeline = fixed().timeline
    shown = json.loads(as_json(timeline, roles=Roles(timeline)))
    assert shown["report"]["broken_at"] is None


def test_a_timeline_without_people_stays_as_it_is() -> None:
    timeline = fixed().timeline[:1]
    assert markdown(timeline, roles=Roles(timeline)) == markdown(timeline)
