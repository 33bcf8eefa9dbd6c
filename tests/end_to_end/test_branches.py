"""Each branch of the two main runbooks in the sandbox world: real engines' pages and a real API, to the flow's end.

The main ways are in test_demo.py and test_other_playbooks.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from bot.sandbox import scenarios
from bot.sandbox.scenarios import Scenario
from tests.end_to_end.playing import Played, play

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(420)]

Branch = tuple[Scenario, Sequence[str]]
"""A scenario, and the states that it has to come through, in this order."""

THRASHES: tuple[Branch, ...] = (
    (scenarios.DEPLOY_IN_TIME, ["changed", "name_revision", "rollback_named", "verify_calm", "kept", "fixed"]),
    (scenarios.MORE_TRAFFIC, ["changed", "choose", "scale", "settle", "verify_calm", "restore_cause", "fixed"]),
)
SHEDS: tuple[Branch, ...] = (
    (scenarios.SHED_THE_REST, ["cap_flag", "capacity_ask", "can_shed", "shed_spare", "verify_calm", "fixed"]),
    (scenarios.SHEDDING_ALREADY, ["is_thrash", "early", "flap", "report_cleared", "self_cleared"]),
)
ELSEWHERE: tuple[Branch, ...] = (
    (scenarios.SICK_NODE, ["to_gpu_fault", "cordon", "uncordon", "crash", "is_thrash", "flap", "self_cleared"]),
    (scenarios.CRASHES, ["crash", "to_oom_triage", "serving", "nothing_holds", "hand_over", "handed_over"]),
)
SEEN_EARLY_OR_NOT: tuple[Branch, ...] = (
    (scenarios.EARLY_SIGNS, ["is_thrash", "early", "pressure", "flap", "self_cleared"]),
    (scenarios.BLIND, ["gather", "blind", "hand_over", "handed_over"]),
)
NOT_ENABLED: tuple[Branch, ...] = (
    (scenarios.SET_FP8, ["none_is_on", "set_quantised", "score", "confirm", "promote", "verify_calm", "fixed"]),
    (scenarios.FP8_LOSES, ["none_is_on", "set_quantised", "score", "confirm", "waive", "back_out", "backed_out"]),
)
ENABLED_IN_VAIN: tuple[Branch, ...] = (
    (scenarios.FP8_NOT_DOUBLED, ["remeasure", "by_class", "quantised", "not_doubled", "reclassify", "as_designed"]),
    (scenarios.SCATTERED, ["isolate", "probe", "no_compaction", "turn_off", "off_named", "off_verify", "backed_out"]),
)
NOBODY_KNOWS: tuple[Branch, ...] = (
    (scenarios.NEVER_SET, ["classify", "none_is_on", "not_applicable"]),
    (scenarios.KIND_UNKNOWN, ["classify", "ask_class", "hand_over", "handed_over"]),
)


@pytest.mark.parametrize(
    "branches",
    [
        pytest.param(THRASHES, id="kv-cache-oom: deploy, traffic"),
        pytest.param(SHEDS, id="kv-cache-oom: shedding"),
        pytest.param(ELSEWHERE, id="kv-cache-oom: node, crash"),
        pytest.param(SEEN_EARLY_OR_NOT, id="kv-cache-oom: early, blind"),
        pytest.param(NOT_ENABLED, id="kv-compression: not enabled"),
        pytest.param(ENABLED_IN_VAIN, id="kv-compression: in vain"),
        pytest.param(NOBODY_KNOWS, id="kv-compression: never set, unknown"),
    ],
)
def test_each_branch_ends_where_its_flow_says(branches: tuple[Branch, ...]) -> None:
    # Worlds mostly wait, so two at once take no longer than one.
    with ThreadPoolExecutor(len(branches)) as worlds:
        all_played = list(worlds.map(lambda branch: play(branch[0]), branches))
    for (scenario, wanted), played in zip(branches, all_played, strict=True):
        assert played.is_verified, f"{scenario.name}: {played.ending}\n{played.told}"
        assert _without(played, wanted) == [], f"{scenario.name} went {played.way}"


def _without(played: Played, wanted: Sequence[str]) -> list[str]:
    """The wanted states from the first one on that does not come after those before it."""
    left = list(wanted)
    for state in played.way:
        if left and state == left[0]:
            left.pop(0)
    return left
