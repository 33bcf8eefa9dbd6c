"""People plan a maintenance window or a freeze, from Slack or the command line, and end it early."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bot.domain.incidents.event import Commanded
from bot.domain.kernel.planned_window import MAX_SECONDS, PlannedWindow, WindowKind, targets_of
from bot.domain.kernel.redaction import redacted
from bot.flow.ports.storage import AlertStore, HeldAlert, PlannedWindows, RunStore
from bot.flow.restrictions import Restrictions


@dataclass(frozen=True)
class Plan:
    """What a person asks for; `command_id` counts once."""

    command_id: str
    kind: WindowKind
    targets: str
    """One pattern, or `all`."""
    user: str
    user_name: str = ""
    seconds: float = 0.0
    why: str = ""


class PlanWindows:
    def __init__(
        self,
        windows: PlannedWindows,
        restrictions: Restrictions,
        runs: RunStore,
        alerts: AlertStore,
        wake: Callable[[str], None] = lambda incident_id: None,
    ) -> None:
        self._windows, self._restrictions = windows, restrictions
        self._runs, self._alerts, self._wake = runs, alerts, wake

    async def open(self) -> Sequence[PlannedWindow]:
        """The windows that are open now, also those of the settings."""
        return await self._restrictions.open(await self._runs.now())

    async def held(self) -> Sequence[HeldAlert]:
        """The alerts that wait for the end of a maintenance window."""
        return await self._alerts.held()

    async def begin(self, plan: Plan) -> PlannedWindow:
        """Begins a window now. It is stored when this returns; `KeepWindows` notifies its incidents.

        Raises `ValueError` with the reason for the person.
        """
        targets = targets_of(plan.targets)
        max_seconds = MAX_SECONDS[plan.kind]
        if not 0 < plan.seconds <= max_seconds:
            raise ValueError(f"a {plan.kind} lasts more than 0 and at most {max_seconds / 3600:g} hours")
        if not plan.why.strip():
            raise ValueError("a reason is needed: people see it as long as it lasts")
        now = await self._runs.now()
        window = PlannedWindow(
            kind=plan.kind, targets=targets, starts_at=now, ends_at=now + plan.seconds,
            why=redacted(plan.why.strip()), by=plan.user_name or plan.user, user=plan.user,
        )  # fmt: skip
        for other in await self._windows.planned(at=now):
            is_same = (other.kind, other.targets) == (window.kind, window.targets)
            if is_same and other.ends_at > window.ends_at and other.user != window.user:
                raise ValueError(f"a {other} is open and lasts longer; end it first, or write a longer time")
        await self._windows.plan(window)
        return window

    async def end(self, plan: Plan) -> bool:
        """Ends a window early; False if people planned none for these targets. Raises `ValueError`."""
        return await self._windows.end(plan.kind, targets_of(plan.targets))

    async def announce_end(self, plan: Plan) -> None:
        """Puts the end of the window on the timelines of its open incidents, however many there are."""
        ended = PlannedWindow(kind=plan.kind, targets=targets_of(plan.targets), starts_at=0.0, ends_at=0.0)
        text = f"{plan.kind.capitalize()} ended by {plan.user_name or plan.user}"
        for run in await self._runs.load_all(await self._runs.open_incidents()):
            if not ended.covers(run.target):
                continue
            note = Commanded(
                event_id=f"{plan.command_id}/{run.incident_id}", command="note", user=plan.user,
                user_name=plan.user_name, text=text,
            )  # fmt: skip
            if await self._runs.append(run.incident_id, [note]):
                self._wake(run.incident_id)
