"""The JSON Schema for editors: matches the models, describes everything, and accepts all shipped playbooks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from bot.adapters.yaml_playbooks import load_table
from bot.domain.playbooks.loading.schema import fragment_schema, playbook_schema
from bot.domain.playbooks.packaged import packaged_playbooks
from bot.probes.catalogue import PROBES
from tests.deploy.reference import SCHEMAS

pytestmark = pytest.mark.fast

PLAYBOOKS = packaged_playbooks()
SMALL = Path(__file__).parent / "small.yaml"


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_file_says_what_the_models_say(kind: str) -> None:
    shipped = json.loads((PLAYBOOKS / f"{kind}.schema.json").read_text())
    assert shipped == SCHEMAS[kind](), "run: python3 -m uv run python -m tests.deploy.reference"


def undescribed(schema: dict[str, Any]) -> list[str]:
    """Returns the properties without a description for editors."""
    models = {"": schema, **schema.get("$defs", {})}
    return [
        f"{model}.{name}".lstrip(".")
        for model, part in models.items()
        for name, field in part.get("properties", {}).items()
        if not field.get("description")
    ]


@pytest.mark.parametrize("kind", SCHEMAS)
def test_an_editor_has_something_to_say_about_every_key(kind: str) -> None:
    assert undescribed(SCHEMAS[kind]()) == []


def files() -> list[Path]:
    return [path for path in sorted(PLAYBOOKS.glob("*.yaml")) if not path.name.endswith(".test.yaml")]


def faults(schema: dict[str, Any], data: dict[str, Any]) -> list[str]:
    return [
        f"{fault.json_path}: {fault.message}" for fault in jsonschema.Draft202012Validator(schema).iter_errors(data)
    ]


@pytest.mark.parametrize("path", [*files(), SMALL], ids=lambda path: path.stem)
def test_an_editor_finds_no_fault_in_a_sound_playbook(path: Path) -> None:
    assert faults(playbook_schema(PROBES), load_table(path).data) == []


@pytest.mark.parametrize("path", sorted(PLAYBOOKS.glob("fragments/*.yaml")), ids=lambda path: path.stem)
def test_an_editor_finds_no_fault_in_a_fragment(path: Path) -> None:
    assert faults(fragment_schema(), load_table(path).data) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("change: set_flags", "change: set_flag"),
        ("probe: restarts", "probe: restart"),
        ("end: fixed", "end: fine"),
        ("    held: over\n", ""),
        ("    unknown: question", "    unknwon: question"),
    ],
)
def test_an_editor_sees_a_mistake_as_it_is_typed(old: str, new: str, tmp_path: Path) -> None:
    text = SMALL.read_text()
    assert old in text
    path = tmp_path / "small.yaml"
    path.write_text(text.replace(old, new))
    assert faults(playbook_schema(PROBES), load_table(path).data) != []
