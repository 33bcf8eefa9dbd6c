"""The commands of `incident-bot`. Each command imports its modules when it runs, so that `--help` is quick."""

from __future__ import annotations

import gc
import sys

# New objects between two collections of garbage: Python's 700 cost a tenth of an incident's CPU. Forks inherit it.
gc.set_threshold(10_000)


def main() -> None:
    """Runs the command that was typed. A bot that serves keeps no library of the other commands in memory."""
    if sys.argv[1:2] == ["serve"]:
        from bot.cli.serve import serve

        sys.exit(serve(sys.argv[2:]))
    from bot.cli.app import app

    app()
