"""Advice: a change that the bot would propose, and that only people can carry out.

The run watches whether the trouble ends. It ends with the trouble, or after its time, or requests the change once that
is allowed.
"""

from __future__ import annotations

from bot.domain.approvals.grant import CarriedOut, JudgedPress, Request
from bot.domain.incidents.event import AdviceWatched
from bot.domain.incidents.machine import changing, entering, questions, reading, residual
from bot.domain.incidents.machine.draft import Draft
from bot.domain.kernel.durations import lasting
from bot.domain.kernel.errors import ApprovalError
from bot.domain.kernel.redaction import redacted

ENDING = "observed"
"""How a run ends whose trouble ended, or went on, while the bot only advised."""


def watched(draft: Draft, event: AdviceWatched) -> None:
    request, change = draft.run.advised, draft.run.change
    if request is None or change is None or request.request_id != event.request_id:
        draft.ignore("news about advice that was left")
        return
    if event.readings:
        reading.keep(draft, event.readings)
    if event.result == "lifted":
        draft.end_request(request, "superseded", event.detail)
        draft.set(watch=None, only_advice=None)
        changing.plan_again(draft, change, event.detail)
        return
    ended_at = draft.at if event.recovered_at is None else event.recovered_at
    request = draft.keep_request(request, outcome=event.result, ended_at=ended_at)
    text = f"{_what_happened(request, ended_at)}; {_what_people_did(request)}"
    draft.record("outcome", f"{request.request_id} was only advised: {text}", data={"request": request.request_id})
    if residual.residual_changes(draft.run):
        draft.set(watch=None)
        draft.drop_change()
        questions.ask_about_residual_changes(draft)
        return
    entering.close(draft, ENDING, text)


def frozen_for(draft: Draft, text: str) -> None:
    """Show the freeze that holds now, which may end at another time, where advice named the one before."""
    advice, request = draft.run.only_advice, draft.run.advised
    if advice is not None and advice.reason == "freeze":
        draft.set(only_advice=advice.model_copy(update={"text": text}))
    if request is not None and request.advice is not None and request.advice.reason == "freeze":
        draft.keep_request(request, advice=request.advice.model_copy(update={"text": text}))


def carry_out(draft: Draft, request: Request, judged_press: JudgedPress) -> None:
    """Record what a person does about the advice. The run continues to watch.

    Raise `ApprovalError` if the person has reported the same already.
    """
    press = judged_press.press
    done = CarriedOut(user=press.user, at=judged_press.at, text=redacted(press.reason.strip()))
    before = [each for each in request.carried_out if each.user == done.user]
    if before and before[-1].text == done.text:
        raise ApprovalError("you have said so already")
    draft.keep_request(request, carried_out=(*request.carried_out, done))
    if not draft.run.lead:
        draft.set(lead=press.user)
    draft.clear_deadlines(request.slot)
    what = f"does something else: {done.text}" if done.text else "carries it out"
    data = {"request": request.request_id}
    draft.record("decided", f"{request.request_id} was only advised; a person {what}", who=press.user, data=data)


def _what_happened(request: Request, ended_at: float) -> str:
    waited = lasting(max(ended_at - request.asked_at, 0.0))
    if request.outcome == "recovered":
        return f"the trouble ended {waited} after the advice"
    return f"the trouble had not ended {waited} after the advice"


def _what_people_did(request: Request) -> str:
    if not request.carried_out:
        return "nobody said what was done"
    last = request.carried_out[-1]
    return f"a person did something else: {last.text}" if last.text else "a person carried it out"
