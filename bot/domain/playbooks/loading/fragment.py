"""A fragment: states that several playbooks share, written once, with parameters and named exits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from bot.domain.kernel.errors import Fault
from bot.domain.kernel.runbook import Runbook
from bot.domain.kernel.strict import Strict
from bot.domain.playbooks.expressions.expression import did_you_mean
from bot.domain.playbooks.loading.options import spread
from bot.domain.playbooks.loading.structure import shape
from bot.domain.playbooks.mistakes import Mistake
from bot.domain.playbooks.source import Source


class Parameter(Strict):
    """What who includes the fragment may say. Without a default it must be said."""

    why: str = ""
    """What it is for, for who writes the include."""
    default: Any = None
    """Any YAML. In it no other parameter can be named."""

    @property
    def is_required(self) -> bool:
        return "default" not in self.model_fields_set


class Fragment(Strict):
    """A file of `fragments/`: a part of a playbook, put in wherever a state includes it."""

    language: Literal[1]
    """The version of the playbook language."""
    fragment: str
    """Its name: that of its file."""
    summary: str = ""
    """What it does, for who includes it."""
    parameters: dict[str, Parameter] = {}
    """What may be said about it: `parameters.<name>` in the fragment is replaced by what was said."""
    exits: dict[str, str] = Field(default={}, min_length=0)
    """Its ways out, each with what it means; a state of the fragment leaves by `exits.<name>`."""
    settings: dict[str, Any] = {}
    """Settings that it brings; a definition of the same name in the playbook counts instead."""
    signals: dict[str, Any] = {}
    """Signals that it brings; a definition of the same name in the playbook counts instead."""
    start: str
    """The state in which the include begins."""
    states: dict[str, Any] = Field(min_length=1)
    """Its states, as in a playbook; each becomes `<include>_<name>` there."""


class Include(Strict):
    """A state that stands for all states of a fragment."""

    include: str
    """The fragment's name."""
    with_: dict[str, Any] = Field(default={}, alias="with")
    """Values of its parameters, any YAML; names in them are those of this file."""
    exits: dict[str, str] = {}
    """Where each of its ways out leads."""
    covers: tuple[str, ...] = ()
    """Rows of the coverage table, added to each of its states."""
    runbook: Runbook | None = None
    """The step of the runbook that its states are, but those that name another."""
    at_most: int | None = Field(default=None, ge=1)
    """How often its start may be entered."""
    beyond: str = ""
    """Where one entry more leads."""


@dataclass(frozen=True)
class ReadFragment:
    """A file of `fragments/`; with faults it cannot be included."""

    source: Source | None
    fragment: Fragment | None = None
    faults: tuple[Fault, ...] = ()


Fragments = Mapping[str, ReadFragment]
"""By file name, without its extension."""


def read_fragment(name: str, source: Source) -> ReadFragment:
    """Reads the structure of a fragment. Its states are checked where they are included."""
    spread_out = spread(source)
    if spread_out.faults:
        return ReadFragment(source, None, spread_out.faults)
    source = spread_out.source
    mistakes = list(shape(Fragment, source.data, ()))
    fragment = None if mistakes else Fragment.model_validate(source.data)
    if fragment is not None:
        mistakes += _names(name, fragment)
    return ReadFragment(source, None if mistakes else fragment, tuple(map(source.fault, mistakes)))


def _names(name: str, fragment: Fragment) -> Iterator[Mistake]:
    if fragment.fragment != name:
        yield Mistake(("fragment",), f"the fragment of this file must be called '{name}'")
    if fragment.start not in fragment.states:
        yield Mistake(("start",), f"unknown state '{fragment.start}'", did_you_mean(fragment.start, fragment.states))
