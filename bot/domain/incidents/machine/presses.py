"""Button presses: who decided or answered what. A press counts once, with the authority that was read for it."""

from __future__ import annotations

from bot.domain.approvals.edits import values_of
from bot.domain.approvals.grant import (
    INSTEAD,
    JudgedPress,
    Press,
    Request,
    RequestStatus,
    grant,
    more_needed,
    must_count,
    still_missing,
)
from bot.domain.incidents.effect import JudgePress
from bot.domain.incidents.event import Judged, Pressed
from bot.domain.incidents.machine import advising, changing, diverting, entering, events, questions, residual
from bot.domain.incidents.machine.conclusion import conclusion_of
from bot.domain.incidents.machine.draft import Draft
from bot.domain.incidents.run import Conclusion, Question, Run
from bot.domain.kernel.errors import ApprovalError
from bot.domain.kernel.form import answers as form_answers
from bot.domain.kernel.form import in_words, problems
from bot.domain.kernel.redaction import redacted
from bot.domain.playbooks.language import DivertState, EndState

JUDGED_WITHIN_SECONDS = 30.0
"""A restarted bot takes over after 15 s, and each answer of Slack is waited for 10 s."""


def pressed(draft: Draft, event: Pressed) -> None:
    """Store a press and read its authority next, once. A press on a decided request is only counted."""
    press = event.press
    text, request = f"pressed {press.action} on {press.about}", draft.run.requests.get(press.about)
    if request is not None and request.status not in ("open", "advised"):
        draft.fold("press", text, who=press.user)
    else:
        left_out = {"response_url"} | (set() if press.fields else {"fields"})
        draft.record("press", text, who=press.user, data=press.model_dump(exclude=left_out))
    draft.want(JudgePress(effect_id=f"judge/{press.press_id}", press=press, pressed_at=event.at))
    _keep_open(draft, press, event.at)


def _keep_open(draft: Draft, press: Press, at: float) -> None:
    """A press in time counts, also if a slow Slack or a restart of the bot delays its judgement past the deadline."""
    asked = draft.run.requests.get(press.about) or draft.run.questions.get(press.about)
    if asked is None or asked.expires_at is None or at >= asked.expires_at:
        return
    expiry, until = f"{asked.slot}:expiry", at + JUDGED_WITHIN_SECONDS
    if draft.run.deadlines.get(expiry, until) < until:
        draft.set_deadline(expiry, until)


def judged(draft: Draft, event: Judged) -> None:
    press, nobody_has_decided = event.press, not _deciders(draft.run)
    if press.about.startswith("R"):
        _judged_on_request(draft, event)
    elif press.about.startswith("Q"):
        _judged_on_question(draft, event)
    else:
        draft.notify(press, "⚠️ This button is no longer active; use the newest message in the thread.")
        draft.ignore(f"press on unknown '{press.about}'")
    if nobody_has_decided and press.user in _deciders(draft.run):
        _offer_lead(draft, press)


def _deciders(run: Run) -> set[str]:
    """Everybody whose press has counted."""
    approved = {judged.press.user for request in run.requests.values() for judged in request.presses}
    decided = {request.decided_by for request in run.requests.values()}
    return (approved | decided | {question.answered_by for question in run.questions.values()}) - {""}


def _offer_lead(draft: Draft, press: Press) -> None:
    """Ask the first person who decides in an urgent incident that nobody leads, once."""
    run = draft.run
    if run.is_open and not run.lead and run.severity == "page":
        say = f"`/incident lead {run.incident_id}`"
        how = f"press *Take the lead* on its card, or type {say}"
        draft.notify(press, f"Nobody leads {run.incident_id} yet. To take the lead, {how}.")


def _reject(draft: Draft, press: Press, why: str) -> None:
    """Reject a press and notify only its author; a repeat is answered again but only counted on the timeline."""
    draft.notify(press, f"⚠️ That didn't count: {why}.")
    draft.fold("press", f"press '{press.action}' on {press.about} does not count: {why}", who=press.user)


