"""`python -m tests.bench.scrape`: how long one round over many replicas takes; prints it, asserts nothing.

The replicas are loopback servers of another process, each with a page of a real server.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import tarfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection

from bot.adapters.pod_pages import AddressPages
from bot.adapters.vllm.scraper import VllmScraper
from bot.flow.ports.cluster import Replica
from tests.adapters.vllm.many_servers import many_servers
from tests.kit.captures import ARCHIVE

PAGE = "A_thrash_then_lower_max_num_seqs/scrapes/0060.prom"


def page() -> str:
    with tarfile.open(ARCHIVE) as archive:
        found = archive.extractfile(PAGE)
        assert found is not None
        return found.read().decode()


def serve(count: int, parent: Connection) -> None:
    async def until_stopped() -> None:
        text = page()
        async with many_servers(count, lambda _: text) as replicas:
            parent.send(list(replicas))
            await asyncio.to_thread(parent.recv)

    asyncio.run(until_stopped())


async def rounds(replicas: Sequence[Replica], count: int) -> tuple[list[float], int]:
    """Seconds of each round, and how many scrapes failed."""
    took: list[float] = []
    failed = 0
    async with AddressPages() as pages:
        scraper = VllmScraper(pages, time.time, deadline=30.0)
        for _ in range(count):
            began = time.perf_counter()
            found = await scraper.scrape(replicas)
            took.append(time.perf_counter() - began)
            failed += sum(bool(scrape.error) for scrape in found)
    return took, failed


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scrape", description=__doc__)
    parser.add_argument("--replicas", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    ours, theirs = multiprocessing.Pipe()
    servers = multiprocessing.get_context("spawn").Process(target=serve, args=(options.replicas, theirs), daemon=True)
    servers.start()
    try:
        took, failed = asyncio.run(rounds(ours.recv(), options.rounds))
    finally:
        ours.send("over")
        servers.join(timeout=10)
    median = statistics.median(took)
    print(f"{options.replicas} replicas: median {median:.2f} s, worst {max(took):.2f} s a round, {failed} failed")


if __name__ == "__main__":
    main()
