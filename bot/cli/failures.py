"""How a command fails: the bot's own errors go to standard error, without a traceback. The exit code is 1, or 2 if
something must be installed first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from bot.cli.terminal import say
from bot.domain.kernel.errors import BotError, StorageUnavailableError


class CommandError(BotError):
    """A message for the person who typed the command."""


class NotInstalledError(CommandError):
    """The command needs a program that this machine does not have; the message says how to install it."""


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raises `CommandError` if the block cannot write this file."""
    try:
        yield
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}") from error


class Commands(TyperGroup):
    """A group of commands whose `BotError` is a message; anything else is a bug of ours and keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BotError as error:
            say(str(error), err=True)
            if isinstance(error, StorageUnavailableError):
                typer.echo("→ Correct REDIS_URL, or start Redis, and repeat the command.", err=True)
            raise typer.Exit(2 if isinstance(error, NotInstalledError) else 1) from error
