"""How much people have to read and press, measured over everything that the bot sends in the demo's scenario."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bot.adapters.pictures.charts import drawn
from bot.cli.printed import as_pdf
from bot.domain.reports import html
from bot.sandbox.scenarios import THRASH
from tests.end_to_end.measured import MAX_BUTTONS
from tests.end_to_end.playing import MARKS, Played, play

pytestmark = MARKS

PAGE = re.compile(rb"/Type\s*/Page\b")
APPENDIX = '<h1 class="appendix">'
"""Begins on a page of its own."""


@pytest.fixture(scope="module")
def played() -> Played:
    return play(THRASH, is_whole=lambda seen: seen.pictures[-1:] == ("closed",) and bool(seen.files))


def test_a_thrash_is_described_in_few_words_and_ended_with_few_presses(played: Played) -> None:
    seen = played.seen
    assert played.is_verified
    assert seen.replies <= 8
    assert seen.words <= 500
    assert seen.card_edits <= 20
    assert seen.max_buttons <= MAX_BUTTONS
    assert len([line for line in played.actions if line.startswith("presses")]) <= 3
    assert len([line for line in played.actions if line.startswith("sends in the form")]) <= 1
    assert seen.snake_case == set()


def test_the_picture_is_in_the_diagnosis_above_the_first_request_and_in_the_closing_message(played: Played) -> None:
    assert played.seen.pictures == ("diagnosis", "closed")


@pytest.mark.needs_server("chromium")
def test_the_report_prints_on_few_pages_before_its_appendix(played: Played, tmp_path: Path) -> None:
    page = html(played.timeline, lambda chart: drawn(chart, "svg"))
    before, found, _ = page.partition(APPENDIX)
    assert found
    as_pdf(f"{before}</main></body></html>", tmp_path / "report.pdf")
    assert len(PAGE.findall((tmp_path / "report.pdf").read_bytes())) <= 4
