"""The files of deploy/, parsed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"


def documents(name: str) -> list[Any]:
    """Every document of one YAML file below deploy/."""
    return list(YAML(typ="safe", pure=True).load_all((DEPLOY / name).read_text(encoding="utf-8")))


def document(name: str) -> Any:
    (only,) = documents(name)
    return only
