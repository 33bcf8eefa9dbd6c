"""`python -m tests.bench.export`: how long a timeline of 10,000 entries takes to export, in each format."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

from bot.adapters.pictures.charts import drawn
from bot.domain.kernel.timeline import GENESIS, Chained, Entry, chain
from bot.domain.reports import as_json, html, markdown
from bot.domain.signals.signal import Reading
from tests.domain.reports.charted import fixed, thrash_line, usage_line


def long_timeline(length: int) -> tuple[Chained, ...]:
    """An incident that was read again and again."""
    entries = [item.entry for item in fixed(thrash_line(), usage_line())]
    begun, ended = entries[:4], entries[4:]
    at = begun[-1].at

    def look(number: int) -> Entry:
        readings = (
            Reading(name=f"signal_{index}", value=number * 0.1 + index, unit="ratio", at=at + number / 10)
            for index in range(6)
        )
        data = {one.name: one.model_dump(mode="json", exclude_defaults=True) for one in readings}
        return Entry(kind="read", at=at + number / 10, text="6 of 6 signals read", state="look", data=data)

    checks = [look(number) for number in range(length - len(entries))]
    return chain([*begun, *checks, *ended], head=GENESIS, length=0)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.export", description=__doc__)
    parser.add_argument("--entries", type=int, default=10_000)
    chosen = parser.parse_args(arguments)
    entries = long_timeline(chosen.entries)
    formats: dict[str, Callable[[], str]] = {
        "md": lambda: markdown(entries),
        "html": lambda: html(entries, lambda chart: drawn(chart, "svg")),
        "json": lambda: as_json(entries),
    }
    for name, write in formats.items():
        begun = time.perf_counter()
        size = len(write())
        print(f"{name:5} {time.perf_counter() - begun:6.2f} s  {size / 1e6:6.1f} MB", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
