"""`incident-bot playbook new`: a commented playbook and its test table, which pass as they are, and their schema."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from bot.cli.failures import CommandError
from bot.domain.playbooks.packaged import packaged_playbooks

STARTERS = ("starter.yaml", "starter.test.yaml")
SCHEMA = "playbook.schema.json"
"""What the starter's first line points its editor to."""


def write_starter(name: str, folder: Path) -> list[Path]:
    """Raise `CommandError` rather than write over anything."""
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,62}", name):
        raise CommandError(f"'{name}' is no name: use small letters, digits and hyphens; example: slow-first-token")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise CommandError(f"{folder} is no folder and cannot be made one: {error.strerror}") from error
    targets = [folder / starter.replace("starter", name) for starter in STARTERS]
    there = next((path for path in targets if path.exists()), None)
    if there is not None:
        raise CommandError(f"{there} is there already; take another name")
    title = name.replace("-", " ").capitalize()
    for starter, path in zip(STARTERS, targets, strict=True):
        text = (files("bot.domain.playbooks") / starter).read_text(encoding="utf-8")
        path.write_text(text.replace("NAME", name).replace("TITLE", title), encoding="utf-8")
    schema = folder / SCHEMA
    if schema.exists():
        return targets
    schema.write_bytes((packaged_playbooks() / SCHEMA).read_bytes())
    return [*targets, schema]
