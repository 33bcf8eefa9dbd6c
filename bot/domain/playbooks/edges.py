"""The written edges of a playbook: which outcome of which state leads where. Used by the machine, check and graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from bot.domain.playbooks.language import (
    AskState,
    ChangeState,
    DivertState,
    EndState,
    Playbook,
    ReadState,
    RecommendState,
    ReturnState,
    State,
    WatchState,
)
from bot.domain.playbooks.mistakes import Path

CHANGE_OUTCOMES = ("done", "not_needed", "refused", "expired", "impossible", "failed", "unclear")


@dataclass(frozen=True)
class Edge:
    outcome: str
    """The machine's name for it: `go:scope`, `choice:cap`, `held`, `broke:0`, `done` …"""
    to: str
    path: Path
    """Where it is written, below the state."""
    label: str = ""
    by_person: bool = False
    """Only a person's answer takes it, never time or a verdict."""


@dataclass(frozen=True)
class Origin:
    """Where a state of a fragment comes from: it is written once, however often the fragment is included."""

    fragment: str
    state: str
    include: str
    """The playbook's own include through which it comes, also if a fragment of that includes this one."""


def edges_of(state: State) -> tuple[Edge, ...]:
    edges = _edges(state)
    if not isinstance(state, EndState):
        edges.append(_edge("beyond", state.beyond))
    return tuple(edge for edge in edges if edge.to)


def successors(playbook: Playbook, state: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(edge.to for edge in edges_of(playbook.states[state])))


def _edges(state: State) -> list[Edge]:
    match state:
        case ReadState():
            gone = [
                Edge(f"go:{go.to}", go.to, ("go", i, "to"), go.when)
                if go.to
                else Edge(f"go:{go.otherwise}", go.otherwise, ("go", i, "otherwise"), "otherwise")
                for i, go in enumerate(state.go)
            ]
            return [*gone, _edge("unknown", state.unknown)]
        case AskState():
            chosen = [
                Edge(f"choice:{key}", choice.to, ("choices", key, "to"), choice.label, by_person=True)
                for key, choice in state.choices.items()
            ]
            return [*chosen, _edge("expired", state.expired)]
        case ChangeState():
            ended = [
                Edge(outcome, getattr(state, outcome), (outcome,), outcome, by_person=outcome == "refused")
                for outcome in CHANGE_OUTCOMES
            ]
            others = [
                Edge(f"option:{key}", to, ("alternatives", key), key, by_person=True)
                for key, to in state.alternatives.items()
            ]
            return [*ended, *others]
        case RecommendState():
            options = [
                Edge(f"option:{key}", option.to, ("options", key), option.label)
                for key, option in state.options.items()
                if option.is_change
            ]
            return [*options, _edge("none_possible", state.none_possible)]
        case WatchState():
            broken = [
                Edge(f"broke:{i}", broke.to, ("broke", i, "to"), broke.when) for i, broke in enumerate(state.broke)
            ]
            named = [_edge(outcome, getattr(state, outcome)) for outcome in ("held", "not_held", "unknown")]
            return [*named, *broken]
        case DivertState():
            taken = Edge("taken", state.taken, ("taken",), "taken", by_person=True)
            returned = [Edge(f"returned:{end}", to, ("returns", end), end) for end, to in (state.returns or {}).items()]
            return [taken, _edge("expired", state.expired), *returned]
        case ReturnState():
            return [_edge("later", state.later)]
        case EndState():
            return []
        case _:
            assert_never(state)


def _edge(outcome: str, to: str) -> Edge:
    return Edge(outcome, to, (outcome,), outcome)
