"""Windows in memory, for tests without Redis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bot.domain.approvals.advice import Observing
from bot.domain.kernel.planned_window import PlannedWindow, WindowKind, targets_of
from bot.flow.plan_windows import Plan
from bot.flow.ports.storage import HeldAlert
from bot.flow.restrictions import Restrictions


class MemoryWindows:
    """`PlannedWindows`."""

    def __init__(self, *windows: PlannedWindow) -> None:
        self.windows = list(windows)

    async def plan(self, window: PlannedWindow) -> None:
        await self.end(window.kind, window.targets)
        self.windows.append(window)

    async def end(self, kind: WindowKind, targets: Sequence[str]) -> bool:
        before = len(self.windows)
        self.windows = [each for each in self.windows if (each.kind, each.targets) != (kind, tuple(targets))]
        return len(self.windows) < before

    async def planned(self, *, at: float) -> Sequence[PlannedWindow]:
        return [each for each in self.windows if each.ends_at > at]


class MemoryWindowService:
    """`WindowService`: what `PlanWindows` does, without incidents."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self.windows, self.alerts = now, MemoryWindows(), list[HeldAlert]()
        self.announced: list[str] = []
        """The targets whose incidents were notified of an end."""

    async def open(self) -> Sequence[PlannedWindow]:
        return await self.windows.planned(at=self._now())

    async def held(self) -> Sequence[HeldAlert]:
        return self.alerts

    async def begin(self, plan: Plan) -> PlannedWindow:
        if not plan.why:
            raise ValueError("a reason is needed")
        now = self._now()
        window = PlannedWindow(
            kind=plan.kind, targets=targets_of(plan.targets), starts_at=now, ends_at=now + plan.seconds, why=plan.why,
            by=plan.user_name or plan.user, user=plan.user,
        )  # fmt: skip
        await self.windows.plan(window)
        return window

    async def end(self, plan: Plan) -> bool:
        return await self.windows.end(plan.kind, targets_of(plan.targets))

    async def announce_end(self, plan: Plan) -> None:
        self.announced.append(plan.targets)


def restrictions(*windows: PlannedWindow, observing: Observing | None = None) -> Restrictions:
    """None, unless a test names some."""
    return Restrictions(MemoryWindows(*windows), observing)