def _is_on_a_copy(draft: Draft, press: Press, slot: str) -> str:
    """Returns why a press on a copied or forwarded message does not count; empty for the original message."""
    channel, ts = draft.run.in_slack.places.get(slot, ("", ""))
    if channel and press.channel != channel:
        return f"that is a copy in another channel; the one that counts is in the incident's thread in <#{channel}>"
    if ts and press.message_ts and press.message_ts != ts:
        return "that is a copy; the one that counts is in the incident's own thread"
    return ""


def _judged_on_request(draft: Draft, event: Judged) -> None:
    press = event.press
    request = draft.run.requests.get(press.about)
    if request is None:
        return _reject(draft, press, f"there is no request {press.about} in {draft.run.incident_id}")
    if copied := _is_on_a_copy(draft, press, request.slot):
        return _reject(draft, press, copied)
    if request.status != "open" and (press.action != "carried_out" or draft.run.advised != request):
        return _reject(draft, press, _already(draft, request, press))
    if not event.authority.allowed:
        return _reject(draft, press, event.authority.reason)
    judged_press = JudgedPress(press=press, authority=event.authority, at=event.pressed_at)
    try:
        match press.action:
            case "carried_out":
                advising.carry_out(draft, request, judged_press)
            case "refuse":
                _refuse(draft, request, judged_press)
            case "more_time":
                _give_more_time(draft, request, judged_press)
            case "edit":
                _edit(draft, request, judged_press)
            case "choose":
                _choose_instead(draft, request, judged_press)
            case _:
                must_count(request, judged_press)
                _count(draft, request, judged_press)
    except ApprovalError as why_not:
        _reject(draft, press, str(why_not))


def _already(draft: Draft, request: Request, press: Press) -> str:
    if press.action == "approve" and any(judged.press.user == press.user for judged in request.presses):
        became = request.became.replace("was already", "was")
        return f"you have approved {request.request_id} already, and it {became}"
    if request.advice is not None and draft.run.advised == request:
        return f"this change is only advised: {request.advice.text}"
    by = f" by <@{request.decided_by}>" if request.decided_by else ""
    newer = draft.run.open_request
    see = f"; {newer.request_id} is the one that is waiting" if newer is not None else ""
    see = "; the newest question in the thread waits for an answer" if draft.run.open_question is not None else see
    return f"request {request.request_id} {request.became}{by}{see}"


def _count(draft: Draft, request: Request, judged_press: JudgedPress) -> None:
    """Count one more valid approval; when there are enough, decide the request, once."""
    press, is_breaking = judged_press.press, judged_press.press.action == "break_glass"
    if not is_breaking and any(earlier.press.user == press.user for earlier in request.presses):
        more = " and ".join(map(more_needed, still_missing(request.policy, request.presses)))
        raise ApprovalError(f"you have approved this already; {more or 'it waits for somebody else'}")
    presses = (*request.presses, judged_press)
    request = request.model_copy(update={"presses": presses})
    try:
        grant(request, presses)
    except ApprovalError as not_yet:
        if is_breaking:
            raise
        draft.keep_request(request)
        draft.notify(press, f"Your approval counts; {not_yet}.")
        draft.record(
            "press", f"approval {len(presses)} of {request.policy.needed}: {not_yet}",
            who=press.user, data={"request": request.request_id},
        )  # fmt: skip
        return
    reason = press.reason if is_breaking or request.needs_reason else judged_press.authority.reason
    _decide(draft, request, status="granted", by=press.user, reason=reason)
    if is_breaking:
        _notify_overruled(draft, request, press)
    changing.begin(draft, request)


