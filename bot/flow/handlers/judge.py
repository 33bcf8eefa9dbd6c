"""Reads once whether the person who pressed may decide, and passes it to the decision as evidence."""

from __future__ import annotations

from bot.domain.approvals.grant import Authority
from bot.domain.incidents.effect import JudgePress
from bot.domain.incidents.event import Judged
from bot.flow.perform_effect import Done, EffectContext
from bot.flow.ports.people import People


class JudgeHandler:
    def __init__(self, people: People) -> None:
        self._people = people

    async def __call__(self, context: EffectContext, effect: JudgePress) -> Done:
        press = effect.press
        request, question = context.run.requests.get(press.about), context.run.questions.get(press.about)
        policy = request.policy if request else question.by if question else None
        if press.action == "carried_out":
            # It permits nothing, so it takes no more than an answer to a question.
            authority = await self._people.may_operate(press.user, at=context.now)
        elif request is not None and request.status != "open":
            # The press can no longer have an effect, so the account is not looked up.
            authority = Authority(
                allowed=False, reason=f"the request was {request.status_text} already", read_at=context.now
            )
        elif policy is not None:
            authority = await self._people.authority(press.user, policy, at=context.now)
        else:
            authority = await self._people.may_operate(press.user, at=context.now)
        event = Judged(
            event_id=f"judged/{press.press_id}", press=press, pressed_at=effect.pressed_at, authority=authority
        )
        return Done((event,))
