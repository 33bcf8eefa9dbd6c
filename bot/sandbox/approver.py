"""A scripted person for the unattended demo: reads the Slack simulator and presses its real buttons, as signed HTTP."""

from __future__ import annotations

import html
import re
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from bot.sandbox.plain_http import http
from bot.sandbox.scenarios import COMMIT, Labels

USER, SECOND = "U0ANA", "U0BEN"
"""The person who presses, and the colleague who presses if it must be another person."""
SECOND_AFTER_SECONDS = 4.0
BUTTONS = ("choose:", "fill:")
"""A choice, and one that opens a form first."""
PULL_REQUEST = "pull_request"
"""Opens one with the patch of the message."""
PATIENCE = 3
"""How often the same question gets the same answer before a real person must step in."""
COMMAND = "/incident "
"""Text with this prefix is not a label: it is typed before the question is answered."""
_PULL_REQUEST = re.compile(r"<(http[^|>]+/pull/[0-9]+)\|Pull request [0-9]+>")
_PATCH = re.compile(r"```\n?(.*?apiVersion: .*?)```", re.DOTALL)
_BEFORE = re.compile(r"^.*?(?=\bQuestion\b|\bRequest\b)", re.DOTALL)
APPROVE = ("approve", "approve_with_reason")
"""The second opens a form that asks for a reason."""
REASON = {"reason": "as rehearsed"}
MAX_TEXT_LENGTH = 160
"""Maximum characters of a message in the output."""


