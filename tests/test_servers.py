"""A test that needs a server is skipped with the reason, or fails if the environment requires it to run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.servers import NEEDED

ANY_BROWSER_TEST = "tests/sandbox/slack/test_page.py::test_the_home_tab_of_the_bot_opens"


@pytest.mark.parametrize(
    ("needed", "exit_code", "reason"),
    [
        pytest.param("", pytest.ExitCode.OK, "SKIPPED [1]", id="a person's machine"),
        pytest.param("1", pytest.ExitCode.TESTS_FAILED, "does not let this test be skipped", id="CI"),
    ],
)
def test_without_its_server_a_test_is_skipped_or_fails(needed: str, exit_code: int, reason: str) -> None:
    nothing_on_path = {**os.environ, "PATH": "", NEEDED: needed}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", ANY_BROWSER_TEST]
    ended = subprocess.run(command, env=nothing_on_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, reason in ended.stdout) == (exit_code, True), ended.stdout
    assert "chromium: no chromium or chromium-browser or google-chrome on PATH" in ended.stdout


def test_a_test_that_needs_vllm_is_skipped_in_ci_too() -> None:
    nothing_on_path = {**os.environ, "PATH": "", NEEDED: "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/end_to_end/test_real_engines.py"]
    ended = subprocess.run(command, env=nothing_on_path, capture_output=True, text=True, check=False)
    assert ended.returncode == pytest.ExitCode.OK, ended.stdout
    assert "vllm: no vllm on PATH" in ended.stdout
