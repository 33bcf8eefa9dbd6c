"""Socket Mode: Slack's requests over a connection that the bot opens, where nothing from outside can reach it.

The same app listens as over HTTP. Slack being away keeps nobody waiting: connecting goes on in the background.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

PING_SECONDS = 10.0


@contextlib.asynccontextmanager
async def listening(app: AsyncApp, client: AsyncWebClient, app_token: str) -> AsyncIterator[None]:
    handler = AsyncSocketModeHandler(app, app_token, ping_interval=PING_SECONDS)
    # The SDK takes a proxy from the environment and does not look at no_proxy; the client has looked.
    handler.client.proxy = client.proxy
    connect = handler.connect_async()  # type: ignore[no-untyped-call]  # slack-bolt leaves it untyped
    connecting = asyncio.create_task(connect, name="socket mode")
    try:
        yield
    finally:
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
        await handler.close_async()  # type: ignore[no-untyped-call]  # slack-bolt leaves it untyped
