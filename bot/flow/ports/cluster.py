"""What reads workloads for a change, and what makes the change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from bot.domain.approvals.grant import Approved
from bot.domain.changes.plan import Call
from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.target import Target


@dataclass(frozen=True)
class Replica:
    """One pod that serves the engine, and the address of its pages: never a Service, which picks any pod."""

    name: str
    uid: str
    address: str
    port: int = 8000
    role: Literal["target", "canary"] = "target"
    in_rotation: bool | None = None
    node: str = ""
    namespace: str = ""
    workers: tuple[tuple[str, str], ...] = ()
    """Name and address of the other pods of its group that serve requests; each has its own page, at the same port."""
    unread: str = ""
    """Why its engines cannot be read."""

    @property
    def pages(self) -> tuple[Replica, ...]:
        """Itself, and each of its workers as if it were a replica."""
        return (self, *(replace(self, name=name, address=address, workers=()) for name, address in self.workers))


class Workloads(Protocol):
    async def workload(self, namespace: str, name: str) -> Target | None:
        """The workload of that name, of any kind; None if there is none. Raises `ClusterError` without an answer."""
        ...


class Cluster(Protocol):
    async def resolve(self, alert: Alert) -> Target | None:
        """The workload behind an alert's labels; None if there is none. Raises `ClusterError` without an answer.

        Raises `NotServingError` if the alert is about workloads of any kind, and this one runs no inference engine.
        """
        ...

    async def snapshot(self, target: Target, *, incident_id: str) -> ClusterSnapshot:
        """The cluster state for planning, read now. Raises `ClusterError` if the workload itself cannot be read."""
        ...

    async def lacking(self, calls: Sequence[Call]) -> str:
        """The permissions that these calls and their undo need and the bot lacks; empty if none.

        May be a minute old. Raises `ClusterError` if there is no answer.
        """
        ...

    async def dry_run(self, call: Call) -> str:
        """Sends the call as a server-side dry run; an empty text if it would be accepted, else the server's reason."""
        ...


@dataclass(frozen=True)
class Sent:
    result: Literal["done", "failed", "unclear"]
    detail: str = ""
    retry_after_seconds: float | None = None
    """Set if nothing was done and the same call may be tried again later (429, or it could not be sent)."""


EarlierAttempt = Literal["done", "not_done", "unclear"]
"""What an object shows about an earlier attempt of a call."""


class ClusterWriter(Protocol):
    async def send(self, approved: Approved, call: Call, *, call_id: str) -> Sent:
        """Sends one call of the approved plan, stamped with its id. Raises `ApprovalError` if the plan lacks it."""
        ...

    async def look(self, call: Call, *, call_id: str) -> EarlierAttempt:
        """After a possible earlier attempt: stamp or after-value present, before-value intact, or neither."""
        ...


@dataclass(frozen=True)
class Generated:
    """The result of a long generation. `refused`: certainly nothing runs; `broken`: it began and did not return."""

    result: Literal["ended", "broken", "refused"]
    tokens: int | None = None
    """Prompt and answer tokens, as the engine counted them."""
    detail: str = ""


class Generations(Protocol):
    async def generate(self, approved: Approved, call: Call, replica: Replica) -> Generated:
        """Sends the call's one generation to this replica and waits for its end; cancelling it also ends it there.

        The caller sets the deadline. Raises `ApprovalError` unless the call is in the approved plan and about this
        replica.
        """
        ...
