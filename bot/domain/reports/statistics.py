"""How incidents went: how fast people acted, how long they lasted, what was pressed, and which mitigation held.

Counted from the stored incidents alone. A time is the median of the incidents that have it.
"""

from __future__ import annotations

import statistics as numbers
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bot.domain.approvals.announced import is_pre_approved
from bot.domain.approvals.grant import Request
from bot.domain.changes.plan import Plan
from bot.domain.incidents.run import Question, Run
from bot.domain.kernel.durations import lasting

GOOD = frozenset({"fixed", "self_cleared", "resolved_by_itself", "resolved_after_a_change", "accepted_degraded"})
ENDED = GOOD - {"accepted_degraded"}
"""What a mitigation may have ended: where people accepted that users are served worse, it ended nothing."""
SHOWN = 10
DAY = 86_400.0


@dataclass(frozen=True)
class Median:
    seconds: float
    of: int

    def __str__(self) -> str:
        return f"{lasting(self.seconds)} (median of {self.of})" if self.of else "none yet"


@dataclass(frozen=True)
class Mitigation:
    """One kind of change on one target, over all of its incidents."""

    target: str
    what: str
    done: int
    went_well: int
    held_seconds: float | None
    """From the end of the newest incident that it ended to the next incident of the target; None: none came since."""


@dataclass(frozen=True)
class Statistics:
    opened: int
    paged: int
    closed: int
    went_well: int
    """Of the closed ones: fixed, recovered or accepted."""
    until_acted: Median
    """The MTTA: from the opening to the first act of a person."""
    until_closed: Median
    """The MTTR: from the opening to the end."""
    waited: Median
    """For people, in which a request or question was open."""
    presses: float | None
    """The median of the closed incidents."""
    pre_approved: int
    """Changes that began without a press because the settings pre-approve them."""
    outcomes: Mapping[str, Mapping[str, int]]
    """Playbook to ending, in words, to how often."""
    mitigations: tuple[Mitigation, ...]


def statistics(runs: Iterable[Run], start: float, end: float) -> Statistics:
    """Returns the statistics of the incidents that opened in this time."""
    every = sorted({run.incident_id: run for run in runs}.values(), key=lambda run: run.opened_at)
    found = [run for run in every if start <= run.opened_at < end]
    closed = [run for run in found if run.closed_at is not None]
    outcomes: dict[str, Counter[str]] = {}
    for run in closed:
        outcomes.setdefault(run.playbook, Counter())[run.ending_in_words] += 1
    acted = [at - run.opened_at for run in found if (at := _first_act(run)) is not None]
    return Statistics(
        opened=len(found),
        paged=sum(run.severity == "page" for run in found),
        closed=len(closed),
        went_well=sum(run.ending in GOOD for run in closed),
        until_acted=_median(acted),
        until_closed=_median([run.closed_at - run.opened_at for run in closed if run.closed_at is not None]),
        waited=_median([waited_seconds(run, until=run.closed_at or end) for run in closed]),
        presses=numbers.median(map(presses_of, closed)) if closed else None,
        pre_approved=sum(map(_was_pre_approved, (each for run in found for each in run.requests.values()))),
        outcomes=outcomes,
        mitigations=tuple(_mitigations(found, every)),
    )


def waited_seconds(run: Run, *, until: float) -> float:
    """Returns how long a request or question was open until then; two at once are waited for once."""
    waits = [(each.asked_at, _waits_until(each, each.decided_at)) for each in run.requests.values()]
    waits += [(each.asked_at, _waits_until(each, each.answered_at)) for each in run.questions.values()]
    waits = sorted((each for each in waits if each[0] < until), key=lambda each: each[0])
    total, reached = 0.0, 0.0
    for place, (begin, ended) in enumerate(waits, start=1):
        # One thing waits at a time: what nobody decided was withdrawn when the next thing was posted, or before.
        later = waits[place][0] if place < len(waits) else until
        end = min(later if ended is None else ended, until)
        total, reached = total + max(0.0, end - max(begin, reached)), max(end, reached)
    return total


def _waits_until(asked: Request | Question, decided_at: float | None) -> float | None:
    """Returns when it ended; None if it did not, or was withdrawn. Advice waits for nobody."""
    if isinstance(asked, Request) and asked.advice is not None:
        return asked.asked_at
    return asked.expires_at if decided_at is None and asked.status == "expired" else decided_at


def presses_of(run: Run) -> int:
    """Returns how often people pressed to decide something."""
    decided = sum(max(len(each.presses), bool(each.decided_by)) for each in run.requests.values())
    return decided + sum(each.status == "answered" for each in run.questions.values())


