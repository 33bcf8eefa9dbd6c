"""The more urgent playbook goes first: it takes over from a less urgent one, which begins again afterwards.

The order is `priority` in the playbooks. Nothing is taken over while a change is between its calls.
"""

from __future__ import annotations

from bot.domain.incidents.machine import calling, diverting, events
from bot.domain.incidents.machine.draft import Draft
from bot.domain.incidents.machine.entering import MAX_DIVERTS
from bot.domain.incidents.run import Offer


def follow(draft: Draft) -> None:
    """Let the most urgent playbook take over whose alert fires, after every decision."""
    run = draft.run
    if not run.is_open or run.parked is not None or (offer := _most_urgent(draft)) is None:
        return
    if run.diverts >= MAX_DIVERTS:
        how = f"`/incident divert {run.incident_id} {offer.playbook}` switches to it"
        _say_once(draft, f"'{offer.title}' is more urgent, and this run was diverted {run.diverts} times. {how}.")
    elif run.change is not None and run.change.begun:
        _say_once(draft, f"'{offer.title}' is more urgent. It takes over as soon as the present change has ended.")
    else:
        _take_over(draft, offer)


def _most_urgent(draft: Draft) -> Offer | None:
    here = draft.playbook.playbook.priority
    urgent = [offer for offer in draft.run.offers.values() if offer.priority > here and draft.run.fires(offer)]
    ready = [offer for offer in urgent if offer.playbook in draft.bundle.offered]
    return max(ready, key=lambda offer: offer.priority, default=None)


def _take_over(draft: Draft, offer: Offer) -> None:
    before, left = _present(draft, offer), draft.run.open_request
    names = ", ".join(sorted(draft.run.alerts[each].name for each in offer.alerts if each in draft.run.alerts))
    why = f"'{offer.title}' took over, which is more urgent"
    events.withdraw_what_waits(draft, why)
    draft.set(offers=draft.run.offers | {before.playbook: before}, diverts=draft.run.diverts + 1)
    text = f"{names}: '{offer.title}' is more urgent and takes over from '{before.title}'."
    if left is not None:
        text += f" {left.request_id} is withdrawn; nothing of it was applied."
    if draft.run.in_place:
        text += f" These changes stay, with their undo: {', '.join(draft.run.in_place)}."
    calling.call_on_call(draft, text)
    diverting.take_offer(draft, offer.playbook, because=why)


def _present(draft: Draft, urgent: Offer) -> Offer:
    """Returns the playbook that gives way, with the alerts that it is for."""
    run, entry = draft.run, draft.bundle.entry_playbook
    others = {name for offer in run.offers.values() if offer.gave_way for name in offer.alerts}
    own = tuple(name for name in run.alerts if name not in {*urgent.alerts, *others})
    priority = entry.playbook.priority
    return Offer(
        playbook=entry.name, title=entry.playbook.title, priority=priority, digest=run.digest, alerts=own, gave_way=True
    )


def _say_once(draft: Draft, text: str) -> None:
    if text not in draft.run.ignored:
        calling.call_on_call(draft, text)
        draft.set(ignored=draft.run.ignored | {text: 1})
