"""How much people have to read and press, measured over everything that the bot sends in the demo's scenario."""

from __future__ import annotations

import pytest

from bot.sandbox.scenarios import THRASH
from tests.end_to_end.measured import MOST_BUTTONS
from tests.end_to_end.playing import play

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]


def test_a_thrash_is_told_in_few_words_and_ended_with_few_presses() -> None:
    played = play(THRASH)
    seen = played.seen
    assert played.is_verified
    assert seen.replies <= 8
    assert seen.words <= 500
    assert seen.card_edits <= 20
    assert seen.most_buttons <= MOST_BUTTONS
    assert len([line for line in played.said if line.startswith("presses")]) <= 3
    assert len([line for line in played.said if line.startswith("sends in the form")]) <= 1
    assert seen.snake_case == set()
