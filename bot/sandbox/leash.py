"""Runs a program that ends with the demo's launcher, however that ended: `python -m bot.sandbox.leash program …`.

The program needs no changes. The launcher alone holds the other end of a pipe; when the launcher is gone the pipe ends,
and a watcher beside the program sends it SIGTERM; with `--group` its whole process group gets SIGKILL, for a program
that may wait for its clients for ever. It works on every system with pipes.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import cache
from typing import NoReturn

GROUP = "--group"


@cache
def leash() -> int:
    """The end to give to programs as their standard input. The other end stays open until this process ends."""
    ours, _held = os.pipe()
    return ours


def main(arguments: list[str]) -> NoReturn:
    is_group = arguments[:1] == [GROUP]
    command = arguments[1:] if is_group else arguments
    end_with(0, is_group=is_group)
    # The same process becomes the program: the parent has its id, signals and exit code.
    os.execv(command[0], command)  # noqa: S606 - no shell is wanted; the command is the launcher's own


def end_with(launcher: int, *, is_group: bool = False) -> None:
    """Ends this process once this pipe ends, which only the launcher holds open."""
    program = os.getpid()
    if os.fork() == 0:
        _watch(launcher, program, is_group=is_group)


def _watch(launcher: int, program: int, *, is_group: bool) -> NoReturn:
    """A child of the program: while the program is its parent, the id cannot belong to another process."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    # A reader of the program's output must see its end when the program ends, not when this process does.
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    while os.read(launcher, 1):
        pass
    if is_group:
        # This process is part of the group, so the group's id cannot belong to another one.
        os.killpg(program, signal.SIGKILL)
    if os.getppid() == program:
        os.kill(program, signal.SIGTERM)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
