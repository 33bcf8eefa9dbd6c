"""Which numbers of a request a person may change, and within which range. The change is then planned again.

A value is only applied after it was planned, shown and approved.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from bot.domain.changes.catalogue import VERBS
from bot.domain.changes.plan import Plan
from bot.domain.changes.verbs.scale import MAX_REPLICAS
from bot.domain.flags.flag_rules import RANGES
from bot.domain.flags.flag_table import FlagValueError, newest_table, parse_value, text_of
from bot.domain.kernel.errors import ApprovalError

REPLICAS = "replicas"
COUNTS = ("/replicas", "/minReplicas", "/minReplicaCount")
"""The ends of the paths where a change writes how many replicas there are, or an autoscaler's floor."""
MAX_NUMBER_LENGTH = 9
Number = int | float


class EditableValue(BaseModel):
    """One number of a plan: its label, current value and range."""

    model_config = ConfigDict(frozen=True)

    name: str
    now: str
    range_text: str
    replicas: tuple[int, int] = (1, MAX_REPLICAS)
    """The fewest and the most; for a number of replicas."""

    def read(self, text: str) -> Number:
        """Returns the number; raise `ApprovalError` with the reason, for people."""
        return _replicas(text, *self.replicas) if self.name == REPLICAS else _flag(self.name, text, self.range_text)


def editable_values(plan: Plan) -> tuple[EditableValue, ...]:
    """Returns the numbers whose range is known; only the playbook chooses other parts of a plan."""
    editable = _editable(plan.verb)
    if editable == "replicas" and "to" in plan.choices:
        least, most = _replicas_range(plan)
        now, range_text = str(plan.choices["to"]), f"from {least} to {most}"
        return (EditableValue(name=REPLICAS, now=now, range_text=range_text, replicas=(least, most)),)
    edits = plan.choices.get("edits") if editable == "edits" else None
    chosen = edits.items() if isinstance(edits, Mapping) else ()
    known = [
        EditableValue(name=name, now=str(now), range_text=RANGES[name][2]) for name, now in chosen if name in RANGES
    ]
    return tuple(each for each in known if _is_number(each))


def _replicas_range(plan: Plan) -> tuple[int, int]:
    """The counts with which the change still does what it is for: more replicas, or fewer."""
    counts = (each for call in plan.calls for each in call.differences if each.path.endswith(COUNTS))
    for each in counts:
        if isinstance(each.before, int) and isinstance(each.after, int):
            return (each.before + 1, MAX_REPLICAS) if each.after > each.before else (1, max(1, each.before - 1))
    return 1, MAX_REPLICAS


def values_of(plan: Plan, written: str) -> dict[str, Number]:
    """Returns the checked values of an `edit` press; raise `ApprovalError` unless it changes something within range."""
    try:
        texts = json.loads(written)
    except ValueError:
        texts = None
    offered = {each.name: each for each in editable_values(plan)}
    if not isinstance(texts, dict) or not texts.keys() <= offered.keys():
        raise ApprovalError("these values are not of this request; open its form again")
    values = {name: offered[name].read(str(text)) for name, text in texts.items()}
    if all(text_of(value) == offered[name].now for name, value in values.items()):
        raise ApprovalError("nothing is different from what the request says")
    return values


def with_values(verb: str, arguments: Mapping[str, Any], values: Mapping[str, Number]) -> dict[str, Any]:
    """Returns the arguments of a change with a person's values in place of the playbook's."""
    if _editable(verb) == "replicas" and REPLICAS in values:
        return {name: value for name, value in arguments.items() if name != "by"} | {"to": values[REPLICAS]}
    edits = arguments.get("edits")
    if not isinstance(edits, list | tuple):
        return dict(arguments)
    return {**arguments, "edits": [_edited(edit, values) for edit in edits]}


def _editable(verb: str) -> str:
    declared = VERBS.get(verb)
    return declared.editable if declared else ""


def _edited(edit: Any, values: Mapping[str, Number]) -> Any:
    if not isinstance(edit, Mapping):
        return edit
    flags = map(str, edit.get("first_of") or [edit.get("flag", "")])
    names = [newest_table().name_of(flag if flag.startswith("-") else f"--{flag}") or flag for flag in flags]
    # A person edits the flag that was chosen, so only one of `first_of` has a value.
    return next(({**edit, "value": values[name]} for name in names if name in values), edit)


def _is_number(value: EditableValue) -> bool:
    try:
        value.read(value.now)
    except ApprovalError:
        return False
    return True


def _flag(name: str, text: str, range_text: str) -> Number:
    try:
        value = parse_value(newest_table().spec(name), text.strip())
    except FlagValueError as error:
        raise ApprovalError(f"{name} {error}") from None
    least, most, _ = RANGES[name]
    # If a plan gives the flag another type than its table, planning reports it; a range needs a number.
    if isinstance(value, str | bool) or not least <= value <= most:
        raise ApprovalError(f"{name} has to be {range_text}, not {text.strip()}")
    return value


def _replicas(text: str, least: int, most: int) -> int:
    stripped = text.strip()
    # Reading a number of n digits takes Python n² steps.
    is_short = stripped.isascii() and stripped.isdigit() and len(stripped) <= MAX_NUMBER_LENGTH
    if not is_short or not least <= int(stripped) <= most:
        raise ApprovalError(f"the number of replicas has to be a whole number from {least} to {most}")
    return int(stripped)
