"""The lines of the unattended demo wrap at words, whatever the width of the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from bot.cli.demo import timed

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_long_line_goes_on_below_its_text_and_no_word_is_cut(width: int) -> None:
    text = f"presses 'Approve' on: R3 [high] {'preemption-thrash ' * 9}ends"
    page = io.StringIO()
    Console(file=page, width=width, color_system=None).print(timed(7.25, text))
    lines = page.getvalue().splitlines()
    assert " ".join(" ".join(lines).split()) == f"7.2 s {text}"
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("  7.2 s  presses")
    assert all(line.startswith(" " * 9) for line in lines[1:])
