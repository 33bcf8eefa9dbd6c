"""A playbook on an untested engine version: a note, and a higher risk only where its flags or metrics are not known."""

import pytest

from bot.adapters.yaml_playbooks import load_text
from bot.domain.approvals.grant import Request
from bot.domain.changes.plan import FLAG_TABLE, Circumstance, PlanResult
from bot.domain.incidents.event import SignalsRead
from bot.domain.playbooks.bundle import Bundle
from bot.domain.signals.signal import Reading
from tests import builders
from tests.domain.incidents.machine.steps import TEXT, Story

pytestmark = pytest.mark.fast

TESTED = TEXT.replace("title: A small playbook", 'title: A small playbook\ntested_on: ["0.32"]')


def request_on(version: str | None, text: str = TESTED, circumstances: tuple[Circumstance, ...] = ()) -> Request:
    story = Story(Bundle.of(load_text(text, file="small.yaml"))).opened()
    usage = Reading(name="usage", value=0.95, at=story.at)
    flags = Reading(name="engine_flags", fields={} if version is None else {"version": version}, at=story.at)
    readings = {"usage": usage, "engine_flags": flags}
    story.happens(SignalsRead(event_id=story.id(), effect_id=f"v{story.run.visit.number}/read", readings=readings))
    result = builders.plan(risk="low", circumstances=circumstances)
    story.chooses("grow").planned(PlanResult(outcome="planned", plan=result))
    return story.run.requests[story.request]


def noted(request: Request) -> list[str]:
    return [one.text for one in request.plan.circumstances if one.name == "tested_on"]


@pytest.mark.parametrize("version", ["0.32.0", "v0.32.1+cu129", None, "nightly"])
def test_a_version_that_was_rehearsed_or_is_not_known_changes_nothing(version: str | None) -> None:
    request = request_on(version)
    assert (request.plan.risk, noted(request)) == ("low", [])


@pytest.mark.parametrize("version", ["0.11.0", "0.33.0"])
def test_another_version_whose_flags_and_metrics_are_known_is_a_note(version: str) -> None:
    request = request_on(version)
    assert request.plan.risk == "low"
    assert noted(request) == [f"tested on vLLM 0.32, and {version[:4]} runs"]


@pytest.mark.parametrize("version", ["0.4.0", "0.34.0", "1.0.0"])
def test_a_version_that_nobody_looked_at_raises_the_risk(version: str) -> None:
    request = request_on(version)
    assert request.plan.risk == "medium"
    (text,) = noted(request)
    assert text.endswith("whose flags and metrics are not all known: the risk is one level higher")


def test_a_flag_that_is_not_known_for_the_version_raises_the_risk() -> None:
    unsure = Circumstance(name=FLAG_TABLE, grade="warning", text="whether vLLM 0.11 has --x is not known")
    assert request_on("0.11.0", circumstances=(unsure,)).plan.risk == "medium"
    checked = Circumstance(name=FLAG_TABLE, grade="note", text="vLLM 0.11 has these flags")
    assert request_on("0.11.0", circumstances=(checked,)).plan.risk == "low"


def test_a_playbook_without_rehearsed_versions_claims_nothing() -> None:
    assert request_on("0.11.0", TEXT).plan.risk == "low"
