"""The groups that a playbook adds to a change: they may approve it too, and with four eyes one of each must."""

import pytest

from bot.adapters.yaml_playbooks import load_text
from bot.domain.changes.plan import PlanResult
from bot.domain.playbooks.bundle import Bundle
from tests import builders
from tests.domain.incidents.machine.steps import TEXT, Story

pytestmark = pytest.mark.fast


def asked(approvers: str, *, by_the_plan: tuple[str, ...] = (), four_eyes: bool = True) -> list[tuple[str, int]]:
    text = TEXT.replace("    change: scale\n", f"    change: scale\n    approvers: {approvers}\n", 1)
    assert text != TEXT
    story = Story(Bundle.of(load_text(text, file="small.yaml")))
    story.rules = builders.four_eyes(story.rules) if four_eyes else story.rules
    story.opened().reads(0.95).chooses("grow")
    plan = builders.plan(approved_by=by_the_plan)
    story.planned(PlanResult(outcome="planned", plan=plan))
    return [(demand.team, demand.needed) for demand in story.run.requests[story.request].policy.demands]


def test_each_group_of_the_playbook_is_asked_for_a_person() -> None:
    assert asked("[model, lead]") == [("model", 1), ("lead", 1)]


def test_one_person_of_any_of_the_groups_is_enough_by_default() -> None:
    assert asked("[model, lead]", four_eyes=False) == [("approvers or model or lead", 1)]
    assert asked("[model]", by_the_plan=("platform",), four_eyes=False) == [("approvers or platform or model", 1)]


def test_what_the_change_itself_demands_stays() -> None:
    assert asked("[model]", by_the_plan=("platform",)) == [("platform", 1), ("model", 1)]


def test_a_group_that_the_change_demands_already_is_asked_once() -> None:
    assert asked("[platform]", by_the_plan=("platform",)) == [("platform", 1), ("approvers", 1)]
