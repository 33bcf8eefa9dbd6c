"""Builds a `Playbook` from plain data: reports parts of the wrong shape, and still builds the valid rest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from bot.domain.kernel.form import FormField
from bot.domain.kernel.runbook import RelatedRunbook, Runbook
from bot.domain.playbooks.expressions.expression import did_you_mean, nearest
from bot.domain.playbooks.language import KINDS, Broke, Choice, Defaults, Go, Playbook, Setting, state_kind
from bot.domain.playbooks.loading.key_words import WORDS
from bot.domain.playbooks.mistakes import Mistake, Path, Reference, Report, as_written
from bot.domain.signals.specs import COMPARABLE, SIGNAL_KINDS, comparable_kind, signal_kind

TIMES = frozenset({"over", "past", "for", "within", "every", "expires"})
"""Keys that hold a duration."""
FILLER = "?"
_SECTIONS: tuple[str, ...] = ("settings", "signals", "states")
_PARTS: dict[str, type[BaseModel]] = {"go": Go, "choices": Choice, "broke": Broke}
_PLAIN = re.compile(r"[A-Za-z_][\w.-]*")
"""A word that YAML reads as itself within a list."""
_SHAPES = {
    "string_type": "a text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping of keys",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_parsing": "a number",
    "bool_parsing": "true or false",
}


@dataclass(frozen=True)
class Structured:
    """The valid part of a playbook; `broken` are the paths of what is not, and is left out of it."""

    playbook: Playbook | None
    broken: frozenset[Path] = frozenset()
    filled: frozenset[Path] = frozenset()
    """Missing texts of broken states that are in the playbook all the same, with `FILLER` in place of each text."""


def structure(data: Mapping[str, Any], report: Report, *, broken: Iterable[Path] = ()) -> Structured:
    """`broken`: paths already known to be missing, such as a state whose fragment could not be included."""
    broken = _kindless(data, report) | set(broken)
    found: dict[tuple[Path, str], Mistake] = {}
    try:
        whole = Playbook.model_validate(data)
        if not broken:
            return Structured(whole)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            path = _path(detail["loc"], data)
            if path[:2] in broken:
                continue
            mistake = _mistake(detail, path, _model_at(path[:-1], data))
            found.setdefault((path, mistake.what), mistake)
    for mistake in found.values():
        if not _is_misspelt_elsewhere(mistake, found.values()):
            report(mistake)
    filled = _fillable(found.values(), data)
    broken |= {path[:2] if path[0] in _SECTIONS else path[:1] for path, _ in found if path}
    return Structured(
        _rest(_with_fillers(data, filled), broken - {path[:2] for path in filled}), frozenset(broken), filled
    )


def _fillable(mistakes: Iterable[Mistake], data: Mapping[str, Any]) -> frozenset[Path]:
    """The missing texts of the states that have no other mistake."""
    texts, others = set[Path](), set[Path]()
    for mistake in mistakes:
        state, key = mistake.path[:2], mistake.missing.name if mistake.missing is not None else ""
        is_of_state = len(mistake.path) == 2 and state[0] == "states"
        if is_of_state and _is_text(_model_at(state, data), key):
            texts.add((*state, key))
        else:
            others.add(state)
    return frozenset(path for path in texts if path[:2] not in others)


def _is_text(model: type[BaseModel] | None, key: str) -> bool:
    fields = model.model_fields.items() if model is not None else ()
    return any(field.annotation is str for name, field in fields if key == (field.alias or name))


def _with_fillers(data: Mapping[str, Any], filled: Iterable[Path]) -> Mapping[str, Any]:
    for _, state, key in filled:
        states = data["states"]
        data = {**data, "states": {**states, state: {**states[state], key: FILLER}}}
    return data


def _is_misspelt_elsewhere(mistake: Mistake, others: Iterable[Mistake]) -> bool:
    """Whether a missing key's misspelling is beside it: one mistake, reported once."""
    if mistake.missing is None:
        return False
    return any(other.path[:-1] == mistake.path and other.near == mistake.missing.name for other in others)


