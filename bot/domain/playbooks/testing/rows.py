"""What the playbooks must cover: the rows of the requirements, each with the states and tests that prove it.

A row is proven by a case that names it or enters a state that names it; outside the playbooks, by a named test.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from pydantic import BaseModel, ConfigDict, TypeAdapter

from bot.domain.playbooks.language import Playbook
from bot.domain.playbooks.testing.cases import Case


class Elsewhere(BaseModel):
    """The part of the system that covers a row outside the playbooks, and the test that would fail without it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: str
    test: str
    """`tests/deploy/test_alerts.py::test_name`."""


class Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    row: str
    elsewhere: tuple[Elsewhere, ...] = ()


@cache
def rows() -> tuple[Row, ...]:
    text = (files(__package__) / "rows.json").read_text(encoding="utf-8")
    return TypeAdapter(tuple[Row, ...]).validate_json(text)


@dataclass(frozen=True)
class Played:
    """A passing case, with the states that it entered."""

    playbook: Playbook
    case: Case
    path: tuple[str, ...]


@dataclass
class RowCoverage:
    row: Row
    states: list[str] = field(default_factory=list)
    """`playbook.state`."""
    cases: list[str] = field(default_factory=list)
    """`playbook: name of the case`."""

    @property
    def lacks(self) -> str:
        """Why the row is not covered; empty if it is."""
        if self.row.elsewhere:
            return ""
        if not self.states:
            return "no state says that it covers it" + ("" if not self.cases else ", though cases do")
        return "" if self.cases else "no case goes through its states"


def coverage(playbooks: Iterable[Playbook], played: Iterable[Played]) -> tuple[list[RowCoverage], list[RowCoverage]]:
    """Returns each row with its proofs, and unknown row ids in the same form."""
    known = rows()
    found = {row.id: RowCoverage(row) for row in known}

    def of(row_id: str) -> RowCoverage:
        return found.setdefault(row_id, RowCoverage(Row(id=row_id, row="")))

    for playbook in playbooks:
        for name, ids in covered_by(playbook).items():
            for row_id in ids:
                of(row_id).states.append(f"{playbook.playbook}.{name}")
    for one in played:
        where = f"{one.playbook.playbook}: {one.case.name}"
        covers = covered_by(one.playbook)
        entered = {row_id for state in one.path for row_id in covers.get(state, ())}
        for row_id in sorted(entered | set(one.case.covers)):
            of(row_id).cases.append(where)
    each = list(found.values())
    return each[: len(known)], each[len(known) :]


def runbook_steps(playbooks: Iterable[Playbook]) -> dict[str, list[str]]:
    """Returns each step of a runbook with its states, as `playbook.state`."""
    found: dict[str, list[str]] = {}
    for playbook in playbooks:
        for name, state in playbook.states.items():
            if state.runbook:
                found.setdefault(state.runbook.step, []).append(f"{playbook.playbook}.{name}")
    return found


def covered_by(playbook: Playbook) -> Mapping[str, tuple[str, ...]]:
    return {name: state.covers for name, state in playbook.states.items() if state.covers}
