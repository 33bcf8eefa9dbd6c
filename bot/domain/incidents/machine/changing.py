"""A change from plan to outcome: requested, granted, applied step by step, superseded if the cluster has changed."""

from __future__ import annotations

from collections.abc import Mapping

from bot.domain.approvals.grant import Request
from bot.domain.changes.catalogue import RESULTS, VERBS
from bot.domain.changes.plan import Circumstance, Plan, PlanResult, Wait
from bot.domain.changes.verbs.undo import OF_AUTOSCALER
from bot.domain.flags.flag_table import text_of
from bot.domain.incidents.effect import ApplyStep, PlanChange, ReleaseLeases, WatchAdvice
from bot.domain.incidents.event import ALL, Planned, Progressed, StepSettled
from bot.domain.incidents.impact import Impact
from bot.domain.incidents.machine import calling, entering, ledger, parking, questions, reading, requesting, residual
from bot.domain.incidents.machine.draft import Draft
from bot.domain.incidents.offered_patch import offered
from bot.domain.incidents.run import HALT_HALF, HALT_UNANSWERED, ActiveChange, ActiveWatch, News
from bot.domain.kernel.durations import lasting
from bot.domain.playbooks.language import ChangeState, EndState
from bot.domain.signals.signal import result_in_words

ROLLS_ON = "Kubernetes continues the rollout meanwhile, one replica at a time; undoing it reverses the rollout."
TRIED = "Try it on a canary first"
"""What the canary of an option is called: its state is named as the recommendation, often by a question."""


def planned(draft: Draft, event: Planned) -> None:
    change = draft.run.change
    if not draft.is_of_this_visit(event.effect_id) or change is None or change.request_id or draft.run.question:
        draft.ignore("a plan for a state that was left")
        return
    if event.readings:
        reading.keep(draft, event.readings)
    draft.set(only_advice=event.only_advice)
    _take_plan(draft, change, event.result, outcome="planned")


def _take_plan(draft: Draft, change: ActiveChange, result: PlanResult, *, outcome: str) -> None:
    if result.outcome == "planned" and result.plan is not None:
        plan = result.plan
        if result.last_time and not VERBS[plan.verb].restores:
            note = Circumstance(name="last_time", grade="note", text=result.last_time)
            plan = plan.model_copy(update={"circumstances": (note, *plan.circumstances)})
        request = requesting.ask_for(draft, change, plan, asked_elsewhere=result.asked_before)
        entering.go(draft, outcome)
        if request.advice is not None:
            _watch_advice(draft, request)
        elif request.policy.announced:
            begin(draft, request)
        return
    if result.outcome == "impossible" and change.values:
        _plan_without_the_edit(draft, change, result)
        return
    # A multi-line hint is a patch to apply elsewhere: show it as it is, not inside a sentence.
    is_patch = "\n" in result.hint
    text = result.reason + (f"; {result.hint}" if result.hint and not is_patch else "")
    draft.record(
        "planned", f"{change.verb}: {result.outcome.replace('_', ' ')} — {text}", data=result.model_dump(mode="json")
    )
    is_tried = change.verb == "canary" and bool(draft.recommended_by(change.state))
    title = TRIED if is_tried else draft.option(change.state) or draft.playbook.called(change.state)
    if is_patch:
        # What led here is read first: the canary's verdict before the rollout that is not possible.
        shown = {"result": result.outcome, "text": text, "patch": result.hint, "title": title, **draft.take_news()}
        shown |= offered(result)
        draft.post("outcome", f"outcome:{draft.run.visit.number}:{change.replans}", change.verb, shown)
    elif not (result.outcome == "not_needed" and _only_cleans_up(draft, change)):
        draft.set(news=(*draft.run.news, News(title=title, result=result.outcome, text=text, at=draft.at)))
    if result.outcome == "impossible":
        draft.learn(impossible=(*draft.run.findings.impossible, change.state), handed_out=result.handed_out)
    if result.outcome in ("unknown", "failed"):
        # Nothing was sent, so the playbook's path for a failed change does not apply.
        why = f"The change '{change.verb}' cannot be planned: {text}"
        if change.undo_of:
            draft.drop_change()  # the choices name the undo; "again" would be the state that it interrupted
        questions.ask_what_next(draft, why, unread=_unread(draft, result), undo_refused=bool(change.undo_of))
    else:
        entering.go(draft, result.outcome, because=text)


