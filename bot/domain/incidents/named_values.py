"""What expressions and windows of a playbook may name: the values and the past moments of a run, by dotted names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import final

from bot.domain.incidents.run import Run
from bot.domain.kernel.form import moment_in
from bot.domain.signals.signal import Reading, Value
from bot.domain.signals.specs import STARTS_AT
from bot.domain.signals.values import Known


@final
class ScopeValues(Mapping[str, Value]):
    """Every value that an expression of the current state may name, by its dotted name; settings are the playbook's.

    Unread values are not there: a missing name is unknown, never 0 and never false.
    """

    def __init__(self, run: Run, readings: Mapping[str, Reading]) -> None:
        self._findings, self._target, self._readings = run.findings, run.target, Known(readings)

    def __getitem__(self, name: str) -> Value:
        of, _, rest = name.partition(".")
        match of:
            case "results":
                state, _, rest = rest.partition(".")
                return Known(self._findings.results[state])[rest]
            case "baseline":
                return Known(self._findings.baseline)[rest]
            case "answers":
                return self._findings.answers[rest]
            case "forms":
                state, _, field = rest.partition(".")
                return self._findings.forms[state][field]
            case "picked":
                return self._findings.picked[rest]
            case "target" if rest in ("name", "namespace"):
                return str(getattr(self._target, rest))
        return self._readings[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._readings
        for state, earlier in self._findings.results.items():
            yield from (f"results.{state}.{name}" for name in Known(earlier))
        yield from (f"baseline.{name}" for name in Known(self._findings.baseline))
        yield from (f"answers.{state}" for state in self._findings.answers)
        yield from (f"forms.{state}.{field}" for state, form in self._findings.forms.items() for field in form)
        yield from (f"picked.{name}" for name in self._findings.picked)
        yield from ("target.name", "target.namespace")

    def __len__(self) -> int:
        return sum(1 for _ in self)


@final
class Moments(Mapping[str, float]):
    """The past times at which a window may end, by their name in a playbook; looked up when one is named."""

    def __init__(self, run: Run) -> None:
        self._findings, self._starts_at, self._questions = run.findings, run.starts_at, run.questions

    def __getitem__(self, name: str) -> float:
        if name == STARTS_AT:
            return self._starts_at
        of, _, rest = name.partition(".")
        state, _, part = rest.partition(".")
        match of:
            case "results":
                at = self._read(state, part)
            case "forms":
                at = self._entered(state, part)
            case "answers":
                at = self._answered(state)
            case _:
                at = None
        if at is None:
            raise KeyError(name)
        return at

    def _read(self, state: str, signal: str) -> float | None:
        reading = self._findings.results[state][signal]
        return reading.at if reading.at > 0 and reading.is_known else None

    def _entered(self, state: str, field: str) -> float | None:
        return moment_in(self._findings.forms[state][field])

    def _answered(self, state: str) -> float | None:
        """When people last answered it in this incident: a playbook that is entered again must not ask it again."""
        answers = (one.answered_at for one in self._questions.values() if one.state == state)
        return max((at for at in answers if at is not None), default=None)

    def __iter__(self) -> Iterator[str]:
        findings = self._findings
        read = (f"results.{state}.{name}" for state, earlier in findings.results.items() for name in earlier)
        entered = (f"forms.{state}.{field}" for state, form in findings.forms.items() for field in form)
        answered = dict.fromkeys(f"answers.{one.state}" for one in self._questions.values())
        return (name for name in (*read, *entered, *answered, STARTS_AT) if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def units_of(readings: Mapping[str, Reading]) -> dict[str, str]:
    """Returns the units of these readings by the names that texts mention."""
    return {name: reading.unit for name, reading in readings.items() if reading.unit}
