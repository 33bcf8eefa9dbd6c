"""Permission: only grant() makes it, from stored facts, and a press that does not count says why."""

from __future__ import annotations

import pickle

import pytest

from bot.domain.approval import Approved, JudgedPress, grant
from bot.domain.errors import ApprovalError
from tests import builders

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        pytest.param(
            builders.judged_press(allowed=False, reason="not in the list of approvers"), "list of", id="stranger"
        ),
        pytest.param(builders.judged_press(digest="0ld"), "plan changed", id="old-button"),
        pytest.param(builders.judged_press(at=builders.START + 850), "expired", id="on-the-deadline"),
        pytest.param(builders.judged_press(action="refuse"), "not an approval", id="refusal"),
    ],
)
def test_a_press_that_does_not_count_says_why(bad: JudgedPress, reason: str) -> None:
    with pytest.raises(ApprovalError, match=reason):
        grant(builders.request(), (bad,))


def test_a_press_before_all_alerts_resolved_does_not_count() -> None:
    request = builders.request(alerts_resolved_at=builders.START + 1)
    with pytest.raises(ApprovalError, match="press again"):
        grant(request, (builders.judged_press(),))


def test_who_asked_is_never_the_only_approver() -> None:
    request = builders.request(own_work_of=("ana",))
    with pytest.raises(ApprovalError, match="somebody else"):
        grant(request, (builders.judged_press(),))
    assert grant(request, (builders.judged_press(), builders.judged_press(press_id="p2", user="ben")))


def test_one_person_is_not_two() -> None:
    request = builders.request(policy=builders.policy(needed=2))
    with pytest.raises(ApprovalError, match="1 more approval"):
        grant(request, (builders.judged_press(), builders.judged_press(press_id="p2")))


def test_nothing_but_grant_makes_an_approval() -> None:
    with pytest.raises(ApprovalError):
        Approved(request=builders.request(), presses=(), made_by=object())


def test_an_approval_is_never_serialised() -> None:
    approved = grant(builders.request(), (builders.judged_press(),))
    with pytest.raises(ApprovalError):
        pickle.dumps(approved)


def test_a_plans_digest_covers_what_is_approved_and_not_the_circumstances() -> None:
    plan = builders.plan()
    assert plan.digest == builders.plan(title="other words", risk="high").digest
    assert plan.digest != builders.plan(choices={"to": 6}).digest
    assert plan.digest != builders.plan(steps=(builders.call(body=[]),)).digest
