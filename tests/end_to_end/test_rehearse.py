"""`incident-bot playbook rehearse` in the sandbox: the real bot runs the named playbook to its end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_playbook_rehearse import PLAYBOOK

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

ANSWERS = "answers: {choose: leave}\n"


def test_a_playbook_of_ones_own_is_rehearsed_in_the_sandbox(tmp_path: Path) -> None:
    (tmp_path / "cap.yaml").write_text(PLAYBOOK)
    answers = tmp_path / "answers.txt"
    answers.write_text(ANSWERS)
    command = ["playbook", "rehearse", str(tmp_path / "cap.yaml"), "--alert", "alertname=A", "--answers", str(answers)]
    shortened = ["--set", "window=10s", "--set", "calm_for=10s"]
    ended = subprocess.run(
        [sys.executable, "-m", "bot", *command, *shortened], capture_output=True, text=True, timeout=240, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    # Nothing in the sandbox says how its GPUs are, and the playbook sends what is unknown to a person.
    assert "path: look → " in ended.stdout
    assert "ended: " in ended.stdout
