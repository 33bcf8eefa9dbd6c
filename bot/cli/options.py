"""Options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli.serve import OVERRIDES, SETTINGS_FILE

SettingsFile = Annotated[Path | None, typer.Option("--settings", metavar="FILE", help=SETTINGS_FILE)]
Overrides = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=OVERRIDES)]
