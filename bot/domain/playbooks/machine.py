"""The state machine of one playbook, shared by all its runs: which outcome is legal where, and where it leads.

It never runs effects and stores nothing of a run: each query uses its own cursor and discards it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from transitions import Machine

from bot.domain.playbooks.edges import edges_of, successors
from bot.domain.playbooks.language import ChangeState, Playbook, RecommendState
from bot.domain.playbooks.scope import rests_on

UNDO = "(undo)"
"""The built-in change that undoes this run's own calls; in brackets, so that no written state can have this name."""
PHASES = ("planning", "awaiting", "applying")
# A plan leads to a request, a grant to applying; a changed plan asks again, and people may ask for a new plan.
_PHASE_STEPS = (
    ("planned", "planning", "awaiting"),
    ("granted", "awaiting", "applying"),
    ("superseded", "awaiting", "awaiting"),
    ("superseded", "applying", "awaiting"),
    ("replan", "awaiting", "planning"),
    ("replan", "applying", "planning"),
)

Step = tuple[str, str, str]
"""(outcome, source, destination), all as the machine names them."""


@dataclass
class _Cursor:
    """A run's position, for the length of one query."""

    state: str


class PlaybookMachine:
    """The transitions of a state are built when a run first enters it, because most states are never entered."""

    def __init__(self, playbook: Playbook) -> None:
        self._playbook = playbook
        self._tables: dict[str, Machine] = {}

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every legal move."""
        return tuple(dict.fromkeys(step for name in (*self._playbook.states, UNDO) for step in self._steps_of(name)))

    def next(self, at: str, outcome: str) -> str | None:
        """Returns where `outcome` leads from the machine state `at`; None if it is not legal there."""
        name = self.written(at)
        if name not in self._playbook.states and name != UNDO:
            return None
        if name not in self._tables:
            self._tables[name] = self._table_of(name)
        table = self._tables[name]
        event: Any = table.events.get(f"ev_{outcome}")
        if event is None or at not in table.states:
            return None
        cursor = _Cursor(at)
        return cursor.state if event.trigger(cursor) else None

    def _table_of(self, name: str) -> Machine:
        steps = tuple(dict.fromkeys(self._steps_of(name)))
        table = Machine(
            model=None,
            states=list(dict.fromkeys((*self._machine_states(name), *(to for _, _, to in steps)))),
            initial=self.entry(name),
            auto_transitions=False,
            ignore_invalid_triggers=True,
        )
        for outcome, source, destination in steps:
            table.add_transition(f"ev_{outcome}", source, destination)
        return table

    @cached_property
    def _choices(self) -> frozenset[str]:
        """The states that recommend a change."""
        states = self._playbook.states.items()
        return frozenset(name for name, state in states if isinstance(state, RecommendState))

    def entry(self, state: str) -> str:
        """Returns the first machine state of a written state, or of `(undo)`."""
        is_change = state == UNDO or isinstance(self._playbook.states[state], ChangeState)
        return f"{state}/{PHASES[0]}" if is_change else state

    def written(self, at: str) -> str:
        """Returns the written state that a machine state belongs to, or `(undo)`."""
        return at.split("/", 1)[0]

    def _machine_states(self, name: str) -> tuple[str, ...]:
        entry = self.entry(name)
        return (name,) if entry == name else tuple(f"{name}/{phase}" for phase in PHASES)

    def _steps_of(self, name: str) -> Iterator[Step]:
        # A run may wait in an end until its residual changes are undone; then it ends again.
        yield from (("again", at, self.entry(name)) for at in self._machine_states(name))
        if name == UNDO:
            yield from _phase_steps(UNDO)
        else:
            yield from self._written_steps(name)
        for at in self._machine_states(name):
            yield from ((f"goto:{to}", at, self.entry(to)) for to in self._offered(name))

    def _offered(self, name: str) -> tuple[str, ...]:
        """Returns where a person may send the run from here: forward, or back to readings that a change depends on."""
        if name == UNDO:
            # It leads to the next choice of the state that it interrupted, and only the run knows which.
            return tuple(self._playbook.states)
        state, on = self._playbook.states[name], successors(self._playbook, name)
        back = rests_on(state) & self._playbook.states.keys() if isinstance(state, ChangeState) else frozenset()
        # After an undo, what was chosen may be chosen again from any state.
        return (*on, *sorted((back | self._choices) - {*on, name}))

    def _written_steps(self, name: str) -> Iterator[Step]:
        state = self._playbook.states[name]
        if isinstance(state, ChangeState):
            yield from _phase_steps(name)
            for edge in edges_of(state):
                yield from ((edge.outcome, at, self.entry(edge.to)) for at in self._machine_states(name))
        else:
            yield from ((edge.outcome, name, self.entry(edge.to)) for edge in edges_of(state))


def _phase_steps(name: str) -> Iterator[Step]:
    yield from ((outcome, f"{name}/{source}", f"{name}/{to}") for outcome, source, to in _PHASE_STEPS)
