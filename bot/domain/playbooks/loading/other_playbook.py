"""A stub for a divert's target playbook: it asks how it ends, and ends that way.

A test of one playbook does not run the others; the machine itself goes there and returns.
"""

from __future__ import annotations

from collections.abc import Callable

from bot.domain.playbooks.bundle import Bundle, diverts_of
from bot.domain.playbooks.compiled import CompiledPlaybook, compile_playbook
from bot.domain.playbooks.language import ENDS, Playbook
from bot.domain.playbooks.mistakes import Mistake
from bot.domain.playbooks.source import Source

INSIDE = "(another playbook)"
"""Its only question; in brackets, so that no written state can have this name."""


def with_stand_ins(playbook: CompiledPlaybook) -> Bundle:
    """Returns the playbook with a stub for each playbook that it diverts to."""
    others = {name: _stand_in(name) for name in diverts_of(playbook) if name != playbook.name}
    return Bundle(playbook.name, {**others, playbook.name: playbook})


def is_inside(state: str) -> bool:
    return state.startswith("(")


def _stand_in(name: str) -> CompiledPlaybook:
    choices = {end: {"label": end, "to": f"({end})"} for end in ENDS}
    ends = {f"({end})": {"end": end} for end in ENDS}
    asked = {"ask": f"How does {name} end?", "choices": choices}
    data = {"language": 1, "playbook": name, "title": name, "start": INSIDE, "states": {INSIDE: asked, **ends}}
    source = Source(name, "", data)
    return compile_playbook(Playbook.model_validate(data), {}, source=source, probes={}, report=_surprise(name))


def _surprise(name: str) -> Callable[[Mistake], None]:
    def report(mistake: Mistake) -> None:
        raise ValueError(f"the stand-in for {name} has a fault: {mistake.what}")

    return report
