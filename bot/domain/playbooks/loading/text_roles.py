"""What a text of a playbook is, from its place: the name of a state, an expression, a template, or a plain text."""

from __future__ import annotations

from typing import Literal

from bot.domain.playbooks.edges import CHANGE_OUTCOMES
from bot.domain.playbooks.mistakes import Path

Role = Literal["destination", "expression", "template", "text"]
_DESTINATIONS = frozenset(
    {
        *CHANGE_OUTCOMES,
        *("unknown", "taken", "held", "not_held", "beyond", "not_by", "option_of", "none_possible", "later"),
    }
)


def role_of(path: Path) -> Role:
    """Returns the role of a value in a playbook, from its path."""
    match path:
        case ("start",) | ("exits", _):
            return "destination"
        case ("states", _, str(key)) if key in _DESTINATIONS:
            return "destination"
        case ("states", _, "go" | "choices" | "broke", _, "to" | "otherwise") | ("states", _, "returns", _):
            return "destination"
        case ("states", _, "go" | "broke", _, "when") | ("states", _, "watch" | "pick", _):
            return "expression"
        case ("states", _, "still" | "enough") | ("states", _, "with", "edits", _, "when") | ("define", _):
            return "expression"
        case ("states", _, "options", _, "given", "with", "edits", _, "when") | ("states", _, "options", _, "possible"):
            return "expression"
        case ("states", _, "options", _, "to") | ("states", _, "alternatives", _) | ("states", _, "approved_with", _):
            return "destination"
        case ("states", _, "options", _, "given", *_) | ("states", _, "options", _, "label" | "effect" | "why_not"):
            return "template"
        case ("states", _, "recommend") | ("users" | "diagnoses", _, "title" | "say"):
            return "template"
        case ("states", _, "with", *_) | ("states", _, "ask" | "why" | "expected" | "say" | "to_do"):
            return "template"
        case ("signals", _, "ending") | ("calm", "when" | "under_load") | ("users" | "diagnoses", _, "when"):
            return "expression"
        case _:
            return "text"
