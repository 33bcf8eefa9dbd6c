"""`incident-bot playbook …`: writes, checks, tests, rehearses and draws playbooks, without any connection."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bot.cli.engines import Engines, EnginesOption, VllmOption, vllm_for
from bot.cli.failures import CommandError, Commands, writing
from bot.cli.options import Overrides, scenario_named
from bot.cli.playbook_names import file_of, meant
from bot.domain.playbooks.files import is_table
from bot.domain.playbooks.packaged import packaged_playbooks

if TYPE_CHECKING:
    from bot.domain.kernel.errors import Fault
    from bot.domain.playbooks.compiled import CompiledPlaybook
    from bot.flow.rehearse_case import TableResult

playbooks = typer.Typer(
    cls=Commands, help="Write, check, test, rehearse and draw playbooks.", no_args_is_help=True, rich_markup_mode=None
)


class Words(StrEnum):
    verbs = "verbs"
    probes = "probes"
    metrics = "metrics"
    functions = "functions"
    fragments = "fragments"
    mitigations = "mitigations"
    endings = "endings"
    keys = "keys"


class GraphFormat(StrEnum):
    mermaid = "mermaid"
    svg = "svg"
    png = "png"


@playbooks.command()
def check(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[PATHS]...", help="Files, folders or names; default: the packaged ones."),
    ] = None,
    overrides: Overrides = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show where each state leads, also where no exit is written.")
    ] = False,
) -> None:
    """Report every fault with file, line and column. Exits with 1 if there is one."""
    explained = _explained() if explain else None
    sound, faults, warnings = 0, 0, 0
    wanted = paths or [packaged_playbooks()]
    # A shell's `*.yaml` names test tables too. As in a folder, they are passed over beside playbooks.
    for path in [each for each in wanted if not is_table(each)] or wanted:
        for compiled, wrong, doubtful in _checked(file_of(path), pairs(overrides)):
            sound += compiled is not None
            faults += len(wrong)
            warnings += len(doubtful)
            for line in explained(compiled) if explained is not None and compiled is not None else ():
                typer.echo(line)
            for fault in wrong:
                typer.echo(str(fault))
            for fault in doubtful:
                typer.echo(f"{fault} (warning)")
    typer.echo(f"{_counted(sound, 'sound playbook')}, {_counted(faults, 'fault')}, {_counted(warnings, 'warning')}")
    if faults:
        raise typer.Exit(1)


def _explained() -> Callable[[CompiledPlaybook], Iterable[str]]:
    # It knows every change, whose modules take a third of the time of a check to load.
    from bot.cli.playbook_explain import explained

    return explained


@playbooks.command("test")
def play(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILES]...", help="Test tables, playbooks or folders; default: the packaged ones."),
    ] = None,
    all_edges: Annotated[bool, typer.Option("--all-edges", help="Fail if no case takes a written edge.")] = False,
    quietly: Annotated[bool, typer.Option("--quiet", help="Do not list the cases that pass.")] = False,
) -> None:
    """Play every case of the test tables. Exits with 1 if one deviates."""
    from bot.cli.playbook_test import play_file, result_lines, tables_in, untested_in
    from bot.domain.kernel.errors import PlaybookError
    from bot.flow.rehearse_case import together

    good, played = True, []
    for path in untested_in(paths or []):
        typer.echo(f"{path}: has no test table; `incident-bot playbook new` writes one as an example", err=True)
        good &= not all_edges
    for path in tables_in(paths or [packaged_playbooks()]):
        try:
            played.append(play_file(path))
        except PlaybookError as error:  # the other tables can still be played
            typer.echo(str(error), err=True)
            good = False
    for result in together(played):
        for line in result_lines(result, quietly=quietly, whole=all_edges):
            typer.echo(line)
        good &= not result.failed and not (all_edges and result.unreached)
    if not good:
        raise typer.Exit(1)


@playbooks.command()
def rehearse(  # noqa: PLR0913, PLR0917 - each is an option
    name: Annotated[str, typer.Argument(help="A playbook's name, or its file.")],
    scrapes: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Over recorded metrics: scrapes/index.jsonl and the pages it names. Default: the sandbox.",
        ),
    ] = None,
    answers: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Readings, answers and outcomes, as in a case; the rest is asked here."),
    ] = None,
    opens_at: Annotated[
        float, typer.Option("--opens-at", metavar="SECOND", help="The second of the recording at which it opens.")
    ] = 0,
    scenario: Annotated[str, typer.Option(help="In the sandbox: the fault.")] = "thrash",
    alert: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL=VALUE", help="In the sandbox: a label of the alert that opens it."),
    ] = None,
    overrides: Overrides = None,
    folder: Annotated[
        Path | None, typer.Option("--playbooks", help="Where to look for the name; default: the packaged ones.")
    ] = None,
    engines: EnginesOption = Engines.simulated,
    vllm: VllmOption = None,
) -> None:
    """Rehearse a whole run: path, proposals, and times.

    In the sandbox a script presses what the file of answers says, else the first choice; without a file, you do, in the
    Slack page. The sandbox gives the readings and the outcomes itself, so there the file has only answers and settings.
    """
    from bot.cli import playbook_rehearse as over_recording

    settings = pairs(overrides)
    found = load_named(name, folder or packaged_playbooks(), settings)
    written = over_recording.read_answers(answers, found)
    if written.settings:
        from bot.flow.rehearse_case import settings_of

        settings = {**settings_of(written), **settings}
        found = load_named(name, folder or packaged_playbooks(), settings)
    where = Path(found.file).parent
    if scrapes is None:
        from bot.cli import rehearse_in_sandbox as in_sandbox

        fault = scenario_named(scenario)
        in_sandbox.refuse_what_is_ignored(written, found, answers)
        labels = in_sandbox.wanted_alert(found, where, pairs(alert, example="--alert alertname=VllmKVCacheThrash"))
        attended = answers is None
        command = vllm_for(engines, vllm, fault)
        wanted = in_sandbox.Wanted(found, fault, written, settings, labels, attended, command)
        raise typer.Exit(in_sandbox.rehearse(wanted))
    recording, begins = over_recording.recorded(scrapes, opens_at)
    if settings:
        changed = ", ".join(f"{name}={value}" for name, value in settings.items())
        typer.echo(f"shortened or changed for this rehearsal: {changed}")
    played = over_recording.rehearse(over_recording.Wanted(found, where, recording, begins, written))
    for line in over_recording.result_lines(played, recording.begins):
        typer.echo(line)


@playbooks.command()
def new(
    name: Annotated[str, typer.Argument(help="Its name: small letters, digits and hyphens.")],
    folder: Annotated[Path, typer.Option("--in", help="Where to write it.")] = Path(),
) -> None:
    """Write a commented starter playbook with its test table. Both pass check and test unchanged."""
    from bot.cli.playbook_new import write_starter

    for path in write_starter(name, folder):
        typer.echo(path)


class SchemaOf(StrEnum):
    playbook = "playbook"
    fragment = "fragment"


@playbooks.command()
def schema(
    of: Annotated[SchemaOf, typer.Argument(help="The kind of file.")] = SchemaOf.playbook,
) -> None:
    """Print the JSON Schema, for completion and help in an editor."""
    import json

    from bot.domain.playbooks.loading.schema import fragment_schema, playbook_schema
    from bot.probes.catalogue import PROBES

    made = playbook_schema(PROBES) if of is SchemaOf.playbook else fragment_schema()
    typer.echo(json.dumps(made, indent=2, ensure_ascii=False))


@playbooks.command()
def words(
    which: Annotated[Words | None, typer.Argument(help="Which list; default: all.")] = None,
) -> None:
    """List what a playbook may name. Verbs, probes, metrics, functions, fragments; and keys, with examples."""
    from bot.cli.playbook_words import words as all_words

    for line in all_words(which.value if which else ""):
        typer.echo(line)


@playbooks.command()
def coverage(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[PATH]", help="A folder or a playbook; default: the packaged ones.")
    ] = None,
) -> None:
    """Show each requirement with the tests that prove it. Exits with 1 if one has none.

    It plays every case, which takes about a minute for the packaged ones. Of playbooks of your own only what their
    cases claim by `covers`: rows, and custom rules with any id.
    """
    from bot.cli.playbook_coverage import coverage_lines, covered
    from bot.cli.playbook_test import play_file

    def play(path: Path) -> TableResult:
        typer.echo(f"plays {path.name}", err=True)
        return play_file(path)

    if folder is not None and not folder.exists():
        raise CommandError(f"{folder}: there is no such folder or playbook")
    found = covered(folder or packaged_playbooks(), play)
    for line in coverage_lines(found):
        typer.echo(line)
    if not found.is_whole:
        raise typer.Exit(1)


@playbooks.command()
def graph(
    name: Annotated[str, typer.Argument(help="A playbook's name, or its file.")],
    format: Annotated[GraphFormat, typer.Option(help="How to draw it.")] = GraphFormat.mermaid,  # noqa: A002 - the option's name
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write to this file; a picture is not written to a terminal.")
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="A picture of every state, with the fragments' states.")
    ] = False,
    section: Annotated[
        str, typer.Option(metavar="TITLE", help="A picture of the states below one heading, `# --- TITLE ---`.")
    ] = "",
    folder: Annotated[
        Path | None, typer.Option("--playbooks", help="Where to look for the name; default: the packaged ones.")
    ] = None,
) -> None:
    """Draw a playbook, as mermaid text or as a picture. A picture shows its sections."""
    from bot.cli.playbook_graph import graph_of

    found = load_named(name, folder or packaged_playbooks())
    content = graph_of(found, format.value, whole=whole, section=section)
    if out is not None:
        with writing(out):
            out.write_bytes(content)
        typer.echo(f"{out}: {len(content):,} bytes", err=True)
    elif format is GraphFormat.png:
        raise CommandError("a PNG needs a file; add --out FILE")
    else:
        typer.echo(content.decode(), nl=False)


def load_named(name: str, folder: Path, overrides: dict[str, str] | None = None) -> CompiledPlaybook:
    """A playbook by its file or by its name; raises `CommandError` with a suggestion."""
    from bot.adapters.yaml_playbooks import load_playbook

    # Usually a file has the name of its playbook; then no other file has to be read.
    as_file = Path(name) if name.endswith(".yaml") else folder / f"{name}.yaml"
    is_file = name.endswith(".yaml") or as_file.is_file()
    return load_playbook(as_file if is_file else Path(_named(name, folder).file), overrides, place="--set")


def pairs(overrides: list[str] | None, *, example: str = "--set window=15s") -> dict[str, str]:
    parted = [text.partition("=") for text in overrides or ()]
    wrong = next((name for name, equals, value in parted if not (name and equals and value)), None)
    if wrong is not None:
        raise CommandError(f"{wrong}: write name=value; example: {example}")
    return {name: value for name, _, value in parted}


Checked = tuple["CompiledPlaybook | None", "tuple[Fault, ...]", "tuple[Fault, ...]"]


def _no_playbook(path: Path) -> tuple[Fault, ...]:
    """The faults of a test table, a fragment, a folder of fragments, or a file that is never read; else empty."""
    from bot.adapters.yaml_playbooks import FRAGMENTS, never_read, read_fragments
    from bot.domain.kernel.errors import Fault

    instead = "Check the folder of the playbooks: incident-bot playbook check"
    if is_table(path):
        return (Fault(str(path), "is a test table", f"Play it: incident-bot playbook test {path}"),)
    if path.suffix == ".yml" and path.is_file():
        return (never_read(path),)
    if path.name == FRAGMENTS and path.is_dir():
        what = "holds fragments: their states are checked where a playbook includes them"
        return (Fault(str(path), what, f"{instead} {path.parent}"),)
    if path.parent.name == FRAGMENTS and path.suffix == ".yaml" and path.is_file():
        what = "is a fragment: its states are checked where a playbook includes it"
        pointed = Fault(str(path), what, f"{instead} {path.parent.parent}")
        return read_fragments(path.parent)[path.stem].faults or (pointed,)
    return ()


def _checked(path: Path, overrides: dict[str, str]) -> Iterator[Checked]:
    from bot.adapters.checked_playbooks import CheckedPlaybooks
    from bot.adapters.yaml_playbooks import check_file, load_folders, with_packaged
    from bot.domain.kernel.errors import Fault
    from bot.domain.playbooks.settings import Override
    from bot.probes.catalogue import PROBES

    if wrong := _no_playbook(path):
        yield None, wrong, ()
        return
    if not path.is_dir():
        checked = check_file(path, overrides, place="--set")
        yield checked.compiled, checked.faults, checked.warnings
        return
    own = packaged_playbooks()
    if path.resolve() == own.resolve():
        path = own  # the path by which a start reads them
    before = CheckedPlaybooks(PROBES, reads=False) if path == own and os.access(path, os.W_OK) else None
    library = load_folders(with_packaged(path), [Override(settings=overrides)] if overrides else (), before=before)
    if not any(path.glob("*.yaml")):
        yield None, (Fault(str(path), "contains no playbook (*.yaml)"),), ()
    packaged = {str(file) for file in packaged_playbooks().rglob("*.yaml")} - {
        str(file) for file in path.rglob("*.yaml")
    }
    for compiled in library.playbooks.values():
        if compiled.file not in packaged:
            yield compiled, (), ()
    for file, faults in library.faults.items():
        if file not in packaged:
            yield None, faults, ()
    for file, warnings in library.warnings.items():
        if file not in packaged:
            yield None, (), warnings


def _named(name: str, folder: Path | None) -> CompiledPlaybook:
    from bot.adapters.yaml_playbooks import load_folders, with_packaged

    where = folder or packaged_playbooks()
    library = load_folders(with_packaged(where))
    if name in library.playbooks:
        return library.playbooks[name]
    broken = [str(fault) for file, faults in library.faults.items() if Path(file).stem == name for fault in faults]
    if broken:
        raise CommandError("\n".join(broken))
    hint = meant(name, library.playbooks)
    raise CommandError(f"no playbook '{name}' in {where}; for your own, give its file, {name}.yaml; {hint}")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
