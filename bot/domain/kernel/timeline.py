"""The timeline: what happened, append-only and hash-chained. Reports use no other source.

The chain reveals altered entries only where its head was posted elsewhere; by itself it proves consistency.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

EntryKind = Literal[
    "opened", "alert", "entered", "read", "baseline", "asked", "answered", "planned", "request", "press", "decided",
    "call", "wait", "outcome", "verdict", "question", "note", "halt", "resume", "undo", "slack",
    "ignored", "failed", "closed", "reopened", "export", "severity",
    "diverted", "chart", "diagnosis", "followup",
]  # fmt: skip

GENESIS = "0" * 64


class Entry(BaseModel):
    """One entry of the timeline; `data` is evidence for machines, `text` one plain line for people."""

    model_config = ConfigDict(frozen=True)

    kind: EntryKind
    at: float
    text: str
    who: str = ""
    """A Slack user id, or empty for the bot itself."""
    state: str = ""
    data: dict[str, Any] = Field(default_factory=dict)


class Chained(BaseModel):
    model_config = ConfigDict(frozen=True)

    number: int
    entry: Entry
    previous: str
    hash: str


def chain(entries: Iterable[Entry], *, head: str, length: int) -> tuple[Chained, ...]:
    """Links `entries` after a chain that is `length` long and ends in `head` (`GENESIS` when empty)."""
    chained: list[Chained] = []
    for number, entry in enumerate(entries, start=length + 1):
        previous = chained[-1].hash if chained else head
        chained.append(Chained(number=number, entry=entry, previous=previous, hash=_hash(number, entry, previous)))
    return tuple(chained)


def first_break(entries: Iterable[Chained]) -> int | None:
    """Returns the number of the first entry that does not follow the one before it; None if the chain is consistent."""
    head, expected = GENESIS, 1
    for item in entries:
        intact = item.number == expected and item.previous == head and item.hash == _hash(expected, item.entry, head)
        if not intact:
            return item.number
        head, expected = item.hash, expected + 1
    return None


class StoredHead(BaseModel):
    """The end of the timeline as recorded in the run."""

    model_config = ConfigDict(frozen=True)

    head: str
    length: int


def head_fault(entries: Sequence[Chained], stored: StoredHead) -> str:
    """Returns where this timeline does not end as recorded in the run; empty if it does."""
    if len(entries) < stored.length:
        missing = stored.length - len(entries)
        return f"the run has {stored.length} entries, and the last {missing} of them are missing"
    if len(entries) > stored.length:
        return f"entry {stored.length + 1} and those after it were added without the run"
    ends_in = entries[-1].hash if entries else GENESIS
    return "" if ends_in == stored.head else f"entry {len(entries)} is not the one that the run ends in"


def _hash(number: int, entry: Entry, previous: str) -> str:
    content = json.dumps([number, entry.model_dump(mode="json"), previous], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()
