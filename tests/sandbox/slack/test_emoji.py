"""Emoji carry meaning in the bot's messages, and a machine without a font for them shows empty boxes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

BOT = Path(__file__).parents[3] / "bot"
SIGN = re.compile("[\u2139\u231a-\u23ff\u25b6\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff]")


@pytest.mark.fast
def test_the_page_draws_every_sign_that_the_bot_writes() -> None:
    written = {sign for file in (BOT / "adapters" / "slack").rglob("*.py") for sign in SIGN.findall(file.read_text())}
    page = (BOT / "sandbox" / "slack" / "page" / "emoji.js").read_text()
    drawn = page.partition("const CHARACTERS = {")[2].partition("};")[0]
    assert {"🔴", "✅", "⏳"} <= written
    assert sorted(sign for sign in written if f'"{sign}"' not in drawn) == []
