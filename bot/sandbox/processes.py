"""Starts the processes of the demo world and ends every one of them, even if the launcher is killed.

Each is a fork of one process that has imported what they all need: importing it in each takes longer than the rest of
their start.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import runpy
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any, TextIO

from bot.domain.kernel.errors import BotError
from bot.sandbox.leash import end_with

READY = "ready "
SETTINGS_PREFIXES = ("INCIDENT_BOT_", "SLACK_", "REDIS_")
READY_WITHIN_SECONDS = 180.0
"""A start takes seconds of work: a minute or more on a busy machine."""
END_WITHIN_SECONDS = 5.0
LOOK_EVERY_SECONDS = 0.02


class StartError(BotError):
    """A process of the demo did not start; the message ends with its output."""


@dataclass
class Child:
    name: str
    process: ForkServerProcess


@dataclass
class Family:
    """All processes that were started here. Each writes its output to its own log file."""

    folder: Path
    children: list[Child] = field(default_factory=list)
    ready_within_seconds: float = READY_WITHIN_SECONDS

    def start(self, name: str, *command: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Runs `python -m command…` and returns the content of its `ready {json}` line. Raises `StartError`."""
        log = self.folder / f"{name}.log"
        with log.open("a+") as output:
            begins = output.seek(0, os.SEEK_END)
            process = fork(name, *command, output=log, env={**_inherited(), **(env or {})})
            child = Child(name, process)
            self.children.append(child)
            output.seek(begins)
            line = self._ready_line(child, output)
        if line is None:
            why = f"was not ready within {self.ready_within_seconds:g} s (is this machine very busy?)"
            raise StartError(f"{name} {why}; its last output:\n{tail(log)}")
        if not line:
            raise StartError(f"{name} ended before it was ready; its last output:\n{tail(log)}")
        ready: dict[str, Any] = json.loads(line.removeprefix(READY))
        return ready

    def _ready_line(self, child: Child, output: TextIO) -> str | None:
        """Empty if the process ended without it; None if it is late."""
        deadline = time.monotonic() + self.ready_within_seconds
        line = ""
        while time.monotonic() < deadline:
            has_ended = not child.process.is_alive()
            line += output.readline()
            if line.endswith("\n"):
                if line.startswith(READY):
                    return line
                line = ""
            elif has_ended:
                return ""
            else:
                time.sleep(LOOK_EVERY_SECONDS)
        return None

    def refuse_ended(self) -> None:
        """Raises `BotError` if a child ended by itself."""
        gone = next((child for child in self.children if not child.process.is_alive()), None)
        if gone is not None:
            raise exited(gone.name, gone.process.exitcode, self.folder / f"{gone.name}.log")

    def child(self, name: str) -> Child:
        return next(child for child in reversed(self.children) if child.name == name)

    def kill(self, name: str) -> None:
        """As a crash would: SIGKILL, and the child is forgotten."""
        child = self.child(name)
        child.process.kill()
        child.process.join(END_WITHIN_SECONDS)
        self.children.remove(child)

    def stop(self) -> None:
        """Ends all, the newest first; a process that does not obey is killed."""
        for child in reversed(self.children):
            child.process.terminate()
        for child in reversed(self.children):
            child.process.join(END_WITHIN_SECONDS)
            if child.process.is_alive():
                child.process.kill()
                child.process.join()
        self.children.clear()


def fork(name: str, *command: str, output: Path | Connection, env: Mapping[str, str]) -> ForkServerProcess:
    """Runs `python -m command…` in a fork, with this environment; it writes to this file or pipe and ends with us."""
    process = _context().Process(target=_become, args=(command, output, dict(env)), name=name, daemon=True)
    process.start()
    return process


@cache
def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bot.sandbox.imported"])
    return context


def _become(command: tuple[str, ...], output: Path | Connection, environment: dict[str, str]) -> None:
    """In the fork: runs the module as `python -m` would."""
    # A terminal's Ctrl-C reaches the launcher alone, which ends the others in order.
    os.setsid()
    with output.open("ab") if isinstance(output, Path) else output as written:
        os.dup2(written.fileno(), sys.stdout.fileno())
        os.dup2(written.fileno(), sys.stderr.fileno())
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    launcher = multiprocessing.parent_process()
    if launcher is not None:
        end_with(launcher.sentinel)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = list(command)
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)


def _inherited() -> dict[str, str]:
    """Settings of a real deployment in this shell must not reach the demo's bot.

    Bytecode is always written: without it each of the demo's processes compiles every library again, for seconds.
    """
    dropped = (*SETTINGS_PREFIXES, "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)}


def exited(name: str, code: int | None, log: Path) -> BotError:
    return BotError(f"{name} exited unexpectedly (exit code {code}); its last output:\n{tail(log)}")


def tail(log: Path, lines: int = 20) -> str:
    """The last output of a process. The logs themselves are deleted with the world."""
    return "\n".join(log.read_text().splitlines()[-lines:]) if log.exists() else "(it said nothing)"
