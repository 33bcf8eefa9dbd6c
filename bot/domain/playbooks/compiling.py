"""Compiles the expressions and texts of a playbook's states, and evaluates what was compiled.

Verdicts are three-valued: true, false, or unknown with its reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.domain.kernel.errors import ExpressionError
from bot.domain.kernel.references import setting_in
from bot.domain.playbooks.expressions.expression import Expression, Scope, Unknown, compile_expression
from bot.domain.playbooks.expressions.template import Template, compile_template
from bot.domain.playbooks.language import (
    ChangeState,
    Finding,
    Playbook,
    ReadState,
    RecommendState,
    State,
    WatchState,
)
from bot.domain.playbooks.mistakes import Path, Report, of_expression
from bot.domain.playbooks.scope import is_condition, path_of_text, texts_of
from bot.domain.signals.signal import Kind, Value

Data = Mapping[str, Value]


@dataclass(frozen=True)
class Clause:
    when: Expression | None
    to: str


@dataclass(frozen=True)
class CompiledState:
    """The expressions of one state."""

    picks: Mapping[str, Expression] = field(default_factory=dict)
    clauses: tuple[Clause, ...] = ()
    still: Expression | None = None
    arguments: Any = None
    """The `with` of a change, with a `Template` in place of each text."""
    parts: Mapping[str, Expression] = field(default_factory=dict)
    broke: tuple[Clause, ...] = ()
    enough: Expression | None = None
    texts: Mapping[str, Template] = field(default_factory=dict)
    """Texts for people by key."""


@dataclass(frozen=True)
class CompiledCalm:
    """The expressions of `calm`."""

    when: Expression
    under_load: Expression | None


@dataclass(frozen=True)
class CompiledFinding:
    """One line of `users` or `diagnoses`."""

    when: Expression | None
    title: Template
    say: Template


class Compiler:
    """Compiles the expressions of states. Reports faults and does not raise, so that all are found at once."""

    def __init__(self, scope: Scope, report: Report) -> None:
        self._scope, self._report = scope, report

    def definitions(self, define: Mapping[str, str]) -> None:
        """Reports the faults of those that nothing uses too."""
        for name, source in define.items():
            self._expression(("define", name), source, None)

    def calm(self, playbook: Playbook) -> CompiledCalm | None:
        written = playbook.calm
        if written is None:
            return None
        when = self._expression(("calm", "when"), written.when, "flag")
        under = self._condition(("calm", "under_load"), written.under_load)
        return CompiledCalm(when, under) if when is not None else None

    def findings(self, key: str, written: Sequence[Finding]) -> tuple[CompiledFinding, ...]:
        found = []
        for place, each in enumerate(written):
            when = self._condition((key, place, "when"), each.when)
            title, say = (
                self._templates((key, place, "title"), each.title),
                self._templates((key, place, "say"), each.say),
            )
            if isinstance(title, Template) and isinstance(say, Template) and (when is not None or not each.when):
                found.append(CompiledFinding(when, title, say))
        return tuple(found)

    def state(self, path: Path, state: State) -> CompiledState:
        texts = self._texts(path, state)
        match state:
            case ReadState():
                clauses = tuple(
                    self._clause((*path, "go", i, "when"), go.when, go.destination) for i, go in enumerate(state.go)
                )
                return CompiledState(picks=self._group((*path, "pick"), state.pick, "text"), clauses=clauses)
            case RecommendState():
                parts = {
                    key: self._condition((*path, "options", key, "possible"), option.possible)
                    for key, option in state.options.items()
                }
                known = {key: expression for key, expression in parts.items() if expression}
                return CompiledState(parts=known, texts=texts)
            case ChangeState():
                still = self._condition((*path, "still"), state.still)
                arguments = self._templates((*path, "with"), state.with_)
                return CompiledState(still=still, arguments=arguments, texts=texts)
            case WatchState():
                broke = tuple(
                    self._clause((*path, "broke", i, "when"), broke.when, broke.to)
                    for i, broke in enumerate(state.broke)
                )
                watched = self._group((*path, "watch"), state.watch, "flag")
                enough = self._condition((*path, "enough"), state.enough)
                return CompiledState(parts=watched, broke=broke, enough=enough, texts=texts)
            case _:
                return CompiledState(texts=texts)

    def _clause(self, path: Path, when: str, to: str) -> Clause:
        return Clause(self._condition(path, when), to)

    def _condition(self, path: Path, source: str) -> Expression | None:
        """None if nothing is written, or if it has a fault, which is reported."""
        return self._expression(path, source, "flag") if source else None

    def _group(self, path: Path, sources: Mapping[str, str], wants: Kind) -> dict[str, Expression]:
        compiled = {name: self._expression((*path, name), source, wants) for name, source in sources.items()}
        return {name: expression for name, expression in compiled.items() if expression}

    def _expression(self, path: Path, source: str, wants: Kind | None) -> Expression | None:
        try:
            return compile_expression(source, self._scope, wants)
        except ExpressionError as error:
            self._report(of_expression(path, error))
            return None

    def _texts(self, path: Path, state: State) -> dict[str, Template]:
        compiled = {
            key: self._templates((*path, *path_of_text(state, key)), text) for key, text in texts_of(state).items()
        }
        return {key: text for key, text in compiled.items() if isinstance(text, Template)}

    def _templates(self, path: Path, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {
                key: self._expression((*path, key), item, "flag")
                if is_condition((*path, key), item)
                else self._templates((*path, key), item)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._templates((*path, index), item) for index, item in enumerate(value)]
        if not isinstance(value, str):
            return value
        try:
            return compile_template(value, self._scope)
        except ExpressionError as error:
            self._report(of_expression(path, error))
            return value


def verdict_of(expression: Expression, data: Data) -> bool | Unknown:
    value = expression.evaluate(data)
    return value if isinstance(value, Unknown) else value is True


def fill(value: Any, data: Data) -> Any:
    """Returns the tree with every template rendered, or the first `Unknown` in it."""
    if isinstance(value, Template):
        return value.render(data)
    if isinstance(value, dict):
        rendered = {key: fill(item, data) for key, item in value.items() if not isinstance(item, Expression)}
        return next((item for item in rendered.values() if isinstance(item, Unknown)), rendered)
    if isinstance(value, list):
        items = [fill(item, data) for item in value if _is_wanted(item, data)]
        return next((item for item in items if isinstance(item, Unknown)), items)
    return value


def _is_wanted(edit: Any, data: Data) -> bool:
    """Whether the condition of an edit holds; an edit without one is always made, and an unknown one is left out."""
    conditions = [item for item in edit.values() if isinstance(item, Expression)] if isinstance(edit, dict) else []
    return all(verdict_of(condition, data) is True for condition in conditions)


def keeping_false(expression: Expression, data: Data) -> frozenset[str]:
    """Returns the readings that each alone keep it from being true, else those that do so together."""

    def is_false(known: Iterable[str]) -> bool:
        return verdict_of(expression, {name: data[name] for name in known if name in data}) is False

    if not is_false(expression.names):
        return expression.names
    settings = frozenset(name for name in expression.names if setting_in(name) is not None)
    readings = expression.names - settings
    alone = frozenset(name for name in readings if is_false(settings | {name}))
    return alone or frozenset(name for name in readings if not is_false(expression.names - {name}))
