"""In which direction a flag helps against which problem, from data: what fixes one problem makes another worse.

Effects that are not in the table are not judged; harmful ones are never proposed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict

from bot.domain.flags.flag_table import FlagValue
from bot.domain.kernel.errors import impossible

Direction = Literal["raise", "lower", "set"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


class Effect(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    effect: Literal["helps", "harms", "no_effect"]
    why: str


class Mitigations(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    diagnoses: dict[str, str]
    mitigations: dict[str, dict[str, dict[Direction, Effect]]]
    """Flag, diagnosis, direction."""


@dataclass(frozen=True)
class Move:
    """One flag from its value to another; `before` is None if the engine's value is unknown."""

    flag: str
    before: FlagValue | None
    after: FlagValue | None
    declared: str = ""
    """The direction that the playbook declares."""

    @property
    def direction(self) -> Direction | None:
        """None if it cannot be determined."""
        numbers = [number_in(value) for value in (self.before, self.after)]
        before, after = numbers
        if before is not None and after is not None:
            return None if before == after else "raise" if after > before else "lower"
        return "set" if self.after is not None and after is None else None


@cache
def mitigations() -> Mitigations:
    text = files(__package__).joinpath("mitigations.json").read_text(encoding="utf-8")
    return Mitigations.model_validate_json(text)


def effect_of(flag: str, diagnosis: str, direction: str | None) -> Effect | None:
    """None if no effect is known."""
    known = mitigations().mitigations.get(flag, {}).get(diagnosis, {})
    return next((effect for each, effect in known.items() if each == direction), None)


def refuse_what_harms(moves: Iterable[Move], diagnosis: str) -> None:
    """Raise `NoPlanError` for a move that makes the problem worse, or contradicts the playbook's direction."""
    for move in moves:
        direction = move.direction
        if move.declared and direction is not None and move.declared not in (direction, "set"):
            raise impossible(
                f"{move.flag} from {move.before} to {move.after} is a {direction},"
                f" and the playbook means a {move.declared}",
                "read the numbers behind the value",
            )
        effect = effect_of(move.flag, diagnosis, direction) if diagnosis else None
        if effect is not None and effect.effect == "harms":
            raise impossible(f"{move.flag} from {move.before} to {move.after} is the wrong direction: {effect.why}")


def number_in(value: FlagValue | None) -> float | None:
    if value is None or isinstance(value, bool):
        return None
    try:
        return float(value)
    except ValueError:
        return None
