"""How an incident ends that did what a playbook had left to do: as concluded before, unless that ends worse."""

from __future__ import annotations

from bot.domain.incidents.machine.draft import Draft
from bot.domain.incidents.run import Conclusion, Run
from bot.domain.playbooks.language import EndState

CLAIMS_NOTHING_LEFT = frozenset({"fixed", "self_cleared", "not_applicable"})
"""Ends that leave no trouble behind."""


def conclusion_of(draft: Draft, state: EndState) -> Conclusion:
    """Returns how the incident ends in this state, with what people read."""
    before, text = draft.run.conclusion, draft.text("say")
    said = (before.text, text) if before is not None else (text,)
    return Conclusion(ending=ending_at(draft.run, state), text=" ".join(filter(None, said)))


def ending_at(run: Run, state: EndState) -> str:
    before = run.conclusion
    return before.ending if before is not None and state.end in CLAIMS_NOTHING_LEFT else state.end
