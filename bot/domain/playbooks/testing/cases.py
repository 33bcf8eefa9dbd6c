"""The test table of a playbook (`NAME.test.yaml`) as data: readings, answers and outcomes, and the expected result.

Every answer may be a list: its items are for the first, second … time in that state, and the last one repeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError

from bot.domain.changes.catalogue import RESULTS
from bot.domain.kernel.form import problems
from bot.domain.kernel.numbers import is_number
from bot.domain.kernel.strict import Strict
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.edges import CHANGE_OUTCOMES
from bot.domain.playbooks.expressions.expression import did_you_mean
from bot.domain.playbooks.language import ENDS, ChangeState
from bot.domain.playbooks.mistakes import Mistake, Path
from bot.domain.playbooks.scope import names_of_signal
from bot.domain.signals.signal import Kind, Reading, Value, unknown
from bot.domain.signals.specs import ProbeSignal, SignalSpec

T = TypeVar("T")
GAP = "..."
"""In a path: any states, or none."""
ANSWERS_ANYWHERE = frozenset({"again", "undo", "hand_over", "close", "keep", "taken", "expired"})
"""Answers to the built-in questions of any state, besides `goto:<state>`; `expired` means no answer."""


class Answer(Strict):
    """A press with a filled form."""

    choice: str
    fields: dict[str, float | str] = {}


class Proposal(Strict):
    """A change that is put to people; of `with`, only what is named here is compared."""

    state: str
    verb: str = ""
    with_: dict[str, Any] = Field(default={}, alias="with")
    beside: tuple[str, ...] | None = None
    """The other options that are possible, in the order of their buttons; left out, they are not compared."""


class Expected(Strict):
    path: tuple[str, ...] = ()
    """The states that are entered, in order; `...` stands for any states or none."""
    ends: str = ""
    """How the incident ends: `fixed`, `handed_over` …"""
    severity: Literal["", "page", "ticket", "info"] = ""
    """How severe the incident is in the end."""
    asks: str = ""
    """Where the case stops at a question without an answer: a part of that question's text."""
    proposes: tuple[Proposal, ...] | None = None
    """Every change that is put to people, in order; left out, it is not compared."""
    notes: dict[str, str] = {}
    """State to the note that people read of what it found out when it was last entered, or to a part of that note."""
    watches: dict[str, str] = {}
    """State to the verdict of its last watch. It shows how long was waited where all verdicts lead to one state."""


Reply = str | Answer
Replies = dict[str, Reply | tuple[Reply, ...]]
Outcomes = dict[str, str | tuple[str, ...]]


class Circumstances(Strict):
    """What a run meets: the part of a case that a rehearsal takes too."""

    opened_by: Literal["alert", "hand"] = "alert"
    form: dict[str, float | str] = {}
    """Fields of the opening form, when it is opened by hand."""
    settings: dict[str, float | str | bool] = {}
    """Settings that differ from the playbook's."""
    given: dict[str, Any] = {}
    """Signal to its value; a probe to its parts; `{unknown: reason}` for either. What is not given is unknown."""
    at: dict[str, dict[str, Any] | tuple[dict[str, Any], ...]] = {}
    """What is read differently in a state."""
    answers: Replies = {}
    """State to the choice that is pressed there, or `expired` when nobody answers."""
    changes: Outcomes = {}
    """State to what becomes of its change, `done` by default."""
    results: dict[str, dict[str, float | bool | str]] = {}
    """State to what its change comes back with (`run_job`, `probe_request`); unknown by default."""
    watches: Outcomes = {}
    """State to the verdict of its watch; by default the readings decide."""
    diverts: Outcomes = {}
    """State to the end of the playbook that it diverts to."""


class Case(Circumstances):
    name: str
    covers: tuple[str, ...] = ()
    """Rows of the coverage table that this case proves."""
    expect: Expected


class Table(Strict):
    """All cases of one playbook; what all of them share stands under `shared`."""

    shared: Circumstances = Circumstances()
    cases: tuple[Case, ...]

    def whole(self) -> tuple[Case, ...]:
        """Returns the cases merged with the shared part: by signal and part, by state."""
        return tuple(_joined(self.shared, case) for case in self.cases)


def _joined(shared: Circumstances, case: Case) -> Case:
    merged = {name: _merged(getattr(shared, name), getattr(case, name)) for name in _MERGED}
    opened_by = case.opened_by if "opened_by" in case.model_fields_set else shared.opened_by
    return case.model_copy(update={**merged, "opened_by": opened_by})


