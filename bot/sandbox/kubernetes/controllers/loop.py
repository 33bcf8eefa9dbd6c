"""Runs the controllers: every change wakes the controllers concerned, at once and in order.

One task, one object at a time, no threads: a reconcile sees a consistent store. A failed reconcile is logged and
retried; it never stops the others.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from bot.sandbox.kubernetes.errors import ApiError
from bot.sandbox.kubernetes.store import Change, Store

Key = tuple[str, str]
"""Namespace and name."""

RETRY_SECONDS = 1.0
LAG_SECONDS = {"deployment": 0.05}
"""The delay from a change to its reconcile: a real controller needs about this long to see a new generation."""

log = logging.getLogger(__name__)


class Controller(Protocol):
    name: str

    def keys(self, change: Change) -> Iterable[Key]:
        """The controller's objects that a change concerns. Must not write."""
        ...

    def reconcile(self, key: Key) -> float | None:
        """Reconciles one object. Returns after how many seconds to check again even if nothing changes."""
        ...


class ControllerLoop:
    def __init__(self, store: Store, controllers: Iterable[Controller]) -> None:
        self._controllers = {controller.name: controller for controller in controllers}
        # A dict is an ordered set: an object that is woken twice before its turn runs once.
        self._waiting: dict[tuple[str, Key], None] = {}
        self._alarms: dict[tuple[str, Key], asyncio.TimerHandle] = {}
        self._coming: set[tuple[str, Key]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._awake = asyncio.Event()
        self.paused: frozenset[str] = frozenset()
        store.subscribe(self._note)

    @property
    def names(self) -> list[str]:
        return sorted(self._controllers)

    def add(self, controller: Controller) -> None:
        self._controllers[controller.name] = controller

    def pause(self, names: Iterable[str]) -> None:
        """Pauses these controllers, and only these; what they miss waits for them."""
        self.paused = frozenset(names)
        self._awake.set()

    async def run(self) -> None:
        """Until cancelled."""
        self._loop = asyncio.get_running_loop()
        while True:
            await self._awake.wait()
            self._awake.clear()
            while (item := self._next()) is not None:
                self._reconcile(*item)
                # Clients get their turn between two steps.
                await asyncio.sleep(0)

    def _next(self) -> tuple[str, Key] | None:
        item = next((one for one in self._waiting if one[0] not in self.paused), None)
        if item is not None:
            del self._waiting[item]
        return item

    def _reconcile(self, name: str, key: Key) -> None:
        if (alarm := self._alarms.pop((name, key), None)) is not None:
            alarm.cancel()
        try:
            again_in = self._controllers[name].reconcile(key)
        except ApiError as refused:
            # As in a real one: an object that it read may be gone by now (its namespace is being deleted), so it
            # retries.
            log.info("controller %s was refused for %s/%s: %s", name, *key, refused)
            again_in = RETRY_SECONDS
        except Exception:
            # As in Kubernetes: a controller that fails on one object tries it again, and goes on with the others.
            log.exception("controller %s failed on %s/%s", name, *key)
            again_in = RETRY_SECONDS
        if again_in is not None:
            loop = asyncio.get_running_loop()
            self._alarms[name, key] = loop.call_later(again_in, self._wake, name, key)

    def _note(self, change: Change) -> None:
        for name, controller in self._controllers.items():
            for key in controller.keys(change):
                self._see(name, key)

    def _see(self, name: str, key: Key) -> None:
        if self._loop is None or name not in LAG_SECONDS:
            self._wake(name, key)
        elif (name, key) not in self._coming:
            self._coming.add((name, key))
            self._loop.call_later(LAG_SECONDS[name], self._wake, name, key)

    def _wake(self, name: str, key: Key) -> None:
        self._coming.discard((name, key))
        self._waiting.setdefault((name, key))
        self._awake.set()
