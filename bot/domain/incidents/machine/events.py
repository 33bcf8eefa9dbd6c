"""Events from outside the playbook: alerts, messages that were posted, commands, and abandoned effects."""

from __future__ import annotations

from typing import Any, cast, get_args

from bot.domain.changes.plan import Call, LedgerEntry
from bot.domain.incidents.effect import KINDS, DrawPath, ExportFormat, ExportTimeline, ReadSeries
from bot.domain.incidents.event import ALL, CARD, AlertChanged, Commanded, EffectFailed, OpenedByHand, Posted
from bot.domain.incidents.machine import (
    changing,
    diverting,
    entering,
    ledger,
    parking,
    questions,
    reading,
    residual,
    severity,
    waits,
)
from bot.domain.incidents.machine.draft import Draft
from bot.domain.incidents.run import Halt, Note, Offer, Run
from bot.domain.kernel.alert import LIMIT_ALERTS, Alert
from bot.domain.kernel.form import OPENING
from bot.domain.kernel.redaction import redacted
from bot.domain.playbooks.machine import UNDO

RESET = "the circuit breakers were reset: changes and nodes are counted from zero"
HALTED = "halted: nothing more will be changed until it is resumed"
STILL_HALTED = "the halt of everything is lifted; this incident stays halted by itself"
ALL_HALTED = "everything is halted: nothing more will be changed until all is resumed"


def open_incident(draft: Draft, event: AlertChanged) -> None:
    alert = event.alert
    draft.set(dashboard=draft.rules.dashboards.of(draft.run.target))
    data = alert.evidence() | _about(draft)
    draft.record("opened", f"opened by alert {alert.name} on {draft.run.target}", data=data)
    draft.set(alerts={alert.fingerprint: alert})
    if alert.maintenance:
        draft.record("note", alert.maintenance)
    if draft.run.only_advice is not None:
        draft.record("note", f"changes are only advised: {draft.run.only_advice.text}")
    _say_what_is_missing(draft, event)
    _say_what_is_unresolved(draft)
    parking.say_what_is_parked(draft)


def opened_by_hand(draft: Draft, event: OpenedByHand) -> None:
    """The person who opens the incident leads it; what is proposed next counts as that person's own work."""
    draft.set(dashboard=draft.rules.dashboards.of(draft.run.target))
    data = {"fields": event.fields} | _about(draft)
    seen = f": {event.seen}" if event.seen else ""
    draft.record("opened", f"opened by hand on {draft.run.target}{seen}", who=event.user, data=data)
    draft.set(lead=event.user)
    draft.learn(forms={OPENING: event.fields}, answered_by={OPENING: event.user})
    if draft.run.only_advice is not None:
        draft.record("note", f"changes are only advised: {draft.run.only_advice.text}")
    _say_what_is_unresolved(draft)
    parking.say_what_is_parked(draft)


def opened_twice(draft: Draft, event: OpenedByHand) -> None:
    draft.ignore(f"reopened by {event.user}")


def _about(draft: Draft) -> dict[str, Any]:
    run = draft.run
    related = [each.model_dump() for each in draft.playbook.playbook.related]
    return {
        "incident": run.incident_id,
        "title": run.title,
        "target": str(run.target),
        "severity": run.severity,
        "playbook": run.playbook,
    } | {name: value for name, value in (("dashboard", run.dashboard), ("related", related)) if value}


def _say_what_is_unresolved(draft: Draft) -> None:
    target = draft.run.target
    if not target.resolved:
        why = "the alert's labels lead to no workload, or the cluster did not answer in time"
        why = why if target.namespace else "the alert's labels name no namespace"
        draft.record("failed", f"the workload is not certain: {why}; the labels say '{target}'")


def _say_what_is_missing(draft: Draft, event: AlertChanged) -> None:
    if event.truncated:
        what = f"Alertmanager left {event.truncated} more alerts out of this webhook; {LIMIT_ALERTS}"
        draft.record("alert", what, data={"truncated": event.truncated})


