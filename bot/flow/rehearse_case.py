"""Plays one case of a test table through the real state machine, and reports how it differs from the expectation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property

from bot.domain.incidents.event import AlertChanged, OpenedByHand
from bot.domain.incidents.rehearsed import (
    NO_ORIGINS,
    EdgeKey,
    FragmentEdge,
    Rehearsed,
    edges_in_fragments,
    edges_taken,
    first_deviation,
    missing_edges,
)
from bot.domain.incidents.run import Run
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.form import answers
from bot.domain.kernel.target import Target
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.edges import Edge, Origin
from bot.domain.playbooks.loading.other_playbook import INSIDE, with_stand_ins
from bot.domain.playbooks.testing.cases import Answer, Case, Circumstances, Table, given_at, nth, reading_of
from bot.domain.signals.signal import Reading
from bot.domain.signals.specs import SignalSpec
from bot.flow.ports.readings import ReadContext, Signals
from bot.flow.rehearse_run import Clock, Rehearsal
from bot.flow.route_alerts import opened

BEGINS_AT = 1_800_000_000.0
TARGET = Target(cluster="rehearsal", namespace="serving", name="llm")


@dataclass(frozen=True)
class CaseResult:
    case: Case
    deviation: str
    """Empty if everything is as expected."""
    rehearsed: Rehearsed
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Values that were read but are missing in the table, by the state that read them."""


@dataclass(frozen=True)
class TableResult:
    playbook: CompiledPlaybook
    results: tuple[CaseResult, ...]
    origins: Mapping[str, Origin] = field(default_factory=dict)
    """States that come from a fragment."""
    elsewhere: frozenset[FragmentEdge] = frozenset()
    """Edges of fragments that the cases of other playbooks cover."""

    @cached_property
    def unreached(self) -> list[tuple[EdgeKey, Edge]]:
        """The written edges that no case covers."""
        return missing_edges(self.playbook.playbook, self.edges, self.origins, self.elsewhere)

    @property
    def in_fragments(self) -> frozenset[FragmentEdge]:
        """The edges of fragments that the cases cover."""
        return edges_in_fragments(self.edges, self.origins)

    @property
    def failed(self) -> tuple[CaseResult, ...]:
        return tuple(result for result in self.results if result.deviation)

    @cached_property
    def edges(self) -> frozenset[EdgeKey]:
        """The written edges that at least one case covers. A case that deviates proves nothing."""
        written = self.playbook.playbook
        taken = (edges_taken(written, one.rehearsed.visits) for one in self.results if not one.deviation)
        return frozenset[EdgeKey]().union(*taken)

    @cached_property
    def states(self) -> frozenset[str]:
        return frozenset(state for one in self.results if not one.deviation for state in one.rehearsed.path)


Load = Callable[[Mapping[str, str]], CompiledPlaybook]
"""The playbook under these settings."""


async def play_table(table: Table, load: Load, origins: Mapping[str, Origin] = NO_ORIGINS) -> TableResult:
    known: dict[tuple[tuple[str, str], ...], Bundle] = {}
    results: list[CaseResult] = []
    for case in table.whole():
        settings = settings_of(case)
        key = tuple(sorted(settings.items()))
        if key not in known:
            known[key] = with_stand_ins(load(settings))
        results.append(await play_case(case, known[key]))
    return TableResult(load({}), tuple(results), origins)


def together(results: Sequence[TableResult]) -> list[TableResult]:
    """Returns the results of several tables, where an edge of a fragment needs a case in one of them only."""
    covered = frozenset[FragmentEdge]().union(*(result.in_fragments for result in results))
    return [replace(result, elsewhere=covered) for result in results]


