"""`python -m tests.bench.storm --incidents 2000`: what people see in Slack, at its real pace, while a rack fails.

Prints the summary minute by minute, when the cards came, and how often Slack refused; `--picture FILE` photographs the
channel at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import redis.asyncio as aioredis
import structlog

from bot.domain.incidents.run import Run
from bot.sandbox import valkey
from bot.sandbox.slack.team import Settings
from tests.browser import chromium
from tests.flow.paced_storm import CHANNEL, PACE, Storm, asking, of_a_storm, storm_at
from tests.sandbox.slack.stand_in import stand_in

CHECKS_AT = (5, 60, 300, 900)
"""Seconds after which the summary is printed."""


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.storm", description=__doc__)
    parser.add_argument("--incidents", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--picture", type=Path, help="a PNG of the channel after the last look")
    return parser.parse_args(arguments)


def incidents(count: int, rng: random.Random) -> Iterator[Run]:
    """A zone fails, a deploy breaks one model, one node dies, and the rest has nothing in common."""
    for number in range(1, count + 1):
        name, share = f"llm-{number}", rng.random()
        if share < 0.7:
            run = of_a_storm(number, deployment=name, zone="eu-1a", node=f"gpu-{rng.randrange(60)}")
        elif share < 0.85:
            run = of_a_storm(number, deployment=name, alertname="InferenceSLOBurnFast", image="vllm:0.12.1")
        elif share < 0.95:
            run = of_a_storm(number, deployment=name, alertname="GPUFatalXID", node="gpu-77")
        else:
            run = of_a_storm(number, deployment=name, alertname=f"Odd{number}")
        run = run.with_(title=f"KV cache thrash on {name}", target=run.target.model_copy(update={"name": name}))
        run = run.with_(severity="page") if rng.random() < 0.1 else run
        yield asking(run) if rng.random() < 0.3 else run


async def play(chosen: argparse.Namespace, storm: Storm) -> None:
    rng = random.Random(chosen.seed)
    start = storm.time.now()
    for run in incidents(chosen.incidents, rng):
        await storm.opens(run, start + rng.uniform(0, 30))
    for at in CHECKS_AT:
        await storm.until(start + at - storm.time.now())
        print(f"--- after {at} s: {len(storm.cards())} cards, {storm.slack.too_fast} times too fast for Slack")
        print(*(message["text"] for message in storm.messages("digest/")), sep="\n")
    asked = [name for name in storm.carded_at if storm.runs[name].open_question]
    pages = [name for name in asked if storm.runs[name].severity == "page"]
    print(f"--- of {len(storm.carded_at)} cards {len(asked)} ask a person, {len(pages)} of these page")
    print(f"--- calls of Slack: {dict(storm.slack.called)}")


async def photograph(storm: Storm, picture: Path) -> None:
    async with stand_in(Settings("http://127.0.0.1:9", "", pace="off")) as slack, chromium() as browser:
        slack.team.messages.channels[CHANNEL] = storm.team.messages.channels[CHANNEL]
        page = await browser.new_page(viewport={"width": 1280, "height": 900})
        await page.goto(f"{slack.team.base_url}/archives/{CHANNEL}/p1")
        await page.locator("text=incidents have no card yet").last.scroll_into_view_if_needed()
        await page.screenshot(path=picture)


async def main(arguments: Sequence[str] | None = None) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    chosen = options(arguments)
    with tempfile.TemporaryDirectory() as folder:
        server = valkey.start(Path(folder), is_durable=False)
        client = aioredis.from_url(server.url, decode_responses=True)
        try:
            storm = await storm_at(client, "storm", PACE)
            await play(chosen, storm)
            if chosen.picture:
                await photograph(storm, chosen.picture)
        finally:
            await client.aclose()
            server.stop()


if __name__ == "__main__":
    asyncio.run(main())
