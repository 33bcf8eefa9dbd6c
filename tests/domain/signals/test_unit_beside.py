"""A unit is left out beside a label that begins with it, as a word."""

import pytest

from bot.domain.signals.signal import unit_beside

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("label", "unit", "shown"),
    [
        ("Requests running", "requests", ""),
        ("Requests", "requests", ""),
        ("Requests finished", "requests per second", "requests per second"),
        ("Slowest first token", "s", "s"),
        ("Blocksize", "blocks", "blocks"),
        ("Longest wait", "", ""),
    ],
)
def test_only_a_whole_word_of_a_label_stands_for_the_unit(label: str, unit: str, shown: str) -> None:
    assert unit_beside(label, unit) == shown
