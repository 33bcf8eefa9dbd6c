"""`incident-bot observed`: what the bot would have proposed in the last days, and what became of it."""

from __future__ import annotations

import contextlib

from bot.dependencies import open_storage
from bot.domain.reports.observed import observed, summary
from bot.flow.weekly_summary import recent_runs
from bot.settings import Settings


async def tell_observed(settings: Settings, *, days: int) -> str:
    async with contextlib.AsyncExitStack() as stack:
        store = open_storage(settings, stack).store
        end = await store.now()
        start = end - days * 24 * 3600
        return summary(observed(await recent_runs(store), start, end), start, end)
