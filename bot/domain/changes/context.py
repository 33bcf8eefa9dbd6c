"""Inputs of planning besides the cluster, and how a verb declines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.domain.changes.plan import LedgerEntry
from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.kernel.errors import NoPlanError

DEFAULT_STARTUP_SECONDS = 1200.0
"""70B models load for 5 to 15 minutes; a shorter wait declares good replicas dead."""
DEFAULT_DRAIN_SECONDS = 600.0
QUIET_SECONDS = 30.0
"""Time without new arrivals before a replica counts as drained."""
MARGIN_SECONDS = 120.0


@dataclass(frozen=True)
class PlanContext:
    incident_id: str
    now: float = 0.0
    ledger: tuple[LedgerEntry, ...] = ()
    picked: Mapping[str, str] = field(default_factory=dict)
    startup_seconds: float = DEFAULT_STARTUP_SECONDS
    """How long a new replica may take until it is Ready."""
    min_ready_seconds: float = 0.0
    """How long it then has to stay Ready before its controller counts it as available."""
    drain_seconds: float = DEFAULT_DRAIN_SECONDS
    quiet_seconds: float = QUIET_SECONDS
    against: str = ""
    """The diagnosis that the change treats; empty if the playbook names none."""

    @property
    def available_seconds(self) -> float:
        return self.startup_seconds + self.min_ready_seconds

    @property
    def slug(self) -> str:
        """The incident id, for use in Kubernetes names and label values."""
        return self.incident_id.lower()


@dataclass(frozen=True)
class Situation:
    """Everything that a verb plans from."""

    snapshot: ClusterSnapshot
    context: PlanContext
    arguments: Mapping[str, Any]


def require_readable(snapshot: ClusterSnapshot, *sources: str) -> None:
    """Raise `NoPlanError` (unknown) if a source that the decision depends on could not be read."""
    missing = [
        f"{name.replace('_', ' ')}: {snapshot.unreadable[name]}" for name in sources if name in snapshot.unreadable
    ]
    if missing:
        raise NoPlanError("unknown", "could not be read: " + "; ".join(missing))