def _notify_overruled(draft: Draft, request: Request, press: Press) -> None:
    """Notify every team that was asked who decided without it, and why."""
    text = f"<@{press.user}> broke the glass for this one change, {request.called}: {press.reason}"
    draft.post("note", f"glass:{request.request_id}", request.request_id, {"text": text, "user": "", "ping": "all"})
    draft.record("decided", f"the glass was broken for {request.request_id}: {press.reason}", who=press.user)


def _give_more_time(draft: Draft, request: Request, judged_press: JudgedPress) -> None:
    """Extend the deadline once, by its own length, for any approver."""
    press, expires_at = judged_press.press, request.expires_at
    if expires_at is None:
        raise ApprovalError("its time has not started")
    if request.extended_by:
        raise ApprovalError(f"<@{request.extended_by}> has already asked for more time, which is given only once")
    if judged_press.at >= expires_at:
        raise ApprovalError("its deadline has passed")
    until = expires_at + request.policy.expires_seconds
    draft.keep_request(request, expires_at=until, extended_by=press.user)
    draft.set_deadline(f"{request.slot}:expiry", until)
    more = f"{request.policy.expires_seconds / 60:g} more minutes"
    draft.record("request", f"{more} for {request.request_id}", who=press.user, data={"expires_at": until})


def _edit(draft: Draft, request: Request, judged_press: JudgedPress) -> None:
    press = judged_press.press
    if press.digest != request.digest:
        raise ApprovalError("the plan changed after this form was opened; use the newer request")
    if request.expires_at is not None and judged_press.at >= request.expires_at:
        raise ApprovalError("its deadline has passed")
    changing.edited(draft, request, values_of(request.plan, press.value), press.user)


def _choose_instead(draft: Draft, request: Request, judged_press: JudgedPress) -> None:
    """Withdraw the request and propose another option of the recommendation."""
    press = judged_press.press
    if press.digest != request.digest:
        raise ApprovalError("the plan changed after this button was posted; use the newer request")
    other = next((each for each in request.alternatives if each.key == press.value), None)
    if other is None or other.why_not:
        raise ApprovalError(f"'{press.value}' is not possible instead" + (f": {other.why_not}" if other else ""))
    reason = f"{other.label}{INSTEAD}"
    _decide(
        draft, request, status="superseded", by=press.user, reason=reason, decision=f"chose '{other.label}' instead of"
    )
    because = f"{press.user_name or press.user} chose it instead"
    entering.go(draft, f"option:{other.key}", because=because, chosen_by=press.user)


def _refuse(draft: Draft, request: Request, judged_press: JudgedPress) -> None:
    press = judged_press.press
    _decide(draft, request, status="refused", by=press.user, reason=press.reason)
    reason = f": {press.reason}" if press.reason else ""
    what = "the undo" if draft.run.is_undoing else f"request {request.request_id}"
    entering.go(draft, "refused", because=f"{what} was refused by {press.user_name or press.user}{reason}")


def _decide(draft: Draft, request: Request, *, status: RequestStatus, by: str, reason: str, decision: str = "") -> None:
    decided = draft.end_request(request, status, reason, decided_by=by, decided_at=draft.at)
    draft.record(
        "decided", f"{decision or decided.status_text} {request.request_id}: {request.plan.title}", who=by,
        data={"request": request.request_id, "status": status, "digest": request.digest, "reason": reason},
    )  # fmt: skip


def _judged_on_question(draft: Draft, event: Judged) -> None:
    press = event.press
    question = draft.run.questions.get(press.about)
    if question is None:
        return _reject(draft, press, f"there is no question {press.about} in {draft.run.incident_id}")
    if (why := _why_not_counted(draft, event, question)) is not None:
        return _reject(draft, press, why)
    return _answer(draft, press, question)


