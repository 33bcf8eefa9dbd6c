"""Explains invalid settings: every error at once, with its location, and an example."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel
from pydantic import ValidationError as Invalid

from bot.settings.model import PREFIX
from bot.settings.places import LEAVES, PLAIN_NAMES, Location, did_you_mean, names_beside


def explain(
    model: type[BaseModel], invalid: Invalid, values: dict[str, Any], sources: Mapping[Location, str]
) -> Iterator[str]:
    """Each error as one line. `sources`: where each value was found."""
    found, errors = _Faults(sources), invalid.errors(include_url=False, include_input=False, include_context=False)
    for error in errors:
        # A list whose items are wrong counts as one without them.
        at = error["loc"]
        if error["type"] != "too_short" or not any(each["loc"][:-1] == at for each in errors):
            yield from found.of(error)
    yield from found.hidden_by(model, invalid, values)


@dataclass(frozen=True)
class _Faults:
    sources: Mapping[Location, str]

    def of(self, error: Mapping[str, Any]) -> Iterator[str]:
        found_at = tuple(map(str, error["loc"]))
        path = tuple(str(part) for part in error["loc"] if not isinstance(part, int))
        for line in _plain(error["msg"]).splitlines():
            yield self._fault(path, self._where(found_at, path), error["type"], line)

    def hidden_by(self, model: type[BaseModel], invalid: Invalid, values: dict[str, Any]) -> Iterator[str]:
        """The errors that checks of whole parts find once the errors that blocked these checks are removed."""
        rest = deepcopy(values)
        for error in invalid.errors(include_url=False, include_input=False, include_context=False):
            _take_away(rest, tuple(str(part) for part in error["loc"]))
        try:
            model.model_validate(rest)
        except Invalid as second:
            known = {(error["loc"], error["msg"]) for error in invalid.errors(include_url=False)}
            for error in second.errors(include_url=False, include_input=False, include_context=False):
                # A value that is missing only now was removed here: its error is already reported.
                if error["type"] != "missing" and (error["loc"], error["msg"]) not in known:
                    yield from self.of(error)

    def _fault(self, path: Location, where: str, kind: str, what: str) -> str:
        known = path in LEAVES
        if kind == "missing":
            what = where if known else f"{where}: {path[-1]}"
            return f"{what} is not set" + (f"; example: {_example(path)}" if known else "")
        if kind == "extra_forbidden":
            return f"{where} is not a setting{did_you_mean(path[-1], names_beside(path))}"
        example = _example(path) if known else ""
        named = where if what.startswith("is not set") else f"{where}:"
        return f"{named} {what}" + (f"; example: {example}" if example else "")

    def _where(self, found_at: Location, path: Location) -> str:
        """Where the value came from; a part without a location of its own has that of the setting.

        What nobody has set has the place of its section, and its own name.
        """
        end = next((end for end in range(len(found_at), 0, -1) if found_at[:end] in self.sources), 0)
        source = self.sources[found_at[:end]] if end else ""
        if path not in LEAVES or end >= len(path):
            return source or ".".join(path)
        plain = next((name for name, place in PLAIN_NAMES.items() if place == path), "")
        named = f"{plain or PREFIX + '_'.join(path).upper()} ({'.'.join(path)} in the file)"
        return f"{source}: {named}" if source else named


_REPLACEMENTS: dict[str, tuple[str, Any]] = {
    **{secret: (secret, "any") for secret in ("bearer_token", "password", "signing_secret")},
    "users": ("user_group", "S0"),
    "user_group": ("user_group", "S0"),
    "channel": ("channel", "C0"),
    "url": ("url", "https://localhost"),
    "clusters": ("clusters", [{"name": "any", "kubernetes": {"in_cluster": True}}]),
}
"""The name and value that replace a faulty value, so that its removal causes no further errors."""


def _take_away(values: dict[str, Any], path: Location) -> None:
    """Removes the setting at `path`, or the one that it is a part of; a part of the settings as a whole stays."""
    end = next((end for end in range(len(path), 0, -1) if path[:end] in LEAVES), 0)
    inner: Any = values
    for name in path[: end - 1] if end else path[:-1]:
        inner = inner.get(name) if isinstance(inner, dict) else None
    last = path[end - 1] if end else path[-1]
    if not isinstance(inner, dict) or (isinstance(inner.get(last), dict) and not end):
        return
    inner.pop(last, None)
    if last in _REPLACEMENTS:
        name, value = _REPLACEMENTS[last]
        inner[name] = value


_IN_PLAIN_WORDS = (
    (r"^Value error, ", ""),
    (r"^String should match pattern.*", "is not of the right form"),
    (r"^(Input|Value|Tuple|List) should (be|have)\b", r"must \2"),
    (r"\bhave at least 1 (item|character)\b.*", "not be empty"),
    (r"\ba valid integer\b.*", "a whole number"),
    (r"\ba valid number\b.*", "a number"),
    (r"\ba valid boolean\b.*", "true or false"),
    (r"\ba valid (string|url)\b.*", "a text"),
    (r"\ba valid (dictionary|mapping)\b.*", "settings by name"),
    (r"\ba valid (tuple|list)\b.*", "a list"),
    (r"\b(greater than or equal to)\b", "at least"),
    (r"\b(less than or equal to)\b", "at most"),
    (r"\bgreater than\b", "more than"),
    (r"datetime\.timedelta\(0\)", "0s"),
)
"""Of pydantic's messages."""


def _plain(message: str) -> str:
    for pattern, words in _IN_PLAIN_WORDS:
        message = re.sub(pattern, words, message)
    return message


def _example(path: Location) -> str:
    info = LEAVES[path]
    if info.examples:
        return str(info.examples[0])
    choices = get_args(info.annotation) if isinstance(info.default, str) else ()
    if isinstance(info.default, bool):
        return str(info.default).lower()
    return " or ".join(map(str, choices)) if choices else str(info.default if info.default is not None else "")
