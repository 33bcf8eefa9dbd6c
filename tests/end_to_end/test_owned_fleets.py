"""The main way of kv-cache-oom on fleets that another tool keeps, or whose version is not known."""

from __future__ import annotations

import pytest

from bot.sandbox import scenarios
from tests.end_to_end.playing import MARKS, Branch, must_end_as_written

pytestmark = MARKS

ON_A_CANARY = ["relieve_limit_concurrency", "roll_out_judge", "roll_out_roll_out", "roll_out_remove", "verify_calm"]
BY_ITS_OWNER = [
    "roll_out_judge",
    "roll_out_roll_out",
    "roll_out_by_owner_asked",
    "roll_out_by_owner_arrives",
    "roll_out_remove",
]

KEPT: tuple[Branch, ...] = ((scenarios.HELM, ON_A_CANARY), (scenarios.ARGOCD, ON_A_CANARY))
REVERTED: tuple[Branch, ...] = (
    (scenarios.ARGOCD_SELF_HEAL, [*BY_ITS_OWNER, "verify_calm"]),
    (scenarios.UNKNOWN_VERSION, ON_A_CANARY),
)


@pytest.mark.parametrize(
    "branches",
    [pytest.param(KEPT, id="helm-and-argo"), pytest.param(REVERTED, id="self-heal-and-version")],
)
def test_each_fleet_gets_its_relief(branches: tuple[Branch, ...]) -> None:
    must_end_as_written(branches)