def _why_not_counted(draft: Draft, event: Judged, question: Question) -> str | None:
    """Returns why a press does not answer the question; None if it does."""
    press = event.press
    if copied := _is_on_a_copy(draft, press, question.slot):
        return copied
    if question.status != "open" or draft.run.question != question.question_id:
        by = f" by <@{question.answered_by}>" if question.answered_by else ""
        status = "withdrawn" if question.status == "open" else question.status
        became = "has expired" if status == "expired" else f"was already {status}"
        return f"question {press.about} {became}{by}"
    if not event.authority.allowed:
        return event.authority.reason
    if press.value not in question.choices:
        return f"'{press.value}' is not a choice of {press.about}"
    if question.not_by and press.user == question.not_by:
        return "you answered what this depends on; someone else must answer this"
    form = question.forms.get(press.value, {})
    wrong = problems(form, press.fields) if form else {}
    return "; ".join(wrong.values()) if wrong else None


def _answer(draft: Draft, press: Press, question: Question) -> None:
    form = question.forms.get(press.value, {})
    filled = form_answers(form, press.fields) if form else {}
    entered = in_words(form, filled)
    draft.keep_question(
        question,
        status="answered",
        answer=press.value,
        answered_by=press.user,
        answered_at=draft.at,
        notes=question.notes | {press.value: redacted(entered)} if form else question.notes,
    )
    draft.set(question="")
    draft.clear_deadlines(question.slot)
    draft.record(
        "answered", f"{question.choices[press.value]}{f' ({entered})' if entered else ''}", who=press.user,
        data={"question": question.question_id} | ({"fields": filled} if filled else {}),
    )  # fmt: skip
    if question.built_in:
        return _follow_built_in(draft, press)
    findings = draft.run.findings
    draft.learn(
        answers=findings.answers | {question.state: press.value},
        answered_by=findings.answered_by | {question.state: press.user},
        forms=findings.forms | ({question.state: filled} if form else {}),
    )
    outcome = "taken" if isinstance(draft.playbook.state(question.state), DivertState) else f"choice:{press.value}"
    if outcome == "taken":
        draft.set(lead=press.user)
    return entering.go(draft, outcome, chosen_by="" if question.by else press.user)


def _follow_built_in(draft: Draft, press: Press) -> None:
    answer = press.value
    if answer not in (questions.GO_ON, "undo"):  # what an undo takes back is that of the change that stopped
        changing.give_up(draft)
    if answer != "hand_over" and draft.run.open_request is not None:
        # It was asked beside the request, because an event could not be handled.
        events.withdraw_what_waits(draft, "a person chose another way")
    if answer == questions.GO_ON:
        changing.go_on(draft)
    elif answer == "undo" and questions.KEEP in draft.run.questions[press.about].choices:
        left = tuple(entry for entry in residual.residual_changes(draft.run) if entry.undo)
        events.take_back(draft, press.user, left, closes=True)
    elif answer == "undo":
        events.start_undo(draft, press.user)
    elif answer.startswith("divert:"):
        diverting.take_offer(draft, answer.removeprefix("divert:"))
    elif answer == "close":
        events.close_by_hand(draft, press.user_name or press.user)
    elif answer == questions.STAY:
        entering.enter(draft, draft.run.visit.state, because="a person keeps it open")
    elif answer == questions.KEEP:
        draft.set(lead=press.user)
        state = draft.playbook.state(draft.run.visit.state)
        kept, ended = "A person took over the changes still in place.", Conclusion(ending="handed_over", text="")
        if isinstance(state, EndState):
            ended = conclusion_of(draft, state)
        entering.close(draft, ended.ending, f"{ended.text} {kept}".strip())
    elif answer == "hand_over":
        _take_over(draft, press)
    else:
        entering.go(draft, answer, because="a person chose it")


def _take_over(draft: Draft, press: Press) -> None:
    draft.set(lead=press.user)
    if draft.run.parked is not None:
        draft.set(parked=draft.run.parked.model_copy(update={"unanswered": False}))
    # The message mentions the lead; the card links this text, and a link can hold no mention.
    who = press.user_name or "A person"
    questions.ask_what_next(draft, f"{who} leads now. The bot keeps watching the alerts and waits.")
