"""Replicas of the bot behind one address, with faults at drawn moments: nothing is lost, doubled or out of order.

`python -m tests.bench.replicas` plays many more of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bench.replicas import Cell, Size, play_demo, storm
from tests.bench.systems import Surroundings, surroundings
from tests.earlier_code import why_not

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(900)]
SMALL = Size(alerts=40)
BEFORE = "HEAD~1"


@pytest.fixture(scope="module")
def around() -> Iterator[Surroundings]:
    with surroundings() as found:
        yield found


@pytest.mark.parametrize(("replicas", "fault", "seed"), [(1, "kill", 1), (3, "any", 2)])
def test_a_storm_is_shown_whole_whatever_happens_to_replicas(
    around: Surroundings, replicas: int, fault: str, seed: int
) -> None:
    assert storm(around, Cell("storm", replicas, fault, seed), SMALL).faults == []


@pytest.mark.skipif(bool(why_not(BEFORE)), reason=why_not(BEFORE))
def test_a_rolling_upgrade_changes_nothing_about_an_open_incident() -> None:
    assert play_demo(Cell("demo", 2, "upgrade", seed=1, since=BEFORE)).faults == []
