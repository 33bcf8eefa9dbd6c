"""`python -m tests.bench.month --seeds 50`: play simulated months, and print outcomes and every broken rule.

A fault names its seed; `--first SEED --seeds 1` plays that month again.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence

import structlog

from tests.life.month import a_month


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.month", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="how many months")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first one")
    parser.add_argument("--days", type=float, default=30.0)
    return parser.parse_args(arguments)


async def play(chosen: argparse.Namespace) -> int:
    faults = 0
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        outcome = await a_month(seed, days=chosen.days)
        print(f"seed {seed}", *outcome.lines(), sep="\n  ", flush=True)
        faults += len(outcome.faults)
    return faults


def main(arguments: Sequence[str] | None = None) -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    return 1 if asyncio.run(play(options(arguments))) else 0


if __name__ == "__main__":
    sys.exit(main())
