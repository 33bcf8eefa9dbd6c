"""The simulator as its own process."""

import asyncio
import json
import socket
import sys
from pathlib import Path

import httpx

from bot.sandbox.slack.server import listening_socket
from tests.processes import start
from tests.sandbox.slack.stand_in import until

ARGUMENTS = ("--bot-url", "http://127.0.0.1:9", "--signing-secret", "s")


def post(url: str, text: str) -> httpx.Response:
    headers = {"Authorization": "Bearer xoxb-sandbox"}
    return httpx.post(f"{url}/api/chat.postMessage", data={"channel": "C0INC", "text": text}, headers=headers)


def test_it_says_where_it_listens_and_ends_when_asked_even_with_a_page_open() -> None:
    process = start("bot.sandbox.slack", *ARGUMENTS, "--die-with-parent")
    with httpx.stream("GET", f"{process.url}/__sandbox__/stream") as page:
        assert next(page.iter_lines()) == "retry: 500"
        assert post(process.url, "hello").json()["ok"]
        assert process.stop() == 0


def test_messages_outlive_the_process_when_a_state_file_is_named(tmp_path: Path) -> None:
    state = ("--state", str(tmp_path / "slack.json"))
    with start("bot.sandbox.slack", *ARGUMENTS, *state) as first:
        ts = post(first.url, "before").json()["ts"]
    with start("bot.sandbox.slack", *ARGUMENTS, *state) as second:
        (message,) = httpx.get(f"{second.url}/__sandbox__/messages").json()
        assert (message["ts"], message["text"]) == (ts, "before")


def test_its_answers_do_not_wait_for_an_acknowledgement() -> None:
    """asyncio turns the delay of small packets off only where the protocol is named."""
    with listening_socket(0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-m', 'bot.sandbox.slack', *sys.argv[1:]])"


async def test_it_ends_when_the_process_that_started_it_is_killed() -> None:
    command = [sys.executable, "-c", PARENT, *ARGUMENTS, "--die-with-parent"]
    parent = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    line = (await parent.stdout.readline()).decode()
    url = json.loads(line.removeprefix("ready "))["url"]
    async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
        assert (await http.get("/")).status_code == 200
        parent.kill()

        async def is_gone() -> bool:
            try:
                await http.get("/")
            except httpx.TransportError:
                return True
            return False

        await until(is_gone, "nothing listens there any more")
    await parent.communicate()
