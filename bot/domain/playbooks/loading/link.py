"""Checks playbooks against each other: do the playbooks that they name exist, and can diverts end as expected?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from bot.domain.kernel.errors import Fault
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.expressions.expression import did_you_mean
from bot.domain.playbooks.language import PEOPLE, DivertState, EndState, ReturnState
from bot.domain.playbooks.mistakes import Mistake, Path

Known = Mapping[str, CompiledPlaybook | None]
"""All playbooks by name. None: the playbook has faults, or was not read."""


def link_faults(playbook: CompiledPlaybook, known: Known) -> Iterator[Fault]:
    """Returns the faults of `playbook`'s diverts and related runbooks. A divert to a faulty playbook asks people."""
    for number, related in enumerate(playbook.playbook.related):
        if related.playbook and related.playbook not in known:
            what, hint = f"unknown playbook '{related.playbook}'", did_you_mean(related.playbook, known)
            yield playbook.fault(Mistake(("related", number, "playbook"), what, hint))
    for name, state in playbook.playbook.states.items():
        if not isinstance(state, DivertState) or state.divert == PEOPLE:
            continue
        if state.divert not in known:
            what, hint = f"unknown playbook '{state.divert}'", did_you_mean(state.divert, [*known, PEOPLE])
            yield playbook.fault(Mistake(("states", name, "divert"), what, hint))
            continue
        ends = ends_of(state.divert, known)
        for end in (state.returns or {}).keys() - {"otherwise"} if ends is not None else ():
            if ends is not None and end not in ends:
                what = f"'{state.divert}' never ends with '{end}'"
                mistake = Mistake(("states", name, "returns", end), what, did_you_mean(end, ends), at_key=True)
                yield playbook.fault(mistake)


def slim(playbook: CompiledPlaybook) -> CompiledPlaybook:
    """Keeps only the places of states and of what `link_faults` may report: the others are most of its memory."""
    source = playbook.source
    values, keys = ({at: place for at, place in each.items() if _is_kept(at)} for each in (source.values, source.keys))
    return replace(playbook, source=replace(source, data={}, values=values, keys=keys))


def _is_kept(path: Path) -> bool:
    return len(path) <= 2 or path[0] == "related" or path[2] in ("divert", "returns")


def ends_of(name: str, known: Known) -> frozenset[str] | None:
    """Returns how a divert to this playbook can end, including its own diverts without return; None if unknown."""
    ends: set[str] = set()
    seen: set[str] = set()
    todo = [name]
    while todo:
        name = todo.pop()
        playbook = known.get(name)
        if playbook is None:
            return None
        seen.add(name)
        for state in playbook.playbook.states.values():
            if isinstance(state, EndState | ReturnState):
                ends.add(state.end)
            elif isinstance(state, DivertState) and state.divert != PEOPLE and not state.returns:
                todo += [state.divert] if state.divert not in seen else []
    return frozenset(ends)
