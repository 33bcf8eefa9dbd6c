"""What comes back for a message that is not Slack's JSON: a proxy before Slack answers with its own pages."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bot.adapters.slack.client import Refusal, ask, web_client, web_session

pytestmark = pytest.mark.fast

LOGIN_PAGE = "<html>Please log in</html>"


def answering(status: int, text: str, content_type: str, rest: str = "") -> TestServer:
    async def answer(_: web.Request) -> web.Response:
        headers = {"Retry-After": rest} if rest else None
        return web.Response(status=status, text=text, content_type=content_type, headers=headers)

    app = web.Application()
    app.router.add_post("/{method}", answer)
    return TestServer(app)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param((200, LOGIN_PAGE, "text/html"), ("HTTP 200", "unknown", 1.0), id="page"),
        pytest.param((200, "ok", "text/plain"), ("HTTP 200", "unknown", 1.0), id="plain-text"),
        pytest.param((200, "", "application/json"), ("HTTP 200", "unknown", 1.0), id="nothing"),
        pytest.param((200, "[]", "application/json"), ("HTTP 200", "unknown", 1.0), id="list"),
        pytest.param((502, LOGIN_PAGE, "text/html"), ("HTTP 502", "unknown", 1.0), id="bad-gateway"),
        pytest.param((429, "slower", "text/plain", "7"), ("ratelimited", "no", 7.0), id="too-many"),
    ],
)
@pytest.mark.parametrize("method", ["chat_postMessage", "chat_update", "chat_delete"])
async def test_an_answer_that_is_not_slacks_json_is_a_refusal(
    method: str, answer: tuple[int, str, str], expected: tuple[str, str, float]
) -> None:
    async with answering(*answer) as server, web_session() as session:
        client = web_client("xoxb-1", session, base_url=str(server.make_url("/")))
        refusal = await ask(getattr(client, method)(channel="C1", ts="1.0"))
    assert isinstance(refusal, Refusal)
    assert (refusal.error, refusal.happened, refusal.retry_after_seconds) == expected
    assert not refusal.lasting
