"""Reports without names: people are called by what they did, so that a report may leave the company.

Ids are masked everywhere. A display name may be any word, so it is replaced only where the bot itself writes one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from bot.domain.kernel.timeline import Chained
from bot.domain.reports.facts import Report

M = TypeVar("M", bound=BaseModel)
_ID = re.compile(r"[UW][A-Z0-9]{2,20}")
_MENTION = re.compile(r"<@([^>|]+)(?:\|[^>]*)?>")
_BARE_ID = re.compile(r"(?<!\w)[UW](?=[A-Z]*\d)[A-Z0-9]{7,20}(?!\w)")
"""An id outside a mention, distinguished from a word in capitals by its length and its digits."""
_IDS = frozenset({"who", "user", "by", "to", "pinned_by"})
"""Fields with the id of a person; some of them may hold something else."""
_KEPT = frozenset({"kind", "state"})
_SETTINGS = "the settings"
_NAMED = (
    re.compile(r"(?P<before>^closed: resolved_by_hand — )(?P<name>.+?)(?= closed it)"),
    re.compile(r"(?P<before>^|: )(?P<name>[^:]+?)(?= wants to close it)"),
    # The name is in the last pair of parentheses, and may have such a pair of its own: `(Alice (SRE))`.
    re.compile(
        r"(?P<before>(?i:freeze|maintenance) until .*? \()(?P<name>[^()]+(?:\([^()]*\)[^()]*)*)(?=\)(?! ?\())",
        re.MULTILINE,
    ),
)
"""Where the bot writes a name of a person who may have no entry of their own."""


class Roles:
    """Replaces each person by a role and a number, the same everywhere in one report."""

    def __init__(self, entries: Sequence[Chained]) -> None:
        approved = {item.entry.who for item in entries if item.entry.data.get("action") == "approve"}
        self._called: dict[str, str] = {}
        for user in (each for item in entries for each in _people(item)):
            role = "approver" if user in approved else "person"
            self._called.setdefault(user, f"{role} {len(self._called) + 1}")
        self._names = dict(self._called)
        for item in entries:
            name, user = str(item.entry.data.get("user_name", "")), item.entry.who
            if name and user in self._called:
                self._names.setdefault(name, self._called[user])
        # The longest first: a name may begin like another one.
        names = "|".join(map(re.escape, sorted(self._names, key=len, reverse=True)))
        known = (
            rf"(?P<before>\b(?:refused|ended) by )(?P<name>{names})(?!\w)",
            rf"(?P<before>)(?<!\w)(?P<name>{names})(?= chose it instead)",
        )
        self._named = (*_NAMED, *map(re.compile, known)) if names else _NAMED
        ids = "|".join(filter(_ID.fullmatch, self._called))
        self._ids = re.compile(rf"(?<!\w)(?:{ids})(?!\w)") if ids else None

    def of(self, found: M) -> M:
        """The same facts without names."""
        data = self._without_names(found.model_dump())
        if isinstance(found, Report):
            roles = (self._called.get(user, user) for user in found.people)
            data["people"] = {role: role for role in roles}
        return type(found).model_validate(data)

    def _without_names(self, value: Any, field: str = "") -> Any:
        if isinstance(value, str):
            return value if field in _KEPT else self._text(value, field)
        if isinstance(value, dict):
            return {key: self._without_names(item, key) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._without_names(item, field) for item in value]
        return value

    def _text(self, text: str, field: str) -> str:
        if field == "user_name":
            return self._role(text) if text else ""
        if field in _IDS and text in self._called:
            return self._called[text]
        text = _MENTION.sub(lambda found: self._called.get(found[1], found[0]), text)
        if self._ids is not None:
            text = self._ids.sub(lambda found: self._called[found[0]], text)
        for pattern in self._named:
            text = pattern.sub(lambda found: found["before"] + self._role(found["name"]), text)
        return text

    def _role(self, name: str) -> str:
        is_no_name = name == _SETTINGS or name in self._called.values()
        return name if is_no_name else self._names.get(name, "a person")


def _people(item: Chained) -> Iterator[str]:
    """Returns the ids of all people named in the entries."""
    entry = item.entry
    if entry.who:
        yield entry.who
    for name in ("user", "to"):
        user = entry.data.get(name)
        if isinstance(user, str) and _ID.fullmatch(user):
            yield user
    if isinstance(pinned_by := entry.data.get("pinned_by"), str) and pinned_by:
        yield pinned_by
    for text in _strings([entry.text, entry.data]):
        yield from _MENTION.findall(text)
        yield from _BARE_ID.findall(text)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)
