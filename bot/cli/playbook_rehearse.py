"""`incident-bot playbook rehearse NAME --scrapes DIR`: its path, its proposals, and their times."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import typer

from bot.adapters.vllm.recording import RecordedHistory, Recording, read_recording
from bot.adapters.yaml_playbooks import load_folders, load_table, with_packaged
from bot.cli.failures import CommandError
from bot.domain.incidents.rehearsed import Rehearsed
from bot.domain.incidents.run import Question
from bot.domain.kernel.errors import PlaybookError
from bot.domain.kernel.timeline import Entry
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.testing.cases import Circumstances, check_circumstances, circumstances_of
from bot.flow.rehearse_case import opening_of
from bot.flow.rehearse_recording import OverRecording
from bot.flow.rehearse_run import Clock, Rehearsal
from bot.probes.engine.kv_budget import ReadKvBudget

SHOWN = {"opened", "entered", "asked", "question", "answered", "planned", "request", "decided", "verdict", "outcome"}
SHOWN |= {"diverted", "failed", "closed"}
MAX_TEXT_CHARACTERS = 200


@dataclass(frozen=True)
class Wanted:
    """What to rehearse, and over which recording."""

    playbook: CompiledPlaybook
    folder: Path
    recording: Recording
    begins: float
    written: Circumstances


def bundle_of(wanted: Wanted) -> Bundle:
    """The playbook with those that it may divert to: they are rehearsed too."""
    library = load_folders(with_packaged(wanted.folder))
    return Bundle.of(wanted.playbook, library.playbooks)


def rehearse(wanted: Wanted) -> Rehearsed:
    clock, history, bundle = Clock(wanted.begins), RecordedHistory(wanted.recording), bundle_of(wanted)
    met = OverRecording(
        wanted.written, wanted.playbook, clock,
        history=history, probes={"kv_budget": ReadKvBudget(history, clock)}, ask=ask_in_the_terminal,
    )  # fmt: skip
    run, opening = opening_of(wanted.written, bundle, at=wanted.begins, title=wanted.playbook.playbook.title)
    printer = Printer(wanted)
    rehearsal = Rehearsal(run, bundle, met, clock, listen=printer.print, until=wanted.recording.ends)
    found = asyncio.run(rehearsal.play(opening))
    for line in printer.rest(clock.now):
        typer.echo(line)
    return found


class Printer:
    """Prints what happens, with its second in the recording, and the recorded actions of that time."""

    def __init__(self, wanted: Wanted) -> None:
        self._zero = wanted.recording.begins
        self._events = [event for event in wanted.recording.events if event[0] >= wanted.begins]

    def print(self, entry: Entry) -> None:
        for line in self.rest(entry.at):
            typer.echo(line)
        if entry.kind in SHOWN:
            typer.echo(shown(entry, self._zero))

    def rest(self, until: float) -> Iterator[str]:
        """The recorded actions up to then that were not printed yet."""
        while self._events and self._events[0][0] <= until:
            at, event = self._events.pop(0)
            yield f"{_second(at, self._zero)}  {'':<20} [recorded: {event}]"


def shown(entry: Entry, zero: float) -> str:
    """One line: the second, the state, and what happened."""
    is_named = entry.kind == "entered" or entry.text.startswith(entry.kind)
    what = "" if is_named else f"{entry.kind}: "
    return f"{_second(entry.at, zero)}  {entry.state:<20} {what}{_in_one_line(entry.text)}"


def _second(at: float, zero: float) -> str:
    return f"{at - zero:7.1f} s"


def _in_one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_TEXT_CHARACTERS else f"{line[: MAX_TEXT_CHARACTERS - 1]}…"


def result_lines(found: Rehearsed, zero: float) -> Iterator[str]:
    yield ""
    yield f"path: {' → '.join(found.path)}"
    for made in found.proposed:
        yield f"proposed at {made.at - zero:.1f} s in '{made.state}': {made.verb} {made.arguments or ''}".rstrip()
    if not found.proposed:
        yield "proposed: nothing"
    yield (
        f"ended: {found.run.ending}"
        if not found.run.is_open
        else f"stopped in '{found.run.visit.state}': {found.stopped}"
    )


def ask_in_the_terminal(question: Question) -> str | None:
    """None without a person, as in a pipe."""
    keys = list(question.choices)
    typer.echo(f"\n  {question.text}")
    for number, key in enumerate(keys, start=1):
        typer.echo(f"    {number}  {question.choices[key]}  ({key})")
    try:
        while True:
            answer = input("  your choice, or 'expired': ").strip()
            if answer == "expired" or answer in keys:
                return answer
            if answer.isdigit() and 1 <= int(answer) <= len(keys):
                return keys[int(answer) - 1]
            typer.echo(f"  write a number from 1 to {len(keys)}, or a word in brackets")
    except EOFError:
        typer.echo("")
        return None


def read_answers(path: Path | None, playbook: CompiledPlaybook) -> Circumstances:
    """Raises `PlaybookError` with every fault of the file."""
    if path is None:
        return Circumstances()
    if not path.is_file():
        raise CommandError(f"{path}: there is no such file of answers")
    source = load_table(path)
    written = circumstances_of(source.data)
    mistakes = written if isinstance(written, list) else list(check_circumstances((), written, playbook))
    if mistakes or isinstance(written, list):
        raise PlaybookError(tuple(map(source.fault, mistakes)))
    return written


def recorded(folder: Path, second: float) -> tuple[Recording, float]:
    """The recording, and the moment in it at which the incident opens."""
    recording = read_recording(folder)
    begins = recording.begins + second
    if not recording.begins <= begins < recording.ends:
        length = recording.ends - recording.begins
        raise CommandError(f"the recording is {length:.0f} s long; it cannot open at {second:g} s")
    return recording, begins
