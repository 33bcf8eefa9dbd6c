"""Recent Events on Node objects, written by node-problem-detector and GPU operators.

The absence of an event proves nothing: the API server forgets events within an hour.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from bot.domain.cluster.objects import dig, last_seen_of
from bot.domain.cluster.snapshot import Obj
from bot.probes.gpu.nodes import TROUBLE
from bot.probes.gpu.verdict import Verdict, any_of
from bot.probes.gpu.xids import xid_of

_XID = re.compile(r"\bxid\s*\([^)]*\):?\s*(\d{1,3})(?!\d)|xid[\s:=#]*(\d{1,3})(?!\d)", re.IGNORECASE)
"""The driver's own line (`Xid (PCI:0000:3b:00): 79, …`), `XID 79`, or a reason such as `NvidiaXID79Error`."""
_ABOUT_GPUS = re.compile(
    r"gpu|nvidia|nvlink|nvswitch|dcgm|xid|rocm|\bhbm|accelerat|NodeProblem|Kernel(Oops|Deadlock|Panic)", re.IGNORECASE
)
_HEAT = re.compile(r"thermal|overheat|throttl", re.IGNORECASE)
MAX_NOTES = 4


def judge_events(name: str, events: Iterable[Obj], since: float) -> Verdict:
    """The verdict on one node. Events before `since`, and events without a date, do not count."""
    faults: list[bool | None] = []
    thermal, notes = False, []
    for event in sorted(events, key=last_seen_of, reverse=True):
        if last_seen_of(event) < since:
            continue
        fault, is_heat, note = _judge(event)
        faults.append(fault)
        thermal = thermal or is_heat
        if note:
            notes.append(f"event {note}")
    return Verdict.on(name, any_of(*faults), thermal, *list(dict.fromkeys(notes))[:MAX_NOTES])


def xids_in(events: Iterable[Obj], since: float) -> tuple[int, ...]:
    """The XIDs of events since then, newest first."""
    recent = sorted((event for event in events if last_seen_of(event) >= since), key=last_seen_of, reverse=True)
    found = [xid_named_in(f"{event.get('reason') or ''} {event.get('message') or ''}") for event in recent]
    return tuple(dict.fromkeys(xid for xid in found if xid is not None))


def xid_named_in(text: str) -> int | None:
    match = _XID.search(text)
    return int(match[1] or match[2]) if match else None


def about_nodes(events: Iterable[Obj]) -> dict[str, list[Obj]]:
    """Events by the name of their node."""
    found: dict[str, list[Obj]] = {}
    for event in events:
        if dig(event, "involvedObject", "kind") == "Node":
            found.setdefault(str(dig(event, "involvedObject", "name")), []).append(event)
    return found


def _judge(event: Obj) -> tuple[bool, bool, str]:
    """Whether it is a fault, whether it is heat, and a note for people."""
    reason, message = str(event.get("reason") or ""), str(event.get("message") or "")
    text = f"{reason}: {' '.join(message.split())}"[:160]
    if number := _XID.search(f"{reason} {message}"):
        xid = int(number[1] or number[2])
        kind, meaning = xid_of(xid)
        return kind == "fatal", False, f"{reason}, XID {xid} ({meaning})"
    if event.get("type") != "Warning" or not _ABOUT_GPUS.search(text):
        return False, False, ""
    if _HEAT.search(text):
        return False, True, text
    return (True, False, text) if TROUBLE.search(text) or reason.startswith("Kernel") else (False, False, "")
