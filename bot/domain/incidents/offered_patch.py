"""What the owner of a workload has to change, as a message shows it, and the pull request that people may want."""

from __future__ import annotations

from typing import Any

from bot.domain.changes.owners_edit import OwnersEdit
from bot.domain.changes.plan import PlanResult, request_of
from bot.domain.incidents.run import Run
from bot.domain.kernel.redaction import redacted_data

EDIT = "owners_edit"
"""In the data of a message with a patch: what the patch says."""


def offered(result: PlanResult) -> dict[str, Any]:
    """Returns what a message with this patch keeps, so that people can want a pull request; empty if they cannot."""
    edit = result.owners_edit
    return {EDIT: edit.model_dump(mode="json")} if edit is not None and _fits_a_file(edit) else {}


def edit_of(run: Run, slot: str) -> OwnersEdit | None:
    """Returns what a pull request for this message would change; None if there is nothing to propose (any more).

    A patch that was handed out counts while the incident is open, a text to commit as long as its change is in force
    and no later one changes the same.
    """
    post = next((each for each in run.posts if each.slot == slot), None)
    if post is None:
        return None
    if post.kind != "request":
        return OwnersEdit.model_validate(post.data[EDIT]) if EDIT in post.data and run.is_open else None
    edits = _in_force(run)
    edit, names = edits.get(post.ref), list(edits)
    if edit is None or not _fits_a_file(edit):
        return None
    later = names[names.index(post.ref) + 1 :]
    return None if any(edit.overlaps(edits[name]) for name in later) else edit


def _in_force(run: Run) -> dict[str, OwnersEdit]:
    """What the owner of the workload does not have yet, by the request that made the change, oldest first."""
    held = {request_of(entry.call_id) for entry in run.held}
    return {
        name: request.plan.owners_edit
        for name, request in run.requests.items()
        if request.plan.owners_edit is not None and request.outcome == "done" and name in held
    }


def is_wanted(run: Run, slot: str) -> bool:
    """Whether a pull request for this message is open, or is being opened."""
    before = run.pull_requests.get(slot)
    return before is not None and not before.reason


def _fits_a_file(edit: OwnersEdit) -> bool:
    """Whether its file is known, and it has no secret: a masked one must not be committed."""
    known = edit.model_dump(mode="json")
    return bool(edit.file) and redacted_data(known) == known
