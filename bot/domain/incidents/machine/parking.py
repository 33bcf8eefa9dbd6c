"""Parking: a long wait leaves its target's one slot, so that the next alert opens a fresh incident.

A parked run changes nothing. When it continues, it takes the slot back; if another incident has it, the run ends as
superseded and passes its active changes on.
"""

from __future__ import annotations

from bot.domain.incidents.effect import PassOnChanges, RouteAgain
from bot.domain.incidents.event import AlertChanged, ChangesPassedOn
from bot.domain.incidents.machine import calling, residual
from bot.domain.incidents.machine.draft import Draft
from bot.domain.incidents.run import PARKED_REMINDER, Parked, parked_incident
from bot.domain.kernel.durations import lasting
from bot.domain.playbooks.language import AskState, DivertState, State, WatchState
from bot.domain.signals.specs import ProbeSignal

REMIND_SECONDS = 24 * 3600.0
ALERT_PROBE = "alert_again"
"""The probe with which a parked watch reads the alerts of its target."""


def follow(draft: Draft, state: State) -> None:
    """Park the run in a state that says `parked: true`; take it back from there in any other."""
    if not (isinstance(state, AskState | WatchState | DivertState) and state.parked):
        leave(draft)
        return
    park(draft, reads_alerts=isinstance(state, WatchState) and _reads_alerts(draft))


def park(draft: Draft, *, unanswered: bool = False, reads_alerts: bool = False) -> None:
    since = draft.run.parked.since if draft.run.parked else draft.at
    if draft.run.parked is None:
        why = "nobody answered" if unanswered else draft.playbook.called(draft.run.visit.state)
        draft.record("note", f"parked: {why}; the next alert of {draft.run.target} opens a fresh incident")
    draft.set(parked=Parked(since=since, unanswered=unanswered, reads_alerts=reads_alerts))
    _let_go(draft)
    draft.set_deadline(PARKED_REMINDER, draft.at + REMIND_SECONDS)


def _let_go(draft: Draft) -> None:
    """Return the alerts that are for other playbooks to the intake: a fresh incident takes them up.

    Other playbooks are those that gave way, and those of less urgent alerts that only joined.
    """
    run = draft.run
    gave_way = {name for offer in run.offers.values() if offer.gave_way for name in offer.alerts}
    own = [
        draft.bundle.playbooks.get(name)
        for name in (run.playbook, draft.bundle.entry, *(each.playbook for each in run.frames))
    ]
    kept = {}
    for name, alert in run.alerts.items():
        is_firing = alert.status == "firing"
        is_own = any(playbook is not None and playbook.opens_on(alert.labels) for playbook in own)
        if name not in gave_way and (is_own or not is_firing):
            kept[name] = alert
        elif is_firing:
            draft.record("alert", f"{alert.name} still fires: routed again, to a fresh incident")
            draft.want(RouteAgain(effect_id=f"route/{run.visit.number}/{name}", alert=alert))
    draft.set(offers={name: offer for name, offer in run.offers.items() if not offer.gave_way}, alerts=kept)
    if kept and draft.run.alerts_resolved_at is None and all(each.status == "resolved" for each in kept.values()):
        draft.set(alerts_resolved_at=draft.at)


def leave(draft: Draft) -> None:
    """The run continues: it needs its target's slot."""
    if draft.run.parked is not None:
        draft.set(parked=None)
        draft.set_deadline(PARKED_REMINDER, None)
        draft.record("note", "no longer parked")


def remind(draft: Draft) -> None:
    """Remind people of what the run waits for, and when that ends."""
    if draft.run.parked is None:
        return
    draft.set_deadline(PARKED_REMINDER, draft.at + REMIND_SECONDS)
    seen = parked_incident(draft.run)
    ends = f"; it ends in {lasting(seen.until - draft.at)}" if seen.until is not None and seen.until > draft.at else ""
    text = f"{draft.run.incident_id} is parked for {lasting(draft.at - draft.run.parked.since)} and waits for: "
    draft.record("note", f"reminded: {text}{seen.waits_for}{ends}")
    draft.post_note(f"{text}{seen.waits_for}{ends}", **calling.mentioned(draft))


def say_what_is_parked(draft: Draft) -> None:
    """Record the parked incidents of the target, with what they changed and did not undo."""
    for other in draft.run.parked_before:
        active = f"; still in place: {', '.join(other.active_changes)}" if other.active_changes else ""
        data = other.model_dump(mode="json")
        draft.record("note", f"{other.incident_id} is parked: waits for {other.waits_for}{active}", data=data)


def is_for_a_fresh_incident(draft: Draft, event: AlertChanged, *, is_repeat: bool) -> bool:
    """Whether a parked run received an alert that must open another incident."""
    parked = draft.run.parked
    if parked is None or event.alert.status != "firing":
        return False
    if event.offer is not None and event.offer.priority > draft.playbook.playbook.priority:
        return True
    if draft.run.reads_alerts:
        return False
    return parked.unanswered or not is_repeat


def route_again(draft: Draft, event: AlertChanged) -> None:
    """Return an alert to the intake: it reached this run just as the run left its target's slot."""
    draft.record("alert", f"{event.alert.name} is {event.alert.status}: routed again, to a fresh incident")
    draft.want(RouteAgain(effect_id=f"route/{event.event_id}", alert=event.alert, truncated=event.truncated))


def pass_on(draft: Draft, to: str) -> None:
    """Give the active changes to the incident that now has the target, with their undo."""
    known = {entry.call_id: entry for entry in (*draft.run.held, *residual.residual_changes(draft.run))}
    if known:
        draft.want(PassOnChanges(effect_id=f"pass-on/{to}", to=to, entries=tuple(known.values())))


def passed_on(draft: Draft, event: ChangesPassedOn) -> None:
    """Keep the active changes of a superseded incident: they are shown, undone and asked about like this run's own."""
    known = {entry.call_id for entry in draft.run.ledger}
    new = tuple(entry for entry in event.entries if entry.call_id not in known)
    if not new:
        return
    # The oldest come first: an undo takes the newest change back first.
    draft.set(ledger=tuple(sorted((*draft.run.ledger, *new), key=lambda entry: entry.applied_at)))
    titles = ", ".join(entry.title for entry in new)
    text = f"{event.by} ended; what it changed is still in place and belongs to this incident now: {titles}"
    data = {"from": event.by, "calls": [entry.call_id for entry in new], "held": list(draft.run.in_place)}
    draft.record("note", text, data=data)
    draft.post_note(text)


def _reads_alerts(draft: Draft) -> bool:
    wanted = draft.playbook.wanted(draft.run.visit.state).values()
    return any(isinstance(signal, ProbeSignal) and signal.probe == ALERT_PROBE for signal in wanted)
