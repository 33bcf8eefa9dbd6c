"""`incident-bot playbook coverage`: each row of the requirements with its states and tests, and the rows without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from bot.adapters.yaml_playbooks import load_folder
from bot.cli.playbook_test import ENDING, play_file
from bot.domain.playbook.rows import Played, RowCoverage, coverage
from bot.flow.rehearse_case import TableResult


def covered(folder: Path) -> tuple[list[RowCoverage], dict[str, list[str]]]:
    """Play every table of the folder; only cases that hold prove anything."""
    library = load_folder(folder)
    results = [play_file(path) for path in sorted(folder.glob(f"*{ENDING}"))]
    played = [one for result in results for one in _played(result)]
    return coverage((compiled.playbook for compiled in library.playbooks.values()), played)


def _played(result: TableResult) -> Iterator[Played]:
    for one in result.results:
        if not one.deviation:
            yield Played(result.playbook.playbook, one.case, one.rehearsed.way)


def told(rows: Sequence[RowCoverage], strange: dict[str, list[str]]) -> Iterator[str]:
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
    for row_id, places in strange.items():
        yield f"✖ {row_id} is no row; it is named in {', '.join(places)}"
    missing = [found.row.id for found in rows if found.lacks]
    yield f"{len(rows) - len(missing)} of {len(rows)} rows are covered" + (
        f"; missing: {', '.join(missing)}" if missing else ""
    )
