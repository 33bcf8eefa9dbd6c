"""The simulated side: loads in virtual time, ends as the fleet's kubelet would see them."""

from __future__ import annotations

import asyncio
import time

from bot.sandbox.fleet.container_log import ContainerLog, LogQuery
from bot.sandbox.fleet.engine import Sequence
from bot.sandbox.fleet.engines import Fault
from bot.sandbox.fleet.exposition import HttpCounts, Server, metrics_text
from bot.sandbox.fleet.simulated import SimulatedEngines
from bot.sandbox.fleet.startup import Started, plan_start
from tests.sandbox.fleet.calibration.cases import (
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
from tests.sandbox.fleet.closed_loop import ClosedLoop

SETTLE_SECONDS, MEASURED_SECONDS, SCRAPE_SECONDS = 15.0, 300.0, 2.0
TICK_SECONDS = 0.05
STREAMS = (90, 500)
"""Tokens of the prompt and the answer of streams that an end meets."""


def figures(case: LoadCase, seed: int = 1) -> Figures:
    plan = plan_start(list(spec_of(case.name, case.flags).argv), "0.32.0")
    assert isinstance(plan, Started)
    loop = ClosedLoop(plan.limits, seed=seed)
    loop.load(case.load)
    loop.run(SETTLE_SECONDS)
    server = Server(plan.served_name, 0.0, 0.0, plan.cache_config)
    pages: list[Page] = []
    for _ in range(round(MEASURED_SECONDS / SCRAPE_SECONDS)):
        loop.run(SCRAPE_SECONDS)
        pages.append(page_of(metrics_text(loop.replicas[0].engine, server, HttpCounts(), loop.now)))
    return figures_of(pages, blocks_of(case))


async def end(case: EndCase, address: str = "127.0.0.1", port: int = 0) -> End:
    log = ContainerLog()
    started = await SimulatedEngines(0.0).start(spec_of(case.name, case.flags, port), address, log, Fault())
    if isinstance(started, int):
        return end_of(started, log.read(LogQuery()))
    now = time.time()
    started.advance(now)
    streams = [started.send(*STREAMS, now) for _ in range(case.streams)]
    started.advance(now + 0.2)
    before = len(log.read(LogQuery()).splitlines())
    if case.by != "term":
        started.die(case.by, now)
        await started.exited
    else:
        ending = asyncio.create_task(started.terminate(now))
        until = now + 0.2
        while not ending.done():
            until += TICK_SECONDS
            started.advance(until)
            await asyncio.sleep(0)
        await ending
    reasons = [one.finished_reason for one in streams if isinstance(one, Sequence)]
    exit_code = await started.exited
    await started.close()
    return end_of(exit_code, log.read(LogQuery()), before, reasons)
