"""`incident-bot demo`: starts the demo world on this machine, and plays one incident, with or without a person."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn, TypeVar

import httpx
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bot.cli import stored
from bot.cli.engines import what_differs
from bot.cli.failures import CommandError
from bot.cli.short_report import short_report
from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import StorageUnavailableError
from bot.domain.kernel.timeline import Chained
from bot.domain.reports import report_of
from bot.domain.reports.present import present
from bot.sandbox import demo
from bot.sandbox.approver import Approver
from bot.sandbox.scenarios import THRASH, Scenario
from bot.sandbox.slack.server import listening_socket

T = TypeVar("T")
MAX_SECONDS = 480.0
LOOK_EVERY_SECONDS = 0.5


def run_demo(scenario: Scenario, *, unattended: bool, port: int, console: Console, vllm: Path | None = None) -> int:
    """Returns the exit code: 0 if a person ended the demo, or if the unattended run ended verified."""
    # SIGTERM unwinds as Ctrl-C does, so that every started process is stopped.
    signal.signal(signal.SIGTERM, _end)
    _must_be_free(port)
    console.print("Starting Valkey, Kubernetes, the vLLM fleet, Slack, alerting and the bot …")
    if vllm is not None:
        console.print(what_differs(vllm))
    with demo.world(slack_port=port, scenario=scenario, vllm=vllm) as world:
        windows = world.windows
        shortened = f"{len(windows)} of them, such as window {windows['window']}; /incident settings shows each"
        console.print(f"[bold]Slack page:[/bold] {world.slack_url}")
        console.print(f"[dim]Logs: {world.folder}. Windows are shortened for the demo ({shortened}).[/dim]")
        world.prepare(scenario)
        wait(world, world.scale.seconds(scenario.healthy_seconds))
        console.print(f"Fault: {scenario.what}.")
        world.cause_trouble(scenario)
        if scenario.alert:
            wait(world, world.scale.seconds(scenario.alert_after_seconds))
            world.raise_alert(scenario.alert)
        if unattended:
            return _unattended(world, scenario, console)
        first = f"Type /incident {scenario.opened_by}" if scenario.opened_by else "Wait half a minute"
        console.print(
            f"{first}, and the incident's card appears on the page. Open its thread, read the diagnosis, and "
            "press the buttons; you act as Ana, who is on call. Try /incident help. Ctrl-C ends everything."
        )
        wait(world, float("inf"))
    return 0


def _must_be_free(port: int) -> None:
    try:
        listening_socket(port).close()
    except OSError as error:
        raise CommandError(
            f"port {port} cannot be used: {error.strerror}. Leave out --port to take a free one."
        ) from None


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def wait(world: demo.World, seconds: float) -> None:
    """Raises `BotError` if a process of the demo exits meanwhile."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        world.refuse_ended()
        time.sleep(min(LOOK_EVERY_SECONDS, max(ends - time.monotonic(), 0)))


def unless_busy(look: Callable[[], T], say: Callable[[str], None]) -> T | None:
    """What `look` returns; None if a process of the demo did not answer it in time, which `say` is told."""
    try:
        return look()
    except (StorageUnavailableError, httpx.TransportError) as error:
        say(f"looks again, because this machine is busy: {error}")
        return None


def timed(seconds: float, text: str) -> Table:
    """One line with its second; a long line is wrapped under its text."""
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_column(style="dim", no_wrap=True)
    line.add_column()
    line.add_row(f"{seconds:5.1f} s", Text(text))
    return line


def _unattended(world: demo.World, scenario: Scenario, console: Console) -> int:
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(timed(time.monotonic() - began, text))

    approver = Approver(world.slack_url, demo.CHANNEL, scenario.answers, say, scenario.filled, world.commit)
    if scenario.opened_by:
        approver.command(scenario.opened_by)

    def look() -> Run | None:
        approver.look()
        return stored.loaded(stored.load_run(world.redis_url, "INC-1"))

    within = world.scale.limit(MAX_SECONDS)
    printed = ""
    with console.status("Waiting for the alert …") as status:
        while time.monotonic() - began < within:
            wait(world, LOOK_EVERY_SECONDS)
            run = unless_busy(look, say)
            if run is None:
                continue
            if not run.is_open:
                status.stop()
                return _report(world, run, scenario, time.monotonic() - began, console)
            if run.diagnosis and run.diagnosis != printed:
                printed = run.diagnosis
                say(f"diagnosis: {printed}. {run.users}")
            status.update(Text(present(run)))
    console.print(f"[red]The incident was not closed within {within:.0f} s.[/red]")
    return 1


def _report(world: demo.World, run: Run, scenario: Scenario, seconds: float, console: Console) -> int:
    entries = stored.loaded(stored.load_timeline(world.redis_url, run.incident_id))
    # One screen; the whole report has everything, state by state.
    console.print(short_report(report_of(entries)))
    verified = is_verified(run, entries, scenario)
    colour, word = ("green", "the fix was verified") if verified else ("red", "the fix was NOT verified")
    ended = f"{run.incident_id} ended {seconds:.0f} s after the start"
    console.print(f"\n[{colour}]{ended}: {run.ending_in_words} ({word}).[/{colour}]")
    console.print(f"Next, press the buttons yourself: [bold]{_again(scenario)}[/bold]")
    return 0 if verified else 1


def _again(scenario: Scenario) -> str:
    named = "" if scenario.name == THRASH.name else f" --scenario {scenario.name}"
    return f"incident-bot demo{named}"


def is_verified(run: Run, entries: Sequence[Chained], scenario: Scenario = THRASH) -> bool:
    """A good ending; if it ends by a watch, the last watch over the whole fleet held."""
    if not scenario.verified_by:
        return run.ending in scenario.endings
    watched = ("verdict", scenario.verified_by)
    verdicts = [item.entry.data.get("verdict") for item in entries if (item.entry.kind, item.entry.state) == watched]
    return run.ending in scenario.endings and verdicts[-1:] == ["held"]
