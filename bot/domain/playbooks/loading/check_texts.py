"""Checks texts for people: one that is cut off where it is shown is a fault."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

from bot.domain.kernel.errors import ExpressionError
from bot.domain.playbooks.expressions.template import split_template
from bot.domain.playbooks.language import (
    AskState,
    ChangeState,
    DivertState,
    EndState,
    Playbook,
    ReadState,
    RecommendState,
    ReturnState,
    State,
    WatchState,
)
from bot.domain.playbooks.mistakes import Mistake, Path
from bot.domain.playbooks.source import Source
from bot.domain.playbooks.text_sizes import CHOICES, EFFECT, EXPECTED, LABEL, NOTE, SAY, TEXT, TITLE, WHY_NOT

Sized = tuple[Path, str, int]
PLACEHOLDER = "CHANGE_ME"
READING = 8
"""Characters of a reading in a text."""
FOR_PEOPLE = frozenset(
    {"title", "summary", "ask", "recommend", "why", "expected", "say", "label", "effect", "why_not", "note", "to_do"}
)
"""Keys whose values are sentences for people."""
_CUT_OFF = re.compile(r"(\s+)(#\S+)")


def check_texts(playbook: Playbook) -> Iterator[Mistake]:
    for key, findings in (("users", playbook.users), ("diagnoses", playbook.diagnoses)):
        for place, each in enumerate(findings):
            for word, text, most in (("title", each.title, TITLE), ("say", each.say, SAY)):
                if (shown := shown_length(text)) > most:
                    what = f"this has {shown} characters, and {most} are shown"
                    yield Mistake((key, place, word), what, "Shorten it.")
            if not each.when and place < len(findings) - 1:
                what = "this has no `when`, so the lines after it are never shown"
                yield Mistake((key, place), what, "Move it to the end, or write a `when`.")
            if each.title and key == "users":
                yield Mistake((key, place, "title"), "only `diagnoses` have titles", "Delete it.", at_key=True)
    for name, state in playbook.states.items():
        yield from _of_state(("states", name), state)


def _of_state(path: Path, state: State) -> Iterator[Mistake]:
    for below, text, most in _texts(state):
        if (shown := shown_length(text)) > most:
            yield Mistake((*path, *below), f"this has {shown} characters, and {most} are shown", "Shorten it.")
    for below, text in _plain(state):
        if "${" in text:
            what = "'${…}' would be shown as it stands"
            yield Mistake((*path, *below), what, "Write words: values go into questions, reasons and what is said.")
    if isinstance(state, AskState) and len(state.choices) > CHOICES:
        what = f"{len(state.choices)} choices, and a message has room for {CHOICES} buttons"
        yield Mistake((*path, "choices"), what, "Ask two questions.", at_key=True)


def _plain(state: State) -> Iterator[tuple[Path, str]]:
    """Texts in which no value can be inserted."""
    yield ("title",), state.title
    match state:
        case AskState():
            for key, choice in state.choices.items():
                yield from (((("choices", key, "label"), choice.label), (("choices", key, "note"), choice.note)))
        case DivertState():
            yield ("why",), state.why
        case ReadState():
            for index, clause in enumerate(state.go):
                yield ("go", index, "note"), clause.note
        case _:
            return


def shown_length(text: str) -> int:
    """Returns how long the text is for people, if what each `${…}` gives is short."""
    try:
        parts = split_template(text)
    except ExpressionError:  # this fault is reported when the template is compiled
        return len(text)
    return sum(READING if is_expression else len(part) for part, is_expression, _ in parts)


def unfilled(data: object, path: Path = ()) -> Iterator[Mistake]:
    """Reports placeholders of `playbook new` that were not replaced."""
    if isinstance(data, str) and PLACEHOLDER in data:
        where = ".".join(part for part in path if isinstance(part, str))
        yield Mistake(path, f"'{where}' is still the starter's text", f"Replace {PLACEHOLDER}.")
    children: Iterable[tuple[str | int, object]] = ()
    if isinstance(data, Mapping):
        children = data.items()
    elif isinstance(data, Sequence) and not isinstance(data, str):
        children = enumerate(data)
    for key, child in children:
        yield from unfilled(child, (*path, key))


def unlinked(playbook: Playbook) -> Iterator[Mistake]:
    """Warns of addresses of runbooks that are shown without a link."""
    steps = ((("states", name, "runbook", "url"), state.runbook) for name, state in playbook.states.items())
    related = ((("related", number, "url"), each) for number, each in enumerate(playbook.related))
    for path, runbook in (*steps, *related):
        if runbook is not None and runbook.url and not runbook.link:
            yield Mistake(
                path, f"'{runbook.url}' cannot be a link, so none is shown", "Write https://… without spaces."
            )


def cut_off(written: Source) -> Iterator[Mistake]:
    """Warns where YAML takes the end of a text for a comment: `see #12`. People write a comment as `# …`."""
    lines = written.text.splitlines()
    for path, at in written.values.items():
        # Only where the text stands as it is, without quotes, its own column is that of the value.
        if not path or path[-1] not in FOR_PEOPLE or at.text_column != at.column:
            continue
        length = len(str(_value(path, written.data)))
        if found := _CUT_OFF.match(lines[at.line - 1], at.column - 1 + length):
            what = f"'{found[2]}' is not in this text: a '#' after a space begins a comment"
            hint = "Put the text in quotes, or write a space after the '#'."
            yield Mistake(path, what, hint, column=length + len(found[1]) + 1)


def _value(path: Path, data: Any) -> Any:
    return reduce(lambda part, key: part[key], path, data)


def _texts(state: State) -> Iterator[Sized]:
    match state:
        case AskState():
            yield from ((("ask",), state.ask, TEXT), (("why",), state.why, TEXT))
            for key, choice in state.choices.items():
                yield ("choices", key, "label"), choice.label, LABEL
                yield ("choices", key, "note"), choice.note, NOTE
        case RecommendState():
            for key, option in state.options.items():
                yield ("options", key, "label"), option.label, LABEL
                yield ("options", key, "effect"), option.effect, EFFECT
                yield ("options", key, "why_not"), option.why_not, WHY_NOT
        case ChangeState():
            yield from ((("why",), state.why, TEXT), (("expected",), state.expected, EXPECTED))
        case DivertState():
            yield ("why",), state.why, TEXT
        case ReturnState():
            yield ("to_do",), state.to_do, EXPECTED
        case EndState() | WatchState():
            yield ("say",), state.say, TEXT
        case _:
            return
