"""The main way of kv-cache-oom where no GPU and no quota is left for a canary."""

from __future__ import annotations

from bot.sandbox import scenarios
from tests.end_to_end.playing import MARKS, Branch, must_end_as_written

pytestmark = MARKS

IN_PLACE = ["relieve_limit_concurrency", "relieve_limit_concurrency_in_place", "verify_calm"]
IN_PLACE_BY_ITS_OWNER = ["relieve_limit_concurrency_in_place", "edit_asked", "edit_arrives", "roll_out_theirs"]
FULL: tuple[Branch, ...] = (
    (scenarios.FULL_CLUSTER, IN_PLACE),
    (scenarios.QUOTA, IN_PLACE),
    (scenarios.FULL_SELF_HEAL, [*IN_PLACE_BY_ITS_OWNER, "verify_calm"]),
)


def test_without_room_the_limit_is_rolled_out_in_place() -> None:
    must_end_as_written(FULL)