@dataclass
class Approver:
    """Approves every request, answers every question as in `answers`, else by the first choice; fills forms."""

    slack_url: str
    channel: str
    answers: Mapping[str, Labels]
    say: Callable[[str], None]
    filled: Mapping[str, str] = field(default_factory=dict)
    commit: Callable[[str], None] | None = None
    """Puts a patch where the workload is kept, as a person does in git."""
    _http: httpx.Client = field(default_factory=http)
    _pressed: dict[tuple[str, str], tuple[str, float]] = field(default_factory=dict)
    """Message and button: who pressed it last, and when."""
    _answered: Counter[tuple[str, str]] = field(default_factory=Counter)
    _typed_for: set[str] = field(default_factory=set)
    """Messages for which the commands of their answer were typed."""
    _merged: set[str] = field(default_factory=set)
    """Addresses of pull requests."""

    def command(self, text: str) -> None:
        """`/incident TEXT`, typed in the channel."""
        self.say(f"types '/incident {text}'")
        self._act("command", {"channel": self.channel, "command": "/incident", "text": text})

    def look(self) -> None:
        """Submits an open form, else presses what waits; a button is pressed until the bot has acknowledged it."""
        views = self._http.get(f"{self.slack_url}/__sandbox__/page").raise_for_status().json()["views"]
        for user in (USER, SECOND):
            if views.get(user):
                self._fill(views[user][-1], user)
                return
        for message in self._messages():
            self._merge(message)
            self._type_first(message)
            chosen = self._choose(message, list(_buttons(message.get("blocks", []))))
            if chosen is not None and (user := self._who_presses(message["ts"], chosen["value"])):
                self._press(message, chosen, user)

    def _who_presses(self, ts: str, value: str) -> str:
        """Not the same person, but a colleague if the button is still there: some decisions need another person."""
        user, at = self._pressed.get((ts, value), ("", 0.0))
        if not user:
            return USER
        return SECOND if user == USER and time.monotonic() - at > SECOND_AFTER_SECONDS else ""

    def _press(self, message: Mapping[str, Any], button: Mapping[str, Any], user: str) -> None:
        body = {
            "channel": self.channel,
            "ts": message["ts"],
            "action_id": button["action_id"],
            "block_id": button["block_id"],
            "value": button["value"],
        }
        # Slack shows a person that the bot did not answer, and that person presses again.
        if self._act("press", body, user):
            self._pressed[message["ts"], button["value"]] = (user, time.monotonic())
            label = button["text"]["text"]
            self._answered[_asked(message), label] += 1
            self.say(f"presses '{label}' on: {_about(message)}")

    def _act(self, what: str, body: Mapping[str, Any], user: str = USER) -> bool:
        """Whether the bot acknowledged it. If the button is gone, the bot has edited the message since."""
        response = self._http.post(f"{self.slack_url}/__sandbox__/{what}", json={"user": user, **body})
        if response.status_code == httpx.codes.NOT_FOUND:
            return False
        return bool(response.raise_for_status().json()["ok"])

    def _fill(self, form: Mapping[str, Any], user: str) -> None:
        """A field keeps its initial value, unless `filled` names it."""
        self.say(f"sends in the form '{form['title']['text']}'")
        inputs = [block for block in form["blocks"] if block["type"] == "input"]
        fields = {block["block_id"]: block["element"]["action_id"] for block in inputs}
        named = {block_id: block_id.partition(":")[2] for block_id in fields}
        known = {**REASON, **self.filled}
        values = {block_id: {fields[block_id]: known[name]} for block_id, name in named.items() if name in known}
        self._act("submit", {"view_id": form["id"], "values": values}, user)

    def _messages(self) -> list[dict[str, Any]]:
        answer = self._http.get(f"{self.slack_url}/__sandbox__/messages", params={"channel": self.channel})
        return [{**each, "text": html.unescape(each.get("text", ""))} for each in answer.raise_for_status().json()]

    def _choose(self, message: Mapping[str, Any], buttons: list[dict[str, Any]]) -> dict[str, Any] | None:
        pull_request = next((button for button in buttons if button["action_id"] == PULL_REQUEST), None)
        if pull_request is not None:
            return pull_request
        approve = next((button for button in buttons if button["action_id"] in APPROVE), None)
        choices = [button for button in buttons if button["action_id"].startswith(BUTTONS)]
        if approve is not None:
            return self._instead(message, choices) or approve
        # An answer that failed this often is given up: the next choice, which ends at handing over.
        tried = self._answered
        choices = [b for b in choices if tried[_asked(message), b["text"]["text"]] < PATIENCE] or choices[-1:]
        text = message.get("text", "")
        wanted = next((self._next(answer, message) for words, answer in self.answers.items() if words in text), None)
        named = next((button for button in choices if wanted and wanted in button["text"]["text"]), None)
        return named or next((button for button in choices if button["action_id"].startswith(BUTTONS[0])), None)

    def _instead(self, message: Mapping[str, Any], others: list[dict[str, Any]]) -> dict[str, Any] | None:
        """The other option of a request that an answer names."""
        answers = [answer for words, answer in self.answers.items() if words in message.get("text", "")]
        wanted = self._next(answers[0], message) if answers else ""
        return next((button for button in others if wanted and wanted in button["text"]["text"]), None)

    def _type_first(self, message: Mapping[str, Any]) -> None:
        """The commands and the commit that an answer begins with, once for each question."""
        text, asks = message.get("text", ""), any(_buttons(message.get("blocks", [])))
        for words, answer in self.answers.items():
            if not asks or words not in text or message["ts"] in self._typed_for:
                continue
            self._typed_for.add(message["ts"])
            for command in _commands(answer):
                if command != COMMIT:
                    self.command(command.removeprefix(COMMAND))
                elif self.commit is not None:
                    self.say("commits the patch that the bot handed out")
                    self.commit(self._last_patch())

    def _merge(self, message: Mapping[str, Any]) -> None:
        """Merges the pull request of a message, as the owner of the workload does."""
        shown = [
            str(part["text"])
            for block in message.get("blocks", [])
            for part in block.get("elements", ())
            if "text" in part
        ]
        for url in _PULL_REQUEST.findall(" ".join(shown)):
            if url not in self._merged:
                self._merged.add(url)
                self.say("merges the pull request that the bot opened")
                self._http.post(f"{url}/merge", follow_redirects=True).raise_for_status()

    def _last_patch(self) -> str:
        texts = [
            str(block["text"]["text"])
            for one in self._messages()
            for block in one.get("blocks", [])
            if block["type"] == "section" and "text" in block
        ]
        return html.unescape(next(found[1] for text in reversed(texts) if (found := _PATCH.search(text))))

    def _next(self, answer: Labels, message: Mapping[str, Any]) -> str:
        if isinstance(answer, str):
            return answer
        answer = tuple(label for label in answer if label not in _commands(answer))
        asked = _asked(message)
        before = sum(count for (question, _), count in self._answered.items() if question == asked)
        return answer[min(before, len(answer) - 1)]


def _buttons(blocks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for block in blocks:
        if block.get("type") == "actions":
            for element in block["elements"]:
                if element.get("type") == "button" and "value" in element:
                    yield {**element, "block_id": block.get("block_id", "")}
                if element.get("type") == "static_select":
                    where = {"action_id": element["action_id"], "block_id": block.get("block_id", "")}
                    yield from ({**where, "text": each["text"], "value": each["value"]} for each in element["options"])


def _commands(answer: Labels) -> list[str]:
    labels = (answer,) if isinstance(answer, str) else answer
    return [label for label in labels if label.startswith(COMMAND) or label == COMMIT]


def _asked(message: Mapping[str, Any]) -> str:
    """The question's text, without its number and what happened before it."""
    text = str(message.get("text", ""))
    return _BEFORE.sub("", re.sub(r"\b[QR]\d+", "", text))


def _about(message: Mapping[str, Any]) -> str:
    """The question or request of a message, without what happened before it and what follows its first sentence."""
    asked = _BEFORE.sub("", str(message.get("text", ""))).partition("\n")[0]
    return textwrap.shorten(asked.partition(". ")[0], MAX_TEXT_LENGTH, placeholder=" …")