def alert_changed(draft: Draft, event: AlertChanged) -> None:
    alert, known = event.alert, draft.run.alerts.get(event.alert.fingerprint)
    is_repeat = known is not None and alert.dedupe_key == known.dedupe_key
    is_late = known is not None and not is_repeat and not alert.supersedes(known)
    if not is_late and parking.is_for_a_fresh_incident(draft, event, is_repeat=is_repeat):
        parking.route_again(draft, event)
        return
    # A closed incident whose alert still fires is not over, even if the alert itself is a repeat.
    if is_repeat and (draft.run.is_open or alert.status == "resolved"):
        return
    if is_late:
        draft.ignore(f"late alert {alert.name} ({alert.status}, started {alert.starts_at:%H:%M:%S})")
        return
    draft.set(alerts=draft.run.alerts | {alert.fingerprint: alert})
    draft.record("alert", f"{alert.name} is {alert.status}", data=alert.evidence())
    _say_what_is_missing(draft, event)
    if not draft.run.is_open:
        if alert.status == "firing":
            _reopen(draft, alert, f"{alert.name} {'still fires' if is_repeat else 'fires again'}")
        return
    if event.offer is not None and alert.status == "firing":
        _offer(draft, event.offer, alert)
    severity.set_by_alert(draft, alert)
    all_resolved = all(a.status == "resolved" for a in draft.run.alerts.values())
    draft.set(alerts_resolved_at=draft.at if all_resolved else None)
    request = draft.run.open_request
    if request is not None and all_resolved:
        draft.keep_request(request, alerts_resolved_at=draft.at, presses=())
        draft.record("alert", f"all alerts resolved while {request.request_id} waits: it needs a new press")


def _offer(draft: Draft, offer: Offer, alert: Alert) -> None:
    """Keep that the alert belongs to a playbook of higher priority, for which this one will give way."""
    run = draft.run
    is_known = offer.playbook in {run.playbook, draft.bundle.entry, *(frame.playbook for frame in run.frames)}
    if is_known or offer.priority <= draft.playbook.playbook.priority:
        return
    known = run.offers.get(offer.playbook, offer)
    alerts = tuple(dict.fromkeys((*known.alerts, alert.fingerprint)))
    draft.set(offers=run.offers | {offer.playbook: known.model_copy(update={"alerts": alerts})})


def _reopen(draft: Draft, alert: Alert, because: str) -> None:
    """The alert is back soon after the end: reopen the incident at the start of its playbook."""
    draft.set(closed_at=None, ending="", alerts_resolved_at=None)
    draft.record("reopened", f"reopened: {because}")
    severity.set_by_alert(draft, alert)
    diverting.restart_playbook(draft, because=because)


def posted(draft: Draft, event: Posted) -> None:
    """A message is in Slack; a request's time starts here."""
    if event.slot == CARD:
        draft.in_slack(card_posted=True, places=draft.run.in_slack.places | {event.slot: (event.channel, event.ts)})
        return
    _record_anchor(draft, event)
    kind, _, ref = event.slot.partition(":")
    if kind == "question" and event.slot not in draft.run.in_slack.places:
        waits.question_posted(draft, ref)
    if kind in ("request", "question"):
        draft.in_slack(places=draft.run.in_slack.places | {event.slot: (event.channel, event.ts)})
    if kind == "request":
        waits.request_posted(draft, ref)


def _record_anchor(draft: Draft, event: Posted) -> None:
    """Record that a Slack message carries the head of the timeline: altering the storage cannot alter that message."""
    heads = {post.slot: post.data["head"] for post in draft.run.posts if "head" in post.data}
    if event.slot not in heads or event.slot in draft.run.in_slack.anchored:
        return
    draft.in_slack(anchored=(*draft.run.in_slack.anchored, event.slot))
    data = {"ts": event.ts, "channel": event.channel, "head": heads[event.slot]}
    draft.record("slack", f"{event.slot.replace(':', ' ')} posted, with the head of the timeline", data=data)
    if event.slot.startswith("closed") and not draft.run.leaves_no_file:
        draft.want(ReadSeries(effect_id=f"series/{event.slot}"))
        draft.want(ExportTimeline(effect_id=f"export/{event.slot}", format="md"))


def reset(draft: Draft, event: Commanded) -> None:
    draft.record("note", RESET, who=event.user)


