"""The author of a deploy is notified once a change that reverts it has been applied, and is never asked."""

from __future__ import annotations

import pytest

from bot.domain.changes.plan import PlanResult
from tests import builders
from tests.domain.incidents.machine.steps import Story

pytestmark = pytest.mark.fast
WHOSE = ("change-cause=helm upgrade by ana", "owner=U0ANA")


def asked(*owners: str) -> Story:
    plan = builders.plan(verb="rollback", title="Roll llm back to revision 6", told=owners)
    return Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=plan)).posted()


def notices(story: Story) -> list[dict[str, object]]:
    return [post.data for post in story.run.posts if post.slot.startswith("told:")]


def test_whose_deploy_it_was_reads_it_once_it_is_taken_back() -> None:
    story = asked(*WHOSE).presses("approve", user="ben")
    assert notices(story) == []
    story.settles()
    [notice] = notices(story)
    assert notice["told"] == list(WHOSE)
    assert notice["text"] == "Roll llm back to revision 6: done. The reason is in this thread: More room."
    assert notice["user"] == ""
    assert any(
        text.startswith("notified change-cause=helm upgrade by ana, owner=U0ANA") for text in story.texts("note")
    )


def test_whose_deploy_it_was_reads_too_that_nobody_knows_how_it_ended() -> None:
    two = builders.plan(
        verb="rollback", title="Roll llm back", told=WHOSE, steps=(builders.call(), builders.call(title="second call"))
    )
    story = Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=two)).posted()
    story.presses("approve", user="ben").settles().settles("unclear")
    [notice] = notices(story)
    assert str(notice["text"]).startswith("Roll llm back: unclear.")


def test_nobody_is_notified_of_what_never_happened() -> None:
    assert notices(asked(*WHOSE).presses("refuse")) == []
    assert (
        notices(asked(*WHOSE).presses("approve", user="ben").settles("failed", detail="refused by the API server"))
        == []
    )


def test_where_nothing_names_them_nobody_is_notified() -> None:
    assert notices(asked().presses("approve", user="ben").settles()) == []
