"""What the playbooks must cover: the rows of the requirements, each with the cases that prove it.

A case proves the rows that it names; what lies outside the playbooks is proven by a named test.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    """A case that was played."""

    playbook: Playbook
    case: Case
    holds: bool


@dataclass
class RowCoverage:
    row: Row
    cases: list[str] = field(default_factory=list)
    """The cases that name it and hold, as `playbook: name of the case`."""
    deviating: list[str] = field(default_factory=list)
    """Those that name it and deviate: they prove nothing."""

    @property
    def lacks(self) -> str:
        """Why the row is not covered; empty if it is."""
        if self.row.elsewhere or self.cases:
            return ""
        return f"its case deviates: {self.deviating[0]}" if self.deviating else "no case names it"


def coverage(played: Iterable[Played]) -> tuple[list[RowCoverage], list[RowCoverage]]:
    """Returns each row with its proofs, and unknown row ids in the same form."""
    known = rows()
    found = {row.id: RowCoverage(row) for row in known}
    for one in played:
        for row_id in dict.fromkeys(one.case.covers):
            row = found.setdefault(row_id, RowCoverage(Row(id=row_id, row="")))
            (row.cases if one.holds else row.deviating).append(f"{one.playbook.playbook}: {one.case.name}")
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
