"""No process of the demo outlives its launcher, even if the launcher is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.waiting import until

LAUNCHER = """
import json, sys
from pathlib import Path
from urllib.parse import urlsplit
from bot.sandbox import valkey
from bot.sandbox.processes import Family

folder = Path(sys.argv[1])
redis = valkey.start(folder / "redis")
family = Family(folder)
# It is not told to die with its parent: it knows nothing, as the bot does not.
url = family.start("stand-in", "bot.sandbox.kubernetes")["url"]
pids = [redis.process.pid, *(child.process.pid for child in family.children)]
print(json.dumps({"pids": pids, "ports": [redis.port, urlsplit(url).port]}), flush=True)
sys.stdin.read()
"""


STUBBORN = """
import os, signal, sys, time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
worker = os.fork()
os.write(1, b"%d\\n" % os.getpid())  # in one piece, unlike what `print` writes
while True:
    time.sleep(60)
"""
STUBBORN_LAUNCHER = f"""
import subprocess, sys
from bot.sandbox.leash import GROUP, leash

command = [sys.executable, "-m", "bot.sandbox.leash", GROUP, sys.executable, "-c", {STUBBORN!r}]
subprocess.Popen(command, stdin=leash(), start_new_session=True)
sys.stdin.read()
"""


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_what_a_killed_launcher_started_ends_by_itself(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as launcher:
        assert launcher.stdout is not None
        started = json.loads(launcher.stdout.readline())
        ports: list[int] = started["ports"]
        assert [listens(port) for port in ports] == [True, True]
        launcher.kill()
        try:
            until(lambda: not any(map(listens, ports)), "both have ended", 20, seen=lambda: list(map(listens, ports)))
        except AssertionError:
            for pid in started["pids"]:
                os.kill(pid, signal.SIGKILL)
            raise


def test_a_group_that_ignores_sigterm_ends_with_its_killed_launcher() -> None:
    command = [sys.executable, "-c", STUBBORN_LAUNCHER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        pids = {int(launcher.stdout.readline()), int(launcher.stdout.readline())}
        assert len(pids) == 2
        launcher.kill()
        until(lambda: not any(map(is_alive, pids)), "the program and its worker have ended", 20)


def is_alive(pid: int) -> bool:
    """A zombie that nobody has waited for yet is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
