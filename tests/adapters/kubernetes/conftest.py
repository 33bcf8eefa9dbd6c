"""The demo world behind the simulator's real socket, with its own kubelet, created for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from bot.adapters.kubernetes.client import KubernetesClient
from bot.adapters.kubernetes.cluster import KubernetesCluster
from bot.adapters.kubernetes.credentials import Connection
from bot.adapters.kubernetes.reader import KubernetesReader
from bot.adapters.kubernetes.writer import KubernetesWriter
from bot.sandbox.plain_http import async_http
from tests.adapters.kubernetes.lab import Lab, available
from tests.processes import Running, start


@pytest.fixture
def stand_in() -> Iterator[Running]:
    with start("bot.sandbox.kubernetes", "--seed-world", "demo", "--with-kubelet", "--die-with-parent") as running:
        yield running


@pytest.fixture
async def lab(stand_in: Running) -> AsyncIterator[Lab]:
    """Reader and writer as the bot has them, and a door behind the API for arranging and checking."""
    async with (
        KubernetesClient(Connection(url=stand_in.url)) as client,
        async_http(base_url=stand_in.url) as door,
    ):
        reader = KubernetesReader(client, cluster_wide_seconds=0.0)
        made = Lab(
            url=stand_in.url,
            client=client,
            reader=reader,
            cluster=KubernetesCluster(client, name="sandbox", reader=reader),
            writer=KubernetesWriter(client, reader),
            door=door,
        )
        await made.until_seen("four replicas are Ready and in rotation", lambda world: len(made.serving(world)) == 4)
        await made.until_seen("the Deployment says so too", lambda world: available(world) == 4)
        yield made
