"""The commands of `incident-bot`. Each command imports its modules when it runs, so that `--help` is quick."""

from __future__ import annotations

import gc
import signal
import sys

# New objects between two collections of garbage: Python's 700 cost a tenth of an incident's CPU. Forks inherit it.
gc.set_threshold(10_000)


def main() -> None:
    """Runs the command that was typed. A bot that serves keeps no library of the other commands in memory."""
    # A Ctrl-C while modules are imported would print a traceback, or be lost in a callback of the import system.
    interrupted = signal.getsignal(signal.SIGINT)
    if interrupted is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1:2] == ["serve"]:
        from bot.cli.serve import serve
        from bot.domain.kernel import descriptions

        descriptions.are_read = False
        signal.signal(signal.SIGINT, interrupted)
        sys.exit(serve(sys.argv[2:]))
    from bot.cli.app import app

    signal.signal(signal.SIGINT, interrupted)
    app()