def _only_cleans_up(draft: Draft, change: ActiveChange) -> bool:
    """Whether it would only end what the bot added or raised, so that people do not expect it."""
    state = draft.playbook.state(change.state)
    of = state.with_.get("of") if isinstance(state, ChangeState) else None
    return VERBS[change.verb].cleans_up or of == OF_AUTOSCALER


def _watch_advice(draft: Draft, request: Request) -> None:
    """Watch whether the trouble ends while people carry out what they want."""
    draft.set(watch=ActiveWatch(started_at=draft.at, until=draft.at + draft.rules.watches_advice_seconds))
    effect_id = draft.effect_id(f"advice/{request.request_id}")
    draft.want(WatchAdvice(effect_id=effect_id, visit=draft.run.visit.number, request_id=request.request_id))


def _unread(draft: Draft, result: PlanResult) -> tuple[str, ...]:
    """Returns the earlier states that should have read what the plan lacks; planning again would lack it again."""
    states = (name.split(".")[1] for name in result.missing if name.startswith("results."))
    return tuple(dict.fromkeys(state for state in states if state != draft.run.visit.state))


def _plan_without_the_edit(draft: Draft, change: ActiveChange, result: PlanResult) -> None:
    """Reject an edit that cannot be planned: explain why, and request the playbook's own values again."""
    why = ". ".join(part.rstrip(".") for part in (result.reason, result.hint) if part)
    text = f"The edited values cannot be applied: {why}. The next request has the recommended values again."
    draft.post_note(text)
    draft.record("planned", text, who=change.edited_by, data=result.model_dump(mode="json"))
    plan_again(draft, change.model_copy(update={"values": {}, "edited_by": ""}), "with the playbook's own values")


def begin(draft: Draft, request: Request) -> None:
    """Apply the first step of a request that was granted just now."""
    change = draft.run.change
    if change is None:
        raise ValueError("a request is granted although no change is under way")
    draft.set(change=change.model_copy(update={"begun": True, "step": 0, "step_started_at": draft.at}))
    entering.go(draft, "granted")
    want_step(draft)


def edited(draft: Draft, request: Request, values: Mapping[str, int | float], user: str) -> None:
    """Plan the values that a person entered and show them as a separate request before any approval."""
    change = draft.run.change
    if change is None:
        raise ValueError("a request is open although no change is under way")
    text = ", ".join(f"{name} {text_of(value)}" for name, value in values.items())
    draft.end_request(request, "superseded", text, decided_by=user, decided_at=draft.at)
    data = {"request": request.request_id, "values": dict(values)}
    draft.record("decided", f"request {request.request_id} edited: {text}", who=user, data=data)
    # Earlier edits are kept unless these values replace them.
    values = {**change.values, **values}
    plan_again(draft, change.model_copy(update={"values": values, "edited_by": user}), f"with {text}")


