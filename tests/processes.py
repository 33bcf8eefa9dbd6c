"""Starts one of our processes for a test and waits until it reports that it is ready.

It is a fork of one process that has imported what they all need: importing it takes most of such a start.

A process that is not ready within its deadline, or that ends first, fails the test with everything it printed.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self

from bot.sandbox.processes import READY, fork

KEPT_LINES = 2000


class ProcessError(AssertionError):
    """The process did not come up, or did not go down; the message ends with what it printed."""


class Process(Protocol):
    """What tests need of `subprocess.Popen`."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


@dataclass(frozen=True)
class Forked:
    """A fork, as a `Process`."""

    process: ForkServerProcess

    @property
    def pid(self) -> int:
        assert self.process.pid is not None, "it has not been started"
        return self.process.pid

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Raises `subprocess.TimeoutExpired`."""
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired(self.process.name, timeout or 0.0)
        return self.process.exitcode

    def terminate(self) -> None:
        self.process.terminate()

    def kill(self) -> None:
        self.process.kill()


@dataclass(frozen=True)
class Running:
    """A process that printed its `ready {json}` line; use it in a `with` block or call `stop`."""

    ready: Mapping[str, Any]
    process: Process
    lines: deque[str]

    @property
    def url(self) -> str:
        return str(self.ready["url"])

    def output(self) -> str:
        """Everything printed so far, standard error included (the last lines of it)."""
        return "".join(self.lines)

    def kill(self) -> None:
        """End it as a crash would: SIGKILL."""
        self.process.kill()
        self.process.wait(timeout=10)

    def stop(self, timeout_seconds: float = 5.0) -> int:
        """Ask it to end (SIGTERM) and return its exit code; raise `ProcessError` if it does not obey."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ProcessError(f"did not end within {timeout_seconds} s of SIGTERM\n{self.output()}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start(
    module: str,
    *args: str,
    deadline_seconds: float = 30.0,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    own_interpreter: bool = False,
) -> Running:
    """Run `python -m module args…` and return once it has printed `ready {json}` on standard output.

    `cwd`: the folder whose modules run, in an interpreter of its own; by default, these, in a fork.
    """
    environment = dict(os.environ if env is None else env)
    if own_interpreter or cwd:
        process, output = _interpreted(module, *args, env=environment, cwd=cwd)
    else:
        process, output = _forked(module, *args, env=environment)
    lines: deque[str] = deque(maxlen=KEPT_LINES)
    ready_lines: queue.Queue[str | None] = queue.Queue()
    # A pipe that nobody reads blocks the process that writes to it, so it is drained until the end.
    threading.Thread(target=_drain, args=(output, lines, ready_lines), daemon=True).start()
    with contextlib.ExitStack() as on_failure:
        on_failure.callback(process.wait)
        on_failure.callback(process.kill)
        ready = _ready_line(module, ready_lines, lines, deadline_seconds)
        on_failure.pop_all()
    return Running(ready=ready, process=process, lines=lines)


def _interpreted(*command: str, env: dict[str, str], cwd: Path | None) -> tuple[Process, IO[str]]:
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=env,
        cwd=cwd,
    )
    assert process.stdout is not None
    return process, process.stdout


def _forked(*command: str, env: dict[str, str]) -> tuple[Process, IO[str]]:
    ours, its = Pipe(duplex=False)
    with its:
        process = fork(command[0], *command, output=its, env=env)
    # The file closes this end.
    output = os.fdopen(os.dup(ours.fileno()))
    ours.close()
    return Forked(process), output


@contextlib.contextmanager
def running(
    module: str, *args: str, deadline_seconds: float = 30.0, own_interpreter: bool = False
) -> Iterator[Running]:
    """`start`, and stop when the block ends."""
    with start(module, *args, deadline_seconds=deadline_seconds, own_interpreter=own_interpreter) as process:
        yield process


def _drain(output: IO[str], lines: deque[str], ready_lines: "queue.Queue[str | None]") -> None:
    with output:
        for line in output:
            lines.append(line)
            if line.startswith(READY):
                ready_lines.put(line)
    ready_lines.put(None)


def _ready_line(
    module: str, ready_lines: "queue.Queue[str | None]", lines: deque[str], deadline_seconds: float
) -> dict[str, Any]:
    try:
        line = ready_lines.get(timeout=deadline_seconds)
    except queue.Empty:
        raise ProcessError(f"{module} was not ready within {deadline_seconds} s\n{''.join(lines)}") from None
    if line is None:
        raise ProcessError(f"{module} ended before it was ready\n{''.join(lines)}")
    parsed = json.loads(line.removeprefix(READY))
    if not isinstance(parsed, dict):
        raise ProcessError(f"{module}: the ready line holds no JSON object: {line}")
    return parsed
