"""An incident opened, answered, viewed, reopened and handed over from Slack alone: by HTTP, and in Socket Mode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from bot.sandbox import demo
from tests.end_to_end.stage import FIRST, Json, Stage, stage
from tests.waiting import until

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(180)]

USER = "U0ANA"
PLAYBOOK = """
language: 1
playbook: quality-check
title: Are the answers still good?
opens: by_hand
form:
  since: {label: Since when?, optional: true}
  gain: {label: Claimed gain, kind: number, min: 1, max: 64, unit: times}
start: judge
states:
  judge:
    ask: How good are the answers?
    choices:
      scored: {label: I have a score, to: good, form: {score: {label: Score, kind: number, min: 0, max: 1}}}
      unknown: {label: I cannot tell, to: left}
  good: {end: fixed, say: The answers were judged.}
  left: {end: handed_over, say: Nobody could tell.}
"""


@pytest.fixture(scope="module", params=["http", "socket mode"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder: Path = tmp_path_factory.mktemp("playbooks")
    (folder / "quality-check.yaml").write_text(PLAYBOOK, encoding="utf-8")
    with stage(with_alerting=False, start_bot=False) as running:
        environment = running.world.bot_environment
        environment["INCIDENT_BOT_PLAYBOOKS"] = str(folder)
        # The demo's shortened windows belong to its own playbook.
        environment.pop("INCIDENT_BOT_OVERRIDES", None)
        if request.param == "socket mode":
            environment["SLACK_APP_TOKEN"] = "xapp-sandbox"
            environment["SLACK_SIGNING_SECRET"] = ""
        running.world.start_bot()
        if request.param == "socket mode":
            until(lambda: page(running)["sockets"] == 1, "the bot holds a connection", 30)
        yield running


def page(world: Stage) -> Json:
    found: Json = httpx.get(f"{world.world.slack_url}/__sandbox__/page", timeout=10).json()
    return found


def do(world: Stage, what: str, **arguments: object) -> Json:
    answer: Json = httpx.post(f"{world.world.slack_url}/__sandbox__/{what}", json=arguments, timeout=10).json()
    assert answer["ok"], answer
    return answer


def say(world: Stage, text: str) -> str:
    return str(do(world, "command", user=USER, channel=demo.CHANNEL, command="/incident", text=text)["reply"])


def form(world: Stage, callback_id: str) -> Json:
    def top() -> Json | None:
        stack = page(world)["views"].get(USER) or [{"callback_id": ""}]
        return stack[-1] if stack[-1]["callback_id"] == callback_id else None

    return until(top, f"the form '{callback_id}' is open", 20)


def send_in(world: Stage, view: Json, **values: str) -> None:
    typed = {f"field:{name}": {"entry": value} for name, value in values.items()}
    do(world, "submit", user=USER, view_id=view["id"], values=typed)


def test_people_open_answer_look_at_and_reopen_an_incident(world: Stage) -> None:
    say(world, "open quality-check serving/llm")
    send_in(world, form(world, "open"))
    send_in(world, form(world, "open:form"), gain="4")
    question = until(lambda: world.message("Question Q1"), "the question stands in the thread", 30, seen=world.describe)
    assert world.press(USER, question, "fill:0")["ok"]
    send_in(world, form(world, "answer"), score="0.93")
    closed = until(world.closed_run, "the incident is closed", 30, seen=world.describe)
    assert closed.findings.forms == {"opening": {"gain": 4.0}, "judge": {"score": 0.93}}
    assert closed.lead == USER

    assert "open again" in say(world, f"reopen {FIRST} the score was of the wrong model")
    until(lambda: world.state() == "judge" and not world.closed_run(), "it is open again", 30, seen=world.describe)

    assert "will be posted as a picture" in say(world, "graph")
    until(lambda: files(world), "the picture is in the thread", 30, seen=world.describe)

    assert "in its thread" in say(world, "status we are asking the model team")
    until(lambda: world.message("we are asking the model team"), "the status is in the thread", 30, seen=world.describe)

    card = world.messages()[0]
    posted = do(world, "say", user="U0BEN", channel=demo.CHANNEL, text="the drift began at nine", thread_ts=card["ts"])
    do(world, "react", user=USER, channel=demo.CHANNEL, ts=posted["ts"], name="pushpin")
    pinned = until(lambda: [e for e in world.entries("note") if "began at nine" in e.text], "it is pinned", 20)
    assert (pinned[0].at, pinned[0].who) == (float(posted["ts"]), "U0BEN")

    assert "Nothing can be skipped" in say(world, "skip left nobody knows")
    do(world, "home", user=USER)
    blocks = until(lambda: page(world)["homes"].get(USER), "Home is there", 20)["blocks"]
    assert "How good are the answers?" in str(blocks)


def files(world: Stage) -> list[str]:
    return [file["name"] for message in world.messages() for file in message.get("files", ()) if "path" in file["name"]]