def step_settled(draft: Draft, event: StepSettled) -> None:
    change = draft.run.change
    if change is None or change.request_id != event.request_id or change.step != event.step or not change.begun:
        settled_late(draft, event)
        return
    request = draft.run.requests[event.request_id]
    step = request.plan.steps[event.step] if request.plan.steps else None
    if event.readings:
        reading.keep(draft, event.readings)
    match event.result:
        case "done":
            ledger.record_step(draft, event, step)
            change = change.model_copy(update={"impact": event.impact or change.impact})
            _next_step(draft, change, request)
        case "affected" if event.impact is not None:
            _stop(draft, change, request, event.impact, event.detail)
        case "superseded" if event.replanned is not None:
            _supersede(draft, change, request, event)
        case "not_needed":
            draft.end_request(request, "withdrawn", event.detail)
            _finish(draft, change, "not_needed", event.detail)
        case "still_unknown":
            draft.end_request(request, "withdrawn", event.detail)
            draft.drop_change()
            questions.ask_what_next(
                draft, f"The reason for the change cannot be read again: {event.detail}. Nothing was changed."
            )
        case "lapsed":
            draft.end_request(request, "superseded", event.detail)
            plan_again(draft, change, event.detail)
        case "withheld" if change.step == 0:
            _withheld(draft, change, request, event)
        case "interfered":
            _interfered(draft, change, request, event)
        case "halted":
            draft.record("halt", f"stopped before '{step.title if step else 'the next step'}': {event.detail}")
            draft.set(change=change.model_copy(update={"halted": True, "progress": f"halted: {event.detail}"}))
            draft.set_deadline(HALT_HALF, draft.at + draft.rules.parks_after_seconds / 2)
            draft.set_deadline(HALT_UNANSWERED, draft.at + draft.rules.parks_after_seconds)
        case _:
            # Withheld half-way: the applied calls remain, so the change as a whole did not succeed.
            outcome = "failed" if event.result == "withheld" else event.result
            data = {**event.evidence, "request": event.request_id}
            draft.record("call", f"{event.result}: {step.title if step else ''} — {event.detail}", data=data)
            _finish(draft, change, outcome, event.detail)


def _withheld(draft: Draft, change: ActiveChange, request: Request, event: StepSettled) -> None:
    """The bot's own guards sent nothing: the playbook's path for a failed change would undo an earlier one."""
    draft.end_request(request, "withdrawn", event.detail)
    data = {"request": request.request_id, "outcome": "not_started"}
    draft.record("outcome", f"{change.verb}: not started — {event.detail}", data=data)
    _let_go(draft, request)
    questions.ask_what_next(draft, f"'{request.plan.title}' was not started: {event.detail}. Nothing was changed.")


def _interfered(draft: Draft, change: ActiveChange, request: Request, event: StepSettled) -> None:
    """Another actor changed what this run had changed: drop those changes, send nothing more, and ask."""
    ledger.lose(draft, set(event.evidence.get("calls", ())))
    data = {"request": request.request_id, "outcome": "interfered", "held": list(draft.run.in_place)}
    draft.record("outcome", f"{change.verb}: interfered — {event.detail}", data=data)
    if change.step == 0:
        draft.end_request(request, "withdrawn", event.detail)
        _let_go(draft, request)
    else:
        _end_half_way(draft, request)
    done = "Nothing was changed." if change.step == 0 else f"'{request.plan.title}' stopped after step {change.step}."
    questions.ask_what_next(draft, f"Somebody else changed what the bot had changed: {event.detail}. {done}")


def _stop(draft: Draft, change: ActiveChange, request: Request, impact: Impact, risen: str) -> None:
    """Stop because remaining users bear the cost: send nothing more until a person accepts the present impact."""
    step = request.plan.steps[change.step]
    why = f"'{request.plan.title}' stopped before '{step.title}': since it was granted, {risen}"
    data = {"request": request.request_id, "outcome": "stopped"}
    draft.record("outcome", f"{change.verb}: stopped — {risen}", data=data)
    draft.set(change=change.model_copy(update={"stopped": True, "impact": impact.or_else(change.impact)}))
    rolls_on = isinstance(step, Wait) and step.condition == "rolled_out" and not _is_held(draft)
    questions.ask_whether_to_go_on(draft, why, ROLLS_ON if rolls_on else "")


def _is_held(draft: Draft) -> bool:
    return bool(residual.still_rollouts(draft.run))


def go_on(draft: Draft) -> None:
    """Request the stopped step again."""
    change = draft.run.change
    if change is None or not change.stopped:
        return questions.ask_what_next(draft, "There is nothing to continue.")
    return start_step_again(draft, change)


def start_step_again(draft: Draft, change: ActiveChange) -> None:
    """The step may take, or be put off, as long as the first time."""
    began = {"stopped": False, "halted": False, "step_started_at": draft.at, "progress": ""}
    draft.set(change=change.model_copy(update={**began, "attempt": change.attempt + 1}))
    draft.clear_deadlines("change")
    want_step(draft)


