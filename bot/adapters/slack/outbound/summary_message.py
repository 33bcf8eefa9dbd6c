"""The message about incidents whose cards wait: what they have in common, and which of them need a person."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bot.adapters.slack.escape import line
from bot.adapters.slack.outbound.blocks import context, header, section
from bot.adapters.slack.outbound.card import sign_of
from bot.adapters.slack.outbound.message import Message
from bot.domain.incidents.common_cause import Facts, Group, facts_of, groups
from bot.domain.incidents.run import Run

LINES = 12
"""As many as always fit one section."""
GROUPS = 6
NAMED = 3
RANK = 1e9
"""More than any incident's number."""
PAGED, ASKED, PAGES, OPEN, OVER = range(5)
NEED_NOBODY = PAGES * RANK
"""Orders below it are of incidents that need a person."""
IN_WORDS = {
    "node": "On node {}", "rack": "In rack {}", "zone": "In zone {}", "deploy": "After the rollout {}",
    "model": "Model {}", "alert": "Alert {}",
}  # fmt: skip
FACT_LENGTH, FACTS = 80, 20
_BELOW = "Many incidents began at once; those that still wait for their cards are listed below."
MOVED = Message(_BELOW, tuple(section([_BELOW])))
"""What the old message becomes when the list goes on in a new one."""


@dataclass(frozen=True)
class Waiting:
    """An incident of the summary, as it is stored."""

    line: str
    rank: int = OPEN
    facts: Facts = field(default_factory=dict)


def order_of(run: Run) -> float:
    """Its place in the queue for cards: those that need a person first, pages before tickets, then by age."""
    return _rank(run) * RANK + _number(run.incident_id)[0]


def _rank(run: Run) -> int:
    if not run.is_open:
        return OVER
    if _needs(run):
        return PAGED if run.severity == "page" else ASKED
    return PAGES if run.severity == "page" else OPEN


def _needs(run: Run) -> str:
    """What it needs from a person; empty if nothing."""
    if run.open_request is not None:
        return "needs approval"
    if run.open_question is not None:
        return "needs an answer"
    return "needs a person" if run.advised or any(post.kind == "note" for post in run.posts) else ""


def summary_line(run: Run) -> str:
    """What the summary stores of an incident."""
    end = line(run.ending_in_words, 40) if not run.is_open else _needs(run)
    name = f"{sign_of(run)} *{line(run.incident_id, 40)}* {line(run.called, 60)} · {line(run.target, 80)}"
    facts = {kind: [value[:FACT_LENGTH] for value in values[:FACTS]] for kind, values in facts_of(run).items()}
    return json.dumps({"line": f"{name} · {end}" if end else name, "rank": _rank(run), "facts": facts})


def _read(stored: str) -> Waiting:
    # Earlier versions of the bot stored the line alone.
    return Waiting(**json.loads(stored)) if stored.startswith("{") else Waiting(stored)


def summary_message(lines: Mapping[str, str]) -> Message:
    if not lines:
        done = "Many incidents began at once; each has its card now."
        return Message(done, tuple(section([done])))
    waiting = {name: _read(lines[name]) for name in sorted(lines, key=_number)}
    first = sorted(waiting, key=lambda name: waiting[name].rank)
    count = len(waiting)
    title = f"{count:,} new {'incident has' if count == 1 else 'incidents have'} no card yet"
    why = (
        "Too many incidents began at once to post a card for each. The bot is working on all of them. Those that need "
        "a person get their card first; the others follow one by one."
    )
    causes = _causes(waiting, first)
    shown = [waiting[name].line for name in first[: LINES - len(causes)]]
    more = [f"… and {count - len(shown):,} more: `/incident list`"] if count > len(shown) else []
    foot = context([f"`/incident show {line(first[0], 40)}` posts its card now"])
    blocks = (header(title), *section([why]), *section(causes), *section([*shown, *more]), *foot)
    return Message("\n".join([f"{title}.", *causes, *shown, *more]), blocks)


def _causes(waiting: Mapping[str, Waiting], first: Sequence[str]) -> list[str]:
    """One line for each common cause, and one for the incidents that have none."""
    found = groups({name: waiting[name].facts for name in first})
    shown = [_cause(group, waiting) for group in found[:GROUPS]]
    rest = len(waiting) - sum(len(group.incidents) for group in found[:GROUPS])
    return [*shown, f"• *Others*: {_counted(rest)}"] if shown and rest else shown


def _cause(group: Group, waiting: Mapping[str, Waiting]) -> str:
    asking = sum(1 for name in group.incidents if waiting[name].rank <= ASKED)
    needs = f" · {asking:,} {'needs' if asking == 1 else 'need'} a person" if asking else ""
    names = ", ".join(line(name, 40) for name in group.incidents[:NAMED])
    etc = ", …" if len(group.incidents) > NAMED else ""
    where = IN_WORDS[group.kind].format(line(group.value, FACT_LENGTH))
    return f"• *{where}*: {_counted(len(group.incidents))}{needs} ({names}{etc})"


def _counted(incidents: int) -> str:
    return f"{incidents:,} {'incident' if incidents == 1 else 'incidents'}"


def _number(incident_id: str) -> tuple[int, str]:
    number = incident_id.rpartition("-")[2]
    return (int(number) if number.isdecimal() else 0, incident_id)
