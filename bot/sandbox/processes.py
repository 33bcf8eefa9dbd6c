"""Starts the processes of the demo world and ends every one of them, even if the launcher is killed."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.domain.kernel.errors import BotError
from bot.sandbox.leash import leash

READY = "ready "
SETTINGS_PREFIX = "INCIDENT_BOT_"
READY_WITHIN_SECONDS = 180.0
"""A start takes seconds of work: a minute or more on a busy machine."""
END_WITHIN_SECONDS = 5.0


class StartError(BotError):
    """A process of the demo did not start; the message ends with its output."""


@dataclass
class Child:
    name: str
    process: subprocess.Popen[str]
    ready: dict[str, Any]


@dataclass
class Family:
    """All processes that were started here. Each writes its output to its own log file."""

    folder: Path
    children: list[Child] = field(default_factory=list)
    ready_within_seconds: float = READY_WITHIN_SECONDS

    def start(self, name: str, *command: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Runs `python -m command…` and returns the content of its `ready {json}` line. Raises `StartError`."""
        log = self.folder / f"{name}.log"
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and our own modules
            [sys.executable, "-m", "bot.sandbox.leash", sys.executable, "-u", "-m", *command],
            stdin=leash(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**_inherited(), **(env or {})},
            # A terminal's Ctrl-C reaches the launcher alone, which ends the others in order.
            start_new_session=True,
        )
        said: queue.Queue[str] = queue.Queue()
        threading.Thread(target=_copy, args=(process, log, said), daemon=True).start()
        child = Child(name, process, {})
        self.children.append(child)
        try:
            line = said.get(timeout=self.ready_within_seconds)
        except queue.Empty:
            why = f"was not ready within {self.ready_within_seconds:g} s (is this machine very busy?)"
            raise StartError(f"{name} {why}; its last output:\n{tail(log)}") from None
        if not line.startswith(READY):
            raise StartError(f"{name} ended before it was ready; its last output:\n{tail(log)}")
        child.ready = json.loads(line.removeprefix(READY))
        return child.ready

    def ended(self) -> Child | None:
        """A child that ended by itself."""
        return next((child for child in self.children if child.process.poll() is not None), None)

    def child(self, name: str) -> Child:
        return next(child for child in reversed(self.children) if child.name == name)

    def kill(self, name: str) -> None:
        """As a crash would: SIGKILL, and the child is forgotten."""
        child = self.child(name)
        child.process.kill()
        child.process.wait(timeout=END_WITHIN_SECONDS)
        self.children.remove(child)

    def stop(self) -> None:
        """Ends all, the newest first; a process that does not obey is killed."""
        for child in reversed(self.children):
            child.process.terminate()
        for child in reversed(self.children):
            try:
                child.process.wait(timeout=END_WITHIN_SECONDS)
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
        self.children.clear()


def _inherited() -> dict[str, str]:
    """Settings of a real deployment in this shell must not reach the demo's bot.

    Bytecode is always written: without it each of the demo's processes compiles every library again, for seconds.
    """
    dropped = (SETTINGS_PREFIX, "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)}


def _copy(process: subprocess.Popen[str], log: Path, said: queue.Queue[str]) -> None:
    if process.stdout is None:
        return
    with log.open("a") as file:
        for line in process.stdout:
            file.write(line)
            file.flush()
            if line.startswith(READY):
                said.put(line)
    said.put("")


def tail(log: Path, lines: int = 20) -> str:
    """The last output of a process. The logs themselves are deleted with the world."""
    return "\n".join(log.read_text().splitlines()[-lines:]) if log.exists() else "(it said nothing)"
