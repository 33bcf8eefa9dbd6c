"""Which later changes the approval of a change may cover, as the playbook says."""

from __future__ import annotations

from bot.domain.changes.catalogue import VERBS
from bot.domain.playbooks.language import ChangeState, Playbook


def covered_by(playbook: Playbook, name: str) -> dict[str, ChangeState]:
    """Returns the changes that name this one, or the recommendation that it is an option of, in `approved_with`.

    A rollout of a canary's edits follows a canary alone: a change in place, or another replica, does not lead to it.
    """
    first = playbook.states[name]
    if not isinstance(first, ChangeState):
        return {}
    return {
        later: state
        for later, state in playbook.states.items()
        if isinstance(state, ChangeState)
        and {name, first.option_of} & set(state.approved_with)
        and VERBS[state.change].follows in ("", first.change)
    }
