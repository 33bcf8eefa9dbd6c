"""The commands of `incident-bot`. Each command imports its modules when it runs, so that `--help` is quick."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bot.cli.engines import Engines, EnginesOption, VllmOption, vllm_for
from bot.cli.failures import CommandError, Commands, writing
from bot.cli.options import Overrides, SettingsFile, scenario_named
from bot.cli.playbook import playbooks
from bot.cli.serve import DOES
from bot.cli.serve import serve as run_serve
from bot.cli.terminal import say
from bot.cli.timeline import timelines
from bot.sandbox.scenarios import SCENARIOS

if TYPE_CHECKING:
    from bot.domain.incidents.series import Series
    from bot.settings import Settings, StorageSettings

app = typer.Typer(
    cls=Commands,
    name="incident-bot",
    help="Takes an LLM-serving incident from the alert to a verified fix, with people deciding in Slack.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(playbooks, name="playbook")
app.add_typer(timelines, name="timeline")


class ReportFormat(StrEnum):
    md = "md"
    json = "json"
    html = "html"
    pdf = "pdf"


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"incident-bot {version('incident-bot')}")
        raise typer.Exit


@app.callback()
def incident_bot(
    _version_wanted: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def _settings(file: Path | None, overrides: list[str] | None = None) -> Settings:
    from bot.settings import load_settings

    return load_settings(os.environ, file, overrides=overrides or ())


def _storage(file: Path | None) -> StorageSettings:
    from bot.settings import load_storage_settings

    return load_storage_settings(os.environ, file)


@app.command(
    help=DOES, add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def serve(context: typer.Context) -> None:
    raise typer.Exit(run_serve(context.args))


@app.command()
def export(
    incident: Annotated[str, typer.Argument(metavar="INC-1", help="The incident.")],
    format: Annotated[ReportFormat, typer.Option(help="Its format.")] = ReportFormat.md,  # noqa: A002 - the option's name
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write to this file, not standard output.")] = None,
    redact_people: Annotated[bool, typer.Option(help="Replace names by roles.")] = False,
    settings: SettingsFile = None,
) -> None:
    """Print the report of an incident, made from its timeline."""
    if format is ReportFormat.pdf and out is None:
        raise CommandError("A PDF needs a file. Example: incident-bot export INC-1 --format pdf --out report.pdf")
    wanted = _storage(settings)
    from bot import dependencies
    from bot.cli import stored
    from bot.cli.printed import as_pdf
    from bot.domain.reports import Roles, as_json, html, markdown, report_of

    redis_url, incident = wanted.redis_url.get_secret_value(), stored.incident_id(incident)
    timeline, head = stored.loaded(stored.load_whole_timeline(redis_url, incident, tag=wanted.redis_tag))
    if not timeline:
        raise CommandError(
            f"{incident}: not in this Redis (tag '{wanted.redis_tag}'); closed incidents are kept "
            f"{wanted.retention_days} days. Example: incident-bot export INC-1"
        )
    roles = Roles(timeline) if redact_people else None
    match format:
        case ReportFormat.json:
            content = as_json(timeline, head, roles)
        case ReportFormat.html | ReportFormat.pdf:
            is_open = report_of(timeline).closed_at is None
            lines = _lines_of_open(incident, settings) if is_open else ()
            content = html(timeline, dependencies.chart_svg, lines, head, roles)
            for line in filter(lambda line: line.unknown, lines):
                say(f"{line.signal}: the history could not be read ({line.unknown})", err=True)
        case ReportFormat.md:
            content = markdown(timeline, head, roles)
    if format is ReportFormat.pdf and out is not None:
        as_pdf(content, out)
        typer.echo(f"{out}: {len(timeline)} entries", err=True)
        return
    if out is None:
        typer.echo(content, nl=False)
        return
    with writing(out):
        out.write_text(content, encoding="utf-8")
    typer.echo(f"{out}: {len(timeline)} entries", err=True)


def _lines_of_open(incident: str, file: Path | None) -> Sequence[Series]:
    """The chart of an open incident is read from Prometheus or from the samples: that needs all settings."""
    from bot.cli import stored
    from bot.domain.kernel.errors import SettingsError

    try:
        wanted = _settings(file)
    except SettingsError as error:
        why = f"the settings are not complete ({error.problems[0]})"
        typer.echo(f"{incident} is open, and its chart ends before now: {why}", err=True)
        return ()
    return stored.loaded(stored.load_lines(wanted, incident))


Which = Annotated[str, typer.Argument(metavar="INC-1|all", help="The incident, or all incidents.")]
Reason = Annotated[str, typer.Option("--reason", metavar="WHY", help="The reason, for the timeline.")]
By = Annotated[str, typer.Option("--by", metavar="NAME", help="Your name; default: your user name here.")]


@app.command()
def halt(which: Which, reason: Reason = "", by: By = "", settings: SettingsFile = None) -> None:
    """Stop sending calls, for one incident or for all. Needs only Redis."""
    from bot.cli.kill_switch import pull

    say(asyncio.run(pull(_storage(settings), which, by=by, why=reason)))


@app.command()
def resume(which: Which, reason: Reason = "", by: By = "", settings: SettingsFile = None) -> None:
    """Lift the halt of one incident, or of all."""
    from bot.cli.kill_switch import lift

    say(asyncio.run(lift(_storage(settings), which, by=by, why=reason)))


Where = Annotated[
    str, typer.Argument(metavar="[NAMESPACE/WORKLOAD|all]", help="The target, with *; none: list the open ones.")
]
HowLong = Annotated[str, typer.Option("--for", metavar="1h", help="How long it lasts.")]
Off = Annotated[bool, typer.Option("--off", help="End it now.")]


@app.command()
def maintenance(
    target: Where = "", how_long: HowLong = "1h", reason: Reason = "", by: By = "", off: Off = False,
    settings: SettingsFile = None,
) -> None:  # fmt: skip
    """Hold back the alerts of a target that are not urgent. Those that still fire open incidents when it ends."""
    from bot.cli.planned_windows import plan_window

    wanted = _storage(settings)
    say(asyncio.run(plan_window(wanted, "maintenance", target, how_long=how_long, why=reason, by=by, off=off)))


@app.command()
def freeze(
    target: Where = "", how_long: HowLong = "1h", reason: Reason = "", by: By = "", off: Off = False,
    settings: SettingsFile = None,
) -> None:  # fmt: skip
    """Only advise changes of a target until the freeze ends."""
    from bot.cli.planned_windows import plan_window

    wanted = _storage(settings)
    say(asyncio.run(plan_window(wanted, "freeze", target, how_long=how_long, why=reason, by=by, off=off)))


@app.command()
def observed(
    days: Annotated[int, typer.Option(min=1, max=90, help="How many days back.")] = 7, settings: SettingsFile = None
) -> None:
    """Show what the bot would have proposed while it observed. Also what people did, and when it recovered."""
    from bot.cli.observed import observed_text

    say(asyncio.run(observed_text(_storage(settings), days=days)))


@app.command()
def stats(
    days: Annotated[int, typer.Option(min=1, max=365, help="How many days back.")] = 30, settings: SettingsFile = None
) -> None:
    """Show how fast people acted, and which fixes held. Also how long incidents lasted."""
    from bot.cli.observed import statistics_text

    say(asyncio.run(statistics_text(_storage(settings), days=days)))


@app.command()
def doctor(
    namespace: Annotated[
        str,
        typer.Option(help="Check permissions in these namespaces, separated by commas; default: all."),
    ] = "",
    approvals: Annotated[bool, typer.Option("--approvals", help="List who approves each change.")] = False,
    settings: SettingsFile = None,
    overrides: Overrides = None,
) -> None:
    """Check what the bot depends on, and show how to fix it."""
    wanted = _settings(settings, overrides)
    # By the full path: this function shadows the module of the same name.
    from bot.cli.doctor import examine, rendered

    findings = asyncio.run(examine(wanted, namespace=namespace, approvals=approvals))
    say(rendered(findings).rstrip())
    if any(finding.grade == "broken" for finding in findings):
        raise typer.Exit(1)


@app.command()
def demo(
    scenario: Annotated[str, typer.Option(help=f"The fault: {', '.join(SCENARIOS)}.")] = "thrash",
    unattended: Annotated[bool, typer.Option(help="Press the buttons by script and verify the outcome.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the Slack page; 0 takes a free one.")] = 0,
    engines: EnginesOption = Engines.simulated,
    vllm: VllmOption = None,
) -> None:
    """Run the bot in a simulated world on this machine. It needs no Slack, Redis, cluster or GPU."""
    from rich.console import Console

    from bot.cli.demo import run_demo

    played = scenario_named(scenario)
    found = vllm_for(engines, vllm, played)
    raise typer.Exit(run_demo(played, unattended=unattended, port=port, vllm=found, console=Console()))
