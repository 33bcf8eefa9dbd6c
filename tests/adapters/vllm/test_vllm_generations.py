"""A long generation over real sockets: sent, certainly not sent, or broken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from bot.adapters.vllm.generations import VllmGenerations
from bot.domain.kernel.errors import ApprovalError
from bot.flow.ports.cluster import Generated, Replica
from tests.adapters.kubernetes.lab import granted
from tests.domain.changes.snapshots import planned
from tests.domain.changes.test_probe_request import ASK
from tests.domain.changes.test_replicas import isolated_world

pytestmark = pytest.mark.fast
PLAN = planned("probe_request", ASK, isolated_world())
APPROVED, CALL = granted(PLAN), PLAN.calls[0]
MODELS: Any = {"data": [{"id": "tiny-llama"}]}
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Engine:
    """A replica that answers what the test says, and keeps what it was asked."""

    def __init__(self) -> None:
        self.port = 0
        self.models: Any = MODELS
        self.completion: Answer = whole
        self.asked: list[dict[str, Any]] = []
        self.dropped = asyncio.Event()

    async def get_models(self, _: web.Request) -> web.Response:
        return web.json_response(self.models)

    async def post_completion(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(await request.json())
        try:
            return await self.completion(request)
        except asyncio.CancelledError:
            self.dropped.set()
            raise

    @property
    def replica(self) -> Replica:
        return Replica(name="llm-2", uid="llm-2-uid", address="127.0.0.1", port=self.port)


async def whole(_: web.Request) -> web.Response:
    return web.json_response({"usage": {"prompt_tokens": 16, "completion_tokens": 4096, "total_tokens": 4112}})


async def short(_: web.Request) -> web.Response:
    return web.json_response({"usage": {"prompt_tokens": 16, "completion_tokens": 7, "total_tokens": 23}})


async def silent(_: web.Request) -> web.Response:
    return web.json_response({"choices": []})


async def hangs_up(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


async def never(_: web.Request) -> web.Response:
    await asyncio.Event().wait()
    return web.Response()


async def endless(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    for _ in range(200):
        await answer.write(b" " * (1 << 20))
    return answer


async def nested(_: web.Request) -> web.Response:
    return web.Response(text="[" * 100_000)


def status(code: int) -> Answer:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=code, text="because")

    return answer


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    made = Engine()
    app = web.Application()
    app.router.add_get("/v1/models", made.get_models)
    app.router.add_post("/v1/completions", made.post_completion)
    runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.port = int(runner.addresses[0][1])
    yield made
    await runner.cleanup()


@pytest.fixture
async def generations() -> AsyncIterator[VllmGenerations]:
    async with VllmGenerations() as opened:
        yield opened


async def test_the_served_model_is_asked_for_exactly_that_many_tokens(
    engine: Engine, generations: VllmGenerations
) -> None:
    assert await generations.generate(APPROVED, CALL, engine.replica) == Generated("ended", tokens=4112)
    (asked,) = engine.asked
    assert {key: asked[key] for key in ("model", "max_tokens", "ignore_eos")} == {
        "model": "tiny-llama", "max_tokens": 4096, "ignore_eos": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("completion", "result", "detail"),
    [
        pytest.param(status(400), "refused", "HTTP 400: because", id="not-valid"),
        pytest.param(status(503), "refused", "HTTP 503: because", id="shed"),
        pytest.param(status(500), "broken", "HTTP 500: because", id="engine-died"),
        pytest.param(hangs_up, "broken", "Server disconnected", id="hung-up"),
        pytest.param(short, "broken", "it ended after 7 of 4096 tokens", id="short"),
        pytest.param(silent, "broken", "does not say how many tokens", id="no-usage"),
        pytest.param(endless, "broken", "larger than 8 MiB", id="endless"),
        pytest.param(nested, "broken", "recursion", id="nested"),
    ],
)
async def test_the_outcomes_of_a_generation_are_distinguished(
    engine: Engine, generations: VllmGenerations, completion: Answer, result: str, detail: str
) -> None:
    engine.completion = completion
    made = await generations.generate(APPROVED, CALL, engine.replica)
    assert (made.result, detail in made.detail, len(engine.asked)) == (result, True, 1), made.detail


@pytest.mark.parametrize("models", [{"data": []}, {}, []])
async def test_without_a_model_nothing_is_sent(engine: Engine, generations: VllmGenerations, models: Any) -> None:
    engine.models = models
    made = await generations.generate(APPROVED, CALL, engine.replica)
    assert (made.result, engine.asked) == ("refused", [])


async def test_a_replica_that_nobody_reaches_was_given_nothing(generations: VllmGenerations) -> None:
    gone = Replica(name="llm-2", uid="llm-2-uid", address="127.0.0.1", port=1)
    assert (await generations.generate(APPROVED, CALL, gone)).result == "refused"


async def test_cancelling_it_lets_the_engine_drop_it(engine: Engine, generations: VllmGenerations) -> None:
    engine.completion = never
    sending = asyncio.create_task(generations.generate(APPROVED, CALL, engine.replica))
    async with asyncio.timeout(10):
        while not engine.asked:
            await asyncio.wait([sending], timeout=0.01)
        sending.cancel()
        await engine.dropped.wait()


async def test_only_what_was_granted_is_sent_and_only_to_that_pod(engine: Engine, generations: VllmGenerations) -> None:
    more = CALL.model_copy(update={"body": CALL.body | {"max_tokens": 9999}})
    with pytest.raises(ApprovalError, match="not a generation of the approved plan"):
        await generations.generate(APPROVED, more, engine.replica)
    other = Replica(name="llm-3", uid="llm-3-uid", address="127.0.0.1", port=engine.port)
    with pytest.raises(ApprovalError, match="not about llm-3"):
        await generations.generate(APPROVED, CALL, other)
    assert engine.asked == []
