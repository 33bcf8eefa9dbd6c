"""`incident-bot observed` and `incident-bot stats`: what the stored incidents of the last days add up to."""

from __future__ import annotations

import contextlib

from bot.dependencies import open_storage
from bot.domain.reports.observed import summary
from bot.domain.reports.statistics import covered_days, in_words, statistics
from bot.flow.weekly_summary import READ, observed_between, recent_runs
from bot.settings import StorageSettings


async def statistics_text(settings: StorageSettings, *, days: int) -> str:
    async with contextlib.AsyncExitStack() as stack:
        store = open_storage(settings, stack).store
        end, runs = await store.now(), await recent_runs(store)
        start = end - days * 24 * 3600
        return "\n".join([covered_days(days, runs, start, read=READ), *in_words(statistics(runs, start, end + 1))])


async def observed_text(settings: StorageSettings, *, days: int) -> str:
    async with contextlib.AsyncExitStack() as stack:
        store = open_storage(settings, stack).store
        end = await store.now()
        start = end - days * 24 * 3600
        return summary(await observed_between(store, start, end), start, end)
