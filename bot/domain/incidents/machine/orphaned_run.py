"""A run whose playbook cannot be read after another version of the bot took over: people are called once.

No decision is possible without the playbook. People can still halt, note, pin, export and close the incident, and calls
that were applied late are still recorded in the ledger.
"""

from __future__ import annotations

from bot.domain.incidents.event import (
    COMMANDS,
    AlertChanged,
    Commanded,
    Due,
    EffectFailed,
    Event,
    Judged,
    Paged,
    PageFailed,
    Posted,
    StepSettled,
)
from bot.domain.incidents.machine import calling, changing, entering, events, operator_actions, parking, severity
from bot.domain.incidents.machine.draft import Decision, Draft, Rules
from bot.domain.incidents.run import Run
from bot.domain.kernel.alert import Alert
from bot.domain.playbooks.bundle import Bundle

NO_PLAYBOOKS = Bundle(entry="", playbooks={})
NOTHING = "Nothing was decided: the playbook of this incident can no longer be read. See the note in the thread."


def without_playbook(run: Run, event: Event, reason: str, rules: Rules) -> Decision:
    """Move the run by an event that needs no playbook; any other event is only recorded on the timeline."""
    draft = Draft(run, NO_PLAYBOOKS, rules, event.at)
    _notify_once(draft, reason)
    match event:
        case Commanded(command="resolve") if run.is_open:
            # Nobody can be asked what to do with residual changes, so the closing message lists them.
            events.withdraw_what_waits(draft, "the incident was resolved by hand")
            entering.close(draft, "resolved_by_hand", event.text)
        case Commanded() if COMMANDS[event.command].without_playbook:
            operator_actions.commanded(draft, event)
        case Posted():
            events.posted(draft, event)
        case StepSettled():
            changing.settled_late(draft, event)
        case Due():
            # Otherwise it would be due again at once.
            draft.set_deadline(event.deadline, None)
            draft.ignore(f"{event.deadline}: passed, and nothing was decided")
        case Paged():
            calling.paged(draft, event)
        case PageFailed():
            calling.page_failed(draft, event)
        case EffectFailed() if calling.given_up(draft, event):
            pass
        case Judged():
            draft.notify(event.press, NOTHING)
            draft.ignore(f"press '{event.press.action}' by {event.press.user}: nothing was decided")
        case AlertChanged() if run.parked is not None and event.alert.status == "firing":
            # It cannot judge the alert, so it must not keep it.
            draft.set(parked=run.parked.model_copy(update={"reads_alerts": False}))
            parking.route_again(draft, event)
        case AlertChanged():
            draft.set(alerts=draft.run.alerts | {event.alert.fingerprint: event.alert})
            draft.record(
                "alert",
                f"{event.alert.name} is {event.alert.status}",
                data=event.alert.evidence(),
            )
            _call_about(draft, event.alert)
        case _:
            draft.ignore(f"{event.kind}: nothing was decided")
    calling.follow(draft, run, event)
    return draft.decision()


def _call_about(draft: Draft, alert: Alert) -> None:
    """Reopen a closed run whose alert fires. People are called for it, and once it is urgent."""
    before = draft.run
    if not before.is_open and alert.status == "firing":
        draft.set(closed_at=None, ending="")
        draft.record("reopened", f"reopened: {alert.name} fires; nothing else was decided")
    severity.set_by_alert(draft, alert)
    text = f"{before.incident_id} cannot continue by itself, and {alert.name} fires."
    is_raised = draft.run.severity == severity.PAGE != before.severity and text not in before.ignored
    if draft.run.is_open and (is_raised or not before.is_open):
        calling.call_on_call(draft, text)
        draft.set(ignored=draft.run.ignored | {text: 1})


def _notify_once(draft: Draft, reason: str) -> None:
    text = (
        f"{draft.run.incident_id} cannot continue by itself: {reason}. Nothing more will be decided or changed. "
        "Let the version of the bot that opened it finish it, or close it with "
        f"`/incident resolve {draft.run.incident_id}`."
    )
    if text not in draft.run.ignored and draft.run.is_open:
        calling.call_on_call(draft, text)
    elif text not in draft.run.ignored:
        events.say(draft, "", text)
    draft.set(ignored=draft.run.ignored | {text: draft.run.ignored.get(text, 0) + 1})
