"""The result of a rehearsal: the states entered and by which edge, the changes proposed, and the end.

All of it is read from the timeline, so a rehearsal cannot claim anything that a real run would not record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from bot.domain.incidents.run import Run
from bot.domain.kernel.timeline import Entry
from bot.domain.playbooks.edges import Edge, Origin, edges_of
from bot.domain.playbooks.language import ChangeState, Playbook
from bot.domain.playbooks.loading.other_playbook import is_inside
from bot.domain.playbooks.mistakes import Path
from bot.domain.playbooks.testing.cases import GAP, Expected, Proposal


@dataclass(frozen=True)
class Visit:
    state: str
    at: float
    by: str = ""
    """The outcome of the previous state that led here; empty if a person or the start of the run did."""
    clause: int | None = None
    because: str = ""
    instead_of: tuple[str, ...] = ()
    """States that were skipped because they had been entered `at_most` times."""


@dataclass(frozen=True)
class Proposed:
    """A change that people were asked to approve."""

    state: str
    verb: str
    arguments: dict[str, Any]
    at: float
    beside: tuple[str, ...] = ()
    """The other options that are possible, in the order of their buttons."""


@dataclass(frozen=True)
class Rehearsed:
    run: Run
    entries: tuple[Entry, ...]
    proposed: tuple[Proposed, ...]
    stopped: str = ""
    """Why it stopped while the incident was still open; empty if it ended."""

    @cached_property
    def visits(self) -> tuple[Visit, ...]:
        """Visits, without those of a stub for another playbook."""
        entered = (entry for entry in self.entries if entry.kind == "entered")
        return tuple(_visit(entry) for entry in entered if not is_inside(entry.state))

    @cached_property
    def path(self) -> tuple[str, ...]:
        return tuple(visit.state for visit in self.visits)


def _visit(entry: Entry) -> Visit:
    _, _, because = entry.text.partition(" — ")
    return Visit(
        entry.state,
        entry.at,
        entry.data.get("by", ""),
        entry.data.get("clause"),
        because,
        tuple(entry.data.get("instead_of", ())),
    )


# --- which edges were taken -------------------------------------------------------------------------------------------

EdgeKey = tuple[str, Path]
"""A written edge: its state, and the path of the edge below it."""


def written_edges(playbook: Playbook) -> dict[EdgeKey, Edge]:
    return {(name, edge.path): edge for name, state in playbook.states.items() for edge in edges_of(state)}


def edges_taken(playbook: Playbook, visits: Sequence[Visit]) -> frozenset[EdgeKey]:
    taken = {_edge_between(playbook, earlier.state, later) for earlier, later in pairwise(visits)}
    beyond = {(passed, ("beyond",)) for visit in visits for passed in visit.instead_of}
    return frozenset(key for key in taken if key is not None) | beyond


def _edge_between(playbook: Playbook, state: str, later: Visit) -> EdgeKey | None:
    if state not in playbook.states or not later.by:
        return None
    for edge in edges_of(playbook.states[state]):
        is_meant = edge.path[:2] == ("go", later.clause) if later.clause is not None else edge.outcome == later.by
        if is_meant:
            return state, edge.path
    return None


# --- how it differs from what was expected ----------------------------------------------------------------------------


def first_deviation(expected: Expected, found: Rehearsed) -> str:
    """Returns the first deviation from what was expected, in words; empty if there is none."""
    return (
        _deviation_of_path(expected.path, found)
        or _deviation_of_end(expected, found)
        or _deviation_of_proposals(expected.proposes, found.proposed)
        or _deviation_of_notes(expected.notes, found)
        or _deviation_of_watches(expected.watches, found)
    )


def _deviation_of_path(path: Sequence[str], found: Rehearsed) -> str:
    if not path:
        return ""
    matched = _longest_match(path, found.path)
    if matched is None:
        return ""
    here, position = matched
    went = found.visits[position] if position < len(found.visits) else None
    after = f"after '{found.path[position - 1]}' " if position else "at the start "
    if here == len(path):
        assert went is not None
        return f"{after}nothing more was expected, and it went to '{went.state}'{_because(went)}"
    somewhere = "somewhere " if here and path[here - 1] == GAP else ""
    if went is None or somewhere:
        why, taken = found.stopped or _ended(found), " → ".join(found.path)
        return f"{after}'{path[here]}' was expected {somewhere}and did not come ({why}): {taken}"
    return f"{after}'{path[here]}' was expected, and it went to '{went.state}'{_because(went)}"


def _because(visit: Visit) -> str:
    return f": {visit.because}" if visit.because else f" by '{visit.by}'" if visit.by else ""


def _ended(found: Rehearsed) -> str:
    return f"it ended: {found.run.ending}" if not found.run.is_open else "it goes on"


def _longest_match(path: Sequence[str], taken: Sequence[str]) -> tuple[int, int] | None:
    """Returns None if the whole path matches; else how many items of both sides matched before the first mismatch."""
    best = (0, 0)
    todo, seen = [(0, 0)], set[tuple[int, int]]()
    while todo:
        at, position = todo.pop()
        if (at, position) in seen:
            continue
        seen.add((at, position))
        best = max(best, (at, position))
        if at == len(path) and position == len(taken):
            return None
        if at < len(path) and path[at] == GAP:
            todo.append((at + 1, position))
            if position < len(taken):
                todo.append((at, position + 1))
        elif at < len(path) and position < len(taken) and path[at] == taken[position]:
            todo.append((at + 1, position + 1))
    return best


def _deviation_of_end(expected: Expected, found: Rehearsed) -> str:
    ending = found.run.ending
    if expected.ends and ending != expected.ends:
        where = f"it ended as '{ending}'" if ending else f"it stopped in '{found.run.visit.state}': {found.stopped}"
        return f"the end '{expected.ends}' was expected, and {where}"
    question = found.run.open_question
    if expected.asks and (question is None or expected.asks not in question.text):
        actual = f"it asks '{question.text}'" if question else _ended(found)
        return f"a question with '{expected.asks}' was expected, and {actual}"
    if expected.severity and found.run.severity != expected.severity:
        return f"the severity '{expected.severity}' was expected, and it is '{found.run.severity}'"
    if found.stopped and not expected.ends and not expected.asks and (not expected.path or expected.path[-1] == GAP):
        return f"it stopped in '{found.run.visit.state}': {found.stopped}"
    return ""


def _deviation_of_proposals(expected: Sequence[Proposal] | None, found: Sequence[Proposed]) -> str:
    if expected is None:
        return ""
    for number, (wanted, made) in enumerate(zip(expected, found, strict=False), start=1):
        if wanted.state != made.state or (wanted.verb and wanted.verb != made.verb):
            return (
                f"proposal {number}: {wanted.state} {wanted.verb} was expected, and {made.state} {made.verb} was made"
            )
        for name, value in wanted.with_.items():
            if made.arguments.get(name) != value:
                was = made.arguments.get(name, "nothing")
                return f"proposal {number} ({made.state}): {name} should be {value}, and is {was}"
        if wanted.beside is not None and wanted.beside != made.beside:
            should, are = ", ".join(wanted.beside), ", ".join(made.beside)
            return f"proposal {number} ({made.state}): the options beside it should be [{should}], and are [{are}]"
    if len(expected) > len(found):
        return f"proposal {len(found) + 1}: {expected[len(found)].state} was expected, and nothing more was proposed"
    if len(found) > len(expected):
        extra = found[len(expected)]
        return f"nothing more was to be proposed, and {extra.state} proposes {extra.verb} {extra.arguments}"
    return ""


def _deviation_of_notes(expected: Mapping[str, str], found: Rehearsed) -> str:
    notes = {check.state: check.text for check in found.run.findings.checks}
    for state, note in expected.items():
        if note not in notes.get(state, ""):
            return f"the note '{note}' of '{state}' was expected, and it is '{notes.get(state, '')}'"
    return ""


def _deviation_of_watches(expected: Mapping[str, str], found: Rehearsed) -> str:
    verdicts = {earlier.state: later.by for earlier, later in pairwise(found.visits)}
    for state, verdict in expected.items():
        if verdicts.get(state, "") != verdict:
            return f"the verdict '{verdict}' of '{state}' was expected, and it is '{verdicts.get(state, '')}'"
    return ""


NO_ORIGINS: Mapping[str, Origin] = MappingProxyType({})


def _written_once(playbook: Playbook, name: str, edge: Edge) -> tuple[str, str, str] | None:
    """Returns the same for all edges of a recommendation's options that are written there only once."""
    state = playbook.states[name]
    if not isinstance(state, ChangeState) or not state.option_of:
        return None
    other = playbook.states.get(edge.to)
    if edge.outcome.startswith("option:") and isinstance(other, ChangeState) and other.option_of == state.option_of:
        return state.option_of, "another option", ""
    return state.option_of, edge.outcome, "in place" if edge.to == f"{name}_in_place" else edge.to


