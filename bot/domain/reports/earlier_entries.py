"""Entries of earlier versions of the bot: what is only in their text becomes data, as it is recorded now.

Nowhere else is the text of an entry read for what happened. The last of these fields came on 2026-11-27. The module can
go once no timeline from before is kept, with the default retention of 90 days on 2027-02-25. An incident that is open
keeps its timeline for longer, and so does a longer retention.
"""

from __future__ import annotations

import re
from typing import Any

from bot.domain.kernel.timeline import Entry

_SUPERSEDED = re.compile(r"(R\d+) superseded: (.+)", re.DOTALL)
_SETTLED = re.compile(r"(?:request |question )?([RQ]\d+)\b")
_DONE = re.compile(r"[^:]+: done\b")


def as_recorded_now(entry: Entry) -> Entry:
    """Returns the entry with the data that this version records; what it has already stays."""
    if entry.kind in ("call", "undo") and ("silences" in entry.data or entry.text == "asked to end the silences"):
        return entry.model_copy(update={"kind": "note"})
    if data := _data(entry):
        return entry.model_copy(update={"data": {**data, **entry.data}})
    return entry


def _data(entry: Entry) -> dict[str, Any]:
    match entry.kind:
        case "decided" if entry.text.startswith("approved"):
            return {"status": "granted"}
        case "decided" | "answered":
            found = _SETTLED.match(entry.text)
            return {"request" if found[1].startswith("R") else "question": found[1]} if found else {}
        case "planned":
            found = _SUPERSEDED.match(entry.text)
            return {"request": found[1], "superseded": found[2]} if found else {}
        case "outcome" if _DONE.match(entry.text):
            return {"outcome": "done"}
        case _:
            return {}
