"""The lines of the unattended demo: they wrap at words, and a busy machine is named and not the end."""

from __future__ import annotations

import io

import httpx
import pytest
from rich.console import Console

from bot.cli.demo import timed, unless_busy
from bot.domain.kernel.errors import StorageUnavailableError

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


@pytest.mark.parametrize("error", [httpx.ReadTimeout("timed out"), StorageUnavailableError("Redis did not answer")])
def test_what_does_not_answer_in_time_is_looked_at_again(error: Exception) -> None:
    def look() -> str:
        raise error

    lines: list[str] = []
    assert unless_busy(look, lines.append) is None
    assert lines == [f"looks again, because this machine is busy: {error}"]
    assert unless_busy(lambda: "closed", lines.append) == "closed"
