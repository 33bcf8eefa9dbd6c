"""`python -m tests.bench.crash_matrix`: every step of the demo's incident, and what fails there; prints a table.

At a step the bot is killed, or Redis, Slack or the Kubernetes API cannot be reached for a while, or two of these at
once. The incident is the main path of the shipped playbook (`--scene demo`) or a short one with every kind of step
(`drill`), in virtual time over the real Redis and the real messenger. Each must end as the undisturbed one does.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import itertools
import json
import logging
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import redis.asyncio as aioredis
import structlog

from bot.sandbox import valkey
from tests.flow.harness import Ending, Scene, differences, play
from tests.flow.scenes import drill_scene, shipped_scene
from tests.flow.stage import Dependency, Outage

Outcome = Literal["same", "asked", "DIFFERENT"]
Staged = Callable[[aioredis.Redis, str], Awaitable[Scene]]
KILL = "kill"
AWAY: Mapping[str, Dependency] = {"redis": "redis", "slack": "slack", "kubernetes": "cluster"}
SINGLE = (KILL, *AWAY)
FAULTS: Mapping[str, tuple[str, ...]] = {
    "+".join(both): both for both in (*((each,) for each in SINGLE), *itertools.combinations(SINGLE, 2))
}
"""What may fail at a step: one of them, or two at once."""
SCENES: Mapping[str, Staged] = {"demo": shipped_scene, "drill": drill_scene}
SECONDS = 6.0
"""How long a dependency is away. Longer than any retry within one attempt, shorter than what a playbook waits for."""
_NUMBERED = re.compile(r"INC/R\d+")


@dataclass(frozen=True)
class Cell:
    """One way to disturb the incident: what fails, from which step on."""

    step: int
    fault: str

    def disturb(self, scene: Scene, seconds: float) -> None:
        parts = FAULTS[self.fault]
        away = frozenset(AWAY[part] for part in parts if part != KILL)
        scene.stage.outage = Outage(self.step, away, seconds) if away else None
        scene.otherwise = "again"
        if KILL in parts:
            # A step to a dependency that is away has no "after": the bot dies before it.
            scene.stage.dies_at = (self.step, "before" if away else "after")


@dataclass(frozen=True)
class Result:
    cell: Cell
    what: str
    """The step."""
    outcome: Outcome
    found: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Undisturbed:
    ending: Ending
    points: Sequence[str]


async def undisturbed(stage: Staged, client: aioredis.Redis, tag: str) -> Undisturbed:
    scene = await stage(client, tag)
    return Undisturbed(await play(scene), scene.stage.points)


async def disturbed(
    stage: Staged, client: aioredis.Redis, cell: Cell, wanted: Undisturbed, *, tag: str, seconds: float = SECONDS
) -> Result:
    began = time.monotonic()
    scene = await stage(client, f"{tag}-{cell.step}-{cell.fault}")
    cell.disturb(scene, seconds)
    try:
        found = _faults(wanted.ending, await play(scene))
    except AssertionError as error:
        found = ("DIFFERENT", (str(error),))
    return Result(cell, wanted.points[cell.step - 1], *found, time.monotonic() - began)


def _faults(wanted: Ending, ending: Ending) -> tuple[Outcome, tuple[str, ...]]:
    found = tuple(differences(wanted, ending))
    doubled = tuple(f"{slot} is in Slack {count} times" for slot, count in ending.slack.items() if count > 1)
    repeated = tuple(f"{call} was made {count} times" for call, count in ending.calls.items() if count > 1)
    matters = _without_questions(wanted) != _without_questions(ending)
    if matters or doubled or repeated:
        return "DIFFERENT", (*found, *doubled, *repeated)
    return ("asked" if found else "same"), found


def _without_questions(ending: Ending) -> Ending:
    """What must be as undisturbed, whatever people were asked besides: each question and new plan takes a number."""
    cluster = json.loads(_NUMBERED.sub("INC/R", json.dumps(ending.cluster)))
    calls = {f"call {place}": times for place, times in enumerate(ending.calls.values())}
    ledger = tuple("" for _ in ending.ledger)
    return dataclasses.replace(ending, path=(), decisions={}, slack={}, ledger=ledger, calls=calls, cluster=cluster)


def cells(points: int, faults: Sequence[str], *, sample: int, seed: int) -> list[Cell]:
    """All of them, or as many of each fault as `sample` says, at steps that the seed draws."""
    draw = random.Random(seed)
    chosen: list[Cell] = []
    for fault in faults:
        steps = range(1, points + 1)
        chosen += [Cell(step, fault) for step in (draw.sample(steps, min(sample, points)) if sample else steps)]
    return chosen


async def play_all(
    stage: Staged, client: aioredis.Redis, wanted: Undisturbed, chosen: Sequence[Cell], seconds: float
) -> list[Result]:
    results: list[Result] = []
    for number, cell in enumerate(chosen):
        results.append(await disturbed(stage, client, cell, wanted, tag=f"matrix-{number}", seconds=seconds))
        if results[-1].outcome == "DIFFERENT":
            print(f"{cell.fault} at step {cell.step} ({results[-1].what}):", *results[-1].found, sep="\n  ", flush=True)
        # Thousands of finished incidents would only take memory.
        await client.flushall()
    return results


def table(results: Sequence[Result]) -> Iterator[str]:
    yield f"{'fault':20}{'steps':>8}{'as undisturbed':>17}{'asked besides':>16}{'different':>12}"
    for fault in dict.fromkeys(result.cell.fault for result in results):
        of = [result for result in results if result.cell.fault == fault]
        count = Counter(result.outcome for result in of)
        yield f"{fault:20}{len(of):8}{count['same']:17}{count['asked']:16}{count['DIFFERENT']:12}"


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.crash_matrix", description=__doc__)
    parser.add_argument("--scene", choices=SCENES, default="demo")
    parser.add_argument("--fault", choices=FAULTS, action="append", help="this one; may be repeated; default: all")
    parser.add_argument("--sample", type=int, default=0, help="so many steps for each fault; 0: every step")
    parser.add_argument("--step", type=int, help="only at this step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long a dependency is away, in virtual time")
    return parser.parse_args(arguments)


async def run(chosen: argparse.Namespace, url: str) -> list[Result]:
    stage = SCENES[chosen.scene]
    async with aioredis.from_url(url, decode_responses=True) as client:
        wanted = await undisturbed(stage, client, "undisturbed")
        faults = chosen.fault or list(FAULTS)
        if chosen.step:
            every = [Cell(chosen.step, fault) for fault in faults]
        else:
            every = cells(len(wanted.points), faults, sample=chosen.sample, seed=chosen.seed)
        print(f"{chosen.scene}: {len(wanted.points)} steps, {len(every)} cells", flush=True)
        return await play_all(stage, client, wanted, every, chosen.seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with tempfile.TemporaryDirectory(prefix="matrix-") as folder:
        server = valkey.start(Path(folder), is_durable=False)
        try:
            results = asyncio.run(run(chosen, server.url))
        finally:
            server.stop()
    print(*table(results), sep="\n")
    took = sum(result.seconds for result in results)
    print(f"{took / max(len(results), 1):.1f} s for each cell, {took:.0f} s in all")
    return int(any(result.outcome == "DIFFERENT" for result in results))


if __name__ == "__main__":
    raise SystemExit(main())
