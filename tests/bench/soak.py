"""`python -m tests.bench.soak`: a week of one bot in virtual time; its memory, and what it leaves in Redis, day by day.

The memory is that of this process: the bot, and simulators that forget what they have seen each day.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import redis.asyncio as aioredis
import structlog

from bot.sandbox import valkey
from tests.life.soak import PER_INCIDENT, Left, soak_of


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.soak", description=__doc__)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--incidents", type=int, default=200, help="in all")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(arguments)


def row(left: Left, redis_megabytes: float) -> str:
    others = dict(sorted(left.entries.items()))
    return (
        f"day {left.day}  incidents {left.opened:4}  rss {left.rss_megabytes:.1f} MB  redis {redis_megabytes:.2f} MB  "
        f"keys of incidents {left.of_incidents:4}  others {sum(left.keys.values()) - left.of_incidents:3}  {others}"
    )


def slope(left: Sequence[Left]) -> float:
    """Kilobytes an incident, by least squares, without the first day, in which caches fill."""
    points = [(one.opened, one.rss_megabytes * 1024) for one in left[1:]]
    middle_x = sum(x for x, _ in points) / len(points)
    middle_y = sum(y for _, y in points) / len(points)
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / spread if spread else 0.0


async def play(chosen: argparse.Namespace, url: str) -> None:
    client = aioredis.from_url(url, decode_responses=True)
    soak = await soak_of(client, "soak", chosen.seed)
    left: list[Left] = []
    began = time.monotonic()
    for day in range(1, chosen.days + 1):
        share = chosen.incidents * day // chosen.days - chosen.incidents * (day - 1) // chosen.days
        left.append(await soak.day(day, share))
        gc.collect()
        memory = await client.info("memory")
        print(row(left[-1], int(memory["used_memory_dataset"]) / 2**20), flush=True)
    speed = chosen.days * 86_400 / (time.monotonic() - began)
    print(f"{speed:,.0f} times real time; memory grows by {slope(left):.1f} kB an incident after the first day")
    print(f"keys of incidents: {', '.join(PER_INCIDENT)}; the others by kind: {dict(left[-1].keys)}")
    await client.aclose()


def main(arguments: Sequence[str] | None = None) -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    chosen = options(arguments)
    with tempfile.TemporaryDirectory() as folder:
        server = valkey.start(Path(folder), is_durable=False)
        try:
            asyncio.run(play(chosen, server.url))
        finally:
            server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
