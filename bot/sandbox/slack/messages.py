"""The messages of all channels, with every version of each.

A `ts` is unique and rises even if the clock does not. Ephemeral messages are stored separately: no history shows them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

from bot.sandbox.slack.errors import ApiError, Json
from bot.sandbox.slack.feed import Feed

Clock = Callable[[], float]
BROADCAST = "thread_broadcast"
"""The subtype of a reply that was sent to the channel too."""


class Messages:
    def __init__(self, clock: Clock, feed: Feed) -> None:
        self._clock = clock
        self._feed = feed
        self._last_microsecond = 0
        self.channels: dict[str, dict[str, Json]] = {}
        self.ephemerals: dict[str, Json] = {}
        self._versions: dict[tuple[str, str], list[Json]] = {}
        self._replies: dict[tuple[str, str], list[str]] = {}

    def reset(self) -> None:
        self._replies.clear()
        self.channels.clear()
        self.ephemerals.clear()
        self._versions.clear()

    def next_ts(self) -> str:
        self._last_microsecond = max(int(self._clock() * 1_000_000), self._last_microsecond + 1)
        return f"{self._last_microsecond // 1_000_000}.{self._last_microsecond % 1_000_000:06d}"

    def post(self, channel: str, message: Json) -> Json:
        """Stores a message; `thread_ts` of a reply to a reply becomes that of the thread."""
        stored = {"type": "message", **message, "ts": self.next_ts()}
        if root_ts := stored.get("thread_ts"):
            root = self.channels.get(channel, {}).get(root_ts)
            if root is None:
                raise ApiError("thread_not_found")
            stored["thread_ts"] = root.get("thread_ts", root_ts)
        self.channels.setdefault(channel, {})[stored["ts"]] = stored
        self._index(channel, stored)
        self._remember(channel, stored)
        return stored

    def _index(self, channel: str, message: Json) -> None:
        """A parent finds its replies without a scan of every message of the channel."""
        if message.get("thread_ts", message["ts"]) != message["ts"]:
            self._replies.setdefault((channel, message["thread_ts"]), []).append(message["ts"])

    def get(self, channel: str, ts: str) -> Json:
        found = self.channels.get(channel, {}).get(ts)
        if found is None:
            raise ApiError("message_not_found")
        return found

    def change(self, channel: str, ts: str, changes: Json) -> Json:
        """A new version of the message; a change to None removes that part."""
        changed = {**self.get(channel, ts), **changes}
        changed = {name: value for name, value in changed.items() if value is not None}
        self.channels[channel][ts] = changed
        self._remember(channel, changed)
        return changed

    def delete(self, channel: str, ts: str) -> None:
        gone = self.get(channel, ts)
        del self.channels[channel][ts]
        if "thread_ts" in gone:
            self._replies[channel, gone["thread_ts"]].remove(ts)
        self._feed.publish("message_deleted", channel=channel, ts=ts)

    def versions(self, channel: str, ts: str) -> list[Json]:
        """Oldest first; kept after the message is deleted."""
        return self._versions.get((channel, ts), [])

    def history(self, channel: str) -> list[Json]:
        """Newest first, without replies that were not sent to the channel too."""
        newest_first = reversed(self.channels.get(channel, {}).values())
        return [each for each in newest_first if "thread_ts" not in each or each.get("subtype") == BROADCAST]

    def thread(self, channel: str, ts: str) -> list[Json]:
        """The parent and its replies, oldest first; a reply's own ts finds only that reply, as in Slack."""
        found = self.channels.get(channel, {}).get(ts)
        if found is None:
            raise ApiError("thread_not_found")
        return [found, *self._replies_to(channel, ts)]

    def with_thread_facts(self, channel: str, message: Json) -> Json:
        """A parent has the number of its replies, and their authors."""
        replies = self._replies_to(channel, message["ts"])
        if not replies:
            return message
        people = list(dict.fromkeys(reply["user"] for reply in replies))
        return {
            **message,
            "thread_ts": message["ts"],
            "reply_count": len(replies),
            "reply_users_count": len(people),
            "reply_users": people[:5],
            "latest_reply": replies[-1]["ts"],
            "is_locked": False,
            "subscribed": False,
        }

    def _replies_to(self, channel: str, ts: str) -> list[Json]:
        messages = self.channels.get(channel, {})
        return [messages[reply] for reply in self._replies.get((channel, ts), ())]

    def _remember(self, channel: str, message: Json) -> None:
        self._versions.setdefault((channel, message["ts"]), []).append(message)
        self._feed.publish("message", channel=channel, message=message)

    def whisper(self, channel: str, user: str, message: Json) -> Json:
        """An ephemeral message, visible to one person only; it may have the `ts` that was reserved for it."""
        stored = {"type": "message", "ts": self.next_ts(), **message, "channel": channel}
        stored |= {"is_ephemeral": True, "recipient": user}
        self.ephemerals[stored["ts"]] = stored
        self._feed.publish("ephemeral", message=stored)
        return stored

    def change_whisper(self, ts: str, changes: Json) -> None:
        self.ephemerals[ts] = {**self.ephemerals[ts], **changes}
        self._feed.publish("ephemeral", message=self.ephemerals[ts])

    def delete_whisper(self, ts: str) -> None:
        if self.ephemerals.pop(ts, None) is not None:
            self._feed.publish("ephemeral_deleted", ts=ts)

    def react(self, channel: str, ts: str, name: str, user: str) -> None:
        message = self.get(channel, ts)
        reactions = copy.deepcopy(message.get("reactions", []))
        entry = next((r for r in reactions if r["name"] == name), None)
        if entry is None:
            entry = {"name": name, "users": [], "count": 0}
            reactions.append(entry)
        if user in entry["users"]:
            raise ApiError("already_reacted")
        entry["users"].append(user)
        entry["count"] += 1
        self.channels[channel][ts] = {**message, "reactions": reactions}
        self._feed.publish("message", channel=channel, message=self.channels[channel][ts])

    def saved(self) -> Json:
        return {"channels": self.channels, "ephemerals": self.ephemerals}

    def restore(self, saved: Json) -> None:
        self.reset()
        self.channels.update(saved["channels"])
        self.ephemerals.update(saved["ephemerals"])
        for channel, messages in self.channels.items():
            for message in messages.values():
                self._versions[channel, message["ts"]] = [message]
                self._index(channel, message)
