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
    """A value that an include may set. Without a default, it must."""

    why: str = ""
    """What it is for: help for authors of includes."""
    default: Any = None
    """Any YAML, without names of other parameters."""

    @property
    def is_required(self) -> bool:
        return "default" not in self.model_fields_set


class Fragment(Strict):
    """A file of `fragments/`: states that others include, or only signals and settings that others use."""

    language: Literal[1]
    """The version of the playbook language."""
    fragment: str
    """The fragment's name: the name of its file."""
    summary: str = ""
    """What it does: help for authors of includes."""
    parameters: dict[str, Parameter] = {}
    """Values that an include may set: they replace `parameters.<name>` in the fragment."""
    exits: dict[str, str] = Field(default={}, min_length=0)
    """Its exits and their meaning; a state of the fragment leaves by `exits.<name>`."""
    settings: dict[str, Any] = {}
    """Settings that it adds, unless the playbook defines one of the same name."""
    signals: dict[str, Any] = {}
    """Signals that it adds, unless the playbook defines one of the same name."""
    uses: tuple[str, ...] = ()
    """Fragments without states, whose signals and settings it may name."""
    start: str = ""
    """The state in which the include begins."""
    states: dict[str, Any] = {}
    """Its states, as in a playbook; each becomes `<include>_<name>` there. Without states it is for `uses` only."""


class Include(Strict):
    """A state that is replaced by all states of a fragment."""

    include: str
    """The fragment's name."""
    with_: dict[str, Any] = Field(default={}, alias="with")
    """Values of its parameters: any YAML, with the names of this file."""
    exits: dict[str, str] = {}
    """The next state for each of its exits."""
    runbook: Runbook | None = None
    """The step of the runbook for its states that name no other step."""
    at_most: int | None = Field(default=None, ge=1)
    """How many times its start may be entered."""
    beyond: str = ""
    """The next state once `at_most` is used up."""


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
    if not fragment.states and (fragment.start or fragment.parameters or fragment.exits):
        what = "a fragment without states has no start, no parameters and no exits"
        yield Mistake(("fragment",), what, "Write states, or remove them.")
    elif fragment.states and not fragment.start:
        yield Mistake(("fragment",), "'start' is missing", "Name the state in which an include begins.")
    elif fragment.states and fragment.start not in fragment.states:
        yield Mistake(("start",), f"unknown state '{fragment.start}'", did_you_mean(fragment.start, fragment.states))
