"""What people do to an incident besides answering questions: give a status, skip, silence, reopen and pin messages.

Only people skip. They can take only exits that the playbook defines, and never one that a completed change would take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict

from bot.domain.incidents.effect import KINDS, SilenceAlerts
from bot.domain.incidents.event import Commanded, CommandName, EffectFailed, Silenced, SilencesEnded
from bot.domain.incidents.handover import open_matters
from bot.domain.incidents.machine import (
    advising,
    calling,
    calm,
    changing,
    diverting,
    entering,
    events,
    pull_requests,
    severity,
)
from bot.domain.incidents.machine.draft import Draft
from bot.domain.incidents.run import NEXT_STATUS, SILENCE_ENDS, Run, StatusUpdate
from bot.domain.kernel.durations import lasting
from bot.domain.kernel.redaction import redacted
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.edges import edges_of
from bot.domain.playbooks.language import AskState, ChangeState


def commanded(draft: Draft, event: Commanded) -> None:
    _COMMANDS[event.command](draft, event)


def effect_failed(draft: Draft, event: EffectFailed) -> None:
    """Report a failed effect where a person asked for it."""
    if KINDS[event.effect_kind].is_awaited:
        text = f"{KINDS[event.effect_kind].not_done}: {event.reason}"
        by_hand = f"; `incident-bot export {draft.run.incident_id}` writes it without Slack"
        events.say(draft, "", f"{text[0].upper()}{text[1:]}{by_hand * (event.effect_kind == 'export_timeline')}.")
    elif event.effect_kind == "read_calm":
        calm.failed(draft, event)
    elif not (calling.given_up(draft, event) or pull_requests.given_up(draft, event)):
        events.effect_failed(draft, event)


# --- how it stands ---------------------------------------------------------------------------------------------------


def _status(draft: Draft, event: Commanded) -> None:
    draft.record("note", f"status: {event.text}", who=event.user)
    draft.set(status_update=StatusUpdate(text=redacted(event.text), by=event.user, at=draft.at))
    draft.post_note(f"Status: {event.text}", user=event.user, is_broadcast=True)
    severity.expect_status(draft)
    if event.seconds is not None:
        draft.set_deadline(NEXT_STATUS, draft.at + event.seconds)


def _followup(draft: Draft, event: Commanded) -> None:
    draft.record("followup", event.text, who=event.user)
    draft.post_note(f"Follow-up: {event.text}", user=event.user)


def remind_of_status(draft: Draft) -> None:
    """Ask for a status update. Each waits twice as long as the one before, so that unread reminders do not pile up."""
    run = draft.run
    silent = draft.at - run.status_update.at
    draft.set_deadline(NEXT_STATUS, draft.at + max(silent, draft.rules.status_every_seconds))
    lead = f"<@{run.lead}>: " if run.lead else ""
    text = f"{lead}no status update for {lasting(silent)}. Post one with `/incident status {run.incident_id}`."
    draft.record("note", f"no status for {lasting(silent)}; reminded {run.lead or 'everybody in the thread'}")
    draft.post_note(text)


def _freeze(draft: Draft, event: Commanded) -> None:
    events.note(draft, event)
    changing.frozen(draft, event.text)
    if event.to:
        advising.frozen_for(draft, event.to)


def _handover(draft: Draft, event: Commanded) -> None:
    """The next person leads, or the team on call; without a name nobody does until one of the team takes the lead."""
    team = draft.rules.contacts.on_call_for(draft.run.target)
    receiver = f"<@{event.to}>" if event.to else f"the team on call ({team.team})"
    draft.set(lead=event.to)
    matters = open_matters(draft.run)
    note = f"<@{event.user}> handed over to {receiver}" + (f": {event.text}" if event.text else ".")
    text = "\n".join((note, *(each.in_utc(draft.at) for each in matters)))
    draft.record("note", text, who=event.user, data={"to": event.to or team.team})
    mentions = {"mentions": [event.to]} if event.to else calling.mentioned(draft, team)
    draft.post_note(note, user=event.user, matters=[asdict(each) for each in matters], **mentions)
    if not event.to:
        # A person who is named agreed to it; a team has to be called.
        calling.call_the_next(draft)


# --- skipping --------------------------------------------------------------------------------------------------------


def exits_to_skip(run: Run, playbook: CompiledPlaybook) -> dict[str, str]:
    """Returns the states that a person may skip to, with the outcome that leads there.

    Excludes the exits of a completed change and those that only an answer takes: they claim that something was done or
    decided.
    """
    if not run.is_open or run.visit.state not in playbook.playbook.states or run.is_undoing:
        return {}
    state = playbook.state(run.visit.state)
    edges = edges_of(state)
    if isinstance(state, ChangeState):
        edges = tuple(edge for edge in edges if edge.outcome not in ("done", "not_needed"))
    if isinstance(state, AskState):
        edges = tuple(edge for edge in edges if not edge.by_person)
    return {edge.to: edge.label or edge.outcome for edge in reversed(edges)}


def _skip(draft: Draft, event: Commanded) -> None:
    run = draft.run
    exits = exits_to_skip(run, draft.playbook)
    if draft.run.is_applying:
        return events.say(draft, event.user, "A change is being applied; its outcome must be known first.")
    if event.visit not in (None, run.visit.number):
        return events.say(draft, event.user, "That wait was over already; nothing was skipped.")
    if event.to not in exits:
        known = ", ".join(exits) or "none"
        return events.say(draft, event.user, f"'{run.visit.state}' cannot skip to '{event.to}'. Exits: {known}.")
    events.withdraw_what_waits(draft, f"'{run.visit.state}' was skipped")
    why = f"skipped '{run.visit.state}': {event.text}"
    draft.record("answered", why, who=event.user, data={"skipped": run.visit.state, "to": event.to})
    return entering.enter(draft, event.to, because=f"a person {why}")


# --- silences --------------------------------------------------------------------------------------------------------


def _silence(draft: Draft, event: Commanded) -> None:
    """Silence exactly what was shown to a person who may decide it; without that person's authority, nothing."""
    authority = event.authority
    if authority is None or not authority.allowed or not event.silences:
        return events.say(draft, event.user, "Nothing was silenced: nobody with permission confirmed it.")
    if not any(alert.status == "firing" for alert in draft.run.alerts.values()):
        return events.say(draft, event.user, "No alert of this incident is firing, so there is nothing to silence.")
    seconds = event.seconds or 0.0
    text = f"a silence of {lasting(seconds)} decided: {event.text}"
    draft.record("decided", text, who=event.user, data={"matchers": event.silences, "reason": authority.reason})
    return draft.want(
        SilenceAlerts(
            effect_id=f"silence/{event.event_id}",
            about=event.silences,
            ends_at=draft.at + seconds,
            why=redacted(event.text),
            wanted_by=event.user,
            wanted_at=draft.at,
        )
    )


