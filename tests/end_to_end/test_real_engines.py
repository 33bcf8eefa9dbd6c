"""The demo and a rehearsal on real vLLM engines on this machine's CPU. Each takes minutes; `vllm` must be on PATH."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.end_to_end, pytest.mark.needs_server("vllm"), pytest.mark.timeout(4800)]


@pytest.mark.parametrize("scenario", ["thrash", "one-bad-replica", "crash-loop", "engine-dies"])
def test_a_scenario_ends_on_real_engines_as_on_simulated_ones(scenario: str) -> None:
    command = [sys.executable, "-u", "-m", "bot", "demo", "--engines", "vllm", "--unattended", "--scenario", scenario]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=4700, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "2 replicas instead of 4" in " ".join(ended.stdout.split())


def test_a_playbook_is_rehearsed_on_real_engines(tmp_path: Path) -> None:
    answers = tmp_path / "answers.yaml"
    answers.write_text("answers: {}\n")  # the first choice of each question
    command = [sys.executable, "-u", "-m", "bot", "playbook", "rehearse", "kv-cache-oom", "--engines", "vllm"]
    ended = subprocess.run(
        [*command, "--answers", str(answers)], capture_output=True, text=True, timeout=4700, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.rstrip().endswith(("ended: fixed", "ended: accepted_degraded")), ended.stdout