_MERGED = ("form", "settings", "given", "at", "answers", "changes", "results", "watches", "diverts")


def _merged(below: Any, above: Any) -> Any:
    if not (isinstance(below, Mapping) and isinstance(above, Mapping)) or "unknown" in below or "unknown" in above:
        return above
    return {**below, **{name: _merged(below[name], value) if name in below else value for name, value in above.items()}}


def replies(answer: Reply | tuple[Reply, ...]) -> list[Answer]:
    """The answers to a question in one form, for the first, second … time."""
    every = answer if isinstance(answer, tuple) else (answer,)
    return [each if isinstance(each, Answer) else Answer(choice=each) for each in every]


def nth(items: T | tuple[T, ...] | None, number: int) -> T | None:
    """Returns the item for the `number`th time, from 1; the last item repeats."""
    if not isinstance(items, tuple):
        return items
    return items[min(number, len(items)) - 1] if items else None


# --- readings ---------------------------------------------------------------------------------------------------------


def given_at(case: Circumstances, state: str, number: int) -> Mapping[str, Any]:
    """Returns the readings at the `number`th visit of a state."""
    there: Mapping[str, Any] = nth(case.at.get(state), number) or {}
    given: Mapping[str, Any] = _merged(case.given, there)
    return given


def reading_of(name: str, spec: SignalSpec, given: Any, *, at: float) -> Reading:
    if given is None:
        return unknown(name, "the table does not say", at=at)
    if isinstance(given, Mapping) and set(given) == {"unknown"}:
        return unknown(name, str(given["unknown"]), at=at)
    if not isinstance(spec, ProbeSignal):
        return Reading(name=name, value=_number(given), at=at, source="the table")
    known = {part: value for part, value in given.items() if not isinstance(value, Mapping)}
    missing = {part: str(value["unknown"]) for part, value in given.items() if isinstance(value, Mapping)}
    fields = {part: _number(value) for part, value in known.items()}
    return Reading.model_validate(
        {"name": name, "fields": fields, "unknown_parts": missing, "at": at, "source": "the table"}
    )


def _number(value: Any) -> Value:
    if isinstance(value, Mapping):
        return {str(name): float(number) for name, number in value.items()}
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


# --- what is wrong with a table ---------------------------------------------------------------------------------------

Mistakes = Iterator[Mistake]


def table_of(data: Mapping[str, Any]) -> Table | list[Mistake]:
    try:
        return Table.model_validate(data)
    except ValidationError as error:
        return [_mistake(detail, data) for detail in error.errors(include_url=False)]


OF_A_TABLE = frozenset({*Case.model_fields, *Expected.model_fields, "with", "shared", "cases"})


def circumstances_of(data: Mapping[str, Any]) -> Circumstances | list[Mistake]:
    """Parses a file of answers for a rehearsal: a case without a name and without expectations."""
    try:
        return Circumstances.model_validate(data)
    except ValidationError as error:
        if "cases" in data:
            hint = "Name a file with what one case has: given, answers, changes and so on."
            return [Mistake(("cases",), "this is a test table, not a file of answers", hint, at_key=True)]
        known = frozenset(Circumstances.model_fields)
        return [_mistake(detail, data, known) for detail in error.errors(include_url=False)]


def _mistake(detail: Any, data: Any, known: frozenset[str] = OF_A_TABLE) -> Mistake:
    """Locates the mistake at the deepest part of the error's path that is in the file."""
    path: list[str | int] = []
    for step in detail["loc"]:
        here = isinstance(data, Mapping) and step in data
        if not (here or (isinstance(data, list) and isinstance(step, int) and step < len(data))):
            break
        path.append(step)
        data = data[step]
    last = str(detail["loc"][-1]) if detail["loc"] else ""
    if detail["type"] == "extra_forbidden":
        hint = "It belongs to a case." if last in Case.model_fields else did_you_mean(last, known - {last})
        return Mistake(tuple(path), f"unknown key '{last}'", hint, at_key=True)
    if detail["type"] == "missing":
        return Mistake(tuple(path), f"'{last}' is missing", at_key=True)
    for kind, (what, hint) in _SHAPES.items():
        if detail["type"].startswith(kind):
            return Mistake(tuple(path), f"this is not {what}", hint)
    return Mistake(tuple(path), detail["msg"][0].lower() + detail["msg"][1:])


