"""`incident-bot playbook coverage`: each row of the requirements with its states and tests, and the rows without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bot.adapters.yaml_playbooks import load_folders, with_packaged
from bot.cli.playbook_test import ENDING, play_file
from bot.domain.errors import Fault, PlaybookError
from bot.domain.playbook.rows import Played, RowCoverage, coverage
from bot.flow.rehearse_case import TableResult


@dataclass(frozen=True)
class Covered:
    rows: list[RowCoverage]
    strange: dict[str, list[str]]
    """Ids that are no row, with where they are named."""
    faults: tuple[Fault, ...]
    """Of playbooks and tables that cannot be played: they cover nothing."""


def covered(folder: Path, play: Callable[[Path], TableResult] = play_file) -> Covered:
    """Play every table of the folder; only cases that hold prove anything."""
    library = load_folders(with_packaged(folder))
    own = [compiled.playbook for compiled in library.playbooks.values() if Path(compiled.file).parent == folder]
    faults = [fault for file, found in library.faults.items() if Path(file).is_relative_to(folder) for fault in found]
    played: list[Played] = []
    for path in sorted(folder.glob(f"*{ENDING}")):
        try:
            played += _played(play(path))
        except PlaybookError as error:
            faults += error.faults
    rows, strange = coverage(own, played)
    return Covered(rows, strange, tuple(dict.fromkeys(faults)))


def _played(result: TableResult) -> Iterator[Played]:
    for one in result.results:
        if not one.deviation:
            yield Played(result.playbook.playbook, one.case, one.rehearsed.way)


def told(covered: Covered) -> Iterator[str]:
    rows = covered.rows
    for found in rows:
        yield f"{'✖' if found.lacks else '✔'} {found.row.id:<4} {found.row.row}" + (
            f": {found.lacks}" if found.lacks else ""
        )
        if found.states:
            yield f"       states  {', '.join(found.states)}"
        if found.cases:
            more = f" and {len(found.cases) - 3} more" if len(found.cases) > 3 else ""
            yield f"       cases   {'; '.join(found.cases[:3])}{more}"
        for other in found.row.elsewhere:
            yield f"       {other.what}: {other.test}"
    for row_id, places in covered.strange.items():
        yield f"✖ {row_id} is no row; it is named in {', '.join(places)}"
    yield from (f"✖ {fault}" for fault in covered.faults)
    missing = [found.row.id for found in rows if found.lacks]
    yield f"{len(rows) - len(missing)} of {len(rows)} rows are covered" + (
        f"; missing: {', '.join(missing)}" if missing else ""
    )
