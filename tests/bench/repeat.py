"""`python -m tests.bench.repeat`: play demo scenarios many times beside busy processes, and count the right endings.

    python -m tests.bench.repeat --times 20 --burners 1                 # every scenario, a busy process beside it
    python -m tests.bench.repeat thrash early-signs --times 5 --at-once 2

A run counts as right when `incident-bot demo --scenario NAME --unattended` exits 0. What a wrong run printed is kept in
the folder given by `--keep`.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bot.sandbox.scenarios import SCENARIOS

BURN = (sys.executable, "-c", "while True: pass")
DEMO = (sys.executable, "-m", "bot", "demo")
RUN_SECONDS = 600.0


@dataclass(frozen=True)
class Turn:
    scenario: str
    number: int


@dataclass(frozen=True)
class Played:
    turn: Turn
    is_right: bool
    seconds: float
    last_line: str


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.repeat", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="the default is all of them")
    parser.add_argument("--times", type=int, default=20, help="how often each is played")
    parser.add_argument("--burners", type=int, default=0, help="processes that keep a core busy meanwhile")
    parser.add_argument("--at-once", type=int, default=1, help="worlds at the same time")
    parser.add_argument("--keep", type=Path, default=Path("repeat-failures"), help="where wrong runs are kept")
    chosen = parser.parse_args(arguments)
    if unknown := sorted(set(chosen.scenarios) - set(SCENARIOS)):
        parser.error(f"unknown scenario {', '.join(unknown)}; known: {', '.join(SCENARIOS)}")
    return chosen


@contextlib.contextmanager
def busy(burners: int) -> Iterator[None]:
    running = [subprocess.Popen(BURN) for _ in range(burners)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def play(turn: Turn, keep: Path, demo: Sequence[str] = DEMO) -> Played:
    command = [*demo, "--scenario", turn.scenario, "--unattended"]
    began = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_SECONDS)
        printed, is_right = done.stdout + done.stderr, done.returncode == 0
    except subprocess.TimeoutExpired as late:
        printed = f"{_text(late.stdout)}{_text(late.stderr)}\nno end within {RUN_SECONDS:.0f} s"
        is_right = False
    if not is_right:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{turn.scenario}-{turn.number}.txt").write_text(printed)
    lines = [line for line in printed.splitlines() if line.strip()]
    return Played(turn, is_right, time.monotonic() - began, lines[-1].strip() if lines else "")


def _text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def main(arguments: Sequence[str] | None = None, demo: Sequence[str] = DEMO) -> int:
    """`demo`: the command that plays a scenario."""
    chosen = options(arguments)
    names = chosen.scenarios or list(SCENARIOS)
    # Round by round, so that a run that is cut short has played every scenario about as often.
    rounds = [Turn(name, number) for number in range(1, chosen.times + 1) for name in names]
    played: list[Played] = []
    with busy(chosen.burners), ThreadPoolExecutor(chosen.at_once) as pool:
        for one in pool.map(lambda turn: play(turn, chosen.keep, demo), rounds):
            played.append(one)
            word = "right" if one.is_right else "WRONG"
            print(
                f"{one.turn.scenario} {one.turn.number}: {word} after {one.seconds:.0f} s: {one.last_line}", flush=True
            )
    print(table(played))
    return 0 if all(one.is_right for one in played) else 1


def table(played: Sequence[Played]) -> str:
    lines = [f"{'scenario':24}{'right':>8}{'longest s':>12}"]
    for name in dict.fromkeys(one.turn.scenario for one in played):
        runs = [one for one in played if one.turn.scenario == name]
        right = sum(one.is_right for one in runs)
        lines.append(f"{name:24}{f'{right}/{len(runs)}':>8}{max(one.seconds for one in runs):12.0f}")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
