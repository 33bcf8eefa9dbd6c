"""Response URLs: an address given with each interaction, good for 5 uses within 30 minutes."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from dataclasses import dataclass, field

from bot.sandbox.slack.errors import ApiError, Json
from bot.sandbox.slack.messages import Clock

MAX_USES = 5
VALID_SECONDS = 30 * 60.0


@dataclass
class Reply:
    """Where replies to one interaction go; `ts` is the message it came from, if any."""

    id: str
    user: str
    channel: str
    issued_at: float
    ts: str = ""
    is_ephemeral: bool = False
    thread_ts: str = ""
    uses: int = 0
    posts: list[Json] = field(default_factory=list)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def keep(self, post: Json) -> None:
        self.posts.append(post)
        self._arrived.set()

    async def posts_so_far(self, count: int, seconds: float) -> list[Json]:
        """Waits for `count` posts, at most `seconds`; fewer are returned then."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while len(self.posts) < count:
                    self._arrived.clear()
                    await self._arrived.wait()
        return list(self.posts)


class ResponseUrls:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._replies: dict[str, Reply] = {}
        self.base_url = ""

    def reset(self) -> None:
        self._replies.clear()

    def issue(self, user: str, channel: str, *, message: Json | None = None) -> Reply:
        reply = Reply(secrets.token_urlsafe(12), user, channel, self._clock())
        if message:
            reply.ts = message["ts"]
            reply.is_ephemeral = bool(message.get("is_ephemeral"))
            reply.thread_ts = message.get("thread_ts", "")
        self._replies[reply.id] = reply
        return reply

    def url(self, reply: Reply) -> str:
        return f"{self.base_url}/response/{reply.id}"

    def find(self, reply_id: str) -> Reply | None:
        return self._replies.get(reply_id)

    def use(self, reply_id: str) -> Reply:
        reply = self._replies.get(reply_id)
        if reply is None:
            raise ApiError("invalid_url")
        if self._clock() - reply.issued_at > VALID_SECONDS:
            raise ApiError("expired_url")
        if reply.uses >= MAX_USES:
            raise ApiError("used_url")
        reply.uses += 1
        return reply
