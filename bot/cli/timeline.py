"""`incident-bot timeline …`: check that the timeline of an incident is untouched."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from bot.cli.failures import Commands
from bot.cli.options import SettingsFile
from bot.cli.terminal import say

timelines = typer.Typer(
    cls=Commands,
    help="Check that the timeline of an incident is untouched.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@timelines.callback()
def timeline() -> None:
    pass


@timelines.command()
def verify(
    of: Annotated[str, typer.Argument(metavar="FILE|INC-1", help="An exported JSON file, or an incident in Redis.")],
    settings: SettingsFile = None,
) -> None:
    """Compare a timeline with its chain, storage and Slack.

    It is compared with its own chain, with the head that its run keeps, and with the heads posted to Slack.

    Exits with 0 when all of them agree, 1 when one differs, and 2 when one could not be compared.
    """
    from bot.cli.stored import incident_id
    from bot.cli.timeline_verify import NOT_CHECKED, comparison_lines, exit_code, verified, verified_file
    from bot.domain.kernel.errors import BotError

    is_file = of.endswith(".json") or Path(of).is_file()
    try:
        given, compared = asyncio.run(
            verified_file(Path(of), settings) if is_file else verified(incident_id(of), settings)
        )
    except BotError as error:
        say(str(error), err=True)
        raise typer.Exit(NOT_CHECKED) from error
    say(f"{given.incident}: {len(given.entries)} entries")
    for line in comparison_lines(compared):
        say(line)
    raise typer.Exit(exit_code(compared))
