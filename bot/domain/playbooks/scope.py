"""Which names an expression may use in which state, with their kinds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from bot.domain.changes.catalogue import RESULTS
from bot.domain.kernel.errors import ExpressionError
from bot.domain.kernel.form import OPENING, Form
from bot.domain.playbooks.expressions.expression import names_in
from bot.domain.playbooks.expressions.template import split_template
from bot.domain.playbooks.language import (
    AskState,
    ChangeState,
    EndState,
    Playbook,
    ReadState,
    RecommendState,
    ReturnState,
    State,
    WatchState,
)
from bot.domain.playbooks.mistakes import Path
from bot.domain.playbooks.settings import kind_of_setting
from bot.domain.signals.probe_spec import Probes
from bot.domain.signals.signal import Kind
from bot.domain.signals.specs import (
    ComparedSignal,
    MeanSignal,
    MetricSignal,
    ProbeSignal,
    QuantileSignal,
    RatioSignal,
    ShareSignal,
    SignalSpec,
    StallSignal,
)

LEARNED = frozenset({"results", "answers", "forms", "picked"})
"""First words of names whose values a run has only after some states."""
RESERVED = LEARNED | {"settings", "baseline", "target", *RESULTS}
"""First words of names that are not signals, and of results of changes: no signal may have such a name."""


def names_of_signal(name: str, spec: SignalSpec, probes: Probes) -> dict[str, Kind]:
    """Returns a signal's names in expressions: itself, or each part of its probe."""
    match spec:
        case ProbeSignal():
            probe = probes.get(spec.probe)
            return {f"{name}.{part}": kind for part, kind in probe.kinds.items()} if probe else {}
        case StallSignal():
            return {name: "flag"}
        case QuantileSignal() | ComparedSignal() | ShareSignal():
            return {name: "number"}
        case MetricSignal() | RatioSignal() | MeanSignal():
            return {name: "by_replica" if spec.across == "each" else "number"}


@dataclass(frozen=True)
class Written:
    """One expression as written: its path, and its offset in that text."""

    path: Path
    source: str
    offset: int = 0


def written_expressions(state: State) -> Iterator[Written]:
    """Returns every expression of a state, `${…}` included; paths are below the state."""
    match state:
        case ReadState():
            yield from (Written(("pick", name), source) for name, source in state.pick.items())
            yield from (Written(("go", i, "when"), go.when) for i, go in enumerate(state.go) if go.when)
        case ChangeState():
            if state.still:
                yield Written(("still",), state.still)
            yield from _in_templates(("with",), state.with_)
            yield from _in_texts(state)
        case RecommendState():
            for key, option in state.options.items():
                at: Path = ("options", key)
                if option.possible:
                    yield Written((*at, "possible"), option.possible)
                yield from _in_templates((*at, "given"), option.given)
            yield from _in_texts(state)
        case WatchState():
            yield from (Written(("watch", part), source) for part, source in state.watch.items())
            yield from (Written(("broke", i, "when"), broke.when) for i, broke in enumerate(state.broke))
            if state.enough:
                yield Written(("enough",), state.enough)
            yield from _in_texts(state)
        case _:
            yield from _in_texts(state)


def texts_of(state: State) -> dict[str, str]:
    """Returns the texts for people that may contain `${…}`, by key."""
    match state:
        case AskState():
            return {"ask": state.ask, "why": state.why}
        case ChangeState():
            return {"why": state.why, "expected": state.expected}
        case RecommendState():
            texts = {"recommend": state.recommend, "why": state.why}
            for key, option in state.options.items():
                for word in ("label", "effect", "why_not"):
                    texts[f"{key}.{word}"] = getattr(option, word)
            return texts
        case ReturnState():
            return {"to_do": state.to_do}
        case EndState() | WatchState():
            return {"say": state.say}
        case _:
            return {}


def path_of_text(state: State, key: str) -> Path:
    """Returns where a text of `texts_of` is written, below the state."""
    option, dot, word = key.partition(".")
    return ("options", option, word) if dot and isinstance(state, RecommendState) else (key,)


def _in_texts(state: State) -> Iterator[Written]:
    for key, text in texts_of(state).items():
        yield from _in_templates(path_of_text(state, key), text)


