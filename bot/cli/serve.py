"""`incident-bot serve`: runs the bot. It imports neither the library of the other commands nor what only they need."""

from __future__ import annotations

import argparse
import gc
import importlib
import linecache
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from bot.domain.kernel.errors import BotError

DOES = "Run the bot: receive alerts, ask people, change, verify."
SETTINGS_FILE = "A YAML file of settings; the environment wins over it."
OVERRIDES = "Override a playbook's setting; may be repeated."


def serve(arguments: Sequence[str]) -> int:
    """Serves until SIGTERM or SIGINT; returns the exit code. `arguments`: those after `serve`."""
    typed = _parser().parse_args(arguments)
    # What is imported now stays, so it is not worth looking through again and again.
    gc.disable()
    try:
        from bot.settings import load_settings

        wanted = load_settings(os.environ, typed.settings, overrides=typed.set)
        import uvloop

        wiring = wiring_alone()
        linecache.clearcache()  # pydantic read the docstrings of fields with it, and it keeps whole files
        sys.path_importer_cache.clear()  # the names of all files in all folders that something was imported from
        gc.freeze()
        # Each playbook then uses the memory again that compiling the one before it took.
        gc.enable()
        uvloop.run(wiring.serve(wanted))
    except BotError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="incident-bot serve", description=DOES)
    parser.add_argument("--settings", type=Path, metavar="FILE", help=SETTINGS_FILE)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=OVERRIDES)
    return parser


def wiring_alone() -> ModuleType:
    """`bot.wiring`, without what its libraries import only because it is installed."""
    # structlog, httpx and uvicorn would import them: 5 MB for colours that no log has, reloads that nobody wants, and
    # threads of another kind.
    for name in ("rich", "pygments", "watchfiles", "greenlet"):
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
    # Another one, for stores of OAuth that slack-bolt has and this bot does not use.
    unused = ModuleType("sqlite3")
    unused.Connection = object  # type: ignore[attr-defined]
    sys.modules.setdefault(unused.__name__, unused)
    wiring = importlib.import_module("bot.wiring")
    if sys.modules[unused.__name__] is unused:
        del sys.modules[unused.__name__]
    return wiring