FragmentEdge = tuple[str, str, Path]
"""An edge of a fragment: the fragment, its state, and the path of the edge below it."""


def edges_in_fragments(taken: Iterable[EdgeKey], origins: Mapping[str, Origin]) -> frozenset[FragmentEdge]:
    """Returns the edges of fragments among those that were taken."""
    return frozenset((origins[name].fragment, origins[name].state, path) for name, path in taken if name in origins)


def missing_edges(
    playbook: Playbook,
    taken: Iterable[EdgeKey],
    origins: Mapping[str, Origin] = NO_ORIGINS,
    elsewhere: frozenset[FragmentEdge] = frozenset(),
) -> list[tuple[EdgeKey, Edge]]:
    """Returns the written edges that were not taken. `elsewhere`: those of fragments that other playbooks' cases take.

    The options of a `recommend` share the exits that are written there, and each is offered beside all others: one of
    them is enough.

    An edge within a fragment is written once, so taking it in one include of any playbook is enough. Each include of
    the playbook leads elsewhere when its fragment ends, so each of these exits has to be taken once, by any edge of the
    fragment or of one that it includes.
    """
    written, reached = written_edges(playbook), set(taken)
    in_fragments = edges_in_fragments(reached, origins) | elsewhere
    left = {(origins[name].include, written[name, path].to) for name, path in reached if name in origins}

    shared = {_written_once(playbook, name, written[name, path]) for name, path in reached} - {None}

    def is_reached(key: EdgeKey, edge: Edge) -> bool:
        origin = origins.get(key[0])
        if key in reached or _written_once(playbook, key[0], edge) in shared:
            return True
        if origin is None:
            return False
        inside = edge.to in origins and origins[edge.to].include == origin.include
        known = (origin.fragment, origin.state, key[1]) in in_fragments
        return known and (inside or (origin.include, edge.to) in left)

    return [(key, edge) for key, edge in written.items() if not is_reached(key, edge)]