def is_condition(path: Path, value: object) -> bool:
    """Whether the value is the condition of an edit, as in `with: {edits: [{flag: …, when: …}]}`."""
    return len(path) >= 3 and path[-3] == "edits" and path[-1] == "when" and isinstance(value, str)


def _in_templates(path: Path, value: object) -> Iterator[Written]:
    if isinstance(value, str):
        try:
            parts = split_template(value)
        except ExpressionError:  # this fault is reported when the template is compiled
            return
        yield from (Written(path, text, start) for text, is_expression, start in parts if is_expression)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if is_condition((*path, key), item):
                yield Written((*path, key), item)
            else:
                yield from _in_templates((*path, key), item)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _in_templates((*path, index), item)


def signals_of(state: State, signals: Iterable[str]) -> tuple[str, ...]:
    """Returns all signals to read in a state: those it lists, then those that its expressions mention."""
    listed = state.read if isinstance(state, ReadState | AskState | RecommendState) else ()
    declared = list(signals)
    # An option is proposed with the readings that recommended it; only its reason is read again.
    is_option = isinstance(state, ChangeState) and state.option_of
    expressions = [each for each in written_expressions(state) if not is_option or each.path == ("still",)]
    heads = {name.split(".")[0] for written in expressions for name in names_in(written.source)}
    ordered = [*listed, *(name for name in declared if name in heads)]
    return tuple(dict.fromkeys(ordered))


def signals_of_calm(playbook: Playbook) -> tuple[str, ...]:
    """Returns the signals that `calm` needs."""
    written = (playbook.calm.when, playbook.calm.under_load) if playbook.calm else ()
    heads = {name.split(".")[0] for source in written for name in names_in(source)}
    return tuple(name for name in playbook.signals if name in heads)


def findings_of(playbook: Playbook) -> Iterator[Written]:
    """Returns every expression of `users` and `diagnoses`, `${…}` included."""
    for key, findings in (("users", playbook.users), ("diagnoses", playbook.diagnoses)):
        for place, each in enumerate(findings):
            at: Path = (key, place)
            if each.when:
                yield Written((*at, "when"), each.when)
            yield from _in_templates((*at, "title"), each.title)
            yield from _in_templates((*at, "say"), each.say)


def rests_on(state: State) -> frozenset[str]:
    """Returns the earlier states whose results its expressions mention."""
    names = (name for written in written_expressions(state) for name in names_in(written.source))
    earlier = {name.split(".")[1] for name in names if name.startswith("results.")}
    return frozenset(earlier | ({state.option_of} if isinstance(state, ChangeState) and state.option_of else set()))


def scope_of(playbook: Playbook, probes: Probes) -> dict[str, Kind]:
    """Returns every name that exists anywhere in the playbook; `check` ensures that a state uses only earlier ones."""
    scope: dict[str, Kind] = {"target.name": "text", "target.namespace": "text"}
    scope.update({f"settings.{name}": kind_of_setting(setting) for name, setting in playbook.settings.items()})
    named = {name: names_of_signal(name, spec, probes) for name, spec in playbook.signals.items()}
    for parts in named.values():
        scope.update(parts)
    scope.update(_of_form(OPENING, playbook.form))
    for state_name, state in playbook.states.items():
        if isinstance(state, AskState):
            scope[f"answers.{state_name}"] = "text"
            for choice in state.choices.values():
                scope.update(_of_form(state_name, choice.form))
        if isinstance(state, ChangeState):
            results = RESULTS.get(state.change, {})
            scope.update({f"results.{state_name}.{state.change}.{part}": kind for part, kind in results.items()})
        if isinstance(state, ReadState):
            scope.update({f"picked.{pick}": "text" for pick in state.pick})
        # A change reads only for its reason; its readings are not kept as a result.
        for signal in signals_of(state, named) if not isinstance(state, ChangeState) else ():
            for name, kind in named.get(signal, {}).items():
                scope[f"results.{state_name}.{name}"] = kind
                if isinstance(state, ReadState) and state.baseline:
                    scope[f"baseline.{name}"] = kind
    return scope


def _of_form(name: str, form: Form) -> dict[str, Kind]:
    return {f"forms.{name}.{field}": "number" if spec.is_number else "text" for field, spec in form.items()}