def still_halted(draft: Draft, deadline: str) -> None:
    """Remind people of a halted change, which nothing else ends; later call the lead, and again every day."""
    run, change = draft.run, draft.run.change
    if change is None or not change.halted:
        return
    plan, waited = run.requests[change.request_id].plan, lasting(draft.at - change.step_started_at)
    done = ledger.held_of(run, change.request_id)
    text = (
        f"'{plan.title}' has been halted before '{plan.steps[change.step].title}' for {waited}."
        f" `/incident resume {ALL if run.is_halted_with_all else run.incident_id}` continues it,"
        f" `/incident undo {run.incident_id}` {'takes it back' if done else 'gives it up'}."
    )
    if deadline == HALT_HALF:
        calling.note(draft, text, calling.mentioned(draft))
    else:
        draft.set_deadline(HALT_UNANSWERED, draft.at + parking.REMIND_SECONDS)
        calling.call_lead(draft, text, always_posted=True)


def give_up(draft: Draft) -> None:
    """Leave a stopped or halted change as it is: its steps so far are in the ledger; others may change the target."""
    change = draft.run.change
    if change is None or not change.begun or not (change.stopped or draft.run.is_halted):
        return
    _end_half_way(draft, draft.run.requests[change.request_id])


def _end_half_way(draft: Draft, request: Request) -> None:
    outcome = "stopped" if ledger.has_changed(draft.run, request.request_id) else "halted"
    draft.keep_request(request, outcome=outcome, ended_at=draft.at)
    _let_go(draft, request)


def _let_go(draft: Draft, request: Request) -> None:
    """Nothing more of this change is sent, and others may change its target."""
    draft.want(ReleaseLeases(effect_id=f"release/{request.request_id}", request_id=request.request_id))
    draft.drop_change()


def given_up(draft: Draft, reason: str) -> None:
    """The step could not be completed, and it is unknown whether its call arrived: unclear, not failed."""
    change = draft.run.change
    if change is not None:
        _finish(draft, change, "unclear", f"gave up, and it is unknown whether its call arrived: {reason}")


def settled_late(draft: Draft, event: StepSettled) -> None:
    """Record the effect of a call whose run has moved on, with its undo."""
    request = draft.run.requests.get(event.request_id)
    known = {entry.call_id for entry in draft.run.ledger}
    if request is not None and event.result == "done" and event.call_id and event.call_id not in known:
        ledger.record_step(draft, event, request.plan.steps[event.step])
    else:
        draft.ignore(f"late outcome of step {event.step} of {event.request_id}: {event.result}")


def _next_step(draft: Draft, change: ActiveChange, request: Request) -> None:
    step = change.step + 1
    if step >= len(request.plan.steps):
        _finish(draft, change, "done", request.plan.title)
        return
    draft.set(
        change=change.model_copy(update={"step": step, "step_started_at": draft.at, "progress": "", "attempt": 0})
    )
    want_step(draft)


def want_step(draft: Draft) -> None:
    """Request the current step again, under a new effect id."""
    change = draft.run.change
    if change is None:
        return
    what = draft.effect_id(f"apply/{change.request_id}/{change.step}/{change.attempt}")
    draft.want(ApplyStep(effect_id=what, request_id=change.request_id, step=change.step))


def _finish(draft: Draft, change: ActiveChange, outcome: str, text: str) -> None:
    request_id = change.request_id
    came_back = draft.run.visit.readings.get(change.verb) if change.verb in RESULTS else None
    texts = [text if outcome != "done" else "", result_in_words(came_back) if came_back else ""]
    ended = draft.keep_request(
        draft.run.requests[request_id],
        outcome=outcome,
        outcome_text="; ".join(filter(None, texts)),
        ended_at=draft.at,
    )
    if not any(post.ref == request_id for post in draft.run.posts):
        # A clean-up has no separate message: the card shows it, and the next message has the outcome.
        news = News(title=ended.plan.title, result=outcome, text=ended.outcome_text, at=draft.at)
        draft.set(news=(*draft.run.news, news))
    data = {"request": request_id, "outcome": outcome}
    draft.record("outcome", f"{change.verb}: {outcome.replace('_', ' ')} — {text}", data=data)
    _notify_owner(draft, request_id, ended, outcome)
    draft.want(ReleaseLeases(effect_id=f"release/{request_id}", request_id=request_id))
    if outcome == "done" and change.undo_of:
        draft.drop_change()
        state = draft.playbook.state(draft.run.visit.state)
        if isinstance(state, EndState):
            entering.end(draft, state)
        elif change.closes:
            entering.close(
                draft, "resolved_by_hand", "It was closed by hand, and what it had left in place was taken back."
            )
        else:
            undone = (entry.state for entry in draft.run.ledger if entry.call_id in change.undo_of)
            questions.ask_after_undo(draft, filter(None, map(draft.recommended_by, undone)))
        return
    entering.go(draft, outcome, because=text)


