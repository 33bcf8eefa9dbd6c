"""A simulated month breaks none of the rules of an incident's life."""

from __future__ import annotations

import pytest

from tests.life.month import a_month


@pytest.mark.parametrize("seed", range(3))
async def test_a_month_breaks_no_rule(seed: int) -> None:
    outcome = await a_month(seed)
    assert outcome.faults == []
    assert outcome.incidents > 20