def _rest(data: Mapping[str, Any], broken: Iterable[Path]) -> Playbook | None:
    """Returns the playbook without its broken parts, so that its other mistakes are found in the same run."""
    sound: dict[str, Any] = {"language": 1, "playbook": "?", "title": "?", **data}
    for path in broken:
        if len(path) > 1 and isinstance(sound.get(str(path[0])), Mapping):
            sound[str(path[0])] = {name: item for name, item in sound[str(path[0])].items() if name != path[1]}
        elif path and path[0] in ("language", "playbook", "title"):
            sound[str(path[0])] = 1 if path[0] == "language" else "?"
        elif path:
            sound.pop(str(path[0]), None)
    states = sound.get("states")
    if isinstance(states, Mapping) and states:
        sound.setdefault("start", next(iter(states)))
    try:
        return Playbook.model_validate(sound)
    except ValidationError:
        return None


def _kindless(data: Mapping[str, Any], report: Report) -> set[Path]:
    """Returns signals and states of no kind or of two; the later checks skip them."""
    broken: set[Path] = set()
    for section, kinds in (("signals", SIGNAL_KINDS), ("states", KINDS)):
        items = data.get(section)
        for name, item in items.items() if isinstance(items, Mapping) else ():
            what = _wrong_kind(section.removesuffix("s"), item, kinds)
            if what is not None:
                broken.add((section, name))
                report(Mistake((section, name), *what, at_key=True))
    return broken


def _wrong_kind(noun: str, item: Any, kinds: Iterable[str]) -> tuple[str, str] | None:
    if not isinstance(item, Mapping):
        return f"a {noun} is a mapping of keys", f"Write what kind of {noun} it is: {', '.join(kinds)}."
    found = [kind for kind in kinds if kind in item]
    if noun == "state" and {"ask", "recommend"} & set(found) and "read" in found:
        found.remove("read")  # questions and recommendations may show readings
    if noun == "signal" and "share_above" in found and "histogram" in found:
        found.remove("histogram")  # a share has one
    if noun == "state" and "go" in item and "read" not in found:
        found.append("go")
    if len(found) == 1:
        return None
    if found:
        return f"a {noun} has one kind, and this has {' and '.join(found)}", f"Split it into {len(found)} {noun}s."
    known = [*(kind for kind in kinds if kind != "read"), "go", "include"] if noun == "state" else list(kinds)
    hints = [did_you_mean(str(key), known) for key in item if nearest(str(key), known)]
    return f"a {noun} needs one of {', '.join(known)}", hints[0] if hints else ""


def _path(location: tuple[int | str, ...], data: Any) -> Path:
    """Returns the error's path in the data: without the tags of unions, and no deeper than the data."""
    path: list[int | str] = []
    for step in location:
        if isinstance(step, str) and re.fullmatch(r"\(\w*\)", step):
            continue
        is_there = isinstance(data, Mapping) and step in data
        is_there = is_there or (isinstance(data, list) and isinstance(step, int) and step < len(data))
        if not is_there:
            break
        path.append(step)
        data = data[step]
    return tuple(path)


def shape(model: type[BaseModel], data: Any, at: Path) -> Iterator[Mistake]:
    """Reports where `data`, at path `at`, does not match the model."""
    try:
        model.model_validate(data)
    except ValidationError as error:
        paths = [(d, _path(d["loc"], data)) for d in error.errors(include_url=False)]
        found = [_mistake(d, path, _model_below(model, path[:-1])) for d, path in paths]
        for mistake in found:
            if not _is_misspelt_elsewhere(mistake, found):
                yield replace(mistake, path=(*at, *mistake.path))


def _model_below(model: object, path: Path) -> type[BaseModel] | None:
    """Returns the model of what is written at `path` in a `model`; None if it has none."""
    for step in path:
        if isinstance(model, type) and issubclass(model, BaseModel):
            fields = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
            model = fields.get(str(step))
        else:
            model = get_args(model)[-1] if get_origin(model) is dict else None
        model = get_args(model)[0] if get_args(model)[1:] == (NoneType,) else model
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None


