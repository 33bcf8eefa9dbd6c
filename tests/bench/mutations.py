"""Mutations of one state of a playbook: small faults of an author that a good test table notices.

A mutation names its place by a path, so that it can be applied to every include of one fragment's state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, cast

from pydantic import BaseModel

from bot.domain.playbooks.edges import edges_of
from bot.domain.playbooks.language import ChangeState, ReadState, RecommendState, State, WatchState
from bot.domain.playbooks.mistakes import Path

NOT_SWAPPED = ("beyond", "option:")
"""Exits that are not an author's order of cases: the limit of entries, and the links between options."""


@dataclass(frozen=True)
class Mutation:
    how: Literal["drop", "negate", "swap", "reorder"]
    at: Path
    other: Path = ()
    """The second exit or option, for `swap` and `reorder`."""
    text: str = ""
    """The guard, or both destinations."""

    def __str__(self) -> str:
        places = " and ".join(_in_words(path) for path in (self.at, self.other) if path)
        return f"{self.how} {places}{f': {self.text}' if self.text else ''}"


def mutations_of(state: State) -> Iterator[Mutation]:
    yield from (Mutation("drop", path, text=guard) for path, guard in _clauses(state))
    yield from (Mutation("negate", path, text=guard) for path, guard in _guards(state))
    if isinstance(state, ChangeState) and state.still:
        yield Mutation("drop", ("still",), text=state.still)
    if isinstance(state, RecommendState):
        yield from _reorders(state)
    else:
        yield from _swaps(state)


def mutated(state: State, mutation: Mutation) -> State | None:
    """Returns None where this include of the state has no such place, or where the mutation changes nothing."""
    try:
        changed = _mutated(state, mutation)
    except (LookupError, AttributeError):
        return None
    return None if changed == state and mutation.how != "reorder" else changed


def _mutated(state: State, mutation: Mutation) -> State:
    match mutation.how:
        case "drop":
            changed = _without(state, mutation.at)
        case "negate":
            guard = _get(state, mutation.at)
            # An option without a condition is always possible.
            changed = _put(state, mutation.at, f"!({guard})" if guard else "false")
        case "swap":
            one, other = _get(state, mutation.at), _get(state, mutation.other)
            changed = _put(_put(state, mutation.at, other), mutation.other, one)
        case "reorder":
            changed = _reordered(state, str(mutation.at[-1]), str(mutation.other[-1]))
    return cast(State, changed)


def _clauses(state: State) -> Iterator[tuple[Path, str]]:
    """Yields the clauses that can be left out; the check refuses a read without `otherwise`."""
    match state:
        case ReadState():
            yield from ((("go", index), go.when) for index, go in enumerate(state.go) if go.when)
        case WatchState():
            yield from ((("broke", index), broke.when) for index, broke in enumerate(state.broke))
        case _:
            pass


def _guards(state: State) -> Iterator[tuple[Path, str]]:
    match state:
        case ReadState() | WatchState():
            yield from (((*path, "when"), guard) for path, guard in _clauses(state))
        case RecommendState():
            yield from ((("options", key, "possible"), option.possible) for key, option in state.options.items())
        case ChangeState():
            edits = state.with_.get("edits")
            for index, edit in enumerate(edits if isinstance(edits, list) else ()):
                if isinstance(edit, Mapping) and "when" in edit:
                    yield ("with_", "edits", index, "when"), str(edit["when"])
        case _:
            pass


def _reorders(state: RecommendState) -> Iterator[Mutation]:
    """Reorders neighbours, but not the only change: it is recommended in any place, and the others keep their order."""
    changes = {key for key, option in state.options.items() if option.is_change}
    for one, other in pairwise(state.options):
        if len(changes) != 1 or not changes & {one, other}:
            yield Mutation("reorder", ("options", one), ("options", other))


def _swaps(state: State) -> Iterator[Mutation]:
    """Swaps each exit with the next one that leads elsewhere."""
    exits = [edge for edge in edges_of(state) if not edge.outcome.startswith(NOT_SWAPPED)]
    for index, one in enumerate(exits):
        other = next((later for later in exits[index + 1 :] if later.to != one.to), None)
        if other is not None:
            yield Mutation("swap", one.path, other.path, f"{one.to}, {other.to}")


def _in_words(path: Path) -> str:
    steps = [step for step in path if step not in ("to", "when")]
    return " ".join(str(step + 1) if isinstance(step, int) else step.rstrip("_") for step in steps)


# --- trees of models, mappings and lists ------------------------------------------------------------------------------


def _get(node: Any, path: Path) -> Any:
    for step in path:
        node = getattr(node, str(step)) if isinstance(node, BaseModel) else node[step]
    return node


def _put(node: Any, path: Path, value: Any) -> Any:
    """Returns a copy of the tree with `value` at `path`, which must exist."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(node, BaseModel):
        return node.model_copy(update={str(step): _put(getattr(node, str(step)), rest, value)})
    if isinstance(node, Mapping):
        return {**node, step: _put(node[step], rest, value)}
    items = list(node)
    items[cast(int, step)] = _put(items[cast(int, step)], rest, value)
    return type(node)(items)


def _without(state: State, path: Path) -> Any:
    *parent, last = path
    if not isinstance(last, int):
        return _put(state, path, "")
    items = _get(state, tuple(parent))
    items[last]  # a clause that this include does not have is no mutation
    return _put(state, tuple(parent), (*items[:last], *items[last + 1 :]))


def _reordered(state: State, one: str, other: str) -> Any:
    options = _get(state, ("options",))
    names = {one: other, other: one}
    return _put(state, ("options",), {names.get(key, key): options[names.get(key, key)] for key in options})
