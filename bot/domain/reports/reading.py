"""Reads a report from a timeline. Nothing else is asked or guessed.

A timeline may have been altered; then the report says where its chain breaks and still shows what can be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from pydantic import ValidationError

from bot.domain.approvals.announced import covering
from bot.domain.changes.plan import request_of
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.links import RUNBOOK_ANNOTATION, Link, links_of
from bot.domain.kernel.runbook import RelatedRunbook, Runbook
from bot.domain.kernel.timeline import GENESIS, Chained, Entry, StoredHead, first_break, head_fault
from bot.domain.reports.earlier_entries import as_recorded_now
from bot.domain.reports.escaping import plain
from bot.domain.reports.facts import (
    Applied,
    Called,
    Compared,
    Decided,
    Diagnosed,
    FollowUp,
    Head,
    Judged,
    Phase,
    Report,
    Visit,
    Waited,
)
from bot.domain.signals.signal import Reading

ACTS = frozenset({"answered", "decided", "note", "halt", "resume", "undo"})
"""Kinds of entries by which a person shows that somebody is there; a press only if it counted."""
DECISIONS = frozenset({"decided", "answered", "halt", "resume", "undo"})
ASKED = frozenset({"asked", "question"})
"""Entries that put a question to people."""
MOVES_ON = frozenset({"entered", "undo", "closed"})
"""After these, nothing that was put to people before is open any more."""


def report_of(entries: Sequence[Chained], stored: StoredHead | None = None) -> Report:
    """`stored`: what the run itself says of the end of this timeline, where it was asked."""
    plain_entries = [as_recorded_now(item.entry) for item in entries]
    opened = next((e for e in plain_entries if e.kind == "opened"), None)
    opened_at = opened.at if opened else (plain_entries[0].at if plain_entries else 0.0)
    end = next((e for e in reversed(plain_entries) if e.kind in ("closed", "reopened")), None)
    closed = end if end is not None and end.kind == "closed" else None
    waits = tuple(_waits(plain_entries))
    stays = tuple(_stays(plain_entries))
    in_place = closed or next((each for each in reversed(plain_entries) if "held" in each.data), None)
    held = tuple(map(str, _list(in_place.data, "held"))) if in_place else ()
    diagnosis = next(_diagnoses(reversed(plain_entries)), None)
    return Report(
        diagnosis=diagnosis,
        users_at_the_end=_str(closed.data, "users") if closed else "",
        firing_at_the_end=tuple(map(str, _list(closed.data, "firing"))) if closed else (),
        applied=tuple(_applied(plain_entries)),
        phases=tuple(_phases(stays)),
        follow_ups=tuple(_follow_ups(plain_entries, held if closed else (), diagnosis)),
        **_about(opened),
        severity=_severity(opened, plain_entries),
        alerts=tuple(dict.fromkeys(_alert_names(plain_entries))),
        began_at=min([opened_at, *(each.starts_at.timestamp() for each in _alerts([opened] if opened else []))]),
        opened_at=opened_at,
        first_act_at=min((e.at for e in plain_entries if _is_act(e)), default=None),
        closed_at=closed.at if closed else None,
        ending=_str(closed.data, "ending") if closed else "",
        links=_links(opened, plain_entries, closed_at=closed.at if closed else None),
        related=tuple(_related(opened)),
        path=tuple(stay.visit for stay in stays),
        waits=waits,
        waited_seconds=_covered(waits, until=max((entry.at for entry in plain_entries), default=0.0)),
        decisions=tuple(_decisions(plain_entries)),
        calls=tuple(_calls(plain_entries)),
        readings=tuple(_compared(plain_entries)),
        verdicts=tuple(_verdicts(plain_entries)),
        ignored=sum(1 for e in plain_entries if e.kind == "ignored"),
        held=held,
        people=dict(_people(plain_entries)),
        entries=len(entries),
        broken_at=first_break(entries),
        heads=tuple(_heads(entries)),
        stored=stored,
        head_fault=head_fault(entries, stored) if stored is not None else "",
    )


def _about(opened: Entry | None) -> dict[str, str]:
    data = opened.data if opened else {}
    labels, annotations = _dict(data, "labels"), _dict(data, "annotations")
    named = opened.text.rpartition(" on ")[2] if opened else ""
    return {
        "incident": _str(data, "incident"),
        "title": _str(data, "title") or _str(annotations, "summary") or _str(labels, "alertname"),
        "target": _str(data, "target") or named,
        "playbook": _str(data, "playbook"),
    }


def _severity(opened: Entry | None, entries: Sequence[Entry]) -> str:
    """The last one that was recorded, as the card shows it."""
    data = opened.data if opened else {}
    first = _str(data, "severity") or _str(_dict(data, "labels"), "severity")
    changes = [after for entry in entries if entry.kind == "severity" and (after := _str(entry.data, "after"))]
    return changes[-1] if changes else first


def _links(opened: Entry | None, entries: Sequence[Entry], *, closed_at: float | None) -> tuple[Link, ...]:
    newest = {alert.fingerprint: alert for alert in _alerts(entries)}
    dashboard = _str(opened.data, "dashboard") if opened else ""
    starts_at = min((alert.starts_at.timestamp() for alert in newest.values()), default=opened.at if opened else 0.0)
    return links_of(newest.values(), dashboard, starts_at=starts_at, closed_at=closed_at)


def _alerts(entries: Sequence[Entry]) -> Iterator[Alert]:
    for entry in entries:
        if entry.kind in ("opened", "alert"):
            try:
                yield Alert.model_validate(entry.data)
            except ValidationError:
                continue  # it is about something else, or it was altered: the broken chain says so


def _related(opened: Entry | None) -> Iterator[RelatedRunbook]:
    for raw in _list(opened.data, "related") if opened else ():
        try:
            yield RelatedRunbook.model_validate(raw)
        except ValidationError:
            continue  # altered: the broken chain says so


def _alert_names(entries: Sequence[Entry]) -> Iterator[str]:
    for entry in entries:
        name = _str(_dict(entry.data, "labels"), "alertname")
        if entry.kind in ("opened", "alert") and name:
            yield name


class _Stay(NamedTuple):
    """A visit with what was recorded during it."""

    visit: Visit
    entries: Sequence[Entry]
    after: str
    """The kind of entry that ended the visit before it; empty for the first."""


def _stays(entries: Sequence[Entry]) -> Iterator[_Stay]:
    """An undo ends a visit: what follows, until the next state is entered, belongs to none."""
    places = [place for place, entry in enumerate(entries) if entry.kind in MOVES_ON]
    after = ""
    for place, end in pairwise([*places, len(entries)]):
        here = entries[place]
        if here.kind == "entered":
            left_at = entries[end].at if end < len(entries) else None
            yield _Stay(_visit(here, left_at), entries[place:end], after)
        after = here.kind


def _visit(entered: Entry, left_at: float | None) -> Visit:
    title, _, because = entered.text.partition(" — ")
    return Visit(
        state=entered.state,
        title=title,
        kind=_str(entered.data, "kind"),
        because=because,
        entered_at=entered.at,
        took_seconds=None if left_at is None else left_at - entered.at,
        runbook=_runbook(entered.data.get("runbook")),
    )


def _diagnoses(entries: Iterable[Entry]) -> Iterator[Diagnosed]:
    for entry in entries:
        if entry.kind == "diagnosis":
            checks = [each for each in _list(entry.data, "checks") if isinstance(each, list | tuple) and len(each) == 2]
            yield Diagnosed(
                at=entry.at,
                title=str(entry.data.get("title", entry.text)),
                cause=_str(entry.data, "cause"),
                users=_str(entry.data, "users"),
                found=tuple(str(text) for found, text in checks if found == "found"),
                ruled_out=tuple(str(text) for found, text in checks if found == "ruled_out"),
                unknown=tuple(str(text) for found, text in checks if found == "unknown"),
            )


APPLIES = frozenset({"call", "wait", "outcome"})
"""Entries of a change that began."""
PHASES = {"read": "Diagnosis", "recommend": "Diagnosis", "ask": "Question to people", "divert": "Handed on"}


def _phases(stays: Sequence[_Stay]) -> Iterator[Phase]:
    """The path without its reads: what each change and each check took. A change that never began is a question."""
    rows: list[Phase] = []
    for stay in stays:
        visit = stay.visit
        if visit.kind == "end":
            continue
        name = PHASES.get(visit.kind) or visit.title or visit.state.replace("_", " ")
        if visit.kind == "watch" and (not rows or stay.after == "closed"):
            name = PHASES["read"]
        if visit.kind == "change":
            name = (_edited(stay) or name) if _has_begun(stay) else PHASES["ask"]
        last = rows[-1] if rows and stay.after == "entered" else None
        if last is not None and (last.name == name or visit.kind in ("read", "recommend")):
            # What is read between a change and its check belongs to the phase before.
            took = None if visit.took_seconds is None else visit.entered_at + visit.took_seconds - last.began_at
            rows[-1] = last.model_copy(update={"took_seconds": took})
        else:
            rows.append(Phase(name=name, began_at=visit.entered_at, took_seconds=visit.took_seconds))
    yield from rows


def _has_begun(stay: _Stay) -> bool:
    """Whether a request of this visit was granted or applied; an older entry may not name its request."""
    requests = {"", *(_str(each.data, "request") for each in stay.entries if each.kind == "request")}
    begun = (each for each in stay.entries if each.kind in APPLIES or _grants(each))
    return any(_request_of(each) in requests for each in begun)


def _request_of(entry: Entry) -> str:
    """Returns the request that an entry of a change belongs to; a call names it in its id, `INC-1/R3/0`."""
    return _str(entry.data, "request") or request_of(_str(entry.data, "call"))


def _edited(stay: _Stay) -> str:
    """The title of the plan that a person's values led to, since the state is called by the playbook's; else empty."""
    if not any(each.kind == "decided" and "values" in each.data for each in stay.entries):
        return ""
    plans = [_dict(each.data, "plan") for each in stay.entries if each.kind == "request" and "plan" in each.data]
    return _str(plans[-1], "title") if plans else ""


def _applied(entries: Sequence[Entry]) -> Iterator[Applied]:
    titles: dict[str, str] = {}
    by: dict[str, list[str]] = {}
    for entry in entries:
        request = _str(entry.data, "request")
        if entry.kind == "request" and "plan" in entry.data:
            titles[request] = _str(_dict(entry.data, "plan"), "title")
            if other := covering(_str(entry.data, "announced")):
                by[request] = by.get(other, [])
        elif _approves(entry):
            by.setdefault(request, []).append(entry.who)
        elif entry.kind == "outcome" and request in titles and entry.data.get("outcome") == "done":
            approved = tuple(dict.fromkeys(filter(None, by.get(request, []))))
            yield Applied(request=request, title=titles[request], at=entry.at, by=approved)


def _approves(entry: Entry) -> bool:
    """Whether it records an approval that counted: the last one decides, those before it are counted."""
    return (entry.kind == "press" and bool(_str(entry.data, "request"))) or _grants(entry)


def _grants(entry: Entry) -> bool:
    return entry.kind == "decided" and bool(entry.who) and entry.data.get("status") == "granted"


def _is_act(entry: Entry) -> bool:
    """A pinned message has its own time and author: writing it was not an act in this incident."""
    return bool(entry.who) and "pinned_by" not in entry.data and (entry.kind in ACTS or _approves(entry))


def _follow_ups(entries: Sequence[Entry], held: Sequence[str], diagnosis: Diagnosed | None) -> Iterator[FollowUp]:
    """What people wrote down, then what the timeline itself suggests."""
    for entry in entries:
        if entry.kind == "followup":
            yield FollowUp(text=entry.text, who=entry.who)
    for title in held:
        yield FollowUp(text=f"Make it permanent or take it back: {title}")
    for what in diagnosis.unknown if diagnosis is not None else ():
        yield FollowUp(text=f"Make it possible to rule out {what}: it could not be read")
    named = {alert.name for alert in _alerts(entries) if not alert.annotations.get(RUNBOOK_ANNOTATION)}
    for name in sorted(named):
        yield FollowUp(text=f"Give the alert {name} a runbook_url: people had no link to its runbook")


def _runbook(raw: object) -> Runbook | None:
    try:
        return Runbook.model_validate(raw)
    except ValidationError:
        return None  # none is written, or it was altered: the broken chain says so


def _waits(entries: Sequence[Entry]) -> Iterator[Waited]:
    waiting: dict[str, Entry] = {}
    for entry in entries:
        asked = _asked(entry)
        for ref in list(waiting):
            # A new question replaces the one before it, which was withdrawn; a request may wait beside a question.
            replaced = asked.startswith("Q") and ref.startswith("Q")
            if replaced or entry.kind in MOVES_ON or ref == _settled(entry):
                start = waiting.pop(ref)
                yield Waited(about=ref, text=start.text, asked_at=start.at, ended_at=entry.at)
        if asked:
            waiting[asked] = entry
    for ref, start in waiting.items():
        yield Waited(about=ref, text=start.text, asked_at=start.at, ended_at=None)


def _asked(entry: Entry) -> str:
    if entry.kind in ASKED:
        return _str(entry.data, "id")
    is_asked = entry.kind == "request" and entry.data.get("waits") is not False
    return _str(entry.data, "request") if is_asked else ""


def _settled(entry: Entry) -> str:
    """Returns the request or question that this entry ends."""
    if entry.kind not in ("decided", "answered", "planned"):
        return ""
    return _str(entry.data, "request") or _str(entry.data, "question")


def _covered(waits: Sequence[Waited], *, until: float) -> float:
    """The length of the union of the waits: two that overlap are waited for once."""
    total, reached = 0.0, float("-inf")
    for wait in sorted(waits, key=lambda w: w.asked_at):
        end = until if wait.ended_at is None else wait.ended_at
        total += max(0.0, end - max(wait.asked_at, reached))
        reached = max(reached, end)
    return total


def _decisions(entries: Sequence[Entry]) -> Iterator[Decided]:
    not_applied = {
        _str(entry.data, "request"): _str(entry.data, "superseded") for entry in entries if entry.kind == "planned"
    }
    asked = {_asked(entry): entry.text for entry in entries if entry.kind in ASKED}
    for entry in entries:
        if entry.kind in DECISIONS or (entry.kind == "reopened" and entry.who):
            digest, reason = _str(entry.data, "digest"), _str(entry.data, "reason")
            granted = entry.kind == "decided" and entry.data.get("status") == "granted"
            why = not_applied.get(_str(entry.data, "request")) if granted else None
            what = f"{entry.text} (not applied: {why})" if why else entry.text
            # An answer alone, such as "Undo it", means nothing to somebody who was not there.
            if question := asked.get(_str(entry.data, "question")):
                what = f"{question} — {what}"
            yield Decided(at=entry.at, who=entry.who, what=what, granted=granted, digest=digest, reason=reason)


def _calls(entries: Sequence[Entry]) -> Iterator[Called]:
    for entry in entries:
        if entry.kind == "call":
            yield Called(
                at=entry.at,
                text=entry.text,
                done="call" in entry.data,
                call_id=_str(entry.data, "call"),
                verb=_str(entry.data, "verb"),
                detail=_str(entry.data, "detail"),
                differences=tuple(_difference(raw) for raw in _list(entry.data, "differences")),
            )


def _difference(raw: object) -> str:
    if not isinstance(raw, dict):
        return plain(raw)
    return _str(raw, "text") or f"{_str(raw, 'path')}: {plain(raw.get('before'))} → {plain(raw.get('after'))}"


def _compared(entries: Sequence[Entry]) -> Iterator[Compared]:
    baseline: dict[str, Reading] = {}
    last: dict[str, Reading] = {}
    for entry in entries:
        if entry.kind == "baseline":
            baseline |= readings_of(entry)
        elif entry.kind == "read":
            last |= readings_of(entry)
    for name in dict.fromkeys([*baseline, *last]):
        yield Compared(name=name, baseline=baseline.get(name), last=last.get(name))


def readings_of(entry: Entry) -> dict[str, Reading]:
    """The readings that an entry holds; invalid readings are left out."""
    found: dict[str, Reading] = {}
    for name, raw in entry.data.items():
        try:
            found[name] = Reading.model_validate(raw)
        except ValidationError:
            continue  # altered: the broken chain says so
    return found


def _verdicts(entries: Sequence[Entry]) -> Iterator[Judged]:
    for entry in entries:
        if entry.kind == "verdict":
            parts = {str(part): str(text) for part, text in _dict(entry.data, "parts").items()}
            text = _str(entry.data, "text")
            verdict = _str(entry.data, "verdict")
            yield Judged(
                at=entry.at, state=entry.state, title=_str(entry.data, "title"), verdict=verdict, parts=parts, text=text
            )


def _people(entries: Sequence[Entry]) -> Iterator[tuple[str, str]]:
    for entry in entries:
        user, name = _str(entry.data, "user"), _str(entry.data, "user_name")
        if user and name:
            yield user, name


def _heads(entries: Sequence[Chained]) -> Iterator[Head]:
    numbers: dict[str, int] = {GENESIS: 0}
    for item in entries:
        head = _str(item.entry.data, "head")
        if item.entry.kind == "slack" and head:
            yield Head(
                entry=item.number,
                head=head,
                matches=numbers.get(head),
                channel=_str(item.entry.data, "channel"),
                message=_str(item.entry.data, "ts"),
            )
        numbers[item.hash] = item.number


def _str(data: dict[str, Any], name: str) -> str:
    value = data.get(name, "")
    return value if isinstance(value, str) else ""


def _dict(data: dict[str, Any], name: str) -> dict[str, Any]:
    value = data.get(name)
    return value if isinstance(value, dict) else {}


def _list(data: dict[str, Any], name: str) -> list[Any]:
    value = data.get(name)
    return list(value) if isinstance(value, list | tuple) else []