def last_time(runs: Iterable[Run], run: Run, plan: Plan, *, at: float) -> str:
    """Returns how long this change held on this target the last time; empty if it was never made there."""
    every = sorted(runs, key=lambda each: each.opened_at)
    past = [each for each in every if each.target.key == run.target.key and each.incident_id != run.incident_id]
    ended = [each for each in past if each.closed_at is not None and _made(each, _key(plan))]
    if not ended:
        return ""
    newest = ended[-1]
    held = _held(newest, [*past, run])
    how = "ended" if newest.ending in ENDED else "did not end"
    lasted = f" and held for {_days(held)}" if newest.ending in ENDED and held is not None else ""
    ago = f"{_days(at - (newest.closed_at or at))} ago"
    return f"this change {how} {newest.incident_id} {ago}{lasted}"


def covered_days(days: int, runs: Sequence[Run], start: float, *, read: int) -> str:
    """Returns which incidents of these days are counted. `runs`: the newest ones, of which at most `read` are read."""
    last = f"last {days} days" if days > 1 else "last day"
    if len(runs) < read or min(run.opened_at for run in runs) < start:
        return f"The {last}."
    return f"The newest {read} incidents of the {last}; older ones are not counted."


def in_words(found: Statistics) -> list[str]:
    """Returns the statistics as plain lines."""
    lines = [
        f"Opened: {found.opened} ({found.paged} paged). Closed: {found.closed}.",
        f"Time to the first action (MTTA): {found.until_acted}. Time to the close (MTTR): {found.until_closed}.",
        f"Time spent waiting for people: {found.waited}."
        + (f" Presses for each incident: {found.presses:g} (median)." if found.presses is not None else ""),
    ]
    if found.pre_approved:
        lines.append(f"Changes that the settings pre-approved: {found.pre_approved}.")
    for playbook, endings in sorted(found.outcomes.items()):
        each = ", ".join(f"{count} {ending}" for ending, count in sorted(endings.items()))
        lines.append(f"• {playbook}: {each}")
    for one in found.mitigations[:SHOWN]:
        held = f", held for {_days(one.held_seconds)} the last time" if one.held_seconds is not None else ""
        ended = f"ended the incident {_times(one.went_well)}{held}" if one.went_well else "ended no incident so far"
        lines.append(f"• {one.target}, {one.what}: applied {_times(one.done)}, {ended}")
    return lines


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _was_pre_approved(request: Request) -> bool:
    return request.status == "granted" and is_pre_approved(request.policy.announced)


def _first_act(run: Run) -> float | None:
    acts = [press.at for request in run.requests.values() for press in request.presses]
    acts += [each.decided_at for each in run.requests.values() if each.decided_by and each.decided_at is not None]
    acts += [each.answered_at for each in run.questions.values() if each.answered_at is not None]
    return min((*acts, *(note.at for note in run.notes)), default=None)


def _median(seconds: Sequence[float]) -> Median:
    return Median(numbers.median(seconds) if seconds else 0.0, len(seconds))


Key = tuple[str, ...]


def _key(plan: Plan) -> Key:
    """What makes two changes the same mitigation: the same flags, on one replica or on all; or the same verb."""
    edits = plan.choices.get("edits")
    return ("flags", *sorted(edits)) if isinstance(edits, dict) else (plan.verb,)


def _done(run: Run) -> list[Request]:
    """Returns the changes that were done and not wholly taken back."""
    return [
        each
        for each in run.requests.values()
        if each.outcome == "done"
        and each.plan.calls
        and not all(call.restores for call in each.plan.calls)
        and not _is_undone(run, each)
    ]


def _is_undone(run: Run, request: Request) -> bool:
    own = [entry for entry in run.ledger if entry.call_id.startswith(f"{run.incident_id}/{request.request_id}/")]
    return bool(own) and all(entry.undone_by for entry in own)


def _made(run: Run, key: Key) -> bool:
    return any(_key(each.plan) == key for each in _done(run))


def _mitigations(found: Sequence[Run], every: Sequence[Run]) -> list[Mitigation]:
    made: dict[tuple[str, Key], list[Run]] = {}
    for run in found:
        for key in dict.fromkeys(_key(each.plan) for each in _done(run)):
            made.setdefault((str(run.target), key), []).append(run)
    rows = []
    for (target, key), runs in made.items():
        well = [run for run in runs if run.ending in ENDED]
        held = _held(well[-1], every) if well else None
        what = ", ".join(key[1:]) if key[0] == "flags" else key[0].replace("_", " ")
        rows.append(Mitigation(target, what, len(runs), len(well), held))
    return sorted(rows, key=lambda row: (-row.done, row.target, row.what))


def _held(run: Run, every: Iterable[Run]) -> float | None:
    """From its end to the next incident of its target; None while none has come."""
    end = run.closed_at
    if end is None:
        return None
    later = [each.opened_at for each in every if each.target.key == run.target.key and each.opened_at >= end]
    return min(later) - end if later else None


def _days(seconds: float | None) -> str:
    if seconds is None:
        return "an unknown time"
    days = seconds / DAY
    return f"{days:.0f} days" if days >= 2 else lasting(seconds)
