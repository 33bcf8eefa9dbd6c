"""An incident whose trouble went away while it waited for people ends without them.

All its alerts are resolved, and every check of `calm.for` found the playbook's `calm` true, or no workload. Unknown is
neither. A parked incident without alerts, which a person opened by hand, ends only where the workload is gone: what the
person saw may be in no signal. What needs a person's decision keeps it open: a change that a person asked for
meanwhile, a change between its calls, what a playbook left to do, and a canary, a cordon or an isolated replica.
"""

from __future__ import annotations

from bot.domain.incidents.effect import ReadCalm
from bot.domain.incidents.event import CalmRead, Due, EffectFailed
from bot.domain.incidents.machine import entering, events, residual
from bot.domain.incidents.machine.draft import Draft
from bot.domain.incidents.named_values import ScopeValues
from bot.domain.incidents.run import CALM_CHECK, Run
from bot.domain.kernel.durations import lasting
from bot.domain.playbooks.expressions.expression import Unknown

RESOLVED_BY_ITSELF, NOT_APPLICABLE = "resolved_by_itself", "not_applicable"
CHECKS = 5
"""Number of checks in the time that it must be calm."""
MIN_SECONDS, MAX_SECONDS = 1.0, 60.0
SELDOM_SECONDS = 600.0
"""Between two checks at most where it is not calm for long: a parked incident may wait for days."""


def follow(draft: Draft) -> None:
    """Check from time to time while the incident waits for people and its alerts are resolved, and only then."""
    if not _may_end(draft):
        draft.set_deadline(CALM_CHECK, None)
        if draft.run.calm_since is not None:
            draft.set(calm_since=None)
    elif CALM_CHECK not in draft.run.deadlines:
        draft.set_deadline(CALM_CHECK, draft.at + _pause(draft))


def check(draft: Draft, event: Due) -> None:
    if _may_end(draft):
        draft.want(ReadCalm(effect_id=draft.effect_id(f"calm/{event.due_at}"), visit=draft.run.visit.number))


def read(draft: Draft, event: CalmRead) -> None:
    if not draft.is_of_this_visit(event.effect_id) or not _may_end(draft):
        return
    run = draft.run
    values = ScopeValues(run, event.readings)
    is_gone = draft.playbook.is_gone(event.readings)
    verdict = is_gone or (bool(run.alerts) and draft.playbook.is_calm(values, changed=bool(run.held)))
    if isinstance(verdict, Unknown) or not verdict:
        draft.set(calm_since=None)
        return
    since = run.calm_since if run.calm_since is not None else draft.at
    draft.set(calm_since=since)
    if draft.at - since >= _seconds(draft):
        data = {name: one.model_dump(mode="json", exclude_defaults=True) for name, one in event.readings.items()}
        what = "the workload is not there" if is_gone else f"calm for {lasting(draft.at - since)}"
        draft.record("read", f"{what} while people were waited for", data=data)
        draft.set(latest=run.latest | event.readings)
        if is_gone:
            _end_without_workload(draft)
        else:
            _end(draft, draft.at - since)


def failed(draft: Draft, event: EffectFailed) -> None:
    """Nothing waits for a check that failed: there is another one."""
    draft.set(calm_since=None)
    draft.ignore(f"{ReadCalm.not_done}: {event.reason}")


def _may_end(draft: Draft) -> bool:
    run = draft.run
    return (
        run.is_open
        and _waits_for_people(run)
        and (run.alerts_resolved_at is not None or (not run.alerts and run.parked is not None))
        and run.halt is None
        and not run.is_undoing
        and not _was_asked_for(run)
        and run.playbook in draft.bundle.playbooks
        and draft.playbook.playbook.calm is not None
        and not residual.residual_changes(run)
        and not run.left_to_do
    )


def _was_asked_for(run: Run) -> bool:
    """Whether a person's answer after the alerts were resolved led to the open request, such as to scale back."""
    if run.open_request is None or run.alerts_resolved_at is None:
        return False
    answers = [question.answered_at for question in run.questions.values() if question.answered_at is not None]
    return bool(answers) and run.alerts_resolved_at <= max(answers) <= run.open_request.asked_at


def _waits_for_people(run: Run) -> bool:
    """A change that stopped between two of its steps waits for people too, and must not be forgotten."""
    is_begun = run.change is not None and run.change.begun
    return not is_begun and (run.open_question is not None or run.open_request is not None)


def _seconds(draft: Draft) -> float:
    calm = draft.playbook.playbook.calm
    return draft.playbook.seconds(calm.for_) if calm is not None else 0.0


def _pause(draft: Draft) -> float:
    often = min(max(_seconds(draft) / CHECKS, MIN_SECONDS), MAX_SECONDS)
    if draft.run.calm_since is not None:
        return often
    run = draft.run
    waited = draft.at - (run.alerts_resolved_at or (run.parked.since if run.parked is not None else draft.at))
    return min(max(often, waited / 20), SELDOM_SECONDS)


def _end_without_workload(draft: Draft) -> None:
    draft.set(parked=None)
    events.withdraw_what_waits(draft, "the workload is not there any more")
    resolved = ", and the alerts are resolved" if draft.run.alerts else ""
    entering.close(draft, NOT_APPLICABLE, f"The workload is not there any more{resolved}.")


def _end(draft: Draft, seconds: float) -> None:
    run = draft.run
    held = ", ".join(run.in_place)
    asked = run.open_request.request_id if run.open_request is not None else run.question
    without = "no change is in place" if run.ledger else "nothing was changed"
    after = f", after this change, and under load: {held}" if held else f"; {without}"
    why = f"The alerts are resolved and the signals were calm for {lasting(seconds)}{after}."
    draft.set(parked=None)
    events.withdraw_what_waits(draft, f"{asked} is not needed any more")
    entering.close(draft, entering.RESOLVED_AFTER_A_CHANGE if held else RESOLVED_BY_ITSELF, why)
