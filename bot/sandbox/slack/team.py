"""The whole state of the simulator, and its storage in a file if one is named."""

from __future__ import annotations

import json
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from bot.sandbox.slack.directory import APP_ID, BOT_ID, BOT_NAME, BOT_USER, TEAM_ID, Directory
from bot.sandbox.slack.errors import Json
from bot.sandbox.slack.faults import FaultList
from bot.sandbox.slack.feed import Feed
from bot.sandbox.slack.files import Files
from bot.sandbox.slack.messages import Clock, Messages
from bot.sandbox.slack.rate_limits import Pace, RateLimits
from bot.sandbox.slack.response_urls import ResponseUrls
from bot.sandbox.slack.sockets import Sockets
from bot.sandbox.slack.views import Views

CALLS_KEPT = 50_000


@dataclass(frozen=True)
class Settings:
    """The options of one simulator; `event_retry_seconds` are the pauses before a failed event is sent again."""

    bot_url: str
    signing_secret: str
    token: str = "xoxb-sandbox"  # noqa: S105 - the sandbox's well-known token guards nothing
    app_token: str = "xapp-sandbox"  # noqa: S105 - as well known
    pace: Pace = "real"
    commands: tuple[str, ...] = ("/incident",)
    message_shortcuts: tuple[tuple[str, str], ...] = (("add_to_timeline", "Add to incident timeline"),)
    answer_seconds: float = 3.0
    event_retry_seconds: tuple[float, ...] = (0.0, 60.0, 300.0)


@dataclass
class Team:
    """The workspace, in memory."""

    settings: Settings
    clock: Clock = time.time
    directory: Directory = field(default_factory=Directory)
    feed: Feed = field(default_factory=Feed)
    faults: FaultList = field(default_factory=FaultList)
    sockets: Sockets = field(default_factory=Sockets)
    calls: deque[Json] = field(default_factory=lambda: deque(maxlen=CALLS_KEPT))
    deliveries: deque[Json] = field(default_factory=lambda: deque(maxlen=CALLS_KEPT))
    calls_made: int = 0
    base_url: str = ""

    def __post_init__(self) -> None:
        self.messages = Messages(self.clock, self.feed)
        self.views = Views(self.clock, self.feed)
        self.files = Files(self.clock)
        self.response_urls = ResponseUrls(self.clock)
        self.rate_limits = RateLimits(self.settings.pace)

    def listens_on(self, base_url: str) -> None:
        self.base_url = self.files.base_url = self.response_urls.base_url = base_url

    def reset(self) -> None:
        for part in (self.directory, self.messages, self.views, self.files, self.response_urls, self.rate_limits):
            part.reset()
        self.faults.replace([], 0)
        self.calls.clear()
        self.deliveries.clear()
        self.feed.publish("reset")

    def bot_message(self, content: Json) -> Json:
        """A message in the format of the bot's own posts."""
        profile = {"id": BOT_ID, "app_id": APP_ID, "name": BOT_NAME, "team_id": TEAM_ID, "deleted": False}
        author = {"user": BOT_USER, "bot_id": BOT_ID, "app_id": APP_ID, "team": TEAM_ID, "bot_profile": profile}
        return {**author, **content}

    def snapshot(self) -> str:
        state = {"messages": self.messages.saved(), "files": self.files.saved(), "homes": self.views.homes}
        return json.dumps(state)

    def load(self, path: Path) -> None:
        if not path.exists():
            return
        state = json.loads(path.read_text())
        self.messages.restore(state["messages"])
        self.files.restore(state["files"])
        self.views.homes.update(state["homes"])
