"""Whether Prometheus answers a query, and whether its clock is ours."""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx

from bot.domain.kernel.durations import lasting
from bot.domain.kernel.finding import Finding, broken, fine
from bot.domain.signals.window import STALE_SECONDS

ABOUT = "prometheus"


async def reachable(client: httpx.AsyncClient, url: str, now: Callable[[], float] = time.time) -> Finding:
    remedy = "Correct prometheus.url or its token; until then the signals that come from it are unknown."
    try:
        answer = await client.get(f"{url.rstrip('/')}/api/v1/query", params={"query": "time()"})
    except httpx.HTTPError as error:
        return broken(ABOUT, f"{url}: {error or type(error).__name__}", remedy)
    if answer.status_code != httpx.codes.OK:
        return broken(ABOUT, f"{url} answers a query with HTTP {answer.status_code}", remedy)
    try:
        theirs = float(answer.json()["data"]["result"][1])
    except (ValueError, TypeError, LookupError):
        return broken(ABOUT, f"{url}: what answers is not Prometheus", remedy)
    if abs(theirs - now()) > STALE_SECONDS / 2:
        apart = f"its clock and the bot's differ by {lasting(abs(theirs - now()))}"
        return broken(ABOUT, apart, "Synchronize the clocks; until then its newest samples count as old.")
    return fine(ABOUT, "answers a query")
