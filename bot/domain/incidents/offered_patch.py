"""A patch in a message for the owner of a workload, and the pull request that people may want with it."""

from __future__ import annotations

from typing import Any

from bot.domain.changes.plan import PlanResult
from bot.domain.incidents.run import Post
from bot.domain.kernel.redaction import redacted_data

EDIT, REPOSITORY, PULL_REQUEST = "owners_edit", "repository", "pull_request"
"""In the data of a message: what its patch says, where a pull request may be opened, and what became of that."""


def offered(result: PlanResult) -> dict[str, Any]:
    """Returns what a message with this patch keeps, so that people can want a pull request; empty if they cannot."""
    if result.owners_edit is None or not result.repository:
        return {}
    edit = result.owners_edit.model_dump(mode="json")
    # A masked value must not get into a file.
    return {EDIT: edit, REPOSITORY: result.repository} if redacted_data(edit) == edit else {}


def is_wanted(post: Post) -> bool:
    """Whether a pull request with this patch is open, or is being opened."""
    state: dict[str, str] = post.data.get(PULL_REQUEST, {})
    return bool(state) and not state.get("reason")
