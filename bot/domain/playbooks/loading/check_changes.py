"""Checks changes: their verbs, arguments and edits of flags, and that no edit makes the trouble worse."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from bot.domain.changes.catalogue import VERBS
from bot.domain.changes.verb import Argument
from bot.domain.flags.flag_history import life_of_flag
from bot.domain.flags.flag_rules import fault_of_value
from bot.domain.flags.flag_table import newest_table
from bot.domain.flags.mitigations import DIRECTIONS, effect_of, mitigations
from bot.domain.playbooks.expressions.expression import did_you_mean
from bot.domain.playbooks.language import ChangeState
from bot.domain.playbooks.loading.known_words import Mistakes, is_of_kind, known, where_known
from bot.domain.playbooks.mistakes import Mistake, Path, as_written

_NAMES_SOMETHING = re.compile(r"(answers|baseline|forms|picked|results|settings|target)(\.\w+)+", re.ASCII)


def check_change(path: Path, state: ChangeState) -> Mistakes:
    verb = VERBS.get(state.change)
    if verb is None:
        yield Mistake(
            (*path, "change"),
            f"unknown verb '{state.change}'",
            did_you_mean(state.change, VERBS) or where_known("verb"),
        )
        return
    given = state.with_.keys()
    for argument in given - verb.takes:
        at = (*path, "with", argument)
        yield Mistake(at, f"{state.change} takes no '{argument}'", did_you_mean(argument, verb.takes), at_key=True)
    for argument in sorted(verb.required - given):
        hint = f"Write 'with: {{{argument}: …}}'."
        yield Mistake((*path, "change"), f"{state.change} needs '{argument}' in 'with'", hint)
    if verb.one_of and len(verb.one_of & given) != 1:
        hint = f"Write 'with: {{{min(verb.one_of)}: …}}'."
        what = f"{state.change} needs one of {', '.join(sorted(verb.one_of))} in 'with'"
        yield Mistake((*path, "change"), what, hint)
    for argument, value in state.with_.items():
        if isinstance(value, str) and _NAMES_SOMETHING.fullmatch(value):
            at = (*path, "with", argument)
            yield Mistake(at, f"'{value}' would be taken as it stands", f"Write '${{{value}}}' for what it names.")
        elif takes := verb.argument(argument):
            yield from _argument((*path, "with", argument), takes, value)
    if "edits" in given & verb.takes:
        yield from _edits((*path, "with", "edits"), state.with_["edits"])
    yield from _mitigations(path, state)


def _argument(path: Path, takes: Argument, value: Any) -> Mistakes:
    """A value that would be refused only in the incident; what `${…}` gives is not known before."""
    if isinstance(value, str) and "${" in value:
        return
    if takes.known and value not in takes.known:
        yield Mistake(path, f"{as_written(value)} is not possible here", did_you_mean(str(value), takes.known))
    if takes.kind == "anything":
        return
    if not is_of_kind(takes.kind, value):
        hint = f"Write {takes.kind}, or '${{…}}' around an expression that gives one."
        yield Mistake(path, f"{as_written(value)} is not {takes.kind}", hint)
    elif takes.least is not None and value < takes.least:
        yield Mistake(path, f"{as_written(value)} is not possible here", f"Write at least {takes.least:g}.")


def _edits(path: Path, edits: Any) -> Mistakes:
    if not isinstance(edits, list) or not edits:
        yield Mistake(path, "'edits' is a list", "Write [{flag: --name, value: …}].")
        return
    for index, edit in enumerate(edits):
        at: Path = (*path, index)
        keys = frozenset(edit) - {"when"} if isinstance(edit, dict) else frozenset()
        of_flag = keys - {"direction"} in ({"flag", "value"}, {"first_of", "value"})
        if not of_flag and keys not in ({"env", "value"}, {"image"}):
            hint = "Write {flag: --name, value: …}, {env: NAME, value: …} or {image: …}."
            yield Mistake(at, "this is not an edit", hint)
            continue
        if not isinstance(edit.get("when", ""), str):
            yield Mistake((*at, "when"), "'when' is not an expression", "Put it in quotes.")
        if "first_of" in edit and not (isinstance(edit["first_of"], list) and edit["first_of"]):
            yield Mistake((*at, "first_of"), "'first_of' is a list of flags", "Write [--new, --old].")
        for key, flag in _flags_of(edit):
            if wrong_flag := unknown_flag((*at, *key), flag):
                yield wrong_flag
            elif _is_literal(value := edit.get("value")) and (wrong := fault_of_value(flag, value)):
                yield Mistake((*at, "value"), wrong, "Write a value that the engine takes, or '${…}' that gives one.")


def unknown_flag(path: Path, flag: str, column: int = 0) -> Mistake | None:
    """Returns the mistake if no engine version has this flag."""
    if life_of_flag(flag) is not None or newest_table().name_of(flag) is not None:
        return None
    return Mistake(path, f"unknown flag '{flag}'", did_you_mean(flag, newest_table().spellings), column)


def _is_literal(value: object) -> bool:
    """Whether the value is known before the playbook runs. None takes the flag away."""
    return (isinstance(value, str) and "${" not in value) or isinstance(value, bool | int | float)


def _flags_of(edit: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Yields the flags of an edit, each with its path; none for a variable or an image."""
    if "flag" in edit:
        yield ("flag",), str(edit["flag"])
    listed = edit.get("first_of", ())
    yield from (((("first_of", i), str(flag))) for i, flag in enumerate(listed if isinstance(listed, list) else ()))


def _mitigations(path: Path, state: ChangeState) -> Mistakes:
    """Each flag of the mitigation table needs a diagnosis, and no written direction may make that worse."""
    edits = state.with_.get("edits")
    listed = enumerate(edits) if isinstance(edits, list) else ()
    found = [
        (index, {**edit, "flag": flag})
        for index, edit in listed
        if isinstance(edit, dict)
        for _, flag in _flags_of(edit)
    ]
    if state.against and "edits" not in VERBS[state.change].takes:
        yield Mistake((*path, "against"), "'against' is for edits of flags", "Delete it.", at_key=True)
    elif state.against and found:
        yield from known((*path, "against"), state.against, mitigations().diagnoses, "diagnosis")
    for index, edit in found:
        yield from _mitigation((*path, "with", "edits", index), edit, state.against)


def _mitigation(path: Path, edit: Mapping[str, Any], against: str) -> Mistakes:
    flag, direction = newest_table().name_of(str(edit["flag"])) or str(edit["flag"]), edit.get("direction")
    if direction is not None and direction not in DIRECTIONS:
        yield Mistake(
            (*path, "direction"), f"'{direction}' is not a direction", did_you_mean(str(direction), DIRECTIONS)
        )
    if not against and flag in mitigations().mitigations:
        hint = f"Write 'against' beside 'change', one of: {', '.join(sorted(mitigations().mitigations[flag]))}."
        yield Mistake((*path, "flag"), f"{flag} helps against one thing and harms another", hint)
    effect = effect_of(flag, against, str(direction)) if direction is not None else None
    if effect is not None and effect.effect == "harms":
        yield Mistake(
            (*path, "direction"),
            f"to {direction} {flag} makes '{against}' worse: {effect.why}",
            "Turn it the other way, or take another mitigation.",
        )
