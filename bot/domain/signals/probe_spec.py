"""The playbook language's view of probes. The probes themselves are declared in `bot.probes`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from bot.domain.signals.signal import Kind


@dataclass(frozen=True)
class Parameter:
    help: str
    """One line for authors of playbooks."""
    kind: Literal["text", "number", "duration"] = "text"


class ProbeSpec(Protocol):
    """The part of a probe's declaration that a playbook needs."""

    @property
    def help(self) -> str:
        """One line for authors of playbooks."""
        ...

    @property
    def label(self) -> str:
        """What people read for its signal, where a playbook gives it no label."""
        ...

    @property
    def units(self) -> Mapping[str, str]:
        """Units of the numbers among its parts."""
        ...

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """Each part of its result, with the operations that an expression may use on it."""
        ...

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The parameters that a playbook may set."""
        ...


Probes = Mapping[str, ProbeSpec]
"""Probes by name."""