def lead(draft: Draft, event: Commanded) -> None:
    draft.set(lead=event.text or event.user)
    draft.record("note", f"led by {event.text or event.user}", who=event.user)


def graph(draft: Draft, event: Commanded) -> None:
    draft.want(DrawPath(effect_id=f"draw/{event.event_id}"))


def undo(draft: Draft, event: Commanded) -> None:
    start_undo(draft, event.user)


def note(draft: Draft, event: Commanded) -> None:
    draft.record("note", event.text, who=event.user)
    note_id = draft.post_note(event.text, user=event.user)
    written = Note(note_id=note_id, at=draft.at, user=event.user, text=event.text)
    draft.set(notes=(*draft.run.notes, written))


def export(draft: Draft, event: Commanded) -> None:
    """Request the export; the file is made from the timeline at the time of the export."""
    wanted = cast(ExportFormat, event.text) if event.text in get_args(ExportFormat) else "md"
    draft.record("export", f"export as {wanted} asked for", who=event.user)
    draft.want(ExportTimeline(effect_id=f"export/{event.event_id}", format=wanted, wanted_by=event.user))


def resume(draft: Draft, event: Commanded) -> None:
    change = draft.run.change
    if draft.run.is_halted_with_all and event.to != ALL:
        return say(draft, event.user, "Everything is halted; `/incident resume all` lifts the halt.")
    if not draft.run.is_halted:
        return draft.ignore("resumed although nothing was halted")
    draft.set(halt=None)
    draft.record("resume", f"resumed: {event.text}" if event.text else "resumed", who=event.user)
    if change is not None and change.halted:
        changing.start_step_again(draft, change)
    return None


def halt(draft: Draft, event: Commanded) -> None:
    """Halts the incident, or says why it stays halted after the halt of everything was lifted."""
    if _is_halted_so(draft.run, event) and not event.text:
        draft.ignore("halted again")
        return
    what, consequence = ("everything is halted", ALL_HALTED) if event.to == ALL else ("halted", HALTED)
    if draft.run.is_halted_with_all and event.to != ALL:
        consequence = STILL_HALTED
    draft.set(halt=Halt(by=event.user, reason=redacted(event.text), with_all=event.to == ALL))
    draft.record("halt", f"{what}: {event.text}" if event.text else consequence, who=event.user)


def _is_halted_so(run: Run, event: Commanded) -> bool:
    """Whether this person halted it already, alone or with everything."""
    return run.halt is not None and (event.user, event.to == ALL) == (run.halt.by, run.halt.with_all)


def _is_call_under_way(draft: Draft) -> bool:
    """Whether a call of the current step may be in flight. A wait sends nothing, and neither does a halted step."""
    change = draft.run.change
    if change is None or change.halted:
        return False
    steps = draft.run.requests[change.request_id].plan.steps
    return bool(steps) and isinstance(steps[change.step], Call)


def say(draft: Draft, event_user: str, text: str) -> None:
    draft.record("note", text, who=event_user)
    draft.post_note(text)


def start_undo(draft: Draft, user: str) -> None:
    """Propose the inverse of the last applied change; it follows the path of every change: plan, request, grant.

    Of a change that is halted or stopped between its steps, it is the inverse of what that change did. If it did
    nothing, it is given up.
    """
    change = draft.run.change
    if change is not None and change.begun and (change.halted or change.stopped):
        if done := ledger.held_of(draft.run, change.request_id):
            return take_back(draft, user, done)
        return _give_up(draft, user, draft.run.requests[change.request_id].plan.title)
    last = next(reversed(draft.run.held), None)
    if last is None:
        return say(draft, user, "There is nothing to undo: no applied change of this run has an undo left.")
    if draft.run.is_undoing and draft.run.open_request is not None:
        return draft.ignore("an undo was asked for although one waits for approval")
    change_id = last.call_id.rsplit("/", 1)[0]
    return take_back(draft, user, tuple(e for e in draft.run.held if e.call_id.startswith(f"{change_id}/")))


