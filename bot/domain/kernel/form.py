"""Forms: the fields that people fill in, and the faults in their answers. A number is never guessed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from bot.domain.kernel import descriptions

Answer = float | str
"""A number or a text; for a choice, its key."""
MAX_MOMENT_LENGTH = 40
OPENING = "opening"
"""Used in place of a state for the form that opened the incident."""


class FormField(BaseModel):
    """One thing to fill in."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=descriptions.are_read)

    label: str
    """What is shown above it."""
    kind: Literal["text", "number", "integer", "choice", "time"] = "text"
    """What it takes. An integer is a number without decimals. A time is a date and a time of day in UTC, such as
    `2026-11-20 14:30`."""
    options: dict[str, str] = {}
    """Of a choice: key to what people read."""
    optional: bool = False
    """It may be left empty; then it is unknown."""
    min: float | None = None
    """Of a number: the least."""
    max: float | None = None
    """Of a number: the most."""
    unit: str = ""
    """Of a number: what is counted, for people."""
    max_length: int = Field(default=500, ge=1, le=3000)
    """Of a text: how many characters at most."""
    why: str = ""
    """What it is for; shown below it."""

    @property
    def is_number(self) -> bool:
        return self.kind in ("number", "integer")


Form = dict[str, FormField]
"""By name."""


def problems(form: Mapping[str, FormField], given: Mapping[str, Answer]) -> dict[str, str]:
    """Returns the faults by field, for the person who filled it in; empty if the form is valid."""
    found = {name: f"there is no field '{name}'" for name in given if name not in form}
    for name, field in form.items():
        value = given.get(name, "")
        if value == "":
            if not field.optional:
                found[name] = f"{field.label}: this is needed"
        elif why := _problem(field, value):
            found[name] = f"{field.label}: {why}"
    return found


def answers(form: Mapping[str, FormField], given: Mapping[str, Answer]) -> dict[str, Answer]:
    """Returns the answers of a form without problems: numbers as numbers, and nothing for empty fields."""
    counted: dict[str, Answer] = {}
    for name, value in given.items():
        if name not in form or value == "":
            continue
        number = _number(value) if form[name].is_number else None
        counted[name] = str(value) if number is None else number
    return counted


def in_words(form: Mapping[str, FormField], filled: Mapping[str, Answer]) -> str:
    """Returns what a person filled in, by the labels of the fields; empty if nothing."""
    return "; ".join(
        f"{field.label.rstrip('?: ')}: {_shown(field, filled[name])}" for name, field in form.items() if name in filled
    )


def _shown(field: FormField, value: Answer) -> str:
    if isinstance(value, float):
        return f"{value:g} {field.unit}".strip()
    return field.options.get(value, value)


def moment_in(given: Answer) -> float | None:
    """Returns epoch seconds of a text with a date and a time, UTC by default; None for anything else."""
    if isinstance(given, float) or len(given) > MAX_MOMENT_LENGTH:
        return None
    try:
        at = datetime.fromisoformat(given.strip())
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _problem(field: FormField, value: Answer) -> str:
    match field.kind:
        case "choice":
            return "" if value in field.options else f"'{value}' is not one of {', '.join(field.options)}"
        case "time":
            # A day alone is a guess about the hour.
            is_time = ":" in str(value) and moment_in(value) is not None
            return "" if is_time else f"'{value}' is not a date and a time (UTC). Example: 2026-11-20 14:30"
        case "text":
            long = len(str(value)) > field.max_length
            return f"at most {field.max_length} characters" if long else ""
        case _:
            return _range_problem(field, _number(value), value)


def _range_problem(field: FormField, number: float | None, given: Answer) -> str:
    unit = f" {field.unit}" if field.unit else ""
    if number is None:
        return f"'{given}' is not a number"
    if field.kind == "integer" and not number.is_integer():
        return f"'{given}' is not a whole number"
    if field.min is not None and number < field.min:
        return f"at least {field.min:g}{unit}"
    if field.max is not None and number > field.max:
        return f"at most {field.max:g}{unit}"
    return ""


def _number(value: Answer) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
