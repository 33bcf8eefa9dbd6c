"""Diagnosis comes first: other actors are asked about after the first readings, and never on a fatal fault or heat."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bot.domain.playbooks.edges import edges_of
from bot.domain.playbooks.language import AskState, Playbook, ReadState, WatchState
from bot.domain.playbooks.scope import signals_of
from tests.kit.packaged import library

PLAYBOOKS = {name: playbook.playbook for name, playbook in library().playbooks.items()}


EXISTS = frozenset({"progress"})
"""Says only that the workload is there."""


def _before_the_trouble_is_read(playbook: Playbook) -> Iterator[str]:
    """The states that a run may enter before it has read anything about the trouble itself."""
    seen, todo = {playbook.start}, [playbook.start]
    while todo:
        name = todo.pop()
        yield name
        state = playbook.states[name]
        if isinstance(state, ReadState) and set(state.read) - EXISTS and "others" not in state.read:
            continue
        # The first watch only waits until something can be read.
        if (
            isinstance(state, WatchState)
            and name != playbook.start
            and "others" not in signals_of(state, playbook.signals)
        ):
            continue
        new = {edge.to for edge in edges_of(state)} - seen
        seen |= new
        todo += sorted(new)


@pytest.mark.parametrize("name", sorted(PLAYBOOKS))
def test_nobody_is_asked_about_others_before_the_first_readings(name: str) -> None:
    playbook = PLAYBOOKS[name]
    early = set(_before_the_trouble_is_read(playbook))
    about_others = {state for state in playbook.states if state.endswith("_beside")}
    assert about_others or name == "thermal-emergency"
    assert not early & about_others


@pytest.mark.parametrize(("name", "urgent"), [("gpu-fault", "cordon"), ("thermal-emergency", "cordon")])
def test_a_fatal_fault_and_heat_reach_their_cordon_without_a_question(name: str, urgent: str) -> None:
    playbook = PLAYBOOKS[name]
    seen, todo = {playbook.start}, [playbook.start]
    while todo:
        state = playbook.states[todo.pop()]
        if isinstance(state, AskState):
            continue
        new = {edge.to for edge in edges_of(state) if not edge.by_person} - seen
        seen |= new
        todo += sorted(new)
    assert urgent in seen
