"""What the owner of a workload has to change, as a message shows it, and the pull request that people may want."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bot.domain.approvals.grant import Request
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
    request = run.requests.get(post.ref)
    edit = request.plan.owners_edit if request is not None else None
    if edit is None or not _fits_a_file(edit):
        return None
    drifting = _drifting(run)
    return edit if request in drifting and not edit.names & _changed_after(request, drifting) else None


def to_commit(run: Run) -> list[Request]:
    """Returns the requests whose change is in force, and is reverted by the workload's owner unless it is committed.

    One that later ones changed again as a whole, such as the number of replicas, is left out: its text is out of date.
    """
    drifting = _drifting(run)
    edits = ((each, each.plan.owners_edit) for each in drifting)
    return [each for each, edit in edits if edit is None or not edit.names <= _changed_after(each, drifting)]


def _drifting(run: Run) -> list[Request]:
    """The requests whose change is in force and not where the workload is kept, oldest first."""
    held = {request_of(entry.call_id) for entry in run.held}
    return [
        each
        for each in run.requests.values()
        if each.plan.commit and each.outcome == "done" and each.request_id in held
    ]


def _changed_after(request: Request, drifting: Sequence[Request]) -> frozenset[str]:
    """What the later ones of these requests change."""
    edits = (each.plan.owners_edit for each in drifting[drifting.index(request) + 1 :])
    return frozenset(name for edit in edits if edit is not None for name in edit.names)


def is_wanted(run: Run, slot: str) -> bool:
    """Whether a pull request for this message is open, or is being opened."""
    before = run.pull_requests.get(slot)
    return before is not None and not before.reason


def _fits_a_file(edit: OwnersEdit) -> bool:
    """Whether its file is known, and it has no secret: a masked one must not be committed."""
    if not edit.file:
        return False
    known = edit.model_dump(mode="json")
    return bool(redacted_data(known) == known)
