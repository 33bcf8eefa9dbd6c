"""The capacity model agrees with what can be computed by hand."""

from __future__ import annotations

import pytest

from tests.bench.capacity import Costs, Limits, steady, storm

pytestmark = pytest.mark.fast


def test_cards_come_at_the_pace_that_people_can_read() -> None:
    found = storm(200, 100, Costs(), Limits())
    assert found.cards == pytest.approx(20 * 60, abs=5)
    assert found.saturates_first == "cards"


def test_threads_follow_their_cards_while_slack_takes_them() -> None:
    assert storm(100, 100, Costs(posts=6), Limits()).threads == pytest.approx(600, abs=10)
    assert storm(100, 100, Costs(posts=12), Limits()).threads == pytest.approx(1200, abs=20)


def test_more_processes_shorten_the_diagnosis_only() -> None:
    one, four = (storm(6000, 100, Costs(), Limits(processes=number)) for number in (1, 4))
    assert one.diagnosed == pytest.approx(6000 * Costs().bot_seconds_to_card, abs=3)
    assert four.diagnosed == pytest.approx(60, abs=3)
    assert four.cards == pytest.approx(one.cards, rel=0.01)


def test_shards_multiply_everything() -> None:
    one, eight = steady(Costs(), Limits()), steady(Costs(), Limits(1, 0.7, 8, 8, 8))
    assert {part: eight[part] / one[part] for part in one} == dict.fromkeys(one, pytest.approx(8))
