"""The simulated fleet stays close to real vLLM engines that were given the same flags and the same load.

`python -m tests.bench.calibrate --vllm PATH` records the real ones again; recorded.json shows both.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.fleet.calibration import simulated
from tests.sandbox.fleet.calibration.cases import ENDS, LOADS, EndCase, LoadCase

pytestmark = pytest.mark.fast

RECORDED: dict[str, Any] = json.loads((Path(__file__).with_name("recorded.json")).read_text())
WITHIN = {
    # absolute, relative: a figure may differ by the larger of the two
    "usage_mean": (0.06, 0.0),
    "usage_p90": (0.1, 0.0),
    "running_mean": (0.5, 0.25),
    "waiting_mean": (1.0, 0.15),
    "tokens_per_running": (0.0, 0.2),
    "preemptions_per_finished": (0.15, 0.25),
    "prompt_tokens_mean": (0.0, 0.05),
    "output_tokens_mean": (0.0, 0.05),
    "computed_prompt_tokens_mean": (0.0, 0.05),
    "prefix_hit_ratio": (0.02, 0.0),
}
"""How far a simulated figure may be from the recorded one. Speeds are not compared: a CPU is no GPU."""
GPU_ONLY = (
    "Available KV cache memory",
    "GPU KV cache size",
    "Initializing a VN LLM engine",
    "Using FLASH_ATTN attention backend",
    "non-default args",
    "world_size=",
)
"""What an engine on a GPU logs in other words than one on a CPU."""
VARIES = "Dumping "
"""These lines hold the engine's configuration and its requests."""


@pytest.mark.parametrize("case", LOADS, ids=lambda case: case.name)
def test_a_simulated_engine_shows_what_a_real_one_shows_under_the_same_load(case: LoadCase) -> None:
    real = RECORDED["loads"][case.name]["real"]
    assert RECORDED["loads"][case.name]["flags"] == list(case.flags), "record it again: the flags have changed"
    found = simulated.figures(case).as_json()
    far = {
        name: f"simulated {found[name]:g}, real {real[name]:g}"
        for name, (absolute, relative) in WITHIN.items()
        if abs(found[name] - real[name]) > max(absolute, relative * abs(real[name]))
    }
    assert far == {}
    assert (found["rejected_per_finished"] > 0) == (real["rejected_per_finished"] > 0)


@pytest.mark.parametrize("case", ENDS, ids=lambda case: case.name)
async def test_a_simulated_engine_ends_as_a_real_one_ends(case: EndCase, unused_tcp_port: int) -> None:
    real = RECORDED["ends"][case.name]["real"]
    found = await simulated.end(case, port=unused_tcp_port)
    assert (found.exit_code, found.why, found.length, found.cut) == tuple(
        real[name] for name in ("exit_code", "why", "length", "cut")
    )
    invented = [
        line for line in found.messages if line not in real["messages"] and not line.startswith((*GPU_ONLY, VARIES))
    ]
    assert invented == []


async def test_a_death_under_load_logs_as_many_lines_as_a_real_one(unused_tcp_port: int) -> None:
    """A bot that reads the last 2,000 lines must not find the cause there."""
    death = next(case for case in ENDS if case.by == "engine_killed")
    real = RECORDED["ends"][death.name]["real"]["lines"]
    assert real > 2000
    assert (await simulated.end(death, port=unused_tcp_port)).lines == pytest.approx(real, rel=0.05)
