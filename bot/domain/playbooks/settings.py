"""The effective settings of a playbook: its defaults with an operator's overrides. Durations become seconds."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from bot.domain.kernel.durations import is_duration, seconds
from bot.domain.kernel.target import checked_pattern
from bot.domain.playbooks.expressions.expression import did_you_mean
from bot.domain.playbooks.language import Setting
from bot.domain.playbooks.mistakes import Mistake, Path, Report
from bot.domain.signals.signal import Kind

SettingValue = float | str | bool
_MEASURED = re.compile(r"\d+(\.\d+)?\s*(s|m|h|d|ms|secs?|seconds?|mins?|minutes?|hrs?|hours?|days?)", re.ASCII | re.I)


def _texts(value: object) -> object:
    """Returns numbers and switches as text: the playbook's declaration sets the type."""
    if not isinstance(value, dict):
        return value
    return {name: str(each).lower() if isinstance(each, bool) else str(each) for name, each in value.items()}


class Override(BaseModel):
    """What an operator sets otherwise for a playbook, for a target, or for a playbook on a target."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: Annotated[dict[str, str], BeforeValidator(_texts)] = {}
    playbook: str = ""
    """Empty: each playbook takes the settings that it declares."""
    target: Annotated[str, AfterValidator(lambda raw: raw and checked_pattern(raw))] = ""
    """`namespace/workload` or `cluster/namespace/workload` as a glob; empty: they apply everywhere."""
    observe_only: bool | None = None
    """Whether changes are only advised here; None: as elsewhere."""
    channel: str = Field("", pattern=r"^([CG][A-Z0-9]+)?$")
    """The Slack channel of the incidents of this target; empty: as elsewhere."""

    @model_validator(mode="after")
    def _sets_something(self) -> Self:
        parts = {name: field for name, field in type(self).model_fields.items() if name not in ("playbook", "target")}
        if all(getattr(self, name) == field.default for name, field in parts.items()):
            *most, last = parts
            raise ValueError(f"sets nothing; write {', '.join(most)} or {last}")
        if self.channel and not self.target:
            raise ValueError("has a channel without a target; slack.channel is the channel of all others")
        return self

    @property
    def place(self) -> str:
        return ": ".join(filter(None, ("overrides", self.target, self.playbook)))


def kind_of_setting(setting: Setting) -> Kind:
    """A default that parses as a duration makes the setting one: a number of seconds."""
    match setting.default:
        case bool():
            return "flag"
        case str() as text:
            return "number" if is_duration(text) or _is_quoted_number(setting) else "text"
        case _:
            return "number"


def finite_number(raw: float | str) -> float:
    """Raises `ValueError` for what is not a number, `nan` and `inf` included: they pass limits and prove nothing."""
    number = float(raw)
    if not math.isfinite(number):
        raise ValueError(f"'{raw}' is not a finite number")
    return number


def looks_like_duration(value: object) -> bool:
    """Whether it was probably intended as a duration: `2min` or `5 m`."""
    return isinstance(value, str) and not is_duration(value) and bool(_MEASURED.fullmatch(value))


def effective_settings(
    declared: Mapping[str, Setting], overrides: Mapping[str, str], report: Report
) -> dict[str, SettingValue]:
    """Returns one value for each declared setting; faults are reported, and the value is then meaningless."""
    values: dict[str, SettingValue] = {}
    for name, setting in declared.items():
        path: Path = ("settings", name)
        if not _check_limits(setting, path, report):
            values[name] = 0.0
            continue
        values[name] = _value(setting, setting.default, (*path, "default"), report)
        if name in overrides:
            values[name] = _value(setting, overrides[name], path, report)
    for name in sorted(overrides.keys() - declared.keys()):
        report(Mistake(("settings",), f"no setting '{name}' to override", did_you_mean(name, declared), at_key=True))
    return values


def _check_limits(setting: Setting, path: Path, report: Report) -> bool:
    """Reports what is wrong with them. False if the default cannot be judged by them, and means nothing."""
    limits = {key: limit for key, limit in (("min", setting.min), ("max", setting.max)) if limit is not None}
    if kind_of_setting(setting) != "number" and looks_like_duration(setting.default):
        hint = "Write 90s, 5m or 1h30m."
        report(Mistake((*path, "default"), f"'{setting.default}' is not a duration", hint))
        return True
    if _is_quoted_number(setting):
        report(Mistake((*path, "default"), f"'{setting.default}' in quotes is a text", "Write it without quotes."))
        return False
    low, high = _number(setting, setting.min), _number(setting, setting.max)
    if low is not None and high is not None and low > high:
        report(Mistake((*path, "min"), "the least allowed is above the most allowed", "Exchange them."))
        return False
    for key, limit in limits.items():
        if kind_of_setting(setting) != "number":
            hint = "Delete the limit, or write a default that is a number or a duration."
            report(Mistake((*path, key), "only a number or a duration has limits", hint))
        elif _number(setting, limit) is None:
            what = f"'{limit:g}'" if isinstance(limit, float) else f"'{limit}'"
            report(Mistake((*path, key), f"{what} is not {_wanted(setting)}, as the default is", _example(setting)))
    return True


def _is_quoted_number(setting: Setting) -> bool:
    """Whether a number was intended, because it has limits."""
    if not isinstance(setting.default, str) or (setting.min is None and setting.max is None):
        return False
    try:
        finite_number(setting.default)
    except ValueError:
        return False
    return True


def _value(setting: Setting, raw: float | str | bool, path: Path, report: Report) -> SettingValue:
    kind = kind_of_setting(setting)
    if kind == "text":
        return str(raw)
    if kind == "flag":
        if isinstance(raw, str) and raw not in ("true", "false"):
            report(Mistake(path, f"'{raw}' is neither true nor false"))
        return raw is True or raw == "true"
    value = _number(setting, raw)
    if value is None:
        report(Mistake(path, f"'{raw}' is not {_wanted(setting)}", _example(setting)))
        return 0.0
    low, high = _number(setting, setting.min), _number(setting, setting.max)
    if low is not None and value < low:
        report(Mistake(path, f"{_plain(raw)} is below the least allowed, {_plain(setting.min)}", _allowed(setting)))
    if high is not None and value > high:
        report(Mistake(path, f"{_plain(raw)} is above the most allowed, {_plain(setting.max)}", _allowed(setting)))
    return value


def _allowed(setting: Setting) -> str:
    if setting.min is None or setting.max is None:
        return (
            f"Write at least {_plain(setting.min)}." if setting.max is None else f"Write at most {_plain(setting.max)}."
        )
    return f"Write a value from {_plain(setting.min)} to {_plain(setting.max)}."


def _plain(limit: float | str | bool | None) -> str:
    """Returns a number as it was written."""
    return f"{limit:g}" if isinstance(limit, float) else str(limit)


def _number(setting: Setting, raw: float | str | bool | None) -> float | None:
    """Returns the value in the setting's own unit: seconds for durations; None if it is not a number or duration."""
    try:
        if isinstance(setting.default, str):
            return seconds(raw) if isinstance(raw, str) else None
        return None if raw is None else finite_number(raw)
    except ValueError:
        return None


def _wanted(setting: Setting) -> str:
    return "a duration" if isinstance(setting.default, str) else "a number"


def _example(setting: Setting) -> str:
    return "Write 90s, 5m or 1h30m." if isinstance(setting.default, str) else ""
