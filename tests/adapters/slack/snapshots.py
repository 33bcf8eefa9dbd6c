"""Stored snapshots of messages: read them in a review, renew them with UPDATE_SNAPSHOTS=1."""

from __future__ import annotations

import json
import os
from pathlib import Path

from bot.adapters.slack.outbound.message import Message

FOLDER = Path(__file__).parent / "snapshots"


def assert_same(name: str, message: Message) -> None:
    """Fail unless the message is what is stored under this name; a new name must be stored on purpose."""
    path = FOLDER / f"{name}.json"
    now = json.dumps({"text": message.text, "blocks": message.blocks}, indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("UPDATE_SNAPSHOTS") == "1":
        path.write_text(now)
    assert path.exists(), f"no snapshot {path.name}: run with UPDATE_SNAPSHOTS=1 and review it"
    assert now == path.read_text(), f"{path.name} differs: review it, then run with UPDATE_SNAPSHOTS=1"
