"""Whether Prometheus answers a query."""

from __future__ import annotations

import httpx

from bot.domain.kernel.finding import Finding, broken, fine

ABOUT = "prometheus"


async def reachable(client: httpx.AsyncClient, url: str) -> Finding:
    remedy = "Correct prometheus.url or its token; until then the signals that come from it are unknown."
    try:
        answer = await client.get(f"{url.rstrip('/')}/api/v1/query", params={"query": "vector(1)"})
    except httpx.HTTPError as error:
        return broken(ABOUT, f"{url}: {error or type(error).__name__}", remedy)
    if answer.status_code != httpx.codes.OK:
        return broken(ABOUT, f"{url} answers a query with HTTP {answer.status_code}", remedy)
    return fine(ABOUT, "answers a query")
