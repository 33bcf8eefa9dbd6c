"""A dependency that goes away at a step, alone or with another fault: the incident ends as undisturbed.

`tests/flow/test_crash_points.py` kills the bot at every step; `python -m tests.bench.crash_matrix` plays every step and
fault.
"""

from __future__ import annotations

import pytest
import redis.asyncio as aioredis
from structlog.testing import capture_logs

from tests.bench.crash_matrix import FAULTS, KILL, Undisturbed, cells, disturbed, undisturbed
from tests.flow.scenes import drill_scene, shipped_scene

SEED = 4
OF_THE_DRILL, OF_THE_DEMO = 3, 1
"""Steps for each fault."""


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != KILL])
async def test_an_outage_at_any_step_changes_nothing_that_lasts(client: aioredis.Redis, tag: str, fault: str) -> None:
    wanted: Undisturbed = await undisturbed(drill_scene, client, tag)
    with capture_logs():
        for cell in cells(len(wanted.points), [fault], sample=OF_THE_DRILL, seed=SEED):
            result = await disturbed(drill_scene, client, cell, wanted, tag=tag)
            assert result.outcome != "DIFFERENT", f"{cell} ({result.what}): {result.found}"


async def test_two_faults_at_once_change_nothing_that_lasts_in_the_shipped_playbook(
    client: aioredis.Redis, tag: str
) -> None:
    wanted = await undisturbed(shipped_scene, client, tag)
    both = [fault for fault, parts in FAULTS.items() if len(parts) > 1]
    with capture_logs():
        for cell in cells(len(wanted.points), both, sample=OF_THE_DEMO, seed=SEED):
            result = await disturbed(shipped_scene, client, cell, wanted, tag=tag)
            assert result.outcome != "DIFFERENT", f"{cell} ({result.what}): {result.found}"
