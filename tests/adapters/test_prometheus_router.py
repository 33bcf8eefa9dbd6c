"""The router's numbers from the operator's own queries: one number, or the reason for its absence."""

import json
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest

from bot.adapters.prometheus.router import PrometheusRouter
from bot.domain.kernel.errors import SourceError
from bot.domain.kernel.target import Target

pytestmark = pytest.mark.fast

TARGET = Target(namespace="serving", name="llm")


def vector(*values: str) -> dict[str, Any]:
    series = [{"metric": {}, "value": [0, value]} for value in values]
    return {"status": "success", "data": {"resultType": "vector", "result": series}}


async def ask(body: object, *, query: str = "up", target: Target = TARGET, asked: list[str] | None = None) -> float:
    def handle(request: httpx.Request) -> httpx.Response:
        if asked is not None:
            asked.append(parse_qs(request.content.decode())["query"][0])
        return httpx.Response(200, text=body if isinstance(body, str) else json.dumps(body))

    async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as client:
        return await PrometheusRouter(client, "http://prometheus", errors=query, latency="").error_share(target)


@pytest.mark.parametrize(
    "body",
    [
        vector("0.25"),
        {"status": "success", "data": {"resultType": "scalar", "result": [0, "0.25"]}},
    ],
)
async def test_a_query_that_gives_one_number_is_answered(body: object) -> None:
    assert await ask(body) == 0.25


async def test_a_query_is_about_the_incidents_workload() -> None:
    asked: list[str] = []
    await ask(vector("1"), query='x{ns="$namespace",svc="$workload",cost="$5"}', asked=asked)
    assert asked == ['x{ns="serving",svc="llm",cost="$5"}']


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param(vector(), "gave 0 series", id="no-series-is-no-zero"),
        pytest.param(vector("1", "2"), "gave 2 series", id="several"),
        pytest.param(vector("NaN"), "gave no number", id="nothing-per-nothing"),
        pytest.param(vector("+Inf"), "gave no number", id="something-per-nothing"),
        pytest.param({"status": "error", "error": "parse error"}, "refused the query: parse error", id="refused"),
        pytest.param("<html>", "answered no JSON", id="no-json"),
        pytest.param({"status": "success"}, "not in the form", id="no-data"),
    ],
)
async def test_anything_else_is_unknown_with_its_reason(body: object, reason: str) -> None:
    with pytest.raises(SourceError, match=reason):
        await ask(body)


async def test_a_query_may_name_the_incidents_cluster() -> None:
    asked: list[str] = []
    target = Target(cluster="east", namespace="serving", name="llm")
    await ask(vector("1"), query='x{cluster="${cluster}",svc="$workload"}', target=target, asked=asked)
    assert asked == ['x{cluster="east",svc="llm"}']


@pytest.mark.parametrize("cluster", ["", 'e"} or vector(0) #', "e\\"])
async def test_a_label_that_could_end_the_query_is_not_put_into_it(cluster: str) -> None:
    target = Target(cluster=cluster, namespace="serving", name="llm")
    with pytest.raises(SourceError, match="cannot be the name of a cluster"):
        await ask(vector("1"), query='x{cluster="$cluster"}', target=target)
    await ask(vector("1"), query='x{svc="$workload"}', target=target)


async def test_a_name_that_kubernetes_cannot_have_given_is_not_put_into_a_query() -> None:
    with pytest.raises(SourceError, match="is not the name"):
        await ask(vector("1"), target=Target(namespace="serving", name='llm"} or vector(0) #'))


async def test_a_query_that_nobody_wrote_is_not_asked() -> None:
    with pytest.raises(SourceError, match=r"no query is configured \(prometheus.gateway_p99\)"):
        await PrometheusRouter(None, "", errors="up", latency="").latency_p99(TARGET)
