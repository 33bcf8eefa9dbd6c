"""A playbook on an untested engine version: the card shows it, and the risk is one level higher."""

import pytest

from bot.adapters.yaml_playbooks import load_text
from bot.domain.approvals.grant import Request
from bot.domain.incidents.event import SignalsRead
from bot.domain.playbooks.bundle import Bundle
from bot.domain.signals.signal import Reading
from tests.domain.incidents.machine.steps import TEXT, Story

pytestmark = pytest.mark.fast

TESTED = TEXT.replace("title: A small playbook", 'title: A small playbook\ntested_on: ["0.32"]')


def request_on(version: str | None, text: str = TESTED) -> Request:
    story = Story(Bundle.of(load_text(text, file="small.yaml"))).opened()
    usage = Reading(name="usage", value=0.95, at=story.at)
    flags = Reading(name="engine_flags", fields={} if version is None else {"version": version}, at=story.at)
    readings = {"usage": usage, "engine_flags": flags}
    story.happens(SignalsRead(event_id=story.id(), effect_id=f"v{story.run.visit}/read", readings=readings))
    story.chooses("grow").planned()
    return story.run.requests[story.request]


def noted(request: Request) -> list[str]:
    return [one.text for one in request.plan.circumstances if one.name == "tested_on"]


@pytest.mark.parametrize("version", ["0.32.0", "v0.32.1+cu129", None, "nightly"])
def test_a_version_that_was_rehearsed_or_is_not_known_changes_nothing(version: str | None) -> None:
    request = request_on(version)
    assert (request.plan.risk, noted(request)) == ("low", [])


def test_another_version_is_told_and_raises_the_risk() -> None:
    request = request_on("0.11.0")
    assert request.plan.risk == "medium"
    assert noted(request) == ["tested on vLLM 0.32, and 0.11 runs: the risk is one level higher"]


def test_a_playbook_without_rehearsed_versions_claims_nothing() -> None:
    assert request_on("0.11.0", TEXT).plan.risk == "low"
