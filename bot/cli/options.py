"""Options that several commands take, and what their values stand for."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from bot.cli.failures import CommandError
from bot.cli.serve import OVERRIDES, SETTINGS_FILE
from bot.sandbox.scenarios import SCENARIOS, Scenario

SettingsFile = Annotated[Path | None, typer.Option("--settings", metavar="FILE", help=SETTINGS_FILE)]
Overrides = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=OVERRIDES)]


def scenario_named(name: str) -> Scenario:
    from bot.cli.playbook_names import meant

    if name not in SCENARIOS:
        raise CommandError(f"no scenario '{name}'; {meant(name, SCENARIOS)}")
    return SCENARIOS[name]


def command_line_user(name: str, login: Callable[[], str] = getpass.getuser) -> str:
    """Who gives a command, marked as unverified. The user of a container may have a number and no name."""
    try:
        return f"{name or login()} (command line)"
    except (KeyError, OSError):
        return f"user {os.getuid()} (command line)"
