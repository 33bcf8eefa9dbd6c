"""Modals and Home tabs, and the trigger ids that allow an app to open them.

A trigger id belongs to one person, lives 3 seconds and opens one view. A modal stack is at most 3 deep.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from bot.sandbox.slack.block_kit import checked_view
from bot.sandbox.slack.directory import APP_ID, BOT_ID, TEAM_ID
from bot.sandbox.slack.errors import ApiError, Json, SandboxError
from bot.sandbox.slack.feed import Feed
from bot.sandbox.slack.messages import Clock

TRIGGER_SECONDS = 3.0
MAX_STACK_DEPTH = 3


@dataclass
class Trigger:
    user: str
    issued_at: float
    is_used: bool = False


class Views:
    def __init__(self, clock: Clock, feed: Feed) -> None:
        self._clock = clock
        self._feed = feed
        self._triggers: dict[str, Trigger] = {}
        self.stacks: dict[str, list[Json]] = {}
        self.homes: dict[str, Json] = {}

    def reset(self) -> None:
        self._triggers.clear()
        self.stacks.clear()
        self.homes.clear()

    def issue_trigger(self, user: str) -> str:
        trigger_id = f"{int(self._clock() * 1000)}.{secrets.randbelow(10**12)}.{secrets.token_hex(16)}"
        self._triggers[trigger_id] = Trigger(user, self._clock())
        return trigger_id

    def _redeem(self, trigger_id: str) -> str:
        trigger = self._triggers.get(trigger_id)
        if trigger is None:
            raise ApiError("invalid_trigger_id")
        if trigger.is_used:
            raise ApiError("exchanged_trigger_id")
        if self._clock() - trigger.issued_at > TRIGGER_SECONDS:
            raise ApiError("expired_trigger_id")
        trigger.is_used = True
        return trigger.user

    def open(self, trigger_id: str, view: Json) -> Json:
        content = self._modal(view)
        user = self._redeem(trigger_id)
        opened = self._new(content)
        self._show(user, [opened])
        return opened

    def push(self, trigger_id: str, view: Json) -> Json:
        content = self._modal(view)
        user = self._redeem(trigger_id)
        return self.push_for(user, content)

    def push_for(self, user: str, view: Json) -> Json:
        stack = self.stacks.get(user, [])
        if len(stack) >= MAX_STACK_DEPTH:
            raise ApiError("push_limit_reached")
        above = self._new(self._modal(view))
        if stack:
            above |= {"root_view_id": stack[0]["root_view_id"], "previous_view_id": stack[-1]["id"]}
        self._show(user, [*stack, above])
        return above

    def update(self, view: Json, *, view_id: str = "", external_id: str = "", view_hash: str = "") -> Json:
        content = checked_view(view)
        for user, stack in self.stacks.items():
            for index, old in enumerate(stack):
                if old["id"] == view_id or (external_id and old["external_id"] == external_id):
                    changed = self._replaced(old, content, view_hash)
                    self._show(user, [*stack[:index], changed, *stack[index + 1 :]])
                    return changed
        for user, old in self.homes.items():
            if old["id"] == view_id:
                return self.publish(user, view, view_hash=view_hash)
        raise ApiError("not_found")

    def publish(self, user: str, view: Json, *, view_hash: str = "") -> Json:
        content = checked_view(view)
        if content["type"] != "home":
            raise ApiError("invalid_arguments", "[ERROR] must be of type home [json-pointer:/view/type]")
        old = self.homes.get(user)
        self.homes[user] = self._replaced(old, content, view_hash) if old else self._new(content)
        self._feed.publish("home", user=user, view=self.homes[user])
        return self.homes[user]

    def find(self, user: str, view_id: str) -> Json:
        for view in [*self.stacks.get(user, []), *([self.homes[user]] if user in self.homes else [])]:
            if view["id"] == view_id:
                return view
        raise SandboxError("this person has no such view open", [v["id"] for v in self.stacks.get(user, [])])

    def close_top(self, user: str) -> None:
        self._show(user, self.stacks.get(user, [])[:-1])

    def close_all(self, user: str) -> None:
        self._show(user, [])

    def _show(self, user: str, stack: list[Json]) -> None:
        self.stacks[user] = stack
        self._feed.publish("views", user=user, stack=stack)

    @staticmethod
    def _modal(view: Json) -> Json:
        content = checked_view(view)
        if content["type"] != "modal":
            raise ApiError("invalid_arguments", "[ERROR] must be of type modal [json-pointer:/view/type]")
        return content

    def _new(self, content: Json) -> Json:
        external_id = content.get("external_id", "")
        shown = [view for stack in self.stacks.values() for view in stack]
        if external_id and any(view["external_id"] == external_id for view in shown):
            raise ApiError("duplicate_external_id")
        view_id = f"V{secrets.token_hex(5).upper()}"
        return self._filled(content, view_id) | {"root_view_id": view_id, "previous_view_id": None}

    def _replaced(self, old: Json, content: Json, view_hash: str) -> Json:
        if view_hash and view_hash != old["hash"]:
            raise ApiError("hash_conflict")
        kept = {name: old[name] for name in ("root_view_id", "previous_view_id")}
        return self._filled(content, old["id"]) | kept

    def _filled(self, content: Json, view_id: str) -> Json:
        return {
            "id": view_id,
            "team_id": TEAM_ID,
            "title": None,
            "submit": None,
            "close": None,
            "private_metadata": "",
            "callback_id": "",
            "external_id": "",
            "clear_on_close": False,
            "notify_on_close": False,
            "submit_disabled": False,
            **content,
            "state": {"values": {}},
            "hash": f"{int(self._clock())}.{secrets.token_hex(4)}",
            "app_id": APP_ID,
            "app_installed_team_id": TEAM_ID,
            "bot_id": BOT_ID,
        }
