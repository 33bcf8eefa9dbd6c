"""Another playbook because a person says so: from the start again, or for good by an offer of an alert."""

from __future__ import annotations

from bot.domain.incidents.machine import entering
from bot.domain.incidents.machine.draft import Draft


def restart_playbook(draft: Draft, *, because: str) -> None:
    """The playbook that the run was opened with, from its start."""
    if draft.run.playbook == draft.bundle.entry and not draft.run.frames:
        entering.enter(draft, draft.playbook.start, because=because)
        return
    draft.set(frames=())
    entering.begin(draft, draft.bundle.entry, because=because)


def take_offer(draft: Draft, playbook: str, user: str) -> None:
    """A person takes the run over to another playbook, for good."""
    offer, bundle = draft.run.offers[playbook], draft.bundle.offered[playbook]
    others = {name: other for name, other in draft.run.offers.items() if name != playbook}
    draft.set(frames=(), offers=others, digest=offer.digest, steered_by=user)
    draft.bundle = bundle
    entering.begin(draft, playbook, because=f"a person took it over to '{offer.title}'")