def _mistake(detail: ErrorDetails, path: Path, model: type[BaseModel] | None) -> Mistake:
    """`model` is the one with the path's last key."""
    kind, given = detail["type"], detail["input"]
    if kind == "missing":
        key = str(detail["loc"][-1])
        meaning = WORDS.get(key, "")
        hint = f"Write '{key}': {meaning[0].lower()}{meaning[1:]}" if meaning else ""
        return Mistake(path, f"'{key}' is missing", hint, at_key=True, missing=Reference("key", key))
    if kind == "extra_forbidden":
        return _unknown_key(path, given, _keys(model) if model else [])
    if kind.startswith("union_tag") and path[-1:] == ("compared",):
        return Mistake(
            path, f"what is compared needs one of {', '.join(COMPARABLE)}", "Write {metric: …}.", at_key=True
        )
    if given is None:
        return Mistake(
            path, f"'{path[-1]}' has no value" if path else "is empty", "Write one, or delete the key.", at_key=True
        )
    if path == ("language",):
        return _language(path, given)
    if path[-1:] and path[-1] in TIMES and kind == "string_type":
        return Mistake(path, f"'{given}' has no unit", f"Write {given}s, {given}m or {given}h.")
    if kind == "literal_error":
        known = [word.strip("'") for word in re.split(r", | or ", str(detail.get("ctx", {}).get("expected", "")))]
        known = [word for word in known if word]
        return Mistake(path, f"'{given}' is not possible here", did_you_mean(str(given), known))
    if kind == "too_short":
        return Mistake(path, f"'{path[-1]}' is empty", at_key=True)
    if kind in ("greater_than_equal", "less_than_equal"):
        limit = detail.get("ctx", {}).get("ge" if kind == "greater_than_equal" else "le")
        least = "at least" if kind == "greater_than_equal" else "at most"
        return Mistake(path, f"'{given}' is not possible here", f"Write {least} {limit}.")
    if kind in _SHAPES:
        shown = as_written(given) if isinstance(given, str | int | float) else f"a {_yaml_word(given)}"
        return Mistake(path, f"{shown} is not {_SHAPES[kind]}", _hint(_SHAPES[kind], given, path))
    return Mistake(path, detail["msg"][0].lower() + detail["msg"][1:])


def _unknown_key(path: Path, given: object, keys: list[str]) -> Mistake:
    key = str(path[-1])
    hint, near = did_you_mean(key, keys), nearest(key, keys)
    if given is None and not re.fullmatch(r"\w+", key):  # {why: ten times, because …}: the comma ended the text
        hint, near = "Put a text with a comma in quotes.", ""
    elif len(path) == 1 and key in {*KINDS, "go", "include"}:
        hint, near = "It belongs to a state: write it below 'states'.", ""
    elif not hint and keys:
        hint = f"Known: {', '.join(sorted(keys))}."
    return Mistake(path, f"unknown key '{key}'", hint, at_key=True, near=near)


def _language(path: Path, given: object) -> Mistake:
    if isinstance(given, str):
        return Mistake(path, f"the language is a number, not the text '{given}'", "Write it without quotes.")
    return Mistake(path, f"this bot does not know language {given}", "Write 'language: 1', or update the bot.")


def _hint(wanted: str, given: object, path: Path) -> str:
    match wanted:
        case "a list" if path == ("opens_on",) and isinstance(given, str) and "=" not in given:
            return f"Write ['alertname=\"{given}\"']."
        case "a list":
            if isinstance(given, Mapping):
                return "Begin each of its lines with '- '."
            # A comma, or a number that is a text, would be read otherwise without quotes.
            quoted = str(given).replace("'", "''")
            return f"Write [{given}]." if _PLAIN.fullmatch(quoted) else f"Write ['{quoted}']."
        case "a text":
            return "Put it in quotes." if isinstance(given, int | float) else "Write a text."
        case "a mapping of keys":
            return "Write {key: value} or, each on a line of its own, 'key: value'."
        case _:
            return f"Write {wanted}."


def _yaml_word(value: object) -> str:
    return "list" if isinstance(value, list) else "mapping"


def _model_at(path: Path, data: Any) -> type[BaseModel] | None:
    for step in path:
        data = data[step]
    match path:
        case ():
            return Playbook
        case ("settings", _):
            return Setting
        case ("related", _) | ("states", _, "runbook"):
            return RelatedRunbook if path[0] == "related" else Runbook
        case ("signals", _, "compared"):
            return COMPARABLE.get(comparable_kind(data).strip("()"))
        case ("signals", _):
            return SIGNAL_KINDS.get(signal_kind(data).strip("()"))
        case ("states", _):
            return KINDS.get(state_kind(data).strip("()"))
        case ("states", _, part, _):
            return _PARTS.get(str(part))
        case ("defaults",):
            return Defaults
        case ("defaults", kind):
            return _model_below(Defaults, (kind,))
        case ("form", _) | ("states", _, "choices", _, "form", _):
            return FormField
        case _:
            return None


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]
