"""Right before a generation is sent, the replica exists, is isolated and empty; then it is watched to the end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from bot.domain.approvals.grant import Approved
from bot.domain.changes.plan import Call
from bot.domain.kernel.errors import ClusterError
from bot.domain.kernel.target import Target
from bot.flow.handlers.generate import GenerateOnReplica, Made
from bot.flow.perform_effect import EffectContext
from bot.flow.ports.cluster import Generated, Replica
from tests import builders
from tests.adapters.kubernetes.lab import granted
from tests.domain.changes.snapshots import NOW, planned
from tests.domain.changes.test_probe_request import ASK
from tests.domain.changes.test_replicas import isolated_world
from tests.fakes.engines import MemoryEngines

pytestmark = pytest.mark.fast
PLAN = planned("probe_request", ASK, isolated_world())
ASIDE = Replica(name="llm-2", uid="llm-2-uid", address="127.1.1.2", in_rotation=False)


class Stage:
    """One replica, one engine, a clock that each pause moves; nobody halts."""

    def __init__(self, *replicas: Replica) -> None:
        self.found, self.time, self.paused = replicas, NOW, 0
        self.engines = MemoryEngines(self.now_is)
        self.unreachable = ""
        self.reports: list[str] = []
        self.lost = asyncio.Event()

    def now_is(self) -> float:
        return self.time

    async def now(self) -> float:
        return self.time

    async def halted_by(self, incident_id: str) -> str:
        return ""

    async def replicas(self, target: Target, *, incident_id: str) -> Sequence[Replica]:
        if self.unreachable:
            raise ClusterError(self.unreachable)
        return self.found

    async def generate(self, approved: Approved, call: Call, replica: Replica) -> Generated:
        self.engines.begin(approved, call, replica)
        return await self.engines.end()

    async def pause(self, seconds: float) -> None:
        self.time += seconds
        self.paused += 1
        await asyncio.sleep(0)

    async def report(self, text: str) -> None:
        self.reports.append(text)

    async def run(self) -> Made:
        itself: Any = self
        nothing: Any = None
        send = GenerateOnReplica(itself, itself, self.engines, itself, itself, pause=self.pause)
        async with asyncio.timeout(0) as limit:  # the generation may take longer than effects usually may
            context = EffectContext(builders.run(), nothing, self.time, self.lost, limit)
            return await send(context, granted(PLAN), PLAN.calls[0], self.report)


@pytest.mark.parametrize(
    ("replicas", "reason"),
    [
        pytest.param((), "gone, or not known to be out of rotation", id="gone"),
        pytest.param((Replica("llm-2", "new", "1", in_rotation=False),), "gone, or", id="made-again"),
        pytest.param((Replica("llm-2", "llm-2-uid", "1", in_rotation=True),), "out of rotation", id="in-rotation"),
        pytest.param((Replica("llm-2", "llm-2-uid", "1", in_rotation=None),), "out of rotation", id="not-known"),
    ],
)
async def test_a_replica_that_is_not_as_it_was_shown_is_given_nothing(
    replicas: tuple[Replica, ...], reason: str
) -> None:
    stage = Stage(*replicas)
    made = await stage.run()
    assert (made.result, reason in made.detail, made.reading, stage.engines.sent) == ("failed", True, None, [])


async def test_a_replica_that_got_company_is_given_nothing() -> None:
    stage = Stage(ASIDE)
    stage.engines.company = 1.0
    made = await stage.run()
    assert (made.result, "it is not empty" in made.detail, stage.engines.sent) == ("failed", True, [])


async def test_without_the_cluster_nothing_is_sent() -> None:
    stage = Stage(ASIDE)
    stage.unreachable = "no answer"
    made = await stage.run()
    assert (made.result, made.detail, stage.engines.sent) == ("failed", "nothing was sent: no answer", [])


async def test_progress_is_reported_and_it_ends_at_its_deadline() -> None:
    stage = Stage(ASIDE)
    stage.engines.lasts_for_ever = True
    made = await stage.run()
    assert made.reading is not None
    assert made.reading.fields["error"] == "it did not finish within 15 minutes"
    assert stage.reports[0] == "generating for 15 s, 128 blocks in use"
    assert len(stage.reports) == 60


async def test_who_lost_the_lease_lets_go_of_the_request() -> None:
    stage = Stage(ASIDE)
    stage.engines.lasts_for_ever = True
    stage.lost.set()
    made = await stage.run()
    assert (made.detail, stage.engines._generates_on) == ("another process took over", "")
