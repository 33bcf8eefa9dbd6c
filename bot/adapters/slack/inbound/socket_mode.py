"""Socket Mode: receives Slack's requests over a connection that the bot opens, for a bot without inbound access.

The app is the same as over HTTP. Connecting runs in the background, so an outage of Slack blocks nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

PING_SECONDS = 10.0
DISCONNECTED = (
    "Socket Mode has no connection, so no press or command arrives; if it stays so, see SLACK_APP_TOKEN, and whether "
    "Socket Mode is on in the app's settings"
)


@contextlib.asynccontextmanager
async def listening(
    app: AsyncApp, client: AsyncWebClient, app_token: str
) -> AsyncIterator[Callable[[], Awaitable[str]]]:
    """Yields why nothing arrives from Slack: empty while there is a connection. The SDK goes on trying without end."""
    # Half a megabyte that bots without Socket Mode do not need.
    from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler

    handler = AsyncSocketModeHandler(app, app_token, ping_interval=PING_SECONDS)
    # The SDK takes a proxy from the environment and ignores no_proxy; the client honours it.
    handler.client.proxy = client.proxy
    connect = handler.connect_async()  # type: ignore[no-untyped-call]  # slack-bolt leaves it untyped
    connecting = asyncio.create_task(connect, name="socket mode")

    async def trouble() -> str:
        return "" if await handler.client.is_connected() else DISCONNECTED

    try:
        yield trouble
    finally:
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
        await handler.close_async()  # type: ignore[no-untyped-call]  # slack-bolt leaves it untyped
