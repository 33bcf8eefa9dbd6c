"""Logs of pods over a real socket, from a server that cuts them where a kubelet does."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from bot.adapters.kubernetes.client import KubernetesClient
from bot.adapters.kubernetes.credentials import Connection
from bot.adapters.kubernetes.pod_logs import MAX_BYTES, KubernetesPodLogs
from bot.adapters.kubernetes.reader import KubernetesReader
from bot.domain.kernel.errors import CutLogError

pytestmark = pytest.mark.fast

POD = {"kind": "Pod", "metadata": {"name": "llm-0"}, "spec": {"containers": [{"name": "vllm"}]}}
LONG = "é" * 1000
"""A line of 2,000 bytes."""
Serve = Callable[[str], Awaitable[tuple[KubernetesPodLogs, list[str | None]]]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """The pod's log, and how many of its last lines each request asked for."""
    closing = []

    async def start(log: str) -> tuple[KubernetesPodLogs, list[str | None]]:
        asked: list[str | None] = []

        async def pod(_: web.Request) -> web.Response:
            return web.json_response(POD)

        async def kubelet(request: web.Request) -> web.Response:
            """Goes to the last lines that are asked for, and stops after the limit."""
            asked.append(tail := request.query.get("tailLines"))
            lines = log.splitlines(keepends=True)
            text = "".join(lines[-int(tail) :] if tail else lines)
            return web.Response(body=text.encode()[: int(request.query["limitBytes"])], content_type="text/plain")

        app = web.Application()
        app.router.add_get("/api/v1/namespaces/serving/pods/llm-0", pod)
        app.router.add_get("/api/v1/namespaces/serving/pods/llm-0/log", kubelet)
        runner = web.AppRunner(app, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        client = KubernetesClient(Connection(url=f"http://127.0.0.1:{runner.addresses[0][1]}"))
        closing.extend([client.close, runner.cleanup])
        return KubernetesPodLogs(KubernetesReader(client)), asked

    yield start
    for close in closing:
        await close()


async def test_the_last_lines_are_given_whole(serve: Serve) -> None:
    logs, _ = await serve("first\nsecond\nlast\n")
    assert await logs.read("serving", "llm-0", tail_lines=2) == "second\nlast\n"


async def test_last_lines_whose_newest_are_cut_off_are_refused(serve: Serve) -> None:
    logs, _ = await serve(f"{LONG}\n" * 600 + "last\n")
    with pytest.raises(CutLogError, match="its last 2000 lines are larger than 1 MiB"):
        await logs.read("serving", "llm-0", tail_lines=2000)
    assert str(await logs.read("serving", "llm-0", tail_lines=200)).endswith("last\n")


async def test_lines_since_a_moment_whose_newest_are_cut_off_are_refused_with_the_oldest(serve: Serve) -> None:
    logs, _ = await serve("first\n" + f"{LONG}\n" * 600)
    with pytest.raises(CutLogError, match="its lines since 1970-01-01T00:01:00Z are larger than 1 MiB") as refused:
        await logs.read("serving", "llm-0", since=60.0)
    assert refused.value.beginning.startswith("first\n")
    short, _ = await serve("first\nlast\n")
    assert await short.read("serving", "llm-0", since=60.0) == "first\nlast\n"


async def test_the_beginning_of_a_log_is_given_however_long_the_log_is(serve: Serve) -> None:
    logs, _ = await serve("first\n" + f"{LONG}\n" * 600)
    begun = await logs.read("serving", "llm-0")
    assert begun is not None
    assert (begun[:6], len(begun.encode())) == ("first\n", MAX_BYTES)


async def test_of_a_jobs_long_lines_a_tenth_is_read(serve: Serve) -> None:
    logs, asked = await serve(f"{LONG * 10}\n" * 100 + "score\n")
    assert str(await logs.last_lines("serving", "llm-0", lines=100)).endswith("score\n")
    assert asked == ["100", "10"]


async def test_a_job_whose_last_lines_are_still_too_long_has_no_result(serve: Serve) -> None:
    logs, _ = await serve(f"{LONG * 100}\n" * 10 + "score\n")
    with pytest.raises(CutLogError, match="its last 10 lines are larger than 1 MiB"):
        await logs.last_lines("serving", "llm-0", lines=100)