def settings_of(written: Circumstances) -> dict[str, str]:
    """The settings after `--set`."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in written.settings.items()
    }


async def play_case(case: Case, bundle: Bundle) -> CaseResult:
    """`bundle` has a stub for each other playbook."""
    clock = Clock(BEGINS_AT)
    met = AsWritten(case, bundle.entry_playbook, clock)
    run, opening = opening_of(case, bundle, at=BEGINS_AT, title=case.name)
    rehearsed = await Rehearsal(run, bundle, met, clock).play(opening)
    return CaseResult(case, first_deviation(case.expect, rehearsed), rehearsed, met.missing)


def opening_of(
    written: Circumstances, bundle: Bundle, *, at: float, title: str
) -> tuple[Run, AlertChanged | OpenedByHand]:
    """Returns the run before its first decision, and what opens it. Only an alert pages by itself."""
    alert = alert_at(at, title)
    run = opened("INC-1", alert.alert, TARGET, bundle)
    if written.opened_by == "alert":
        return run, alert
    # `check_table` has validated the form.
    fields = answers(bundle.entry_playbook.playbook.form, written.form)
    return run.with_(severity="ticket"), OpenedByHand(event_id="opening", user="opener", fields=fields)


def alert_at(at: float, title: str) -> AlertChanged:
    """The alert that opens a rehearsal."""
    labels = {"alertname": "Rehearsal", "namespace": TARGET.namespace, "deployment": TARGET.name, "severity": "page"}
    alert = Alert(
        fingerprint="rehearsal",
        status="firing",
        starts_at=datetime.fromtimestamp(at, UTC),
        labels=labels,
        annotations={"summary": title},
        received_at=at,
    )
    return AlertChanged(event_id="opening", alert=alert)


class AsWritten:
    """The `Circumstances` and `Signals` that a table writes down."""

    def __init__(self, written: Circumstances, playbook: CompiledPlaybook, clock: Clock) -> None:
        self._written, self._playbook, self._clock = written, playbook, clock
        self._run: Run | None = None
        self._asked: dict[str, list[str]] = {}
        self.missing: dict[str, tuple[str, ...]] = {}

    @property
    def signals(self) -> Signals:
        return self

    # --- Signals ----------------------------------------------------------------------------------------------------

    async def read(self, wanted: Mapping[str, SignalSpec], context: ReadContext) -> Mapping[str, Reading]:
        run = self._run
        given = given_at(self._written, run.visit.state, times_in(run)) if run else self._written.given
        missing = tuple(name for name in wanted if given.get(name) is None)
        if run is not None and missing:
            self.missing[run.visit.state] = missing
        return {name: reading_of(name, spec, given.get(name), at=self._clock.now) for name, spec in wanted.items()}

    async def sample(self, context: ReadContext) -> None:
        """There is no history to add a sample to."""

    # --- Circumstances ----------------------------------------------------------------------------------------------

    def see(self, run: Run) -> None:
        self._run = run

    def answer(self, run: Run) -> str | tuple[str, Mapping[str, float | str]] | None:
        question = run.open_question
        if question is None:
            return None
        if question.state == INSIDE:
            return self._end_of_other(run)
        asked = self._asked.setdefault(question.state, [])
        if question.question_id not in asked:
            asked.append(question.question_id)
        answer = nth(self._written.answers.get(question.state), len(asked))
        if isinstance(answer, Answer):
            return answer.choice, answer.fields
        if answer is None or answer == "expired" or answer in question.choices:
            return answer
        return None

    def _end_of_other(self, run: Run) -> str | None:
        """How the other playbook ends, according to the case, after this state diverts to it."""
        frame = run.frames[-1] if run.frames else None
        if frame is not None:
            return nth(self._written.diverts.get(frame.state), frame.findings.path.count(frame.state))
        without_return = (
            state
            for state in self._written.diverts
            if getattr(self._playbook.state(state), "divert", "") == run.playbook
        )
        return nth(self._written.diverts.get(next(without_return, "")), 1)

    def change(self, run: Run) -> str:
        return nth(self._written.changes.get(run.visit.state), times_in(run)) or "done"

    def came_back(self, run: Run) -> Mapping[str, float | bool | str]:
        return self._written.results.get(run.visit.state, {})

    def verdict(self, run: Run) -> str:
        return nth(self._written.watches.get(run.visit.state), times_in(run)) or ""

    def still_the_same(self, run: Run) -> bool:
        return True


def times_in(run: Run) -> int:
    """How often the run has entered the state that it is in."""
    return max(run.findings.path.count(run.visit.state), 1)
