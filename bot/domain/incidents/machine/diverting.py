"""A person moves the run to another playbook: back to its first one, or permanently to one that an alert offered."""

from __future__ import annotations

from bot.domain.incidents.machine import entering
from bot.domain.incidents.machine.draft import Draft


def restart_playbook(draft: Draft, *, because: str) -> None:
    """Restart the playbook that the run was opened with."""
    if draft.run.playbook == draft.bundle.entry and not draft.run.frames:
        entering.enter(draft, draft.playbook.start, because=because)
        return
    draft.set(frames=())
    entering.begin(draft, draft.bundle.entry, because=because)


def take_offer(draft: Draft, playbook: str) -> None:
    """Move the run permanently to another playbook, on a person's decision."""
    offer, bundle = draft.run.offers[playbook], draft.bundle.offered[playbook]
    others = {name: other for name, other in draft.run.offers.items() if name != playbook}
    draft.set(frames=(), offers=others, digest=offer.digest)
    draft.bundle = bundle
    entering.begin(draft, playbook, because=f"a person took it over to '{offer.title}'")
