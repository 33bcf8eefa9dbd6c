"""Location of the playbooks and fragments that ship with the bot."""

from __future__ import annotations

from pathlib import Path

import bot

PACKAGED = "packaged"
"""The word for that folder in settings."""


def packaged_playbooks() -> Path:
    """Returns the folder inside the wheel, or beside the package in a checkout."""
    package = Path(bot.__file__).parent
    inside = package / "_playbooks"
    return inside if inside.is_dir() else package.parent / "playbooks"
