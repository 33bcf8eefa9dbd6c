"""A pod's page through the API server: the path of the pod proxy, and each refusal with its reason."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from bot.adapters.kubernetes.client import KubernetesClient
from bot.adapters.kubernetes.credentials import Connection
from bot.adapters.kubernetes.pod_proxy import ProxyPages
from bot.adapters.vllm.scraper import VllmScraper
from bot.domain.kernel.errors import SourceError
from bot.flow.ports.cluster import Replica
from bot.flow.ports.readings import MAX_PAGE_BYTES, PodPage

pytestmark = pytest.mark.fast

PAGE = PodPage("serving", "llm-0", "10.0.0.1", 8000)
Serve = Callable[[web.Response], Awaitable[tuple[ProxyPages, list[str]]]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """An API server that gives one answer to everything; the pages read through it, and what it was asked."""
    closing = []

    async def start(response: web.Response) -> tuple[ProxyPages, list[str]]:
        asked: list[str] = []

        async def answer(request: web.Request) -> web.Response:
            asked.append(f"{request.method} {request.path}")
            return response

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        client = KubernetesClient(Connection(url=f"http://127.0.0.1:{runner.addresses[0][1]}"))
        closing.extend([client.close, runner.cleanup])
        return ProxyPages(client), asked

    yield start
    for close in closing:
        await close()


async def test_a_page_is_asked_for_at_the_pods_proxy(serve: Serve) -> None:
    pages, asked = await serve(web.Response(text="vllm:num_requests_running 4.0\n"))
    replica = Replica(name="llm-0", uid="u", address="10.0.0.1", port=8000, namespace="serving")
    # The client is imported with its first request, which takes a busy machine seconds.
    (found,) = await VllmScraper(pages, lambda: 7.0, deadline=60.0).scrape([replica])
    assert found.ranks == {"0": {"num_requests_running": 4.0}}
    assert asked == ["GET /api/v1/namespaces/serving/pods/llm-0:8000/proxy/metrics"]


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        pytest.param({"status": 403, "text": 'pods "llm-0" is forbidden: pods/proxy'}, "403 .*pods/proxy", id="rbac"),
        pytest.param({"status": 503, "text": "no endpoints available"}, "503 no endpoints", id="not-serving"),
        pytest.param({"status": 200, "text": "{}", "content_type": "application/json"}, "is not text", id="json"),
    ],
)
async def test_a_refusal_is_reported_with_its_reason(serve: Serve, response: dict[str, Any], reason: str) -> None:
    pages, _ = await serve(web.Response(**response))
    with pytest.raises(SourceError, match=reason):
        await pages.read(PAGE)


async def test_a_page_without_end_is_read_no_further_than_a_page_may_be_long() -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while sent < 20 * MAX_PAGE_BYTES:
            await response.write(b"#" * 65536)
            sent += 65536
        return response

    app = web.Application()
    app.router.add_get("/{path:.*}", endless)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with KubernetesClient(Connection(url=f"http://127.0.0.1:{runner.addresses[0][1]}")) as client:
        with pytest.raises(SourceError, match=f"larger than {MAX_PAGE_BYTES >> 20} MiB"):
            await ProxyPages(client).read(PAGE)
    await runner.cleanup()
    assert sent < 4 * MAX_PAGE_BYTES


async def test_a_name_that_kubernetes_cannot_have_given_is_asked_of_nobody(serve: Serve) -> None:
    pages, asked = await serve(web.Response(text=""))
    with pytest.raises(SourceError, match="not a Kubernetes name"):
        await pages.read(PodPage("serving", "../nodes", "10.0.0.1", 8000))
    assert asked == []
