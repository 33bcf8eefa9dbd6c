"""A mitigation that does nothing is known soon: nobody waits for all of `verify_within` before the next proposal."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.incidents.rehearsed import Rehearsed
from bot.domain.kernel.timeline import Entry
from tests.flow.test_harms import shipped_case

pytestmark = pytest.mark.fast
MINUTE = 60.0
THRASHES = {"thrash": 2.8, "preempted": 90, "kv_usage": 0.98}
CALM = {"thrash": 0, "preempted": 0, "kv_usage": 0.6}


def minutes_in(found: Rehearsed, title: str) -> float:
    """How long the first watch of this title lasted."""
    began = next(entry.at for entry in found.entries if entry.kind == "entered" and entry.text.startswith(title))
    return (next(entry.at for entry in found.entries if _is_verdict(entry, title)) - began) / MINUTE


def verdict_on(found: Rehearsed, title: str) -> str:
    return next(str(entry.data["verdict"]) for entry in found.entries if _is_verdict(entry, title))


def _is_verdict(entry: Entry, title: str) -> bool:
    return entry.kind == "verdict" and entry.data["title"] == title


@pytest.mark.parametrize(
    ("playbook", "at"),
    [
        pytest.param("kv-cache-oom", THRASHES, id="it thrashes as before"),
        pytest.param("inference-slo-breach", {"ttft_missed": 0.5}, id="first tokens are late as before"),
    ],
)
async def test_the_next_mitigation_is_proposed_ten_minutes_after_one_that_did_nothing(
    playbook: str, at: dict[str, Any]
) -> None:
    found = await shipped_case(playbook, at={"verify_calm": at})
    assert verdict_on(found, "Does the trouble stay away?") == "broke"
    assert minutes_in(found, "Does the trouble stay away?") == pytest.approx(10, abs=0.1)
    proposed = [each.state for each in found.proposed]
    assert len(proposed) >= 3, proposed


async def test_a_fix_that_works_is_verified_as_soon_as_before() -> None:
    found = await shipped_case("kv-cache-oom", at={"verify_calm": CALM})
    assert (found.run.ending, verdict_on(found, "Does the trouble stay away?")) == ("fixed", "held")
    assert minutes_in(found, "Does the trouble stay away?") == pytest.approx(10, abs=0.1)


async def test_a_full_pool_without_preemptions_is_no_clear_failure() -> None:
    """The queue may have to drain first, so it has all of `verify_within`."""
    found = await shipped_case("kv-cache-oom", at={"verify_calm": CALM | {"kv_usage": 0.95}})
    assert verdict_on(found, "Does the trouble stay away?") == "not_held"
    assert minutes_in(found, "Does the trouble stay away?") > 20


async def test_a_canary_that_does_not_help_with_few_requests_is_removed_after_five_minutes() -> None:
    """200 requests, which decide at once, may take an hour."""
    found = await shipped_case("kv-cache-oom", at={"roll_out_judge": {"canary_thrash": 2.5, "canary_count": 12}})
    assert verdict_on(found, "Does the canary pass?") == "broke"
    assert minutes_in(found, "Does the canary pass?") == pytest.approx(5, abs=0.1)
    assert "roll_out_drop" in found.run.findings.path
