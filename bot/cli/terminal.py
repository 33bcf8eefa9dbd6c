"""How a command prints text that others wrote: alerts, people in Slack, the cluster's messages."""

from __future__ import annotations

import typer

from bot.domain.kernel.terminal import plain


def say(text: str, *, err: bool = False) -> None:
    typer.echo(plain(text), err=err)
