"""Permission: only grant() creates it, from stored facts, and a press that does not count has a reason."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from bot.domain.approvals.grant import (
    Approved,
    Demand,
    JudgedPress,
    Policy,
    Request,
    grant,
    silent_teams,
    still_missing,
)
from bot.domain.approvals.rules import ApprovalRules
from bot.domain.kernel.errors import ApprovalError
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


def pressed_with(reason: str) -> JudgedPress:
    judged = builders.judged_press()
    return judged.model_copy(update={"press": builders.press(reason=reason)})


def test_a_high_risk_needs_a_reason_in_words() -> None:
    request = builders.request(policy=builders.policy(needs_reason=True))
    with pytest.raises(ApprovalError, match="needs a reason in words"):
        grant(request, (pressed_with(" "),))
    assert grant(request, (pressed_with("users wait"),))


def test_an_announced_change_needs_no_press() -> None:
    request = builders.request(policy=builders.policy(announced="it only cleans up"))
    assert grant(request, ()).presses == ()


def test_one_person_is_not_two() -> None:
    request = builders.request(policy=builders.policy(needed=2))
    with pytest.raises(ApprovalError, match="1 more approval"):
        grant(request, (builders.judged_press(), builders.judged_press(press_id="p2")))


PLATFORM, SERVING = Demand(team="platform", users=("pia",)), Demand(team="serving", users=("ana",))


def both(**fields: Any) -> Policy:
    return builders.policy(demands=(PLATFORM, SERVING), **fields)


def by(user: str, *teams: str) -> JudgedPress:
    return builders.judged_press(press_id=user, user=user, teams=teams)


@pytest.mark.parametrize(
    ("presses", "missing"),
    [
        pytest.param((), ["platform", "serving"], id="nobody"),
        pytest.param((by("ana", "serving"),), ["platform"], id="one team"),
        pytest.param((by("ana", "serving"), by("ben", "serving")), ["platform"], id="two of the same team"),
        pytest.param((by("pia", "platform", "serving"),), ["serving"], id="one person of both teams"),
        pytest.param((by("pia", "platform", "serving"), by("kim", "platform")), [], id="moved to where it helps"),
        pytest.param((by("ana", "serving"), by("pia", "platform")), [], id="one of each"),
        pytest.param((by("ana"), by("pia", "platform")), ["serving"], id="whose team is not known"),
    ],
)
def test_each_team_that_is_asked_for_approves_with_a_person_of_its_own(
    presses: tuple[JudgedPress, ...], missing: list[str]
) -> None:
    assert [demand.team for demand in still_missing(both(), presses)] == missing
    request = builders.request(policy=both())
    if missing:
        with pytest.raises(ApprovalError, match=f"needed from {missing[0]}"):
            grant(request, presses)
    else:
        assert grant(request, presses).presses == presses


def test_who_has_only_one_team_keeps_the_seat_that_another_could_take_elsewhere() -> None:
    policy = builders.policy(demands=(SERVING, PLATFORM))
    assert still_missing(policy, (by("ana", "serving"), by("pia", "serving", "platform"))) == ()


def test_one_person_of_three_teams_meets_only_one_of_them_however_often_the_seats_are_changed() -> None:
    demands = (*both().demands, Demand(team="lead", users=("lea",)))
    presses = (by("pia", "platform", "serving", "lead"), by("kim", "platform"), by("lou", "platform"))
    missing = still_missing(builders.policy(demands=demands), presses)
    assert [(demand.team, demand.needed) for demand in missing] == [("lead", 1)]


@pytest.mark.parametrize(
    ("demands", "text"),
    [
        pytest.param((Demand(needed=1),), "1 more approval needed", id="one"),
        pytest.param((Demand(needed=2),), "2 more approvals needed", id="two"),
        pytest.param(
            (Demand(team="serving"), Demand(team="lead", needed=2)),
            "1 more approval needed from serving and 2 more approvals needed from lead",
            id="teams",
        ),
    ],
)
def test_what_is_missing_is_named_in_full(demands: tuple[Demand, ...], text: str) -> None:
    with pytest.raises(ApprovalError) as refused:
        grant(builders.request(policy=builders.policy(demands=demands)), ())
    assert str(refused.value) == text


# --- when a press counts ----------------------------------------------------------------------------------------------


def test_who_is_too_late_reads_when_the_request_expired() -> None:
    with pytest.raises(ApprovalError) as refused:
        grant(builders.request(expires_at=1_800_000_850.0), (builders.judged_press(at=1_800_000_850.0),))
    assert str(refused.value) == "this request expired at 08:14:10 UTC; ask again"


def test_a_press_counts_although_the_bot_has_not_stored_yet_when_the_request_was_posted() -> None:
    assert grant(builders.request(posted_at=None, expires_at=None), (builders.judged_press(),))


def test_a_press_in_the_moment_in_which_all_alerts_resolved_counts() -> None:
    assert grant(builders.request(alerts_resolved_at=builders.START), (builders.judged_press(at=builders.START),))


# --- breaking the glass -----------------------------------------------------------------------------------------------

LEAD = Demand(team="lead", users=("lea",))
HALF = builders.START + 400


def behind_glass(*demands: Demand, **fields: Any) -> Request:
    policy = builders.policy(demands=demands or both().demands, break_glass=LEAD)
    return builders.request(**({"policy": policy, "half_at": HALF} | fields))


def glass(*, at: float = HALF, teams: tuple[str, ...] = ("lead",)) -> JudgedPress:
    judged = builders.judged_press(press_id="glass", action="break_glass", user="lea", teams=teams, at=at)
    return judged.model_copy(update={"press": judged.press.model_copy(update={"reason": "users are cut off"})})


def test_the_glass_can_be_broken_from_half_time_on() -> None:
    assert grant(behind_glass(), (glass(at=HALF),))
    with pytest.raises(ApprovalError, match="half of the time"):
        grant(behind_glass(), (glass(at=HALF - 1),))


def test_the_glass_of_a_request_that_is_not_posted_yet_cannot_be_broken() -> None:
    with pytest.raises(ApprovalError, match="half of the time"):
        grant(behind_glass(half_at=None), (glass(),))


def test_who_may_not_break_the_glass_reads_who_may() -> None:
    with pytest.raises(ApprovalError, match=r"^only one of lead may break the glass$"):
        grant(behind_glass(), (glass(teams=("serving",)),))


def test_a_lead_who_breaks_the_glass_has_not_approved_for_the_leads() -> None:
    request = behind_glass(SERVING, LEAD)
    presses = (by("ana", "serving"), glass())
    assert silent_teams(request.policy, presses) == (LEAD,)
    assert grant(request, presses).presses == presses


def test_a_policy_without_demands_lets_nobody() -> None:
    with pytest.raises(ApprovalError, match="nobody may approve"):
        grant(builders.request(policy=builders.policy(demands=())), (builders.judged_press(),))


def test_teams_never_lower_the_number_of_people_that_a_risk_needs() -> None:
    level = builders.policy(needed=3)
    rules = ApprovalRules(low=level, medium=level, high=level, teams={"platform": PLATFORM, "serving": SERVING})
    assert rules.policy("low", kind="scale") == level
    rules = rules.model_copy(update={"four_eyes": ("all",)})
    policy = rules.policy("high", ("platform", "serving"), kind="scale")
    assert policy.needed == 3
    assert policy.demands == (PLATFORM, SERVING, Demand(users=("ana", "ben")))


def test_nothing_but_grant_makes_an_approval() -> None:
    with pytest.raises(ApprovalError, match=r"only grant\(\) makes an approval"):
        Approved(request=builders.request(), presses=(), made_by=object())


def test_an_approval_is_never_serialised() -> None:
    approved = grant(builders.request(), (builders.judged_press(),))
    with pytest.raises(ApprovalError, match="never serialised"):
        pickle.dumps(approved)


def test_a_plans_digest_covers_what_is_approved_and_not_the_circumstances() -> None:
    plan = builders.plan()
    assert plan.digest == builders.plan(title="other words", risk="high").digest
    assert plan.digest != builders.plan(choices={"to": 6}).digest
    assert plan.digest != builders.plan(steps=(builders.call(body=[]),)).digest
