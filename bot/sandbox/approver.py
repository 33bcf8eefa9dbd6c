"""A scripted person for the unattended demo: reads the Slack stand-in and presses its real buttons, as signed HTTP."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

USER = "U0ANA"


@dataclass
class Approver:
    """Approves every request, answers every question: as `answers` say, else the first choice."""

    slack_url: str
    channel: str
    answers: Mapping[str, str]
    say: Callable[[str], None]
    _pressed: set[tuple[str, str]] = field(default_factory=set)

    def look(self) -> None:
        """Press what waits; a button is pressed until the bot has acknowledged it."""
        for message in self._messages():
            buttons = list(_buttons(message.get("blocks", [])))
            chosen = self._choose(message, buttons)
            if chosen is None or (message["ts"], chosen["value"]) in self._pressed:
                continue
            label = chosen["text"]["text"]
            self.say(f"presses '{label}' on: {_first_line(message.get('text', ''))}")
            body = {
                "user": USER,
                "channel": self.channel,
                "ts": message["ts"],
                "action_id": chosen["action_id"],
                "block_id": chosen["block_id"],
            }
            told = httpx.post(f"{self.slack_url}/__sandbox__/press", json=body, timeout=10)
            if told.status_code == httpx.codes.NOT_FOUND:
                continue  # the bot has edited the message meanwhile; the next look sees it
            told.raise_for_status()
            # Slack shows a person that the bot did not answer, and that person presses again.
            if told.json()["ok"]:
                self._pressed.add((message["ts"], chosen["value"]))

    def _messages(self) -> list[dict[str, Any]]:
        answer = httpx.get(f"{self.slack_url}/__sandbox__/messages", params={"channel": self.channel}, timeout=10)
        found: list[dict[str, Any]] = answer.raise_for_status().json()
        return found

    def _choose(self, message: Mapping[str, Any], buttons: list[dict[str, Any]]) -> dict[str, Any] | None:
        approve = next((button for button in buttons if button["action_id"] == "approve"), None)
        if approve is not None:
            return approve
        choices = [button for button in buttons if button["action_id"].startswith("choose:")]
        text = message.get("text", "")
        wanted = next((label for words, label in self.answers.items() if words in text), None)
        named = next((button for button in choices if wanted and wanted in button["text"]["text"]), None)
        return named or next(iter(choices), None)


def _buttons(blocks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for block in blocks:
        if block.get("type") == "actions":
            for element in block["elements"]:
                if element.get("type") == "button" and "value" in element:
                    yield {**element, "block_id": block.get("block_id", "")}


def _first_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()[:110]
