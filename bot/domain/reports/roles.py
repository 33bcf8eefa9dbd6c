"""Reports without names: people are called by what they did, so that a report may leave the company."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from bot.domain.kernel.timeline import Chained

M = TypeVar("M", bound=BaseModel)
_ID = re.compile(r"[UW][A-Z0-9]{2,20}")


class Roles:
    """Replaces each person by a role and a number, the same everywhere in one report."""

    def __init__(self, entries: Sequence[Chained]) -> None:
        approved = {item.entry.who for item in entries if item.entry.data.get("action") == "approve"}
        self._called: dict[str, str] = {}
        for item in entries:
            for user in (item.entry.who, str(item.entry.data.get("user", "")), str(item.entry.data.get("to", ""))):
                if user and user not in self._called and (user == item.entry.who or _ID.fullmatch(user)):
                    role = "approver" if user in approved else "person"
                    self._called[user] = f"{role} {len(self._called) + 1}"
        for item in entries:
            name, user = str(item.entry.data.get("user_name", "")), item.entry.who
            if name and user in self._called:
                self._called.setdefault(name, self._called[user])
        # The longest first: a name may begin like another one.
        words = sorted(self._called, key=len, reverse=True)
        named = "|".join(map(re.escape, words))
        self._pattern = re.compile(rf"<@(?P<id>{named})>|(?<!\w)(?P<word>{named})(?!\w)") if words else None

    def of(self, found: M) -> M:
        """The same facts without names."""
        return type(found).model_validate(self._told(found.model_dump()))

    def _told(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._pattern.sub(self._role, value) if self._pattern is not None else value
        if isinstance(value, dict):
            return {self._told(key): self._told(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._told(item) for item in value]
        return value

    def _role(self, found: re.Match[str]) -> str:
        return self._called[found["id"] or found["word"]]
