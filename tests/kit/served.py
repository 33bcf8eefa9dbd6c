"""A double of a service, served on a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def served(routes: Iterable[web.RouteDef]) -> AsyncIterator[str]:
    """Yields the address of these routes."""
    application = web.Application()
    application.add_routes(routes)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()
