"""The run moves to another playbook for good: back to its first one, or to one that an alert offered."""

from __future__ import annotations

from bot.domain.incidents.machine import entering
from bot.domain.incidents.machine.draft import Draft


def restart_playbook(draft: Draft, *, because: str) -> None:
    """Restart the playbook that the run was opened with."""
    draft.set(to_do=draft.run.left_to_do, conclusion=None)
    if draft.run.playbook == draft.bundle.entry and not draft.run.frames:
        entering.enter(draft, draft.playbook.start, because=because)
        return
    draft.set(frames=())
    entering.begin(draft, draft.bundle.entry, because=because)


def take_offer(draft: Draft, playbook: str, *, because: str = "") -> None:
    """Move the run permanently to another playbook. By default a person decided it."""
    offer = draft.run.offers[playbook]
    entering.take(draft, offer, because=because or f"a person took it over to '{offer.title}'")
