"""The playbooks for commands: the present ones, the ones that a run keeps, and opening an incident."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from bot.domain.incidents.run import Run
from bot.domain.kernel.target import Target, cluster_named
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.library import Library
from bot.flow.open_by_hand import OpenByHand, Opened, Opening
from bot.flow.ports.cluster import Workloads


class PlaybookService:
    def __init__(
        self,
        library: Callable[[], Library],
        by_hand: OpenByHand,
        playbook_of: Callable[[Run], Awaitable[CompiledPlaybook]],
        clusters: Mapping[str, Workloads],
    ) -> None:
        """`clusters`: by the value of the alerts' `cluster` label."""
        self._library, self._by_hand, self._playbook_of, self._clusters = library, by_hand, playbook_of, clusters

    @property
    def clusters(self) -> Collection[str]:
        return self._clusters.keys()

    @property
    def library(self) -> Library:
        return self._library()

    async def playbook_of(self, run: Run) -> CompiledPlaybook:
        return await self._playbook_of(run)

    async def workload(self, cluster: str, namespace: str, name: str) -> Target | None:
        own = self._clusters[cluster_named(cluster, self._clusters)]
        found = await own.workload(namespace, name)
        return found and found.model_copy(update={"among_several": len(self._clusters) > 1})

    async def open(self, opening: Opening) -> Opened:
        return await self._by_hand(opening)
