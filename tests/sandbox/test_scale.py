"""What a world of real engines changes in a scenario, and which scenarios it cannot play."""

from __future__ import annotations

import pytest

from bot.domain.kernel.durations import is_duration, seconds
from bot.sandbox.demo import WINDOWS
from bot.sandbox.scale import SIMULATED, TWO_CORES, impossible_on_a_cpu
from bot.sandbox.scenarios import OVERLOAD, SCENARIOS, THRASH, Scenario

pytestmark = pytest.mark.fast


def test_the_simulated_world_plays_scenarios_as_they_are_written() -> None:
    assert SIMULATED.windows(WINDOWS) == WINDOWS
    assert SIMULATED.load(THRASH.trouble_load) == THRASH.trouble_load


def test_each_of_two_replicas_has_as_many_clients_as_each_of_four() -> None:
    assert TWO_CORES.load({"workers": 176, "burst": 20, "pause_seconds": 6}) == {
        "workers": 88,
        "burst": 10,
        "pause_seconds": 6,
    }
    arrivals = TWO_CORES.load({"arrivals_per_second": 36, "prompt_tokens": [80, 112]})
    assert arrivals == {"arrivals_per_second": 6.0, "prompt_tokens": [80, 112]}


def test_real_engines_get_a_load_of_their_own_where_recomputing_matters() -> None:
    assert TWO_CORES.trouble(THRASH) == OVERLOAD.trouble_load
    assert SIMULATED.trouble(THRASH) == THRASH.trouble_load
    assert TWO_CORES.trouble(OVERLOAD) == OVERLOAD.trouble_load


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=list(SCENARIOS))
def test_durations_are_stretched_and_other_settings_stay(scenario: Scenario) -> None:
    written = {**WINDOWS, **scenario.windows}
    for name, value in TWO_CORES.windows(written).items():
        if is_duration(written[name]):
            assert seconds(value) == pytest.approx(3 * seconds(written[name]))
        else:
            assert value == written[name]


def test_a_scenario_that_real_engines_cannot_play_is_known_with_its_reason() -> None:
    impossible = {name: reason for name, scenario in SCENARIOS.items() if (reason := impossible_on_a_cpu(scenario))}
    assert impossible == {
        "hung-engine": "the fault stuck, which only a simulated engine can have",
        "slow-replica": "the fault slow, which only a simulated engine can have",
        "unknown-version": "another image, and the engines run the vLLM of this machine",
        "crashes": "the fault cuda_oom, which only a simulated engine can have",
        "blind": "the fault metrics_down, which only a simulated engine can have",
        "kind-unknown": "another image, and the engines run the vLLM of this machine",
        "eager-fallback": "another image, and the engines run the vLLM of this machine",
        "scattered": "another image, and the engines run the vLLM of this machine",
        "compacts": "another image, and the engines run the vLLM of this machine",
    }