def _notify_owner(draft: Draft, request_id: str, request: Request, outcome: str) -> None:
    """Notify the owner of a reverted deploy in the thread, whatever the outcome, once one of its calls was applied."""
    if not request.plan.told or not ledger.has_changed(draft.run, request_id):
        return
    text = f"{request.plan.title}: {outcome.replace('_', ' ')}. The reason is in this thread: {request.why}"
    data = {"text": text, "user": "", "told": list(request.plan.told)}
    draft.post("note", f"told:{request_id}", request_id, data)
    draft.record("note", f"notified {', '.join(request.plan.told)}: {text}")


def _supersede(draft: Draft, change: ActiveChange, request: Request, event: StepSettled) -> None:
    """The cluster changed between the grant and the call: report the difference and ask again."""
    draft.end_request(request, "superseded", event.detail)
    data = {"request": request.request_id, "superseded": event.detail}
    draft.record("planned", f"{request.request_id} superseded: {event.detail}", data=data)
    if change.replans >= draft.rules.replans_at_most:
        draft.drop_change()
        questions.ask_what_next(
            draft, f"The plan changed {change.replans} times while it was being approved: {event.detail}"
        )
        return
    again = change.model_copy(update={"request_id": "", "replans": change.replans + 1})
    draft.set(change=again)
    if event.replanned is not None:
        _take_plan(draft, again, event.replanned, outcome="superseded")


def plan_again(draft: Draft, change: ActiveChange, why: str) -> None:
    fields = {"request_id": "", "begun": False, "replans": change.replans + 1, "progress": ""}
    again = change.model_copy(update=fields)
    draft.set(change=again)
    draft.record("planned", f"planning again: {why}")
    machine = draft.playbook.machine
    if draft.run.visit.machine_state != machine.entry(machine.written(draft.run.visit.machine_state)):
        entering.go(draft, "replan")
    effect_id = draft.effect_id(f"plan/{again.replans}")
    draft.want(PlanChange(effect_id=effect_id, visit=draft.run.visit.number, state=draft.run.visit.state))


def takes_back(change: ActiveChange, plan: Plan | None) -> bool:
    """Whether the change undoes or removes what the bot itself did. `plan`: None if nothing could be planned."""
    is_back = plan is None or any(call.restores for call in plan.calls)
    return bool(change.undo_of) or (VERBS[change.verb].restores and is_back)


def frozen(draft: Draft, why: str) -> None:
    """Plan the change of an open request again: while a freeze lasts, it is only advised."""
    change, request = draft.run.change, draft.run.open_request
    if change is None or request is None or takes_back(change, request.plan):
        return
    draft.end_request(request, "superseded", why)
    data = {"request": request.request_id, "superseded": why}
    draft.record("planned", f"{request.request_id} superseded: {why}", data=data)
    plan_again(draft, change, "changes are only advised now")


def progressed(draft: Draft, event: Progressed) -> None:
    """Keep the progress of the current step for display; it decides nothing and is not on the timeline."""
    if not draft.is_of_this_visit(event.effect_id):
        return
    if draft.run.change:
        draft.set(change=draft.run.change.model_copy(update={"progress": event.text}))
    elif draft.run.watch:
        draft.set(watch=draft.run.watch.model_copy(update={"progress": event.text}))
    draft.set(latest=draft.run.latest | event.readings)
    if event.readings:
        reading.conclude(draft)
