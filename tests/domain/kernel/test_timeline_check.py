"""The result of a comparison with Slack: nothing is verified without a posted head that confirms it."""

from __future__ import annotations

import pytest

from bot.domain.kernel.timeline import GENESIS, Entry, StoredHead, chain
from bot.domain.kernel.timeline_check import PostedHead, of_chain, of_slack, of_store
from tests.builders import START

pytestmark = pytest.mark.fast

ENTRIES = chain([Entry(kind="note", at=START + n, text=str(n)) for n in range(4)], head=GENESIS, length=0)
STORED = StoredHead(head=ENTRIES[-1].hash, length=4)


def posted(head: str, after: float = 1.0) -> PostedHead:
    return PostedHead(slot="request:R1", head=head[:16], at=START + after)


def test_an_entry_that_no_posted_head_covers_is_counted() -> None:
    found = of_slack(ENTRIES, [posted(ENTRIES[1].hash), posted(ENTRIES[0].hash)], is_whole=True)
    assert (found.verdict, found.text) == (
        "agrees",
        "2 posted heads confirm entries 1 to 2; the 2 after them have no head in Slack yet",
    )


def test_a_head_that_no_entry_has_differs() -> None:
    assert of_slack(ENTRIES, [posted(ENTRIES[1].hash), posted("f" * 64)], is_whole=True).verdict == "differs"


def test_a_head_that_was_posted_after_an_export_is_not_missing_from_the_file() -> None:
    later = posted("f" * 64, after=60)
    assert of_slack(ENTRIES, [posted(ENTRIES[1].hash), later], is_whole=False).verdict == "agrees"
    assert of_slack(ENTRIES, [posted(ENTRIES[1].hash), later], is_whole=True).verdict == "differs"


def test_where_nothing_was_posted_nothing_is_compared() -> None:
    assert of_slack(ENTRIES, [], is_whole=True).verdict == "not_compared"
    assert of_store(ENTRIES, ENTRIES, None).verdict == "not_compared"
    assert of_chain([]).verdict == "not_compared"


def test_an_earlier_export_is_how_the_stored_timeline_begins() -> None:
    found = of_store(ENTRIES[:3], ENTRIES, STORED)
    assert (found.verdict, found.text) == (
        "agrees",
        "the run's head is that of its 4 entries; 1 more were stored since",
    )
    assert of_store(ENTRIES, ENTRIES[:3], StoredHead(head=ENTRIES[2].hash, length=3)).text == (
        "entry 4 is not the one that is stored"
    )
