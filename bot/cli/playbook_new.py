"""`incident-bot playbook new`: a commented playbook and its test table, which pass unchanged, and their schema."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from bot.cli.failures import CommandError, writing
from bot.domain.playbooks.packaged import packaged_playbooks

STARTERS = ("starter.yaml", "starter.test.yaml")
SCHEMA = "playbook.schema.json"
"""The schema file named in the starter's first line, for editors."""


def write_starter(name: str, folder: Path) -> list[Path]:
    """Raises `CommandError` rather than overwrite a file."""
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,62}", name):
        raise CommandError(f"'{name}' is not a name: use small letters, digits and hyphens; example: slow-first-token")
    packaged = packaged_playbooks() / f"{name}.yaml"
    if packaged.exists():
        raise CommandError(
            f"'{name}' came with the bot, and one of the same name would take its place; use another name, or copy "
            f"{packaged} to change it"
        )
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise CommandError(f"{folder} is not a folder and cannot be created: {error.strerror}") from error
    targets = [folder / starter.replace("starter", name) for starter in STARTERS]
    there = next((path for path in targets if path.exists()), None)
    if there is not None:
        raise CommandError(f"{there} already exists; use another name")
    title = name.replace("-", " ").capitalize()
    for starter, path in zip(STARTERS, targets, strict=True):
        text = (files("bot.domain.playbooks") / starter).read_text(encoding="utf-8")
        with writing(path):
            path.write_text(text.replace("NAME", name).replace("TITLE", title), encoding="utf-8")
    schema = folder / SCHEMA
    if schema.exists():
        return targets
    with writing(schema):
        schema.write_bytes((packaged_playbooks() / SCHEMA).read_bytes())
    return [*targets, schema]
