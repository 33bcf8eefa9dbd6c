"""Whether a timeline is the original: compared with the store and with the heads posted in Slack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bot.domain.kernel.timeline import GENESIS, Chained, StoredHead, first_break, head_fault

Verdict = Literal["agrees", "differs", "not_compared"]
NAMED = 5
"""How many messages one line names."""


@dataclass(frozen=True)
class Compared:
    """One comparison, in words."""

    about: Literal["chain", "report", "store", "Slack"]
    verdict: Verdict
    text: str


@dataclass(frozen=True)
class PostedHead:
    """A head in a Slack message: its first characters."""

    slot: str
    head: str
    at: float
    """When the message was posted, according to Slack."""


def of_chain(entries: Sequence[Chained]) -> Compared:
    broken = first_break(entries)
    if not entries:
        return Compared("chain", "not_compared", "there is no entry")
    if broken is not None:
        return Compared("chain", "differs", f"broken at entry {broken}: that entry or one before it was altered")
    return Compared("chain", "agrees", f"{len(entries)} entries, each with the hash of the one before it")


def of_store(entries: Sequence[Chained], kept: Sequence[Chained], stored: StoredHead | None) -> Compared:
    """`entries` may be an earlier export: the stored timeline must start with it."""
    if stored is None:
        return Compared("store", "not_compared", "the run is not stored any more")
    if fault := head_fault(kept, stored):
        return Compared("store", "differs", fault)
    for number, entry in enumerate(entries, start=1):
        if number > len(kept) or kept[number - 1].hash != entry.hash:
            return Compared("store", "differs", f"entry {number} is not the one that is stored")
    since = len(kept) - len(entries)
    later = f"; {since} more were stored since" if since else ""
    return Compared("store", "agrees", f"the run's head is that of its {stored.length} entries{later}")


def of_slack(entries: Sequence[Chained], posted: Sequence[PostedHead], *, is_whole: bool) -> Compared:
    """`is_whole`: nothing was written after the last entry, so a later head in Slack means that entries are missing."""
    ends_at = entries[-1].entry.at if entries else 0.0
    numbers = [0, *(each.number for each in entries)]
    hashes = [GENESIS, *(each.hash for each in entries)]
    found = {each: _number_of(each.head, hashes, numbers) for each in posted}
    strange = [each for each, number in found.items() if number is None and (is_whole or each.at <= ends_at)]
    if strange:
        named = ", ".join(f"{each.slot} ({each.head})" for each in strange[:NAMED])
        return Compared("Slack", "differs", f"no entry has the head that is in Slack: {named}")
    known = [number for number in found.values() if number is not None]
    if not known:
        return Compared("Slack", "not_compared", "no message there carries a head of this timeline")
    after = len(entries) - max(known)
    beyond = f"; the {after} after them have no head in Slack yet" if after else ""
    return Compared("Slack", "agrees", f"{_confirm(len(known))} entries 1 to {max(known)}{beyond}")


def _confirm(heads: int) -> str:
    return f"{heads} posted heads confirm" if heads > 1 else "1 posted head confirms"


def _number_of(head: str, hashes: Sequence[str], numbers: Sequence[int]) -> int | None:
    return next((number for number, known in zip(numbers, hashes, strict=True) if known.startswith(head)), None)
