"""Stores alerts before the webhook is answered, then wakes routing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bot.domain.kernel.alert import Alert
from bot.flow.ports.storage import AlertStore


class AcceptAlerts:
    def __init__(
        self,
        store: AlertStore,
        wake_routing: Callable[[float], None],
        may_wait: Callable[[Sequence[Alert]], float] = lambda _: 0.0,
    ) -> None:
        """`wake_routing`: after so many seconds. `may_wait`: how long routing these alerts can wait."""
        self._store, self._wake_routing, self._may_wait = store, wake_routing, may_wait

    async def __call__(self, alerts: Sequence[Alert], truncated: int) -> int:
        """Stores the alerts and returns how many were new. Raises `StorageUnavailableError` unless they are stored."""
        if not alerts:
            return 0
        new = await self._store.accept(alerts, truncated=truncated)
        if new:
            self._wake_routing(self._may_wait(alerts))
        return new
