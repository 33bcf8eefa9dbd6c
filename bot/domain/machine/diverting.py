"""From one playbook to another, and back. A divert changes nothing in the world, so it asks nobody.

Each playbook sees only what was read and answered in itself: a frame keeps the rest until the run comes back.
"""

from __future__ import annotations

from typing import Any

from bot.domain.machine import asking, entering
from bot.domain.machine.draft import Draft
from bot.domain.playbook.language import DivertState, EndState
from bot.domain.run import Frame

MOST_DIVERTS = 8
_FORGOTTEN: dict[str, Any] = {
    "results": {},
    "answers": {},
    "answered_by": {},
    "forms": {},
    "picked": {},
    "baseline": {},
    "way": (),
}
"""What a playbook begins without."""


def divert(draft: Draft, state: DivertState) -> None:
    """Go on in another playbook, at its start."""
    run = draft.run
    if run.diverts >= MOST_DIVERTS:
        asking.ask_what_next(draft, f"This run was diverted {run.diverts} times; it is not diverted again by itself.")
        return
    if state.divert not in draft.bundle.playbooks:
        asking.ask_what_next(draft, f"The playbook '{state.divert}' was refused when the files were read: {state.why}")
        return
    if state.returns:
        kept = {key: getattr(run, key) for key in _FORGOTTEN}
        frame = Frame(playbook=run.playbook, state=run.state, **kept)
        draft.set(frames=(*run.frames, frame))
    draft.set(diverts=run.diverts + 1)
    begin(draft, state.divert, because=state.why)


def begin(draft: Draft, playbook: str, *, because: str) -> None:
    """Enter a playbook of the bundle at its start; what the last one knew is not known there."""
    before = draft.run.playbook
    draft.set(playbook=playbook, **_FORGOTTEN)
    if playbook != before:
        data = {"from": before, "to": playbook, "returns": bool(draft.run.frames)}
        draft.record("diverted", f"goes on in {playbook} — {because}", data=data)
    entering.enter(draft, draft.playbook.start, because=because)


def come_back(draft: Draft, ended: EndState) -> None:
    """Leave the divert by the end that the other playbook came to."""
    *outer, frame = draft.run.frames
    left, said = draft.run.playbook, draft.told("say")
    draft.set(frames=tuple(outer), **{key: getattr(frame, key) for key in type(frame).model_fields})
    draft.set(at_state=draft.playbook.machine.entry(frame.state))
    because = f"{left} ended with '{ended.end}'" + (f": {said}" if said else "")
    draft.record("diverted", f"back in {frame.playbook} — {because}", data={"from": left, "end": ended.end})
    outcome = f"returned:{ended.end}"
    if draft.playbook.machine.next(draft.run.at_state, outcome) is None:
        outcome = "returned:otherwise"
    entering.go(draft, outcome, because=because)


def begin_anew(draft: Draft, *, because: str) -> None:
    """The playbook that the run was opened with, from its start."""
    if draft.run.playbook == draft.bundle.entry and not draft.run.frames:
        entering.enter(draft, draft.playbook.start, because=because)
        return
    draft.set(frames=())
    begin(draft, draft.bundle.entry, because=because)


def take_offer(draft: Draft, playbook: str, user: str) -> None:
    """A person takes the run over to another playbook, for good."""
    offer, bundle = draft.run.offers[playbook], draft.bundle.offered[playbook]
    others = {name: other for name, other in draft.run.offers.items() if name != playbook}
    draft.set(frames=(), offers=others, digest=offer.digest, steered_by=user)
    draft.bundle = bundle
    begin(draft, playbook, because=f"a person took it over to '{offer.title}'")
