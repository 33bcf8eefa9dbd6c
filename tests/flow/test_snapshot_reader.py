"""A wait's view of a replica's load: enough to distinguish an empty one from one with few samples."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bot.domain.changes.plan import Call, Wait
from bot.domain.changes.progress import progress
from bot.domain.cluster.objects import ObjectRef
from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.target import Target
from bot.domain.signals.scrape import Scrape
from bot.flow.ports.readings import ReadContext
from bot.flow.snapshot_reader import SnapshotReader, context_of
from tests.builders import START, TARGET, alert, run
from tests.fakes.samples import FakeSampleStore

pytestmark = pytest.mark.fast

QUIET_SECONDS = 4.0
EMPTIED = Wait(
    condition="emptied",
    about=ObjectRef(kind="Pod", namespace="serving", name="a", uid="uid-a"),
    parameters={"uid": "uid-a", "quiet_seconds": QUIET_SECONDS},
    within_seconds=60.0,
    title="a is empty",
)


class OnePod:
    """A cluster of one pod without a workload; only `snapshot` is asked."""

    async def resolve(self, alert: Alert) -> Target | None:
        return TARGET

    async def snapshot(self, target: Target, *, incident_id: str) -> ClusterSnapshot:
        return ClusterSnapshot(at=START, workload=None, pods=({"metadata": {"name": "a", "uid": "uid-a"}},))

    async def lacking(self, calls: Sequence[Call]) -> str:
        return ""

    async def dry_run(self, call: Call) -> str:
        return ""


class IdleReplica:
    """The `History` port over one replica that finished its last request long ago."""

    source = "test"
    has_whole_pages = True

    def __init__(self) -> None:
        self._store, self.now = FakeSampleStore(), START

    async def sample(self, context: ReadContext) -> None:
        idle = {"num_requests_running": 0.0, "num_requests_waiting": 0.0, "request_success": 7.0}
        page = Scrape(replica="a", uid="uid-a", at=self.now, started_at=START - 900, ranks={"0": idle})
        await self._store.add(context.target.key, [page])

    async def between(
        self, context: ReadContext, metrics: frozenset[str], start: float, end: float, *, step: float = 0.0
    ) -> Sequence[Scrape]:
        return await self._store.between(context.target.key, start, end)


@pytest.mark.parametrize("every_seconds", [1.0, 1.05, 1.5])
async def test_a_replica_that_stays_idle_is_seen_as_empty_however_the_looks_fall(every_seconds: float) -> None:
    history = IdleReplica()
    see = SnapshotReader(OnePod(), history)
    context = ReadContext(
        target=TARGET, incident_id="INC-1", opened_at=START, picked={}, settings={"quiet_for": QUIET_SECONDS}
    )
    seen = []
    for look in range(8):
        history.now = START + look * every_seconds
        seen.append(progress(EMPTIED, await see(run(), context, at=history.now)).state)
    assert seen[0] == "pending"
    assert seen[-1] == "done"


def test_a_reading_knows_the_alerts_of_its_incident() -> None:
    firing = alert()
    assert tuple(context_of(run(alerts={firing.fingerprint: firing}), {}).alerts) == (firing,)