def _give_up(draft: Draft, user: str, title: str) -> None:
    """Leave a change that is halted or stopped and has done nothing that could be taken back."""
    text = f"'{title}' is given up: it has done nothing that can be taken back"
    draft.record("undo", text, who=user)
    withdraw_what_waits(draft, "it was given up")
    draft.leave_state()
    questions.ask_what_next(draft, text)


def take_back(draft: Draft, user: str, entries: tuple[LedgerEntry, ...], *, closes: bool = False) -> None:
    """Propose to undo exactly these applied calls; `closes`: then the incident closes."""
    if draft.run.is_applying and draft.run.halt is None:
        return say(draft, user, "A change is being applied right now; halt it first, then undo.")
    if draft.run.is_applying and _is_call_under_way(draft):
        return say(
            draft, user, "A call is under way; the halt stops the next one. Undo again once its outcome is known."
        )
    withdraw_what_waits(draft, "an undo was asked for")
    titles = ", ".join(entry.title for entry in entries)
    draft.leave_state()
    draft.visit(machine_state=draft.playbook.machine.entry(UNDO), doing=f"Undo: {titles}")
    calls = tuple(entry.call_id for entry in entries)
    draft.record("undo", f"undo asked for: {titles}", who=user, data={"of": list(calls)})
    return entering.begin_change(draft, "undo", undo_of=calls, closes=closes)


def supersede(draft: Draft) -> None:
    """End a parked incident because another one has its target; that one keeps its active changes."""
    why = f"{draft.other} is open on the same workload and goes on from here"
    withdraw_what_waits(draft, why)
    parking.pass_on(draft, draft.other)
    entering.close(draft, "superseded", why)


def withdraw_what_waits(draft: Draft, why: str) -> None:
    request, question = draft.run.open_request, draft.run.open_question
    if request is not None:
        draft.end_request(request, "withdrawn", why)
    if question is not None:
        draft.keep_question(question, status="withdrawn")
    changing.give_up(draft)
    draft.clear_waits()


def resolve(draft: Draft, event: Commanded) -> None:
    if draft.run.is_applying and not (draft.run.change is not None and draft.run.change.halted):
        return say(draft, event.user, "A change is being applied; it cannot be closed before its outcome is known.")
    if draft.run.open_question is not None and questions.asks_what_stays(draft.run.open_question):
        return say(draft, event.user, "It closes once the question about what is still in place is answered.")
    withdraw_what_waits(draft, "a person closes the incident")
    return close_by_hand(draft, event.user_name or event.user, f": {redacted(event.text)}" if event.text else "")


def close_by_hand(draft: Draft, by: str, why: str = "") -> None:
    """Close the incident as a person wants, once it is decided what becomes of residual changes."""
    if residual.residual_changes(draft.run):
        draft.leave_state()
        return questions.ask_about_residual_changes(draft, because=f"{by} wants to close it{why}. ")
    return entering.close(draft, "resolved_by_hand", f"{by} closed it{why}.")


def divert(draft: Draft, event: Commanded) -> None:
    wanted = event.text.strip()
    if wanted not in draft.run.offers:
        known = ", ".join(draft.run.offers) or "none"
        return say(draft, event.user, f"No alert of this incident matches '{wanted}'. Offered: {known}.")
    if draft.run.is_applying:
        return say(draft, event.user, "A change is being applied; its outcome must be known first.")
    withdraw_what_waits(draft, f"the run switches to {wanted}")
    return diverting.take_offer(draft, wanted)


def effect_failed(draft: Draft, event: EffectFailed) -> None:
    """An effect failed. If the run waits for it, ask a person; a failure to show is only recorded."""
    text = f"{KINDS[event.effect_kind].not_done}: {event.reason}"
    draft.record("slack" if event.effect_kind == "show_in_slack" else "failed", text)
    if event.effect_kind == "read_series":
        reading.store_report(draft, event.effect_id)
    waits_for_it = draft.is_of_this_visit(event.effect_id) and not draft.run.question
    if waits_for_it and event.effect_kind == "apply_step" and draft.run.is_applying:
        changing.given_up(draft, event.reason)
    elif waits_for_it:
        is_undo = draft.run.is_undoing
        if is_undo:
            draft.drop_change()
        questions.ask_what_next(draft, text, undo_refused=is_undo)
