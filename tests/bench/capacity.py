"""`python -m tests.bench.capacity`: what a rate of incidents needs, and what saturates first.

A fluid simulation, second by second, of one bot process, one Redis and one Slack channel with measured constants.
`--measure` measures those of Redis and Slack again, on the shipped playbook from alert to verified; those of the
process come from `python -m tests.bench`.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import redis.asyncio as aioredis
import structlog

from bot.sandbox import valkey
from tests.flow.harness import Bot, Scene
from tests.flow.scenes import shipped_scene

MAX_SECONDS = 7 * 86_400


@dataclass(frozen=True)
class Costs:
    """One incident, from its alert to its end, and one repeated alert; seconds of one core."""

    bot_seconds_to_card: float = 0.022
    """Routed, opened, decided, its first readings asked for, its card rendered."""
    bot_seconds_to_end: float = 0.5
    bot_seconds_a_repeat: float = 0.0014
    redis_seconds_to_card: float = 0.005
    redis_seconds_to_end: float = 0.06
    redis_bytes_open: int = 98_000
    redis_bytes_closed: int = 173_000
    posts: int = 6
    """Messages of an incident in its channel, the card among them."""
    updates: int = 18


@dataclass(frozen=True)
class Limits:
    processes: int = 1
    """Replicas of the bot, each on one core."""
    redis_share: float = 0.7
    """Of a core: beyond it latencies grow fast."""
    channels: int = 1
    workspaces: int = 1
    deployments: int = 1
    """Hash tags, each on a Redis node."""
    posts_a_second: float = 1.0
    cards_a_minute: float = 10.0
    updates_a_minute: float = 50.0


@dataclass(frozen=True)
class Result:
    """When the last incident of a storm got that far, in seconds after its first alert; inf: not in a week."""

    diagnosed: float
    stored: float
    cards: float
    threads: float
    most_waiting_for_bot: float
    most_waiting_for_card: float

    @property
    def saturates_first(self) -> str:
        late = {"the bot's CPU": self.diagnosed, "Redis": self.stored, "cards": self.cards, "posts": self.threads}
        return max(late, key=lambda name: late[name])


@dataclass
class Queue:
    """Work that comes at a rate and is done at a rate."""

    done_a_second: float
    waiting: float = 0.0
    done: float = 0.0
    most: float = 0.0

    def second(self, arrived: float) -> float:
        self.waiting += arrived
        self.most = max(self.most, self.waiting)
        finished = min(self.waiting, self.done_a_second)
        self.waiting -= finished
        self.done += finished
        return finished


def storm(incidents: int, a_second: float, costs: Costs, limits: Limits) -> Result:
    """Incidents that come at a rate until there are so many."""
    cores = limits.processes * limits.deployments
    bot = Queue(cores / costs.bot_seconds_to_card)
    redis = Queue(limits.redis_share * limits.deployments / costs.redis_seconds_to_card)
    # Cards are limited for each deployment, posts for each channel.
    cards = Queue(limits.cards_a_minute / 60 * limits.deployments)
    posts = Queue(limits.posts_a_second * limits.channels)
    ended = {queue: float("inf") for queue in ("bot", "redis", "cards", "posts")}
    came = 0.0
    for second in range(1, MAX_SECONDS):
        arrived = min(a_second, incidents - came)
        came += arrived
        shown = cards.second(bot.second(redis.second(arrived)))
        posts.second(shown * costs.posts)
        work = {"bot": (bot, 1), "redis": (redis, 1), "cards": (cards, 1), "posts": (posts, costs.posts)}
        for name, (queue, each) in work.items():
            if queue.done >= incidents * each - 1e-6:
                ended[name] = min(ended[name], float(second))
        if max(ended.values()) < float("inf"):
            break
    return Result(ended["bot"], ended["redis"], ended["cards"], ended["posts"], bot.most, cards.most)


def steady(costs: Costs, limits: Limits) -> dict[str, float]:
    """The highest rate of incidents, in a second, that each part can take for ever."""
    return {
        "the bot's CPU": limits.processes * limits.deployments / costs.bot_seconds_to_end,
        "Redis": limits.redis_share * limits.deployments / costs.redis_seconds_to_end,
        "cards": limits.cards_a_minute / 60 * limits.deployments,
        "posts": limits.posts_a_second * limits.channels / costs.posts,
        "updates": limits.updates_a_minute / 60 * limits.workspaces / costs.updates,
    }


# --- measuring --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Used:
    commands: int
    """Including those inside scripts."""
    scripts: int
    redis_seconds: float
    bot_seconds: float
    """Of this process: the bot, and the simulators in it."""

    def __sub__(self, other: Used) -> Used:
        return Used(
            self.commands - other.commands,
            self.scripts - other.scripts,
            round(self.redis_seconds - other.redis_seconds, 4),
            round(self.bot_seconds - other.bot_seconds, 3),
        )


@dataclass(frozen=True)
class Measured:
    first_turn: Used
    """Until its card is in Slack."""
    to_the_end: Used
    bytes_open: int
    """While it waits for its first approval."""
    largest_run: int
    """Bytes of its document, which is sent with each decision."""
    bytes_closed: int
    slack: dict[str, int]


async def measure(client: aioredis.Redis) -> Measured:
    """One incident of the shipped playbook, from its alert until it is verified; people answer at once."""
    scene = await shipped_scene(client, "capacity")
    bot = Bot(scene, "bot")
    start = await _used(client)
    await bot.turn()
    before, largest, waiting, turns = await _used(client), 0, 0, 0
    while await scene.eyes.open_incidents():
        largest = max(largest, await client.strlen(scene.eyes._redis.key("run", "INC-1")))
        run = await scene.eyes.load("INC-1")
        if not waiting and run is not None and run.open_request is not None:
            waiting = await _bytes_of(client, "INC-1")
        await scene.time.advance(1.0)
        await bot.turn()
        turns += 1
    after = await _used(client)
    for _ in range(turns):
        # What a bot asks each second anyway.
        await scene.eyes.open_incidents()
        await scene.time.advance(1.0)
        await bot.turn()
    idle = await _used(client) - after
    closed = await _bytes_of(client, "INC-1")
    return Measured(before - start, after - before - idle, waiting, largest, closed, _slack_calls(scene))


async def _used(client: aioredis.Redis) -> Used:
    """The clock of these tests is a key: `GET` is not counted."""
    stats = await client.info("commandstats")
    calls = {name.removeprefix("cmdstat_"): int(found["calls"]) for name, found in stats.items()}
    cpu = await client.info("cpu")
    seconds = float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])
    return Used(sum(calls.values()) - calls.get("get", 0), calls.get("evalsha", 0), seconds, time.process_time())


async def _bytes_of(client: aioredis.Redis, incident_id: str) -> int:
    names = [name async for name in client.scan_iter(match=f"*:{incident_id}*", count=1000)]
    sizes = [await client.memory_usage(name, samples=0) for name in names]
    return sum(size or 0 for size in sizes)


def _slack_calls(scene: Scene) -> dict[str, int]:
    made = [point.removeprefix("slack ") for point in scene.stage.points if point.startswith("slack ")]
    return {method: made.count(method) for method in sorted(set(made))}


async def measured() -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        server = valkey.start(Path(folder), is_durable=False)
        client = aioredis.from_url(server.url, decode_responses=True)
        try:
            return await measure(client)
        finally:
            await client.aclose()
            server.stop()


# --- printing ---------------------------------------------------------------------------------------------------------


def clock(seconds: float) -> str:
    if seconds == float("inf"):
        return "> 1 week"
    return (
        f"{seconds:.0f} s"
        if seconds < 600
        else f"{seconds / 60:.0f} min"
        if seconds < 36_000
        else f"{seconds / 3600:.0f} h"
    )


def table(costs: Costs, limits: Limits) -> list[str]:
    lines = [
        f"{'storm of a minute':>20} {'diagnosed':>10} {'in Redis':>9} {'cards':>9} {'threads':>9}  waits longest for"
    ]
    for rate in (10, 100, 1000):
        found = storm(60 * rate, rate, costs, limits)
        times = (
            f"{clock(found.diagnosed):>10} {clock(found.stored):>9} {clock(found.cards):>9} {clock(found.threads):>9}"
        )
        lines.append(f"{rate:>10} a second {times}  {found.saturates_first}")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    parser = argparse.ArgumentParser(prog="python -m tests.bench.capacity", description=__doc__)
    parser.add_argument("--measure", action="store_true", help="measure the constants of Redis and Slack again")
    costs = Costs()
    if parser.parse_args(arguments).measure:
        print(asyncio.run(measured()))
    sharded = Limits(processes=8, deployments=8, channels=8, workspaces=8)
    for name, limits in {"one of each": Limits(), "4 replicas": Limits(processes=4), "8 shards of 8": sharded}.items():
        print(f"--- {name}", *table(costs, limits), sep="\n")
        rates = ", ".join(
            f"{part} {rate:.3g}" for part, rate in sorted(steady(costs, limits).items(), key=lambda x: x[1])
        )
        print(f"for ever, incidents a second: {rates}")
    gigabytes = 100_000 * costs.redis_bytes_open / 1e9
    kept = 1000 * 90 * costs.redis_bytes_closed / 1e9
    print(f"--- in Redis: 100,000 open incidents {gigabytes:.1f} GB; 1,000 a day, kept for 90 days, {kept:.1f} GB")
    print(f"repeated alerts, in a second and process: {1 / costs.bot_seconds_a_repeat:.0f}")


if __name__ == "__main__":
    main()
