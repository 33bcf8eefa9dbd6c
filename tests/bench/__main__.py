"""`python -m tests.bench`: the bot beside the floor, in one run, in turns; prints medians and ratios, writes nothing.

Only ratios of one run mean something: the machine's other work hits both alike.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import fields

from tests.bench.load import BenchError, targets
from tests.bench.scenario import Figures, Scenario, Size, open_incidents
from tests.bench.scenarios import SCENARIOS
from tests.bench.systems import SYSTEMS, Surroundings, System, surroundings

Measured = dict[tuple[str, str], list[Figures]]


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=SCENARIOS, action="append", help="this scenario; may be repeated")
    parser.add_argument(
        "--forks", action="store_true", help="quicker starts, for a test of the bench; memory is shared"
    )
    for field in fields(Size):
        name, default = f"--{field.name.replace('_', '-')}", field.default
        parser.add_argument(name, type=float if isinstance(default, float) else int, default=default)
    return parser.parse_args(arguments)


async def warmed(run: Scenario, around: Surroundings, system: System, size: Size) -> Figures:
    await open_incidents(around, system, targets("warm", 1))
    return await run(around, system, size)


def measure(around: Surroundings, size: Size, rounds: int, scenarios: Mapping[str, Scenario]) -> Measured:
    measured: Measured = {}
    for number in range(rounds):
        for scenario, run in scenarios.items():
            # Who goes first changes with each round.
            for name in sorted(SYSTEMS, reverse=number % 2 == 0):
                around.forget()
                with SYSTEMS[name](around) as system:
                    figures = asyncio.run(warmed(run, around, system, size))
                measured.setdefault((scenario, name), []).append(figures)
    return measured


def table(measured: Measured) -> str:
    lines = [f"{'':26}{'':14}{'floor':>10}{'bot':>10}{'bot/floor':>11}"]
    for scenario in dict.fromkeys(scenario for scenario, _ in measured):
        floors, bots = measured[scenario, "floor"], measured[scenario, "bot"]
        for label, figure in zip((scenario, *[""] * len(floors[0])), floors[0], strict=False):
            low = statistics.median(each[figure] for each in floors)
            high = statistics.median(each[figure] for each in bots)
            # Time is counted in ticks of the kernel: a short run may have used none.
            ratio = f"{high / low:11.2f}" if low else f"{'-':>11}"
            lines.append(f"{label:26}{figure:14}{low:10.1f}{high:10.1f}{ratio}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = options(arguments)
    # As in the image, whose bytecode is compiled: else each process compiles every library again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    size = Size(**{field.name: getattr(chosen, field.name) for field in fields(Size)})
    try:
        with surroundings(forks=chosen.forks) as around:
            wanted = chosen.only or SCENARIOS
            measured = measure(around, size, chosen.rounds, {name: SCENARIOS[name] for name in wanted})
    except BenchError as error:
        raise SystemExit(f"bench: {error}") from error
    print(f"medians of {chosen.rounds} rounds; {size}")
    print(table(measured))


if __name__ == "__main__":
    main()
