"""`incident-bot playbook test`: plays the test tables, and reports what deviates and what no case reaches."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from bot.adapters.yaml_playbooks import load_playbook, load_table, origins_in
from bot.cli.failures import CommandError
from bot.cli.playbook_names import file_of
from bot.domain.incidents.rehearsed import missing_edges
from bot.domain.kernel.errors import PlaybookError
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.files import TABLE_ENDING, is_table, playbook_of, playbooks_in
from bot.domain.playbooks.testing.cases import Table, check_table, table_of
from bot.flow.rehearse_case import TableResult, play_table

MAX_LISTED_STATES = 3
"""How many of the last states are listed: a value missing there is the usual cause of a deviation."""


def tables_in(paths: Iterable[Path]) -> list[Path]:
    """The tables to play: the given ones, those of a folder, or that of a playbook (a name: a packaged one)."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            tables = sorted(path.glob(f"*{TABLE_ENDING}"))
            if not tables:
                raise CommandError(f"{path}: there is no test table (*{TABLE_ENDING}) in this folder")
            found += tables
        elif is_table(path):
            found.append(path)
        elif path.suffix:
            found.append(path.with_name(path.stem + TABLE_ENDING))
        else:
            found.append(file_of(path).with_name(f"{path.name}{TABLE_ENDING}"))
    missing = [path for path in found if not path.is_file()]
    if missing:
        raise CommandError(f"{missing[0]}: there is no such test table")
    return found


def untested_in(paths: list[Path]) -> list[Path]:
    """The playbooks of these folders that have no test table."""
    files = (file for path in paths if path.is_dir() for file in playbooks_in(path))
    return [file for file in files if not file.with_name(file.stem + TABLE_ENDING).is_file()]


def play_file(path: Path) -> TableResult:
    """Raises `PlaybookError` with every fault of the table or of its playbook."""
    beside = playbook_of(path)
    default = load_playbook(beside)

    def load(settings: Mapping[str, str]) -> CompiledPlaybook:
        return load_playbook(beside, settings, place=f"{path}: settings") if settings else default

    results: list[TableResult] = []

    async def play() -> None:
        results.append(await play_table(read_table(path, default), load, origins_in(beside)))

    # A task's result is written out whole when asyncio puts the signal handlers back: for a large table that takes
    # seconds. So it has none.
    asyncio.run(play())
    return results[0]


def read_table(path: Path, playbook: CompiledPlaybook) -> Table:
    source = load_table(path)
    table = table_of(source.data)
    mistakes = table if isinstance(table, list) else list(check_table(table, playbook))
    if mistakes or isinstance(table, list):
        raise PlaybookError(tuple(map(source.fault, mistakes)))
    return table


def result_lines(result: TableResult, *, quietly: bool, whole: bool = True) -> Iterator[str]:
    """Unless `whole`, untaken edges within a fragment are only counted: the fragment's author wrote cases for them."""
    name = result.playbook.name
    for one in result.results:
        if one.deviation:
            yield f"✖ {name}: {one.case.name}\n    {one.deviation}"
            for state, signals in list(one.missing.items())[-MAX_LISTED_STATES:]:
                yield f"    the case does not say what is read in '{state}': {', '.join(signals)}"
        elif not quietly:
            yield f"✔ {name}: {one.case.name}"
    written = result.playbook.playbook
    unreached = result.unreached
    own = {
        (result.origins[state].fragment, result.origins[state].state) for state in result.states & result.origins.keys()
    } | {(fragment, state) for fragment, state, _ in result.elsewhere}
    states = [
        state
        for state in written.states
        if state not in result.states
        and (state not in result.origins or (result.origins[state].fragment, result.origins[state].state) not in own)
    ]
    # A case that deviates proves nothing, so what it would have taken is no news.
    if not result.failed:
        yield from _untested(result, states, whole=whole)
    edges = len(missing_edges(written, (), result.origins))
    passed = len(result.results) - len(result.failed)
    yield (
        f"{name}: {passed} of {len(result.results)} cases hold; {edges - len(unreached)} of {edges} written edges, "
        f"{len(written.states) - len(states)} of {len(written.states)} states"
    )


def _untested(result: TableResult, states: Iterable[str], *, whole: bool) -> Iterator[str]:
    """The edges that no case takes and the `states` that none enters; those of fragments only by their number."""
    name, unreached = result.playbook.name, result.unreached
    within = {state for state in result.playbook.playbook.states if state in result.origins and not whole}
    for (state, path), edge in unreached:
        if state in within:
            continue
        by = edge_words(path, edge.label or edge.outcome)
        yield f"  {name}: no case goes from '{state}' by '{by}' to '{edge.to}'"
    for state in states:
        if state not in within:
            yield f"  {name}: no case enters '{state}'"
    untaken = Counter(result.origins[state].include for (state, _), _ in unreached if state in within)
    for include, count in untaken.items():
        yield f"  {name}: in the fragment of '{include}' no case takes {count} edges; --all-edges lists them"


def edge_words(path: tuple[str | int, ...], label: str) -> str:
    """The place of an edge in the file, for its author: `go 2: thrash > 0.1`, `choices cap`, `failed`."""
    where = " ".join(
        str(step + 1) if isinstance(step, int) else step for step in path if step not in ("to", "otherwise")
    )
    return where if label in where or not label else f"{where}: {label}"
