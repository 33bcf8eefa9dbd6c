"""`incident-bot demo` as a person starts it: it reaches its verified end by itself, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bot.sandbox.scenarios import ONE_BAD_REPLICA, THRASH
from tests.waiting import until

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

SCENARIOS = (THRASH.name, ONE_BAD_REPLICA.name)
"""The others are in the files beside this one: five worlds at once are too many for a small machine."""
PROCESSES = 6
"""Redis, Kubernetes, the fleet, Slack, alerting and the bot."""
SHELL = {"COLUMNS": "200", "NO_COLOR": "1", "INCIDENT_BOT_PROMETHEUS_URL": "http://prometheus.invalid:9090"}
"""A person's shell may hold the settings of a real deployment; the demo must not touch it."""


@dataclass(frozen=True)
class Launched:
    process: subprocess.Popen[bytes]
    output: Path

    def printed(self) -> str:
        return self.output.read_text()

    def leaders(self) -> list[int]:
        """The processes that it started, each the leader of its session."""
        listed = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid=,sid="], check=True, capture_output=True, text=True
        ).stdout
        rows = [tuple(map(int, line.split())) for line in listed.splitlines()]
        parents = {pid: parent for pid, parent, _ in rows}
        return [pid for pid, _, session in rows if pid == session and self._is_below(pid, parents)]

    def _is_below(self, pid: int, parents: Mapping[int, int]) -> bool:
        parent = parents.get(pid, 0)
        return parent == self.process.pid or (parent > 1 and self._is_below(parent, parents))

    def all_children(self) -> list[int]:
        """Once everything has been started, which is when the page is told."""
        until(lambda: "Slack page:" in self.printed(), "the demo has started its processes", 90, seen=self.printed)
        found = self.leaders()
        assert len(found) == PROCESSES
        return found

    def interrupt(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=20)


Demos = Mapping[str, tuple[Launched, list[int]]]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def launched(folder: Path, *arguments: str) -> Iterator[Launched]:
    output = folder / f"{'-'.join(('demo', *arguments))}.txt"
    with output.open("wb") as file:
        # A shell that runs the tests in the background has them ignore Ctrl-C, and the demo would inherit that.
        command = ["env", "--default-signal=INT", sys.executable, "-u", "-m", "bot", "demo", *arguments]
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=os.environ | SHELL)
    try:
        yield Launched(process, output)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=20)


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demos]:
    """Every scenario at once, each in a world of its own, with the processes that it started.

    They run through the whole module, so that their waiting costs nothing.
    """
    folder = tmp_path_factory.mktemp("demos")
    with ExitStack() as running:
        begun = {
            name: running.enter_context(launched(folder, "--scenario", name, "--unattended")) for name in SCENARIOS
        }
        yield {name: (demo, demo.all_children()) for name, demo in begun.items()}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("demos")
def test_an_interrupted_demo_stops_everything_that_it_started(number: signal.Signals, tmp_path: Path) -> None:
    with launched(tmp_path) as demo:
        children = demo.all_children()
        assert demo.interrupt(number) == 128 + number
        assert [pid for pid in children if is_alive(pid)] == []
        assert "Traceback" not in demo.printed()


@pytest.mark.usefixtures("demos")
@pytest.mark.parametrize("begun", [1, 3])
def test_a_demo_that_is_interrupted_while_it_starts_stops_what_it_has_started(begun: int, tmp_path: Path) -> None:
    with launched(tmp_path) as demo:
        until(lambda: len(demo.leaders()) >= begun, f"{begun} processes were started", 30)
        children = demo.leaders()
        assert demo.interrupt(signal.SIGINT) == 128 + signal.SIGINT
        assert [pid for pid in children if is_alive(pid)] == []
        assert "Traceback" not in demo.printed()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_comes_to_its_verified_end_unattended(scenario: str, demos: Demos) -> None:
    demo, children = demos[scenario]
    until(lambda: demo.process.poll() is not None, f"the demo of {scenario} has ended", 240, seen=demo.printed)
    printed = demo.printed()
    assert demo.process.returncode == 0, printed
    assert "Windows are shortened for the demo" in printed
    assert "entries, consistent" in printed
    assert "What happened" in printed
    result, following = printed.splitlines()[-2:]
    assert "(the fix was verified)." in result
    assert following.startswith("Next, press the buttons yourself: incident-bot demo")
    if scenario == THRASH.name:
        # What RELIEF's first table demands of the main way: the canary and the rollout, and users are served again.
        assert [line.split("'")[1] for line in printed.splitlines() if "presses '" in line] == [
            "Approve canary",
            "Approve rollout…",
        ], printed
        assert "fixed and verified" in result
        assert "at the end users are served in time" in printed
    assert [pid for pid in children if is_alive(pid)] == []
