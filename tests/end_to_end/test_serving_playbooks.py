"""The playbooks of late answers and of crashes, each once from a real alert to its end."""

from __future__ import annotations

import pytest

from bot.sandbox import scenarios
from tests.end_to_end.playing import MARKS, Branch, must_end_as_written

pytestmark = MARKS

SERVING: tuple[Branch, ...] = (
    (
        scenarios.SLO_BREACH,
        ["scope", "relieve_scale_out", "verify_calm", "restore_worse", "restore_more", "fixed_end"],
    ),
    (
        scenarios.CRASH_LOOP,
        [
            "look",
            "stuck_rollout",
            "way_back",
            "way_back_rollback",
            "stays_up",
            "verify_calm",
            "fixed_end",
        ],
    ),
)
SLOW_REPLICA: tuple[Branch, ...] = (
    (scenarios.SLOW_REPLICA, ["scope", "replace_evict_as_it_is", "another", "verify_calm", "fixed_end"]),
)
ENGINE_DIES: tuple[Branch, ...] = (
    (scenarios.ENGINE_DIES, ["look", "died", "unclear", "stays_up", "died", "unclear", "handed_over"]),
)
DIES_OF_ITS_GPU: tuple[Branch, ...] = (
    (
        scenarios.DIES_OF_ITS_GPU,
        ["to_gpu_fault", "cordon_node", "more", "elsewhere", "stays_up", "verify_calm", "ticket", "isolated_end"],
    ),
)
PROBE_FAILS: tuple[Branch, ...] = (
    (scenarios.PROBE_FAILS, ["look", "class", "kill", "stays_up", "verify_calm", "fixed_end"]),
)


@pytest.mark.parametrize(
    "branches",
    [
        # The longest one first: a worker gets its next module while two tests of this one are left.
        pytest.param(ENGINE_DIES, id="engine-dies"),
        pytest.param(SERVING, id="slo-and-crash-loop"),
        pytest.param(SLOW_REPLICA, id="slow-replica"),
        pytest.param((*DIES_OF_ITS_GPU, *PROBE_FAILS), id="dies-of-its-gpu-and-probe-fails"),
    ],
)
def test_a_playbook_comes_from_its_alert_to_a_verified_end(branches: tuple[Branch, ...]) -> None:
    must_end_as_written(branches)
