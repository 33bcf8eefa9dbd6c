"""A process of the demo that does not start is reported correctly: ended, or only late."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.domain.kernel.errors import BotError
from bot.sandbox.processes import Family, StartError
from bot.settings import PLAIN_NAMES

pytestmark = pytest.mark.fast


def test_a_process_that_ends_at_once_is_reported_with_its_last_words(tmp_path: Path) -> None:
    family = Family(tmp_path)
    with pytest.raises(StartError, match=r"(?s)^odd ended before it was ready; its last output:\n.*no_such_module"):
        family.start("odd", "no_such_module")
    family.stop()


def test_a_process_that_is_late_is_not_reported_as_ended(tmp_path: Path) -> None:
    family = Family(tmp_path, ready_within_seconds=0.2)
    with pytest.raises(StartError, match=r"^slow was not ready within 0.2 s .is this machine very busy"):
        family.start("slow", "http.server", "0", "--bind", "127.0.0.1")
    family.stop()


def test_a_process_that_ends_later_is_reported_with_its_exit_code_and_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logs are deleted with the demo, so that naming them would help nobody."""
    (tmp_path / "ends_later.py").write_text("import sys\nprint('ready {}', flush=True)\nsys.exit('out of sugar')\n")
    monkeypatch.syspath_prepend(tmp_path)
    family = Family(tmp_path)
    family.start("odd", "ends_later")
    family.child("odd").process.join()
    with pytest.raises(BotError, match=r"(?s)^odd exited unexpectedly .exit code 1.; its last output:\n.*out of sugar"):
        family.refuse_ended()
    family.stop()


SAYS_READY = """
import json, os, sys
settings = [name for name, value in os.environ.items() if value == "production"]
print("ready", json.dumps({"settings": settings, "no_bytecode": sys.dont_write_bytecode}))
sys.stdin.read()
"""


def test_a_process_has_no_settings_of_this_shell_and_keeps_bytecode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "says_ready.py").write_text(SAYS_READY)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("INCIDENT_BOT_CLUSTER", *PLAIN_NAMES):
        monkeypatch.setenv(name, "production")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    family = Family(tmp_path)
    reported = family.start("says", "says_ready")
    family.stop()
    assert reported == {"settings": [], "no_bytecode": False}
