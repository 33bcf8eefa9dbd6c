"""Answers that the API server did not write: a proxy before it redirects, shows a page, or knows no such path."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from bot.adapters.kubernetes.client import KubernetesClient
from bot.adapters.kubernetes.credentials import Connection
from bot.adapters.kubernetes.dry_run import DryRun
from bot.adapters.kubernetes.permissions import Permissions
from bot.adapters.kubernetes.pod_logs import KubernetesPodLogs
from bot.adapters.kubernetes.reader import KubernetesReader
from bot.domain.kernel.errors import ClusterError
from tests import builders

pytestmark = pytest.mark.fast
EVICTION = "/api/v1/namespaces/serving/pods/llm-1/eviction"


@dataclass
class Proxy:
    """Answers each request to the API with `says`; any other path is its login page."""

    url: str = ""
    says: tuple[int, str] = (302, "")
    asked: list[tuple[str, str]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append((request.method, request.path))
        if request.path.startswith("/login"):
            return web.Response(text="<h1>Log in</h1>", content_type="text/html")
        code, text = self.says
        headers = {"Location": f"{self.url}/login?session=s3cret"} if 300 <= code < 400 else self.headers
        kind = "application/json" if text.startswith(("{", "[", '"')) else "text/html"
        return web.Response(status=code, text=text, content_type=kind, headers=headers)


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    found = Proxy()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", found.answer)
    running = web.AppRunner(app)
    await running.setup()
    site = web.TCPSite(running, "127.0.0.1", 0)
    await site.start()
    found.url = f"http://127.0.0.1:{running.addresses[0][1]}"
    yield found
    await running.cleanup()


@pytest.mark.parametrize(("method", "code"), [("GET", 301), ("POST", 302), ("PATCH", 307), ("DELETE", 308)])
async def test_a_redirect_is_an_answer_and_nothing_is_sent_to_another_address(
    proxy: Proxy, method: str, code: int
) -> None:
    proxy.says = code, ""
    async with KubernetesClient(Connection(url=proxy.url, token="t")) as client:
        answer = await client.request(method, EVICTION, body=[] if method != "GET" else None)
    assert proxy.asked == [(method, EVICTION)]
    assert (answer.status, answer.is_ok) == (code, False)
    assert answer.message == f"{code} a redirect to http://127.0.0.1/login, which the bot does not follow"


PAGES = [
    pytest.param(404, "<h1>No such route</h1>", id="no-route"),
    pytest.param(404, "404 page not found\n", id="as-the-API-server-says-of-an-API-that-it-lacks"),
    pytest.param(200, "<h1>Log in</h1>", id="login"),
    pytest.param(404, '{"message": "no Route matched"}', id="no-route-of-a-gateway"),
    pytest.param(200, '{"status": "success"}', id="another-service"),
    pytest.param(200, "[]", id="a-list"),
    pytest.param(204, "", id="nothing"),
]


@pytest.mark.parametrize(("code", "text"), PAGES)
async def test_a_page_of_a_proxy_does_not_say_that_there_is_nothing(proxy: Proxy, code: int, text: str) -> None:
    proxy.says = code, text
    async with KubernetesClient(Connection(url=proxy.url)) as client:
        reader = KubernetesReader(client)
        with pytest.raises(ClusterError, match=f"not the API server's answer: {code}" if code < 300 else str(code)):
            await reader.find("Deployment", "serving", "llm")
        with pytest.raises(ClusterError):
            await reader.listed_if_any("StatefulSet", "serving")
        with pytest.raises(ClusterError):
            await KubernetesPodLogs(reader).read("serving", "llm-1")
        assert (await reader.part("PodDisruptionBudget", "serving")).unreadable != ""


@pytest.mark.parametrize(("code", "text"), PAGES)
async def test_a_page_of_a_proxy_accepts_no_call_and_refuses_none(proxy: Proxy, code: int, text: str) -> None:
    proxy.says = code, text
    call = builders.call(method="evict", body={})
    async with KubernetesClient(Connection(url=proxy.url)) as client:
        with pytest.raises(ClusterError):
            await DryRun(client, KubernetesReader(client)).dry_run(call)
        with pytest.raises(ClusterError):
            await Permissions(client).lacking([call])


async def test_a_cluster_without_an_api_has_none_of_its_objects(proxy: Proxy) -> None:
    proxy.says = 404, "404 page not found\n"
    async with KubernetesClient(Connection(url=proxy.url)) as client:
        reader = KubernetesReader(client)
        assert await reader.find("ScaledObject", "serving", "llm") is None
        assert await reader.listed_if_any("LeaderWorkerSet", "serving") == ()
        assert (await reader.part("InferencePool", "serving")).unreadable == ""


BUSY = '{"kind": "Status", "reason": "TooManyRequests", "message": "too many requests, please try again later"}'
NONE = '{"kind": "PodList", "items": []}'


@pytest.mark.parametrize(("header", "seconds"), [({"Retry-After": "2"}, 2.0), ({"Retry-After": "600"}, 3.0), ({}, 1.0)])
async def test_a_list_that_a_busy_server_refuses_is_asked_for_once_more(
    proxy: Proxy, header: dict[str, str], seconds: float
) -> None:
    paused: list[float] = []

    async def pause(for_seconds: float) -> None:
        paused.append(for_seconds)
        proxy.says = 200, NONE

    proxy.says, proxy.headers = (429, BUSY), header
    async with KubernetesClient(Connection(url=proxy.url)) as client:
        assert (await KubernetesReader(client, pause=pause).part("Pod", "serving")).unreadable == ""
    assert (paused, len(proxy.asked)) == ([seconds], 2)


async def test_a_list_that_a_busy_server_refuses_twice_is_unreadable(proxy: Proxy) -> None:
    async def pause(_: float) -> None:
        pass

    proxy.says = 429, BUSY
    async with KubernetesClient(Connection(url=proxy.url)) as client:
        assert (
            "429 too many requests" in (await KubernetesReader(client, pause=pause).part("Pod", "serving")).unreadable
        )
    assert len(proxy.asked) == 2
