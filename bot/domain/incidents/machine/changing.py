"""A change from plan to outcome: requested, granted, applied step by step, superseded if the cluster has changed."""

from __future__ import annotations

from collections.abc import Mapping

from bot.domain.approvals.announced import cleans_up
from bot.domain.approvals.grant import Covered, Policy, Request
from bot.domain.approvals.kinds import kind_of
from bot.domain.approvals.repeats import asked_before
from bot.domain.changes.catalogue import RESULTS, VERBS
from bot.domain.changes.plan import (
    FLAG_TABLE,
    Call,
    Circumstance,
    LedgerEntry,
    Plan,
    PlanResult,
    Risk,
    Wait,
    highest,
    raised,
)
from bot.domain.flags.flag_history import release_of, was_read
from bot.domain.flags.flag_table import text_of
from bot.domain.incidents.effect import ApplyStep, PlanChange, ReleaseLeases, WatchAdvice
from bot.domain.incidents.event import ALL, Planned, Progressed, StepSettled
from bot.domain.incidents.impact import Impact
from bot.domain.incidents.machine import calling, entering, parking, questions, reading, recommending, residual
from bot.domain.incidents.machine.draft import Draft
from bot.domain.incidents.run import HALT_HALF, HALT_UNANSWERED, ActiveChange, ActiveWatch, News, Run
from bot.domain.playbooks.covering import covered_by
from bot.domain.playbooks.language import ChangeState, EndState
from bot.domain.signals.signal import result_in_words
from bot.domain.signals.specs import ProbeSignal
from bot.domain.signals.window import short

CRITICAL = "page"
"""The severity in which one lead may break the glass."""
ROLLS_ON = "Kubernetes continues the rollout meanwhile, one replica at a time; undoing it reverses the rollout."
WHY_UNDO = "This takes back what the incident changed, and the trouble may come back."
TRIED = "Try it on a canary first"
"""What the canary of an option is called: its state is named as the recommendation, often by a question."""
UNPOSTED_SECONDS = 600.0
"""A request's time starts at most this long after its creation, even if Slack does not accept its message."""
SOMEBODY_ELSE = "somebody else"
"""Stored in place of a call id when another actor undid the call."""


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
            told = Circumstance(name="last_time", grade="note", text=result.last_time)
            plan = plan.model_copy(update={"circumstances": (told, *plan.circumstances)})
        request = ask_for(draft, change, plan, asked_elsewhere=result.asked_before)
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
    title = TRIED if is_tried else draft.playbook.called(change.state)
    if is_patch:
        shown = {"result": result.outcome, "text": text, "patch": result.hint, "title": title}
        draft.post("outcome", f"outcome:{draft.run.visit}:{change.replans}", change.verb, shown)
    elif not (VERBS[change.verb].cleans_up and result.outcome == "not_needed"):
        draft.set(news=(*draft.run.news, News(title=title, result=result.outcome, text=text, at=draft.at)))
    if result.outcome == "impossible":
        draft.learn(impossible=(*draft.run.findings.impossible, change.state), handed_out=result.handed_out)
    if result.outcome in ("unknown", "failed"):
        # Nothing was sent, so the playbook's path for a failed change does not apply.
        why = f"The change '{change.verb}' cannot be planned: {text}"
        questions.ask_what_next(draft, why, unread=_unread(draft, result))
    else:
        entering.go(draft, result.outcome, because=text)


def _watch_advice(draft: Draft, request: Request) -> None:
    """Watch whether the trouble ends while people carry out what they want."""
    draft.set(watch=ActiveWatch(started_at=draft.at, until=draft.at + draft.rules.watches_advice_seconds))
    effect_id = draft.effect_id(f"advice/{request.request_id}")
    draft.want(WatchAdvice(effect_id=effect_id, visit=draft.run.visit, request_id=request.request_id))


def _unread(draft: Draft, result: PlanResult) -> tuple[str, ...]:
    """Returns the earlier states that should have read what the plan lacks; planning again would lack it again."""
    states = (name.split(".")[1] for name in result.missing if name.startswith("results."))
    return tuple(dict.fromkeys(state for state in states if state != draft.run.state))


