"""The playbook language's view of probes. The probes themselves are declared in `bot.probes`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from bot.domain.signals.signal import Kind


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
    def parameters(self) -> Mapping[str, str]:
        """Each parameter that a playbook may set, with one line of help."""
        ...

    @property
    def numbers(self) -> Collection[str]:
        """Parameters that are numbers."""
        ...

    @property
    def durations(self) -> Collection[str]:
        """Parameters that are durations."""
        ...


Probes = Mapping[str, ProbeSpec]
"""Probes by name."""