_SHAPES = {
    "tuple": ("a list", "Write [one, two]."),
    "list": ("a list", "Write [one, two]."),
    "dict": ("a mapping of keys", "Write {key: value}."),
    "model": ("a mapping of keys", "Write {key: value}."),
    "mapping": ("a mapping of keys", "Write {key: value}."),
    "string": ("a text", "Put it in quotes."),
}


def check_table(table: Table, playbook: CompiledPlaybook) -> Mistakes:
    """Reports names in a table that its playbook does not know: a test of unknown names proves nothing."""
    yield from check_circumstances(("shared",), table.shared, playbook)
    names: set[str] = set()
    for index, case in enumerate(table.whole()):
        if case.opened_by == "hand":
            wrong = problems(playbook.playbook.form, case.form)
            yield from (Mistake(("cases", index, "form"), what, at_key=True) for what in wrong.values())
    for index, case in enumerate(table.cases):
        at: Path = ("cases", index)
        if case.name in names:
            yield Mistake((*at, "name"), f"two cases are called '{case.name}'")
        names.add(case.name)
        yield from check_circumstances(at, case, playbook)
        yield from _expected((*at, "expect"), case.expect, playbook)


KIND_OF_OUTCOME = {"answers": "", "changes": "change", "watches": "watch", "diverts": "divert"}
"""What a state must be to have such an outcome; people may be asked in any."""


def check_circumstances(at: Path, case: Circumstances, playbook: CompiledPlaybook) -> Mistakes:
    yield from _all_known((*at, "settings"), case.settings, playbook.settings, "setting")
    yield from _given((*at, "given"), case.given, playbook)
    yield from _all_known((*at, "at"), case.at, playbook.playbook.states, "state")
    for state, there in case.at.items():
        for index, one in enumerate(there) if isinstance(there, tuple) else ((None, there),):
            yield from _given((*at, "at", state) if index is None else (*at, "at", state, index), one, playbook)
    yield from _results((*at, "results"), case.results, playbook)
    for key in ("answers", "changes", "watches", "diverts"):
        yield from _outcomes_by_state(at, key, getattr(case, key), playbook)


def _outcomes_by_state(at: Path, key: str, outcomes: Mapping[str, Any], playbook: CompiledPlaybook) -> Mistakes:
    kind = KIND_OF_OUTCOME[key]
    for state, what in outcomes.items():
        path: Path = (*at, key, state)
        yield from _all_known((*at, key), [state], playbook.playbook.states, "state")
        if state in playbook.playbook.states:
            if kind and playbook.kind(state) != kind:
                yield Mistake(path, f"'{state}' is not a {kind}, it is a {playbook.kind(state)}", at_key=True)
            else:
                yield from _outcomes(path, key, state, what if isinstance(what, tuple) else (what,), playbook)


def _results(at: Path, results: Mapping[str, Mapping[str, Any]], playbook: CompiledPlaybook) -> Mistakes:
    yield from _all_known(at, results, playbook.playbook.states, "state")
    for name, parts in results.items():
        state = playbook.playbook.states.get(name)
        known = RESULTS.get(state.change) if isinstance(state, ChangeState) else None
        if state is not None and known is None:
            yield Mistake((*at, name), f"nothing comes back from '{name}'", at_key=True)
        yield from _all_known((*at, name), parts, known or parts, "part")


def _outcomes(path: Path, key: str, state: str, what: Iterable[Any], playbook: CompiledPlaybook) -> Mistakes:
    words = _words(key, state, playbook)
    for one in what:
        word = one.choice if isinstance(one, Answer) else str(one)
        if word not in words and not word.startswith(("goto:", "divert:")):
            hint = _as_option(word, state, playbook) if key == "answers" else did_you_mean(word, words)
            yield Mistake(path, f"'{word}' is nothing that can happen in '{state}'", hint or did_you_mean(word, words))
        elif isinstance(one, Answer):
            choice = getattr(playbook.state(state), "choices", {}).get(word)
            wrong = problems(choice.form, one.fields) if choice is not None else {}
            yield from (Mistake(path, f"fields of '{word}': {why}") for why in wrong.values())