def _plan_without_the_edit(draft: Draft, change: ActiveChange, result: PlanResult) -> None:
    """Reject an edit that cannot be planned: explain why, and request the playbook's own values again."""
    why = "; ".join(filter(None, (result.reason, result.hint)))
    text = f"The edited values cannot be applied: {why}"
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


def ask_for(draft: Draft, change: ActiveChange, plan: Plan, *, asked_elsewhere: str = "") -> Request:
    """Request approval of a plan, announce it where no approval is needed, or only advise it.

    The request's expiry starts when it is posted.
    """
    state = draft.playbook.state(change.state)
    written = state if isinstance(state, ChangeState) and not change.undo_of else None
    strange = _strange_version(draft) if written and not VERBS[written.change].restores else ""
    is_unknown = bool(strange) and _is_unknown_there(draft, plan)
    kind, risk, policy, covers = _policy(draft, plan, written, is_unknown=is_unknown)
    if strange:
        also = ", whose flags and metrics are not all known: the risk is one level higher" if is_unknown else ""
        note = Circumstance(name="tested_on", grade="note", text=strange + also)
        plan = plan.model_copy(update={"circumstances": (*plan.circumstances, note)})
    shown = draft.playbook.evidence(change.state) if written else ()
    plan = plan.model_copy(update={"circumstances": (*plan.circumstances, *_not_known(draft, shown))})
    expected = draft.text("expected") if written else ""
    repeats = asked_before(plan, draft.run.requests.values(), at=draft.at) or asked_elsewhere
    plan = plan.model_copy(update={"risk": risk, "expected": expected or plan.expected})
    advice = draft.run.only_advice
    if not repeats and advice is None:
        policy = _announced(draft, plan, policy, kind, change.state)
    request = Request(
        request_id=f"R{draft.number()}",
        state=change.state,
        visit=draft.run.visit,
        plan=plan,
        digest=plan.digest,
        kind=kind,
        policy=policy,
        option=draft.option(change.state) if written else "",
        why=draft.text("why") if written else WHY_UNDO,
        runbook=written.runbook if written else None,
        still=written.still if written else "",
        evidence=questions.evidence(draft, shown),
        asked_at=draft.at,
        edited_by=change.edited_by,
        covers=covers,
        alternatives=recommending.alternatives(draft.run, written, draft.playbook.playbook.states) if written else (),
        asked_before=repeats,
        advice=advice,
        status="advised" if advice else "open",
    )
    if policy.announced:
        granted = {"status": "granted", "decided_at": draft.at, "decision_reason": policy.announced}
        request = request.model_copy(update=granted)
    draft.keep_request(request)
    begins = {"request_id": request.request_id, "begun": False, "step": 0, "progress": ""}
    draft.set(change=change.model_copy(update=begins))
    if not policy.announced or not cleans_up(plan, draft.run.ledger):
        questions.draw_for_the_first(draft)
        mentions = {} if policy.announced else calling.mentioned(draft)
        data = {"head": draft.run.timeline_head, **mentions}
        draft.post("request", request.slot, request.request_id, data)
    if not policy.announced:
        draft.set_deadline(f"{request.slot}:unposted", draft.at + UNPOSTED_SECONDS)
    said = f" — announced, not approved: {policy.announced}" if policy.announced else ""
    said = f" — only advised: {advice.text}" if advice else said
    waits: dict[str, object] = {} if request.status == "open" else {"waits": False}
    waits |= {"announced": policy.announced} if policy.announced else {}
    draft.record(
        "request", f"{request.request_id} ({risk} risk): {plan.title}{said}",
        data={"request": request.request_id, "digest": plan.digest, "plan": plan.model_dump(mode="json"), **waits},
    )  # fmt: skip
    return request


def _announced(draft: Draft, plan: Plan, policy: Policy, kind: str, state: str) -> Policy:
    """Returns the policy with the reason why nobody is asked about this plan, if there is one."""
    run = draft.run
    why = draft.approvals.announced(
        plan, kind, plan.risk, state=state, target=run.target, ledger=run.ledger, earlier=run.requests.values(),
        at=draft.at,
    )  # fmt: skip
    return policy.model_copy(update={"announced": why}) if why else policy


