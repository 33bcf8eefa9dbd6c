"""How a command fails: the bot's own errors go to standard error with exit code 1, without a traceback."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from bot.domain.kernel.errors import BotError


class CommandError(BotError):
    """A message for the person who typed the command."""


class Commands(TyperGroup):
    """A group of commands whose `BotError` is a message; anything else is a bug of ours and keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BotError as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(1) from error