def _unsilence(draft: Draft, event: Commanded) -> None:
    if not draft.run.silences:
        return events.say(draft, event.user, "The bot has no silence for this incident.")
    draft.record("note", "asked to end the silences", who=event.user)
    return entering.end_silences(draft, event.event_id)


def silenced(draft: Draft, event: Silenced) -> None:
    _hold(draft, draft.run.silences | dict.fromkeys(event.ids, event.ends_at))
    text = f"silenced in Alertmanager for {lasting(event.ends_at - draft.at)} ({', '.join(event.about)})"
    undo = f"`/incident silence {draft.run.incident_id} off` ends it"
    draft.record("note", text, who=event.user, data={"silences": list(event.ids), "undo": "expire the silences"})
    draft.post_note(f"{text}; {undo}.", user=event.user)
    if not draft.run.is_open:
        entering.end_silences(draft, f"late/{event.event_id}")


def silences_ended(draft: Draft, event: SilencesEnded) -> None:
    _hold(draft, {name: until for name, until in draft.run.silences.items() if name not in event.ids})
    what = "the silence" if len(event.ids) == 1 else f"{len(event.ids)} silences"
    draft.record("note", f"{what} ended in Alertmanager", data={"silences": list(event.ids)})


def silence_ends(draft: Draft) -> None:
    """Alertmanager ends a silence by itself: nothing to do, but people must not believe that it is still active."""
    over = [name for name, until in draft.run.silences.items() if until <= draft.at]
    _hold(draft, {name: until for name, until in draft.run.silences.items() if name not in over})
    draft.record("note", "the silence has expired: its alerts notify again", data={"silences": over})


def _hold(draft: Draft, silences: Mapping[str, float]) -> None:
    draft.set(silences=dict(silences))
    draft.set_deadline(SILENCE_ENDS, min(silences.values(), default=None))


# --- reopening and pinning -------------------------------------------------------------------------------------------


def reopen(draft: Draft, event: Commanded) -> None:
    if draft.run.is_open:
        return events.say(draft, event.user, f"{draft.run.incident_id} is open.")
    draft.set(closed_at=None, ending="")
    draft.record("reopened", f"reopened by hand: {event.text}", who=event.user)
    return diverting.restart_playbook(draft, because="a person reopened it")


def pin(draft: Draft, event: Commanded) -> None:
    """Pin a person's message, at the message's own time."""
    happened_at = event.happened_at if event.happened_at is not None else draft.at
    data = {"link": event.link, "pinned_by": event.user, "pinned_at": draft.at}
    draft.record("note", event.text, who=event.author or event.user, data=data, at=happened_at)


_COMMANDS: Mapping[CommandName, Callable[[Draft, Commanded], None]] = {
    "halt": events.halt,
    "resume": events.resume,
    "undo": events.undo,
    "resolve": events.resolve,
    "divert": events.divert,
    "reset": events.reset,
    "lead": events.lead,
    "note": events.note,
    "export": events.export,
    "graph": events.graph,
    "status": _status,
    "followup": _followup,
    "handover": _handover,
    "freeze": _freeze,
    "skip": _skip,
    "silence": _silence,
    "unsilence": _unsilence,
    "pull_request": pull_requests.wanted,
    "reopen": reopen,
    "pin": pin,
}