def _covers(draft: Draft, name: str, risk: Risk) -> tuple[Covered, ...]:
    """Returns the later changes that the playbook puts under this one's approval, as far as the settings allow."""
    found = []
    for later, state in covered_by(draft.playbook.playbook, name).items():
        needed = highest(VERBS[state.change].risk, state.risk or "low")
        # A rollout is approved on the evidence of its canary, whatever the risk of that one was.
        is_rollout = bool(VERBS[state.change].follows)
        if draft.approvals.plan_once or (not is_rollout and highest(needed, risk) == risk):
            found.append(Covered(state=later, verb=state.change, title=draft.playbook.called(later), risk=needed))
    return tuple(found)


def _not_known(draft: Draft, names: tuple[str, ...]) -> tuple[Circumstance, ...]:
    """Returns a note for each labelled reading among these that is unknown, or has a part that is.

    It is no warning: a fleet without an exporter must get its relief too, as its settings say.
    A probe counts where the playbook itself labels it: most have a part that is seldom known.
    """
    found = []
    for name in names:
        read = draft.run.readings.get(name) or draft.run.latest.get(name)
        spec = draft.playbook.playbook.signals.get(name)
        if (
            read is not None
            and (read.label if not isinstance(spec, ProbeSignal) else spec.label)
            and (why := read.unknown or "; ".join(dict.fromkeys(read.unknown_parts.values())))
        ):
            found.append(Circumstance(name="not_known", grade="note", text=f"{read.label} is not known: {why}"))
    return tuple(found)


def _strange_version(draft: Draft) -> str:
    """Returns a note if this playbook was not tested on the engine's version; empty if it was, or if unknown."""
    known = draft.playbook.playbook.tested_on
    strange = [version for version in _releases(draft) if version not in known]
    return f"tested on vLLM {', '.join(known)}, and {strange[0]} runs" if known and strange else ""


def _is_unknown_there(draft: Draft, plan: Plan) -> bool:
    """Whether a flag of the plan, or the metrics that it rests on, are not known for the engine's version."""
    flags = [one for one in plan.circumstances if one.name == FLAG_TABLE and one.grade == "warning"]
    return bool(flags) or not all(map(was_read, _releases(draft)))


def _releases(draft: Draft) -> list[str]:
    """Returns the releases that run; empty if one of them cannot be told."""
    said = [str(one.fields["version"]) for one in draft.run.latest.values() if "version" in one.fields]
    try:
        return [release_of(version) for version in said]
    except ValueError:
        return []


def _policy(
    draft: Draft, plan: Plan, written: ChangeState | None, *, is_unknown: bool
) -> tuple[str, Risk, Policy, tuple[Covered, ...]]:
    """Returns kind, risk, policy and what else it covers.

    They follow from the settings; a playbook may only raise the risk, shorten the time and add teams.
    """
    approvals = draft.approvals
    earlier = [request.plan for request in draft.run.requests.values() if request.outcome == "done"]
    kind = kind_of(plan, earlier)
    risk = approvals.risk_of(kind, plan.verb, plan.risk, (written.risk if written else None) or "low")
    risk = raised(risk) if is_unknown else risk
    covers = _covers(draft, draft.run.state, risk) if written else ()
    risk = highest(risk, *(later.risk for later in covers))
    teams = (*plan.approved_by, *(written.approvers if written else ()))
    policy = approvals.policy(risk, teams, kind=kind, critical=draft.run.severity == CRITICAL)
    if written and written.expires:
        shortest = min(policy.expires_seconds, draft.playbook.seconds(written.expires))
        policy = policy.model_copy(update={"expires_seconds": shortest})
    return kind, risk, policy, covers


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
            _record_step(draft, event, step)
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
    lost = set(event.evidence.get("calls", ()))
    draft.set(
        ledger=tuple(
            entry.model_copy(update={"undone_by": SOMEBODY_ELSE}) if entry.call_id in lost else entry
            for entry in draft.run.ledger
        )
    )
    data = {"request": request.request_id, "outcome": "interfered", "held": list(draft.run.in_place)}
    draft.record("outcome", f"{change.verb}: interfered — {event.detail}", data=data)
    if change.step == 0:
        draft.end_request(request, "withdrawn", event.detail)
        _let_go(draft, request)
    else:
        _end_half_way(draft, request)
    said = "Nothing was changed." if change.step == 0 else f"'{request.plan.title}' stopped after step {change.step}."
    questions.ask_what_next(draft, f"Somebody else changed what the bot had changed: {event.detail}. {said}")