def _as_option(word: str, state: str, playbook: CompiledPlaybook) -> str:
    """How another option of a recommendation is chosen: beside the proposal of the recommended one."""
    states = playbook.playbook.states
    proposals = [
        name
        for name, each in states.items()
        if isinstance(each, ChangeState) and word in each.alternatives and state in (name, each.option_of)
    ]
    if proposals:
        return f"Write 'changes: {{{proposals[0]}: option:{word}}}'."
    change = f"{state}_{word}"
    return f"Write 'changes: {{{change}: done}}'." if isinstance(states.get(change), ChangeState) else ""


def _words(key: str, state: str, playbook: CompiledPlaybook) -> frozenset[str]:
    if key == "answers":
        return ANSWERS_ANYWHERE | frozenset(getattr(playbook.state(state), "choices", ()))
    if key == "changes":
        others = getattr(playbook.state(state), "alternatives", ())
        return frozenset(CHANGE_OUTCOMES) | {f"option:{other}" for other in others}
    if key == "watches":
        broke = (f"broke:{index}" for index in range(len(getattr(playbook.state(state), "broke", ()))))
        return frozenset({"held", "not_held", "unknown", *broke})
    return frozenset(ENDS)


def _given(at: Path, given: Mapping[str, Any], playbook: CompiledPlaybook) -> Mistakes:
    signals = playbook.playbook.signals
    yield from _all_known(at, given, signals, "signal")
    for name, stated in given.items():
        spec = signals.get(name)
        if spec is None or _is_unknown(stated):
            continue
        if not isinstance(spec, ProbeSignal):
            yield from _value((*at, name), stated, names_of_signal(name, spec, playbook.probes)[name])
        elif not isinstance(stated, Mapping):
            yield Mistake((*at, name), f"'{name}' is a probe: give its parts", at_key=True)
        else:
            parts = playbook.probes[spec.probe].kinds
            yield from _all_known((*at, name), stated, parts, f"part of '{spec.probe}'")
            for part, value in stated.items():
                if part in parts and not _is_unknown(value):
                    yield from _value((*at, name, part), value, parts[part])


def _is_unknown(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {"unknown"}


def _value(at: Path, value: Any, kind: Kind) -> Mistakes:
    """Reports values that no source could return: a condition on one would be unknown and prove nothing."""
    numbers = value.values() if isinstance(value, Mapping) else (value,)
    fits = {
        "number": is_number(value),
        "text": isinstance(value, str),
        "flag": isinstance(value, bool),
        "by_replica": isinstance(value, Mapping) and all(map(is_number, numbers)),
    }
    if not fits[kind]:
        yield Mistake(at, f"{_shown(value)} is not {_KINDS[kind]}", "Or write {unknown: why}.")


def _shown(value: Any) -> str:
    return (
        "this" if isinstance(value, Mapping | list) else f"'{str(value).lower() if isinstance(value, bool) else value}'"
    )


_KINDS: dict[Kind, str] = {
    "number": "a number",
    "text": "a text",
    "flag": "true or false",
    "by_replica": "a number for each replica",
}


def _expected(at: Path, expected: Expected, playbook: CompiledPlaybook) -> Mistakes:
    for index, state in enumerate(expected.path):
        if state != GAP:
            yield from _all_known((*at, "path", index), [state], playbook.playbook.states, "state", is_key=False)
    for index, proposal in enumerate(expected.proposes or ()):
        yield from _all_known(
            (*at, "proposes", index, "state"), [proposal.state], playbook.playbook.states, "state", is_key=False
        )
    yield from _all_known((*at, "notes"), expected.notes, playbook.playbook.states, "state")
    yield from _outcomes_by_state(at, "watches", expected.watches, playbook)
    if expected.ends and expected.ends not in ENDS:
        yield Mistake((*at, "ends"), f"no playbook ends with '{expected.ends}'", did_you_mean(expected.ends, ENDS))
    is_any_path = set(expected.path) <= {GAP} and expected.proposes is None
    if is_any_path and not any(expected.model_dump(exclude={"path"}).values()):
        words = "Write path, ends, severity, asks, proposes, notes or watches."
        yield Mistake(at, "this expects nothing", words, at_key=True)


def _all_known(at: Path, words: Iterable[str], known: Iterable[str], noun: str, *, is_key: bool = True) -> Mistakes:
    known = frozenset(known)
    for word in words:
        if word not in known:
            yield Mistake(
                (*at, word) if is_key else at, f"unknown {noun} '{word}'", did_you_mean(word, known), at_key=is_key
            )
