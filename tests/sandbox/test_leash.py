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
