"""Slack's rate limits: one message a second and channel with short bursts, tiers for the rest.

`fast` keeps their form at twenty times the speed, so that a test gets a 429 without waiting for a minute.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Pace = Literal["real", "fast", "off"]
SPEED: dict[Pace, float] = {"real": 1.0, "fast": 20.0, "off": math.inf}

POST_PER_SECOND = 1.0
POST_BURST = 4.0
CALLS_PER_MINUTE = {1: 1, 2: 20, 3: 50, 4: 100}
TIER_OF = {
    "chat.update": 3,
    "chat.delete": 3,
    "chat.postEphemeral": 4,
    "conversations.archive": 2,
    "conversations.create": 2,
    "conversations.history": 3,
    "conversations.invite": 3,
    "conversations.setTopic": 2,
    "conversations.replies": 3,
    "conversations.info": 3,
    "conversations.list": 2,
    "conversations.members": 4,
    "files.getUploadURLExternal": 4,
    "files.completeUploadExternal": 4,
    "files.info": 4,
    "reactions.add": 3,
    "reactions.get": 3,
    "usergroups.list": 2,
    "usergroups.users.list": 2,
    "users.info": 4,
    "users.list": 2,
    "views.open": 4,
    "views.publish": 4,
    "views.push": 4,
    "views.update": 4,
}


@dataclass
class Bucket:
    """`rate` tokens a second, at most `burst` saved up."""

    rate: float
    burst: float
    tokens: float
    filled_at: float

    def seconds_until_free(self, now: float) -> float:
        """Takes a token and returns 0, else returns the seconds until the next one."""
        self.tokens = min(self.burst, self.tokens + (now - self.filled_at) * self.rate)
        self.filled_at = now
        if self.tokens >= 1:
            self.tokens -= 1
            return 0.0
        return (1 - self.tokens) / self.rate


class RateLimits:
    def __init__(self, pace: Pace) -> None:
        self._speed = SPEED[pace]
        self._buckets: dict[tuple[str, str], Bucket] = {}

    def reset(self) -> None:
        self._buckets.clear()

    def retry_after(self, method: str, channel: str, now: float) -> int | None:
        """Whole seconds to wait, or None if the call may pass."""
        if math.isinf(self._speed):
            return None
        if method == "chat.postMessage":
            key, rate, burst = (method, channel), POST_PER_SECOND, POST_BURST
        elif method in TIER_OF:
            per_minute = CALLS_PER_MINUTE[TIER_OF[method]]
            key, rate, burst = (method, ""), per_minute / 60, max(1.0, per_minute / 4)
        else:
            return None
        bucket = self._buckets.setdefault(key, Bucket(rate * self._speed, burst, burst, now))
        wait = bucket.seconds_until_free(now)
        return max(1, math.ceil(wait)) if wait else None
