"""A replica whose clock is wrong says so; a slow answer of the storage is no wrong clock."""

from __future__ import annotations

import pytest

from bot.flow.compare_clocks import CompareClocks

pytestmark = pytest.mark.fast


async def notice_of(*, there: float, asked: float, answered: float) -> str:
    """`asked` and `answered`: what this replica's clock says before and after the storage's is read."""
    own = iter((asked, answered))

    async def storage() -> float:
        return there

    clocks = CompareClocks(storage, lambda: next(own))
    assert clocks.notices() == {}
    await clocks.once()
    return clocks.notices().get("clock", "")


async def test_a_wrong_clock_is_reported_with_its_harm() -> None:
    assert await notice_of(there=1_090, asked=1_000, answered=1_000) == (
        "this replica's clock is 90 s behind that of Redis: "
        "its readings have wrong times, and from 5 minutes on it refuses Slack's requests"
    )
    assert "2 min ahead of that of Redis" in await notice_of(there=1_000, asked=1_120, answered=1_120)


@pytest.mark.parametrize(
    ("there", "asked", "answered"),
    [
        pytest.param(1_000, 1_000, 1_000, id="equal"),
        pytest.param(1_029, 1_000, 1_000, id="little"),
        pytest.param(1_000, 960, 1_000, id="slow-answer-read-last"),
        pytest.param(960, 960, 1_000, id="slow-answer-read-first"),
    ],
)
async def test_what_may_be_the_way_of_the_answer_is_not(there: float, asked: float, answered: float) -> None:
    assert await notice_of(there=there, asked=asked, answered=answered) == ""
