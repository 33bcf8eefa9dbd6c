"""The playbooks for commands: the present ones, the ones that a run keeps, and opening an incident."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bot.domain.incidents.run import Run
from bot.domain.kernel.target import Target
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.library import Library
from bot.flow.open_by_hand import OpenByHand, Opened, Opening
from bot.flow.ports import Workloads


class PlaybookService:
    def __init__(
        self,
        library: Callable[[], Library],
        by_hand: OpenByHand,
        playbook_of: Callable[[Run], Awaitable[CompiledPlaybook]],
        workloads: Workloads,
    ) -> None:
        self._library, self._by_hand, self._playbook_of, self._workloads = library, by_hand, playbook_of, workloads

    @property
    def library(self) -> Library:
        return self._library()

    async def playbook_of(self, run: Run) -> CompiledPlaybook:
        return await self._playbook_of(run)

    async def workload(self, namespace: str, name: str) -> Target | None:
        return await self._workloads.workload(namespace, name)

    async def open(self, opening: Opening) -> Opened:
        return await self._by_hand(opening)
