"""`--engines` and `--vllm`: which engines the sandbox starts, and the message where there is no vLLM."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.cli.engines import Engines, find_vllm, vllm_for, what_differs
from bot.sandbox.scenarios import SCENARIOS, THRASH
from tests.kit.commands import incident_bot

pytestmark = pytest.mark.fast


def installed(folder: Path) -> Path:
    command = folder / "bin" / "vllm"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    return command


@pytest.mark.parametrize("command", [("demo",), ("playbook", "rehearse", "kv-cache-oom")])
def test_without_vllm_a_command_says_how_to_install_it_and_exits_with_2(command: tuple[str, ...]) -> None:
    ended = incident_bot(*command, "--engines", "vllm", PATH="")
    assert ended.exit_code == 2
    assert "there is no vllm command on your PATH" in ended.stderr
    assert "~/vllm/bin/pip install https://github.com/vllm-project/vllm/releases/" in ended.stderr
    assert "--vllm ~/vllm\n" in ended.stderr
    assert "https://docs.vllm.ai/" in ended.stderr


def test_a_path_without_vllm_is_named(tmp_path: Path) -> None:
    ended = incident_bot("demo", "--engines", "vllm", "--vllm", tmp_path)
    assert ended.exit_code == 2
    assert f"{tmp_path} is not a vllm command" in ended.stderr


def test_vllm_is_found_as_a_command_in_an_environment_and_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = installed(tmp_path)
    assert find_vllm(command) == find_vllm(tmp_path) == command
    monkeypatch.setenv("PATH", str(command.parent))
    assert find_vllm(None) == command


def test_a_scenario_that_needs_a_simulated_engine_says_why(tmp_path: Path) -> None:
    ended = incident_bot("demo", "--engines", "vllm", "--vllm", installed(tmp_path), "--scenario", "blind")
    assert ended.exit_code == 1
    assert ended.stderr == (
        "blind needs the fault metrics_down, which only a simulated engine can have. "
        "Play it with --engines simulated.\n"
    )


def test_a_path_for_simulated_engines_is_a_mistake() -> None:
    ended = incident_bot("demo", "--vllm", "/opt/vllm")
    assert (ended.exit_code, ended.stderr) == (1, "--vllm names the vLLM of real engines; add --engines vllm\n")


def test_simulated_engines_need_nothing() -> None:
    assert [vllm_for(Engines.simulated, None, scenario) for scenario in SCENARIOS.values()] == [None] * len(SCENARIOS)


def test_the_smaller_world_is_described(tmp_path: Path) -> None:
    command = installed(tmp_path)
    assert vllm_for(Engines.vllm, command, THRASH) == command
    text = what_differs(command)
    assert "2 replicas instead of 4" in text
    assert "3 times as long" in text
