"""The ledger of a run: the calls that were applied, each with its undo, and what has ended them since."""

from __future__ import annotations

from bot.domain.changes.plan import Call, LedgerEntry, Step, Wait, change_of
from bot.domain.changes.verbs.undo import last_change, staying
from bot.domain.cluster.workload import KINDS
from bot.domain.incidents.event import StepSettled
from bot.domain.incidents.machine import residual
from bot.domain.incidents.machine.draft import Draft
from bot.domain.incidents.run import Run
from bot.domain.playbooks.language import ChangeState, State

SOMEBODY_ELSE = "somebody else"
"""Stored in place of a call id when another actor undid the call."""


def held_of(run: Run, request_id: str) -> tuple[LedgerEntry, ...]:
    """The calls of this request that are in place and can be undone."""
    change = f"{run.incident_id}/{request_id}"
    return tuple(entry for entry in run.held if change_of(entry.call_id) == change)


def record_step(draft: Draft, event: StepSettled, step: Step | None) -> None:
    """Record a step that is done: a call with its undo, or a wait for what has now been seen."""
    if not isinstance(step, Call):
        data = {**event.evidence, "request": event.request_id}
        if step is not None and step.closes:
            draft.set(ledger=tuple(_over(entry, step) for entry in draft.run.ledger))
            data |= {"held": list(draft.run.in_place)}
        draft.record("wait", f"seen: {step.title if step else ''} — {event.detail}", data=data)
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
    """Mark what this call ends: what it undoes, what an undo names, and our canary or isolation if gone or back.

    What a call had ended is in place again once that call is undone: a cordon, if its uncordon is taken back.
    """
    undone = undone | {step.undoes}
    ends_object = step.method in ("delete", "evict") or step.restores

    def mark(entry: LedgerEntry) -> LedgerEntry:
        same = (entry.target.kind, entry.target.namespace, entry.target.name) == (
            step.target.kind,
            step.target.namespace,
            step.target.name,
        )
        if same and entry.undone_by and entry.undone_by in undone:
            return entry.model_copy(update={"undone_by": ""})
        hit = same and (entry.call_id in undone or (ends_object and entry.verb in residual.LEFTOVER_VERBS))
        # A call that is exactly the inverse of an earlier one takes it back: a floor held for a rollout.
        hit = hit or (same and step.restores and any(inverse.body == step.body for inverse in entry.undo))
        hit = hit or (entry.target.kind == "Pod" and entry.target.uid in step.ends)
        return entry.model_copy(update={"undone_by": by}) if hit and not entry.undone_by else entry

    return tuple(map(mark, ledger))


def lose(draft: Draft, calls: set[str]) -> None:
    """Mark these calls as undone by another actor: nothing of them is in place any more."""
    lost = {"undone_by": SOMEBODY_ELSE}
    draft.set(
        ledger=tuple(entry.model_copy(update=lost) if entry.call_id in calls else entry for entry in draft.run.ledger)
    )


def has_changed(run: Run, request_id: str) -> bool:
    """Whether one of its calls was applied."""
    own = f"{run.incident_id}/{request_id}/"
    return any(entry.call_id.startswith(own) for entry in run.ledger)


def with_earlier_undo(text: str, run: Run, to: State | None) -> str:
    """Returns this text about a choice that leads to `to`, and what else has to be known if that is an undo.

    An undo takes the last change back that can be: something without an undo may have been done since.
    """
    if not isinstance(to, ChangeState) or to.change != "undo" or to.with_.get("of", "last") != "last":
        return text
    undone = last_change(run.ledger)
    stays = staying(run.ledger, undone)
    if not stays:
        return text
    # Not the floor of an autoscaler that was held for it.
    first = next((entry for entry in reversed(undone) if entry.target.kind in KINDS), undone[-1])
    earlier = f"An earlier change goes back ({first.title}): what was done since has no undo ({stays})."
    return f"{text} {earlier}" if text else earlier
