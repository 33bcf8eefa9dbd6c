"""`incident-bot playbook coverage`: each row of the requirements with its tests, and the rows without.

Only the shipped playbooks have to cover the table; for other playbooks only their claims are shown, custom rules too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bot.adapters.yaml_playbooks import load_folders, with_packaged
from bot.domain.kernel.errors import Fault, PlaybookError
from bot.domain.playbooks.files import TABLE_ENDING, is_table, playbook_of
from bot.domain.playbooks.packaged import packaged_playbooks
from bot.domain.playbooks.testing.rows import Played, RowCoverage, coverage, runbook_steps
from bot.flow.rehearse_case import TableResult


@dataclass(frozen=True)
class Covered:
    rows: list[RowCoverage]
    strange: list[RowCoverage]
    """Ids that are not rows."""
    faults: tuple[Fault, ...]
    """Faults of playbooks and tables that cannot be played: they cover nothing."""
    is_own: bool = False
    steps: Mapping[str, list[str]] = field(default_factory=dict)
    """The steps of the runbooks that the playbooks follow, each with its states."""

    @property
    def is_whole(self) -> bool:
        return not (self.strange or self.faults or any(row.lacks for row in self.rows))


def covered(where: Path, play: Callable[[Path], TableResult]) -> Covered:
    """Plays the tables of a folder, or that of one playbook; only cases that hold count."""
    where = playbook_of(where) if is_table(where) else where
    folder, name = (where, "*") if where.is_dir() else (where.parent, where.stem)
    library = load_folders(with_packaged(folder))
    own = [one.playbook for one in library.playbooks.values() if Path(one.file) in folder.glob(f"{name}.yaml")]
    faults = [fault for file, found in library.faults.items() if Path(file).is_relative_to(where) for fault in found]
    played: list[Played] = []
    for path in sorted(folder.glob(f"{name}{TABLE_ENDING}")):
        try:
            played += _played(play(path))
        except PlaybookError as error:
            faults += error.faults
    rows, strange = coverage(played)
    if folder.resolve() == packaged_playbooks().resolve():
        return Covered(rows, strange, tuple(dict.fromkeys(faults)), steps=runbook_steps(own))
    claimed = [row for row in (*rows, *strange) if row.cases or row.deviating]
    return Covered(claimed, [], tuple(dict.fromkeys(faults)), is_own=True, steps=runbook_steps(own))


def _played(result: TableResult) -> Iterator[Played]:
    for one in result.results:
        yield Played(result.playbook.playbook, one.case, holds=not one.deviation)


def coverage_lines(covered: Covered) -> Iterator[str]:
    rows = covered.rows
    for found in rows:
        yield f"{'✖' if found.lacks else '✔'} {found.row.id:<4} {found.row.row or 'a custom rule'}" + (
            f": {found.lacks}" if found.lacks else ""
        )
        if found.cases:
            more = f" and {len(found.cases) - 3} more" if len(found.cases) > 3 else ""
            yield f"       cases   {'; '.join(found.cases[:3])}{more}"
        for other in found.row.elsewhere:
            yield f"       {other.what}: {other.test}"
    for found in covered.strange:
        yield f"✖ {found.row.id} is not a row; it is named in {', '.join(found.cases or found.deviating)}"
    for step, states in covered.steps.items():
        yield f"📋 {step}"
        yield f"       states  {', '.join(states)}"
    yield from (f"✖ {fault}" for fault in covered.faults)
    missing = [found.row.id for found in rows if found.lacks]
    if covered.is_own and not rows and not covered.faults:
        yield "nothing is claimed: add `covers: [ID]` to a case, for a row or a custom rule"
        return
    yield f"{len(rows) - len(missing)} of {len(rows)} rows{' it claims' if covered.is_own else ''} are covered" + (
        f"; missing: {', '.join(missing)}" if missing else ""
    )