def _stop(draft: Draft, change: ActiveChange, request: Request, impact: Impact, risen: str) -> None:
    """Stop because remaining users bear the cost: send nothing more until a person accepts the present impact."""
    step = request.plan.steps[change.step]
    said = f"'{request.plan.title}' stopped before '{step.title}': since it was granted, {risen}"
    data = {"request": request.request_id, "outcome": "stopped"}
    draft.record("outcome", f"{change.verb}: stopped — {risen}", data=data)
    draft.set(change=change.model_copy(update={"stopped": True, "impact": impact.or_else(change.impact)}))
    rolls_on = isinstance(step, Wait) and step.condition == "rolled_out" and not _is_held(draft)
    questions.ask_whether_to_go_on(draft, said, ROLLS_ON if rolls_on else "")


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
    plan, waited = run.requests[change.request_id].plan, short(draft.at - change.step_started_at)
    text = (
        f"'{plan.title}' has been halted before '{plan.steps[change.step].title}' for {waited}."
        f" `/incident resume {ALL if run.halted_with_all else run.incident_id}` continues it,"
        f" `/incident undo {run.incident_id}` takes it back."
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
    outcome = "stopped" if _has_changed(draft.run, request.request_id) else "halted"
    draft.keep_request(request, outcome=outcome, ended_at=draft.at)
    _let_go(draft, request)


def _let_go(draft: Draft, request: Request) -> None:
    """Nothing more of this change is sent, and others may change its target."""
    draft.want(ReleaseLeases(effect_id=f"release/{request.request_id}"))
    draft.drop_change()


def _has_changed(run: Run, request_id: str) -> bool:
    """Whether one of its calls was applied."""
    own = f"{run.incident_id}/{request_id}/"
    return any(entry.call_id.startswith(own) for entry in run.ledger)


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
        _record_step(draft, event, request.plan.steps[event.step])
    else:
        draft.ignore(f"late outcome of step {event.step} of {event.request_id}: {event.result}")


def _record_step(draft: Draft, event: StepSettled, step: object) -> None:
    if not isinstance(step, Call):
        data = {**event.evidence, "request": event.request_id}
        if isinstance(step, Wait) and step.closes:
            draft.set(ledger=tuple(_over(entry, step) for entry in draft.run.ledger))
            data |= {"held": list(draft.run.in_place)}
        draft.record("wait", f"seen: {getattr(step, 'title', '')} — {event.detail}", data=data)
        return
    request = draft.run.requests[event.request_id]
    entry = LedgerEntry(
        call_id=event.call_id,
        state=request.state,
        verb=request.plan.verb,
        title=step.title,
        target=step.target,
        differences=step.differences,
        undo=step.undo,
        no_undo=step.no_undo,
        holds=step.holds,
        applied_at=draft.at,
        node=step.node,
    )
    # A built-in undo names the calls; an undo that a playbook defines has them in its plan.
    undone = set(draft.run.change.undo_of) if draft.run.change else set()
    undone |= set(request.plan.choices.get("of", ())) if request.plan.verb == "undo" else set()
    draft.set(ledger=(*_taken_back(draft.run.ledger, step, event.call_id, undone), entry))
    draft.record(
        "call", f"done: {step.title}", data={"call": event.call_id, "verb": entry.verb,
        "detail": event.detail, **event.evidence,
        "differences": [d.model_dump(mode="json") for d in step.differences],
        "held": list(draft.run.in_place)},
    )  # fmt: skip


def _over(entry: LedgerEntry, wait: Wait) -> LedgerEntry:
    """Returns the entry without its undo if its object has ended by itself."""
    if entry.target != wait.about:
        return entry
    return entry.model_copy(update={"undo": (), "no_undo": f"it has ended: {wait.title}"})


def _taken_back(ledger: tuple[LedgerEntry, ...], step: Call, by: str, undone: set[str]) -> tuple[LedgerEntry, ...]:
    """Mark what this call ends: what it undoes, what an undo names, and our canary or isolation if gone or back."""
    undone = undone | {step.undoes}
    ends_object = step.method in ("delete", "evict") or step.restores

    def mark(entry: LedgerEntry) -> LedgerEntry:
        same = (entry.target.kind, entry.target.namespace, entry.target.name) == (
            step.target.kind,
            step.target.namespace,
            step.target.name,
        )
        hit = same and (entry.call_id in undone or (ends_object and entry.verb in residual.LEFTOVER_VERBS))
        # A call that is exactly the inverse of an earlier one takes it back: a floor held for a rollout.
        hit = hit or (same and step.restores and any(inverse.body == step.body for inverse in entry.undo))
        hit = hit or (entry.target.kind == "Pod" and entry.target.uid in step.ends)
        return entry.model_copy(update={"undone_by": by}) if hit and not entry.undone_by else entry

    return tuple(map(mark, ledger))


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
    came_back = draft.run.readings.get(change.verb) if change.verb in RESULTS else None
    said = [text if outcome != "done" else "", result_in_words(came_back) if came_back else ""]
    ended = draft.keep_request(
        draft.run.requests[request_id],
        outcome=outcome,
        outcome_text="; ".join(filter(None, said)),
        ended_at=draft.at,
    )
    if not any(post.ref == request_id for post in draft.run.posts):
        # A clean-up has no separate message: the card shows it, and the next message tells how it went.
        news = News(title=ended.plan.title, result=outcome, text=ended.outcome_text, at=draft.at)
        draft.set(news=(*draft.run.news, news))
    data = {"request": request_id, "outcome": outcome}
    draft.record("outcome", f"{change.verb}: {outcome.replace('_', ' ')} — {text}", data=data)
    _notify_owner(draft, request_id, ended, outcome)
    draft.want(ReleaseLeases(effect_id=f"release/{request_id}"))
    if outcome == "done" and change.undo_of:
        draft.drop_change()
        state = draft.playbook.state(draft.run.state)
        if isinstance(state, EndState):
            entering.end(draft, state)
        elif questions.promised_to_close(draft.run):
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
    if not request.plan.told or not _has_changed(draft.run, request_id):
        return
    text = f"{request.plan.title}: {outcome.replace('_', ' ')}. The reason is in this thread: {request.why}"
    data = {"text": text, "user": "", "told": list(request.plan.told)}
    draft.post("note", f"told:{request_id}", request_id, data)
    draft.record("note", f"notified {', '.join(request.plan.told)}: {text}")


def _supersede(draft: Draft, change: ActiveChange, request: Request, event: StepSettled) -> None:
    """The cluster changed between the grant and the call: report the difference and ask again."""
    draft.end_request(request, "superseded", event.detail)
    draft.record("planned", f"{request.request_id} superseded: {event.detail}", data={"request": request.request_id})
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
    if draft.run.at_state != machine.entry(machine.written(draft.run.at_state)):
        entering.go(draft, "replan")
    effect_id = draft.effect_id(f"plan/{again.replans}")
    draft.want(PlanChange(effect_id=effect_id, visit=draft.run.visit, state=draft.run.state))


def takes_back(change: ActiveChange) -> bool:
    """Whether the change undoes or removes what the bot itself did."""
    return bool(change.undo_of) or VERBS[change.verb].restores


def frozen(draft: Draft, why: str) -> None:
    """Plan the change of an open request again: while a freeze lasts, it is only advised."""
    change, request = draft.run.change, draft.run.open_request
    if change is None or request is None or takes_back(change):
        return
    draft.end_request(request, "superseded", why)
    draft.record("planned", f"{request.request_id} superseded: {why}", data={"request": request.request_id})
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
