"""Which files are playbooks, and which are the test tables beside them."""

from __future__ import annotations

from pathlib import Path

TABLE_ENDING = ".test.yaml"


def is_table(path: Path) -> bool:
    return path.name.endswith(TABLE_ENDING)


def playbook_of(table: Path) -> Path:
    """The playbook that is beside this test table."""
    return table.with_name(table.name.removesuffix(TABLE_ENDING) + ".yaml")


def playbooks_in(folder: Path) -> list[Path]:
    """In order of their names."""
    return [path for path in sorted(folder.glob("*.yaml")) if not is_table(path)]
