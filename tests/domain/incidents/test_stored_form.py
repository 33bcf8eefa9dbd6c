"""What is stored has a numbered form: an earlier one is upgraded, a later one is refused."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from bot.adapters.slack.outbound.shown import Shown
from bot.domain.changes.catalogue import VERBS
from bot.domain.incidents.effect import EFFECT, Notify
from bot.domain.incidents.event import EVENT, Commanded, Due, EffectFailed
from bot.domain.incidents.run import Halt, InSlack, Run, StatusUpdate, TimelineHead, Visit
from bot.domain.incidents.stored_form import FORMS, Document, StoredForm
from bot.domain.kernel.errors import NewerFormError
from bot.domain.playbooks.expressions.functions import FUNCTIONS
from bot.domain.playbooks.loading.schema import playbook_schema
from bot.probes.catalogue import PROBES
from tests import builders

pytestmark = pytest.mark.fast
CHANGED = """
What the bot stores, or what playbooks may say, has changed. An earlier version of the bot must not touch an incident
that this version has stored: it would drop what it does not know. So add a form to `FORMS` in
bot/domain/incidents/stored_form.py with what it brings (and an upgrade to `UPGRADES`, unless there are only more
fields, each with a default), and record the new fingerprint here. One form is enough for all changes of one commit.
"""
FOR_PEOPLE = ("description", "title", "markdownDescription", "enumDescriptions")
RECORDED = (14, "10f26aa96092c1da")


def bare(schema: Any) -> Any:
    """Without what only people read."""
    if isinstance(schema, dict):
        return {key: bare(part) for key, part in schema.items() if key not in FOR_PEOPLE}
    return [bare(part) for part in schema] if isinstance(schema, list) else schema


def fingerprint() -> str:
    stored = [TypeAdapter(Run).json_schema(), EVENT.json_schema(), EFFECT.json_schema()]
    words = [sorted(VERBS), sorted(function.name for function in FUNCTIONS), playbook_schema(PROBES)]
    shown = [field.name for field in dataclasses.fields(Shown)]
    return hashlib.sha256(json.dumps(bare([stored, words, shown]), sort_keys=True).encode()).hexdigest()[:16]


def test_a_change_of_what_is_stored_gets_a_new_form() -> None:
    assert (max(FORMS), fingerprint()) == RECORDED, CHANGED


def test_the_forms_are_numbered_without_a_gap() -> None:
    assert list(FORMS) == list(range(1, len(FORMS) + 1))


def test_what_was_written_is_read_again() -> None:
    form, run, event = StoredForm(), builders.run(lead="ana"), Due(event_id="d1", deadline="Q1", due_at=5.0)
    assert form.text(run).startswith(f'{{"form":{max(FORMS)},')
    assert form.run(form.text(run)) == run
    assert form.event(form.text(event)) == event


def test_a_run_without_a_number_is_of_the_first_form() -> None:
    run = builders.run(lead="ana")
    assert StoredForm(5, {}).run(run.model_dump_json()) == run


def renamed(what: Document, document: dict[str, Any]) -> dict[str, Any]:
    return {("lead" if key == "leader" else key): part for key, part in document.items()}


def marked(what: Document, document: dict[str, Any]) -> dict[str, Any]:
    return document | ({"cause": f"after {document['lead']}"} if what == "run" else {})


def test_an_earlier_form_is_upgraded_step_by_step() -> None:
    newest = StoredForm(5, {2: renamed, 4: marked})
    old = StoredForm(2).text(builders.run(lead="ana")).replace('"lead":', '"leader":')
    upgraded = newest.run(old)
    assert (upgraded.lead, upgraded.cause) == ("ana", "after ana")
    already = StoredForm(4).text(builders.run(lead="ana"))
    assert newest.run(already).cause == "after ana"
    assert newest.run(newest.text(upgraded)) == upgraded


@pytest.mark.parametrize(
    ("stored", "reason"), [("halted: it burns", "it burns"), ("everything is halted: it burns", "it burns"), ("", "")]
)
def test_the_reason_of_a_halt_of_an_earlier_form_is_read(stored: str, reason: str) -> None:
    halt = Commanded(event_id="c1", command="halt", user="U0ANA", text=stored)
    assert StoredForm().event(StoredForm(4).text(halt)) == halt.model_copy(update={"text": reason})
    note = Commanded(event_id="c2", command="note", user="U0ANA", text="halted: at noon")
    assert StoredForm().event(StoredForm(4).text(note)) == note


BEFORE_ITS_PARTS = (
    '{"form":10,"incident_id":"INC-1","target":{"cluster":"test","namespace":"serving","name":"llm"},"title":"Thrash",'
    '"opened_at":50.0,"starts_at":40.0,"status":"calm","status_by":"ana","status_at":5.0,"playbook":"test","digest":"d1",'
    '"at_state":"cap/awaiting","state":"cap","doing":"Cap it","runbook":null,"visit":3,"entered_at":60.0,"readings":{},'
    '"halted_by":"ana","halt_reason":"wait","halted_with_all":false,"card_posted":true,"places":{"card":["C1","1.2"]},'
    '"anchored":["request:R1"],"timeline_head":"ab","timeline_length":7,"looked":{"ways":[["cap","full"]]},'
    '"posts":[{"slot":"question:Q1","kind":"question","ref":"Q1","at":61.0,"data":{"looked":{"ways":[["cap","full"]]}}}]}'
)
"""A run as form 10 stored it, without fields that have a default."""


def test_the_parts_of_a_run_of_an_earlier_form_are_read() -> None:
    run = StoredForm().run(BEFORE_ITS_PARTS)
    visit = Visit(number=3, state="cap", machine_state="cap/awaiting", doing="Cap it", entered_at=60.0)
    assert (run.visit, run.halt) == (visit, Halt(by="ana", reason="wait"))
    assert run.status_update == StatusUpdate(text="calm", by="ana", at=5.0)
    assert run.in_slack == InSlack(card_posted=True, places={"card": ("C1", "1.2")}, anchored=("request:R1",))
    assert run.timeline == TimelineHead(hash="ab", length=7)
    assert (run.looked.decisions, run.posts[0].data) == (
        (("cap", "full"),),
        {"looked": {"decisions": [["cap", "full"]]}},
    )
    assert StoredForm().run(BEFORE_ITS_PARTS.replace('"halted_by":"ana"', '"halted_by":""')).halt is None


def test_an_answer_to_one_person_of_an_earlier_form_is_sent() -> None:
    answer = Notify(effect_id="tell/p1/0", user="U0ANA", channel="C1", text="Too late.")
    stored = StoredForm(10).text(answer).replace('"notify"', '"tell"')
    assert StoredForm().effect(stored) == answer
    failed = EffectFailed(event_id="e1", effect_id="tell/p1/0", effect_kind="notify", reason="no answer")
    assert StoredForm().event(StoredForm(10).text(failed).replace('"notify"', '"tell"')) == failed


def test_a_later_form_is_refused_by_number() -> None:
    later = StoredForm(9)
    with pytest.raises(NewerFormError, match=r"INC-1 was stored by a newer version of the bot \(form 9, .* up to 2\)"):
        StoredForm(2).run(later.text(builders.run()))
    with pytest.raises(NewerFormError, match="an event was stored by a newer version"):
        StoredForm(2).event(later.text(Due(event_id="d1", deadline="Q1", due_at=5.0)))
