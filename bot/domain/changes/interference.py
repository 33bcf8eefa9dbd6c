"""Detects what other actors did to this run's changes: compares the after-values of its applied calls with the objects.

Reported before the next call is sent, with both values. Changes that the run undid or ended itself are not compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bot.domain.changes.plan import Call, LedgerEntry
from bot.domain.cluster.additions import is_kept
from bot.domain.cluster.json_patch import ABSENT, difference_in_words, overlap, value_at
from bot.domain.cluster.locate import object_of, unread
from bot.domain.cluster.objects import FIELD_MANAGER, ObjectRef, is_going_away, uid_of, writers_of
from bot.domain.cluster.rollout import TEMPLATE
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import KINDS


@dataclass(frozen=True)
class Interference:
    """One applied call whose effect is gone, in words; the call can no longer be undone, unless `still_holds`."""

    call_id: str
    text: str
    still_holds: bool = False
    """Somebody else's template has overtaken a rollout that the call still holds: its undo lets that go on."""


@dataclass(frozen=True)
class _Left:
    """A field as the bot left it; `ABSENT` if the bot removed it."""

    call_id: str
    value: Any
    before: Any
    at: float


def interference(ledger: Sequence[LedgerEntry], snapshot: ClusterSnapshot) -> tuple[Interference, ...]:
    found: list[Interference] = []
    for entries in _by_target(ledger).values():
        ref = entries[0].target
        if unread(ref, snapshot):
            continue
        obj = object_of(ref, snapshot)
        if obj is None or is_going_away(obj):
            newest = entries[-1]
            if not _is_expected(newest, ledger):
                found.append(Interference(newest.call_id, f"{ref} was deleted; the bot did: {newest.title}"))
        elif ref.uid and uid_of(obj) != ref.uid:
            found.append(Interference(entries[-1].call_id, f"{ref} was deleted and made again"))
        else:
            found += _differences(ref, entries, obj)
    return tuple(found)


def _by_target(ledger: Sequence[LedgerEntry]) -> dict[tuple[str, str, str], list[LedgerEntry]]:
    """Returns the run's active changes by object, oldest first."""
    held: dict[tuple[str, str, str], list[LedgerEntry]] = {}
    for entry in ledger:
        if entry.undo and not entry.undone_by:
            held.setdefault((entry.target.kind, entry.target.namespace, entry.target.name), []).append(entry)
    return held


def _is_expected(entry: LedgerEntry, ledger: Sequence[LedgerEntry]) -> bool:
    """Whether the object's absence is expected: its pod ended by a later change of the run, or its Job's time is up."""
    if entry.target.kind == "Job":
        return True
    later = ledger[[one.call_id for one in ledger].index(entry.call_id) + 1 :]
    return entry.target.kind == "Pod" and any(one.target.kind in KINDS or not one.undo for one in later)


def _differences(ref: ObjectRef, entries: Sequence[LedgerEntry], obj: Obj) -> list[Interference]:
    left, holding = _left(entries), {entry.call_id for entry in entries if entry.holds}
    present = {path: value_at(obj, path) for path in left}
    lost = {path: one for path, one in left.items() if not is_kept(path, present[path], one.value, one.before)}
    kept = [path for path in left if path not in lost and not path.startswith(TEMPLATE)]
    holds = any(left[path].call_id in holding for path in kept)
    found = []
    for path, one in lost.items():
        text = f"{ref}: {difference_in_words(path, present[path], one.value)}{_by(obj, one.at)}"
        still_holds = holds and one.call_id in holding
        text += "; the bot still holds the rollout: take that back to let it go on" if still_holds else ""
        found.append(Interference(one.call_id, text, still_holds))
    return found


def _left(entries: Sequence[LedgerEntry]) -> dict[str, _Left]:
    """Returns each field as its newest call left it; a call inside or around a field overrides earlier ones."""
    left: dict[str, _Left] = {}
    for entry in entries:
        for path, value, before in _after_values(entry.undo):
            for other in [other for other in left if overlap(path, other)]:
                del left[other]
            left[path] = _Left(entry.call_id, value, before, entry.applied_at)
    return left


def _after_values(undo: Sequence[Call]) -> list[tuple[str, Any, Any]]:
    """Returns what a call left behind: the fields that its inverse changes, their values since then, and before."""
    found: list[tuple[str, Any, Any]] = []
    for call in undo:
        if call.method != "patch":
            continue
        tests = {op["path"]: op["value"] for op in call.body if op["op"] == "test"}
        changes = {op["path"]: op.get("value", ABSENT) for op in call.body if op["op"] != "test"}
        found += [(path, tests.get(path, ABSENT), before) for path, before in changes.items()]
    return found


def _by(obj: Obj, since: float) -> str:
    """Returns who last wrote the object since then, to the second; writes that only removed fields do not show."""
    written = [
        one
        for one in writers_of(obj)
        if one.manager != FIELD_MANAGER and one.subresource != "status" and (one.at or -math.inf) >= math.floor(since)
    ]
    if not written:
        return ""
    newest = max(written, key=lambda one: one.time)
    return f" (written by {newest.manager} at {newest.time})"
