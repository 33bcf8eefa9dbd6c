"""Words that a playbook uses: whether each is known, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bot.domain.approvals.contacts import TEAMS
from bot.domain.changes.verb import ArgumentKind
from bot.domain.kernel.durations import is_duration, seconds
from bot.domain.kernel.numbers import is_number
from bot.domain.kernel.references import setting_in
from bot.domain.playbooks.expressions.expression import did_you_mean
from bot.domain.playbooks.language import Playbook
from bot.domain.playbooks.mistakes import Mistake, Noun, Path, Reference
from bot.domain.playbooks.settings import looks_like_duration

Mistakes = Iterator[Mistake]


def known(path: Path, word: str, words: Iterable[str], noun: Noun) -> Mistakes:
    words = frozenset(words)
    if word not in words:
        hint = did_you_mean(word, words) or where_known(noun)
        yield Mistake(path, f"unknown {noun} '{word}'", hint, missing=Reference(noun, word))


def where_known(noun: str) -> str:
    if noun in ("probe", "metric", "verb", "fragment"):
        return f"List them with 'incident-bot playbook words {noun}s'."
    if noun == "team":
        return f"Name one of {', '.join(TEAMS)}."
    return "Name a state that asks." if noun == "question" else f"Define the {noun}, or name another."


def duration(path: Path, text: str, playbook: Playbook, settings: Mapping[str, object]) -> Mistakes:
    if not text:
        return
    if (name := setting_in(text)) is not None:
        yield from known(path, name, playbook.settings, "setting")
        if name in settings:
            yield from _setting_as_duration(name, playbook.settings[name].default)
            value = settings[name]
            if is_number(value) and value <= 0 and path[-1] != "for":
                hint = "Set it to more, such as 90s or 5m; a 'min' keeps operators from setting it to 0."
                yield Mistake(path, f"'{name}' is not more than 0, and a time is needed here", hint)
        return
    try:
        length = seconds(text)
    except ValueError:
        yield Mistake(path, f"'{text}' is not a duration", "Write 90s, 5m, 1h30m or settings.<name>.")
        return
    # `check_names` reports a `for` of zero.
    if length <= 0 and path[-1] != "for":
        yield Mistake(path, f"'{text}' is not more than 0", "Write 90s, 5m, 1h30m or settings.<name>.")


def _setting_as_duration(name: str, default: float | str | bool) -> Mistakes:
    written = f"{default:g}" if isinstance(default, float) else str(default)
    if is_duration(written) or looks_like_duration(default):  # the latter is reported when settings are checked
        return
    hint = f"Write {written}s, {written}m or {written}h." if written.isdigit() else "Write 90s, 5m or 1h30m."
    yield Mistake(("settings", name, "default"), f"'{written}' is not a duration, and '{name}' is used as one", hint)


def is_of_kind(kind: ArgumentKind, value: Any) -> bool:
    if kind == "true or false":
        return isinstance(value, bool)
    return is_number(value) and (kind == "a number" or float(value).is_integer())
