"""A press is judged by the approvers that its request or question names; operators answer the rest."""

import pytest

from bot.domain.approvals.grant import Authority, Demand, Policy
from bot.domain.incidents.effect import JudgePress
from bot.domain.incidents.event import Judged
from bot.domain.incidents.run import Question
from bot.flow.handlers.judge import JudgeHandler
from bot.flow.perform_effect import EffectContext
from bot.flow.ports.storage import Owed
from tests import builders

pytestmark = pytest.mark.fast

PLATFORM = Policy(demands=(Demand(team="platform", users=("pia",)),), expires_seconds=60.0)


class TeamsApart:
    """Ana is an operator and in no team; Pia is in the platform team and no operator."""

    async def authority(self, user: str, policy: Policy, *, at: float) -> Authority:
        teams = tuple(demand.team for demand in policy.demands if user in demand.users)
        return Authority(allowed=bool(teams), reason="by the list of its team", teams=teams, read_at=at)

    async def may_operate(self, user: str, *, at: float) -> Authority:
        return Authority(allowed=user == "ana", reason="by the list of operators", read_at=at)


async def judged(question: Question, user: str) -> Authority:
    run = builders.run(questions={question.question_id: question}, question=question.question_id)
    press = builders.press(action="choose", about=question.question_id, value="yes", user=user)
    effect = JudgePress(effect_id="judge/p1", press=press, pressed_at=builders.START)
    done = await JudgeHandler(TeamsApart())(
        EffectContext(run, Owed(run.incident_id, effect, 0, ""), builders.START), effect
    )
    (event,) = done.events
    assert isinstance(event, Judged)
    return event.authority


def question(by: Policy | None) -> Question:
    return Question(
        question_id="Q1", state="ask", visit=1, text="Sure?", choices={"yes": "Yes"}, by=by, asked_at=builders.START
    )


@pytest.mark.parametrize(("user", "allowed"), [("pia", True), ("ana", False)])
async def test_a_question_to_a_team_is_answered_by_its_people_alone(user: str, allowed: bool) -> None:
    assert (await judged(question(PLATFORM), user)).allowed is allowed


@pytest.mark.parametrize(("user", "allowed"), [("pia", False), ("ana", True)])
async def test_any_other_question_is_answered_by_whoever_may_operate(user: str, allowed: bool) -> None:
    assert (await judged(question(None), user)).allowed is allowed
