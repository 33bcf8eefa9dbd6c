"""The scripted person: its presses, their order, and its typed input."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from bot.sandbox.approver import Approver
from bot.sandbox.scenarios import SCENARIOS, Labels, Scenario

pytestmark = pytest.mark.fast

MITIGATIONS = ("Cap", "More room", "Hand over")


@dataclass
class Channel:
    """Slack's stand-in with one question, which comes again after each press."""

    asked: int = 1
    words: str = ""
    """Of the question, behind its number."""
    done: list[str] = field(default_factory=list)

    def answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/__sandbox__/")
        if path == "page":
            return httpx.Response(200, json={"views": {}})
        if path == "messages":
            return httpx.Response(200, json=[self.question()])
        body = json.loads(request.content)
        if path == "press":
            self.done.append(body["action_id"].removeprefix("choose:"))
            self.asked += 1
        else:
            self.done.append(f"/{path} {body['text']}")
        return httpx.Response(200, json={"ok": True})

    def question(self) -> dict[str, Any]:
        buttons = [
            {
                "type": "button",
                "action_id": f"choose:{label}",
                "value": f"Q{self.asked}|{label}",
                "text": {"text": label},
            }
            for label in MITIGATIONS
        ]
        blocks = [{"type": "actions", "block_id": "b", "elements": buttons}]
        return {
            "ts": f"{self.asked}.0",
            "text": f"Question Q{self.asked}: Which mitigation?{self.words}",
            "blocks": blocks,
        }


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        pytest.param("More room", ["More room"] * 3, id="the-same-each-time"),
        pytest.param(("More room", "Hand over"), ["More room", "Hand over", "Hand over"], id="one-after-the-other"),
        pytest.param(
            ("/incident reset", "Cap"),
            ["/command reset", "Cap", "/command reset", "Cap", "/command reset", "Cap"],
            id="a-command-before-each",
        ),
    ],
)
def test_a_question_that_comes_again_gets_the_next_answer(answer: Labels, wanted: list[str]) -> None:
    channel = Channel()
    http = httpx.Client(transport=httpx.MockTransport(channel.answer))
    approver = Approver("http://slack.example", "C1", {"Which mitigation?": answer}, lambda _: None, _http=http)
    while len(channel.done) < len(wanted):
        approver.look()
    assert channel.done == wanted


def test_the_words_of_an_answer_fit_a_text_that_slack_escapes() -> None:
    channel = Channel(words=" TTFT &lt; 2 s &amp; no queue")
    http = httpx.Client(transport=httpx.MockTransport(channel.answer))
    answers = {"TTFT < 2 s & no queue": "Hand over"}
    Approver("http://slack.example", "C1", answers, lambda _: None, _http=http).look()
    assert channel.done == ["Hand over"]


def test_what_it_says_of_a_long_message_ends_with_a_whole_word() -> None:
    lines: list[str] = []
    channel = Channel(words=" preemptions" * 40)
    http = httpx.Client(transport=httpx.MockTransport(channel.answer))
    Approver("http://slack.example", "C1", {}, lines.append, _http=http).look()
    assert lines[0].startswith("presses 'Cap' on: Question Q1: Which mitigation? preemptions")
    assert lines[0].endswith("preemptions …")


@cache
def questions() -> tuple[str, ...]:
    """Every question of the playbooks, as written."""

    def asked(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            yield from ([node["ask"]] if isinstance(node.get("ask"), str) else [])
            node = list(node.values())
        if isinstance(node, list):
            yield from (text for each in node for text in asked(each))

    folder = Path(__file__).parents[2] / "playbooks"
    paths = [path for path in sorted(folder.rglob("*.yaml")) if not path.name.endswith(".test.yaml")]
    return tuple(text for path in paths for text in asked(yaml.load(path.read_text(), yaml.CSafeLoader)))


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda scenario: scenario.name)
def test_a_question_is_known_by_words_that_it_always_has(scenario: Scenario) -> None:
    """Those of a playbook; the titles of requests are others."""
    always = [re.sub(r"\$\{[^}]*\}", "", text) for text in questions()]
    for words in scenario.answers:
        assert any(words in text for text in always) or not any(words in text for text in questions())
