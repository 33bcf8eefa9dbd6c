"""The reference pages match the declarations in the code, no more and no less."""

from __future__ import annotations

import pytest

from bot.settings import LEAVES
from tests.deploy.reference import FOLDER, PAGES

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_up_to_date(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), "run: python3 -m uv run python -m tests.deploy.reference"


def test_there_is_no_other_page() -> None:
    assert {file.name for file in FOLDER.glob("*.md")} == PAGES.keys()


def test_every_setting_says_what_it_does() -> None:
    assert [".".join(path) for path, info in LEAVES.items() if not info.description] == []
