"""`incident-bot observed` and `incident-bot stats`: what the stored incidents of the last days add up to."""

from __future__ import annotations

import contextlib

from bot.dependencies import open_storage
from bot.domain.reports.observed import observed, summary
from bot.domain.reports.statistics import in_words, statistics
from bot.flow.weekly_summary import recent_runs
from bot.settings import StorageSettings


async def statistics_text(settings: StorageSettings, *, days: int) -> str:
    async with contextlib.AsyncExitStack() as stack:
        store = open_storage(settings, stack).store
        end = await store.now()
        found = statistics(await recent_runs(store), end - days * 24 * 3600, end + 1)
        return "\n".join([f"The last {days} days.", *in_words(found)])


async def observed_text(settings: StorageSettings, *, days: int) -> str:
    async with contextlib.AsyncExitStack() as stack:
        store = open_storage(settings, stack).store
        end = await store.now()
        start = end - days * 24 * 3600
        return summary(observed(await recent_runs(store), start, end), start, end)
