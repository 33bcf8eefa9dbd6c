"""How long replicas of this workload take to start, from their own status."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.domain.changes.plan import Wait
from bot.domain.changes.startup import recorded_start_seconds
from bot.domain.cluster.snapshot import Obj
from tests.domain.changes.snapshots import planned, pod, snapshot

pytestmark = pytest.mark.fast


def started(number: int, minutes: int, *, restarts: int = 0, is_ready: bool = True) -> Obj:
    made = pod(number, is_ready=is_ready)
    made["status"] |= {
        "startTime": "2027-01-15T07:00:00Z",
        "conditions": [
            {
                "type": "Ready",
                "status": "True" if is_ready else "False",
                "lastTransitionTime": f"2027-01-15T07:{minutes:02}:00Z",
            }
        ],
        "containerStatuses": [{"name": "vllm", "restartCount": restarts}],
    }
    return made


@pytest.mark.parametrize(
    ("pods", "minutes"),
    [
        pytest.param([started(1, 8)], 8, id="one"),
        pytest.param([started(1, 8), started(2, 9), started(3, 55)], 9, id="one-was-unready-later"),
        pytest.param([started(1, 8), started(2, 40)], 8, id="the-lower-of-two"),
        pytest.param([started(1, 8), started(2, 2, restarts=1)], 8, id="a-restarted-engine-does-not-count"),
        pytest.param([started(1, 8, is_ready=False)], None, id="not-ready"),
        pytest.param([pod(1)], None, id="no-times"),
    ],
)
def test_the_lower_half_of_what_the_replicas_say_counts(pods: list[Obj], minutes: int | None) -> None:
    assert recorded_start_seconds(snapshot(pods=tuple(pods))) == (None if minutes is None else minutes * 60.0)


@pytest.mark.parametrize(
    ("minutes", "seconds"), [pytest.param(8, 16 * 60, id="twice-its-own"), pytest.param(1, 180, id="never-too-short")]
)
def test_a_slow_load_is_given_twice_its_own_time_before_it_is_called_a_failure(minutes: int, seconds: float) -> None:
    seen = replace(snapshot(), pods=tuple(started(number, minutes) for number in (1, 2, 3, 4)))
    wait = planned("scale", {"by": 1}, seen).steps[-1]
    assert isinstance(wait, Wait)
    assert wait.within_seconds == seconds + 120
