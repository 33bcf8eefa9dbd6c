"""`python -m tests.bench.calibrate --vllm PATH`: record real engines beside simulated ones, same flags, same load.

It writes tests/sandbox/fleet/calibration/recorded.json, and prints both sides. It takes half an hour on two cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from bot.cli.engines import find_vllm
from bot.cli.failures import NotInstalledError
from bot.sandbox.fleet.addresses import Addresses
from bot.sandbox.fleet.container_log import ContainerLog, LogQuery
from bot.sandbox.fleet.engine import Sequence as Stream
from bot.sandbox.fleet.engines import EngineServer, Fault
from bot.sandbox.fleet.vllm_process import VllmEngines
from bot.sandbox.fleet.workload import Workload
from tests.sandbox.fleet.calibration import simulated
from tests.sandbox.fleet.calibration.cases import (
    ENDS,
    LOADS,
    End,
    EndCase,
    Figures,
    LoadCase,
    Page,
    blocks_of,
    end_of,
    figures_of,
    page_of,
    spec_of,
)

RECORDED = Path(simulated.__file__).with_name("recorded.json")
PORT = 8000
SETTLE_SECONDS, MEASURED_SECONDS = 30.0, 120.0
"""Real time; the simulation has more of its own, which costs nothing."""


class Real:
    """Starts one engine after the other."""

    def __init__(self, vllm: Path) -> None:
        self._engines = VllmEngines(vllm)
        self._addresses = Addresses()

    async def start(self, name: str, flags: Sequence[str], log: ContainerLog) -> tuple[EngineServer | int, str]:
        address = self._addresses.next_pod()
        return await self._engines.start(spec_of(name, flags, PORT), address, log, Fault()), f"http://{address}:{PORT}"

    async def close(self) -> None:
        await self._engines.close()

    async def figures(self, case: LoadCase) -> Figures:
        log = ContainerLog()
        engine, url = await self.start(case.name, case.flags, log)
        if isinstance(engine, int):
            raise SystemExit(f"{case.name}: the engine ended with {engine}\n{log.read(LogQuery(tail_lines=20))}")
        workload, pages = Workload(seed=1), list[Page]()
        workload.change(case.load, time.time())
        begin = time.time() + SETTLE_SECONDS
        end = begin + MEASURED_SECONDS
        scrape_at = begin
        try:
            async with aiohttp.ClientSession() as session:
                while (now := time.time()) < end:
                    workload.tick(now, [engine])
                    for ended in engine.take_ended():
                        workload.ended(ended, now)
                    if now >= scrape_at:
                        scrape_at += simulated.SCRAPE_SECONDS
                        async with session.get(f"{url}/metrics") as answer:
                            pages.append(page_of(await answer.text()))
                    await asyncio.sleep(simulated.TICK_SECONDS)
        finally:
            engine.kill()
            await engine.close()
        return figures_of(pages, blocks_of(case))

    async def end(self, case: EndCase) -> End:
        log = ContainerLog()
        engine, _ = await self.start(case.name, case.flags, log)
        if isinstance(engine, int):
            return end_of(engine, log.read(LogQuery()))
        streams = [engine.send(*simulated.STREAMS, time.time()) for _ in range(case.streams)]
        while (await engine.state())["running"] < 1:  # noqa: ASYNC110 - another process has no event
            await asyncio.sleep(simulated.TICK_SECONDS)
        before = len(log.read(LogQuery()).splitlines())
        if case.by != "term":
            engine.die(case.by, time.time())
            await engine.exited
        else:
            await engine.terminate(time.time())
        engine.take_ended()
        reasons = [one.finished_reason for one in streams if isinstance(one, Stream)]
        await engine.close()
        return end_of(await engine.exited, log.read(LogQuery()), before, reasons)


async def record(vllm: Path, only: Sequence[str]) -> None:
    """Each case is written as soon as it is known; the others stay as they were recorded."""
    real = Real(vllm)
    try:
        for end in ENDS:
            if not only or end.name in only:
                write(
                    "ends",
                    end.name,
                    {"real": asdict(await real.end(end)), "simulated": asdict(await simulated.end(end))},
                )
        for load in LOADS:
            if not only or load.name in only:
                found = {"flags": load.flags, "workers": load.workers, "real": (await real.figures(load)).as_json()}
                write("loads", load.name, {**found, "simulated": simulated.figures(load).as_json()})
    finally:
        await real.close()


def write(kind: str, name: str, found: dict[str, Any]) -> None:
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {"loads": {}, "ends": {}}
    recorded |= {
        "recorded": f"{datetime.now(UTC):%Y-%m-%d}",
        "vllm": "0.32.0",
        "machine": f"{os.cpu_count()} shared CPU cores, no GPU",
    }
    recorded[kind][name] = found
    RECORDED.write_text(json.dumps(recorded, indent=1) + "\n")
    show(name, found)


def show(name: str, found: dict[str, Any]) -> None:
    print(name)
    for key, value in found["real"].items():
        print(f"  {key:28} {value!s:>12} {found['simulated'][key]!s:>12}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.calibrate", description=__doc__)
    parser.add_argument("--vllm", type=Path, help="the vllm command, or the environment it is in; default: on PATH")
    parser.add_argument("--only", action="append", default=[], metavar="CASE", help="this case; may be repeated")
    chosen = parser.parse_args(arguments)
    try:
        vllm = find_vllm(chosen.vllm)
    except NotInstalledError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from error
    asyncio.run(record(vllm, chosen.only))


if __name__ == "__main__":
    main()
