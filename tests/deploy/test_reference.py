"""The reference pages match the declarations in the code, no more and no less."""

from __future__ import annotations

import json

import jsonschema
import pytest

from bot.domain.reports import as_json
from bot.settings import LEAVES
from tests.deploy.reference import FOLDER, PAGES
from tests.domain.reports.charted import fixed, thrash_line, usage_line

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_up_to_date(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), "run: python3 -m uv run python -m tests.deploy.reference"


def test_there_is_no_other_page() -> None:
    assert {file.name for file in FOLDER.iterdir() if file.suffix != ".png"} == PAGES.keys()


def test_an_export_is_as_its_schema_says() -> None:
    schema = json.loads((FOLDER / "report.schema.json").read_text(encoding="utf-8"))
    exported = json.loads(as_json(fixed(thrash_line(), usage_line())))
    jsonschema.validate(exported, schema)
    assert exported["timeline"]


def test_every_setting_says_what_it_does() -> None:
    assert [".".join(path) for path, info in LEAVES.items() if not info.description] == []
