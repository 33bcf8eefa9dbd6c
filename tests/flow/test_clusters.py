"""A cluster that is not in the settings any more: nothing is known of it, and nothing is sent to it."""

from __future__ import annotations

import pytest
import redis.asyncio as aioredis

from bot.domain.approvals.grant import grant
from bot.domain.incidents.effect import ReadSignals
from bot.domain.incidents.event import SignalsRead
from bot.domain.kernel.errors import ClusterError, StorageUnavailableError, UnknownClusterError
from bot.domain.kernel.target import Target, is_of
from bot.flow.clusters import absent
from bot.flow.perform_effect import Done, EffectContext
from bot.flow.ports.cluster import Replica
from bot.flow.ports.storage import Owed
from bot.flow.sample_replicas import MAX_WORKLOADS, ROUNDS_KEPT, LeftOut, SampledWorkloads
from tests import builders
from tests.flow.harness import Bot, Scene, until
from tests.flow.scenes import drill_scene

pytestmark = pytest.mark.fast
REASON = "'gone' is not a cluster of this bot; its clusters: 'east', 'west'"


async def at_the_start() -> float:
    return builders.START


GONE = absent(UnknownClusterError("gone", ("east", "west")), at_the_start)


@pytest.fixture
async def scene(client: aioredis.Redis, tag: str) -> Scene:
    return await drill_scene(client, tag, None)


async def test_nothing_of_it_can_be_read() -> None:
    target = builders.TARGET
    reads = (
        GONE.cluster.snapshot(target, incident_id="INC-1"),
        GONE.cluster.resolve(builders.alert()),
        GONE.cluster.lacking([builders.call()]),
        GONE.cluster.dry_run(builders.call()),
        GONE.job_logs.last_lines("serving", "llm-1", lines=1),
        GONE.scraper.scrape([]),
    )
    for read in reads:
        with pytest.raises(ClusterError) as refused:
            await read
        assert str(refused.value) == REASON


async def test_nothing_is_sent_to_it_and_nothing_is_claimed_of_it() -> None:
    call = builders.call()
    asked = builders.request()
    approved = grant(asked, (builders.judged_press(),))
    sent = await GONE.writer.send(approved, call, call_id="INC-1/R1/0")
    assert (sent.result, sent.detail, sent.retry_after_seconds) == ("failed", f"nothing was sent: {REASON}", None)
    assert await GONE.writer.look(call, call_id="INC-1/R1/0") == "unclear"
    generated = await GONE.generations.generate(approved, call, Replica("llm-1", "u1", "10.0.0.1"))
    assert (generated.result, generated.detail) == ("refused", REASON)


async def test_the_signals_of_its_incidents_are_unknown_with_the_reason(scene: Scene) -> None:
    bot = Bot(scene, "one")
    run = await until(scene, bot, lambda run: run.open_question is not None, "asked")
    moved = run.with_(target=run.target.model_copy(update={"cluster": "gone"}))
    effect = ReadSignals(effect_id="read", visit=moved.visit.number, state=moved.visit.state, names=())
    context = EffectContext(moved, Owed(moved.incident_id, effect, 0, ""), scene.time.now())
    done = await bot.runtime.handlers[ReadSignals](context, effect)
    assert isinstance(done, Done)
    (event,) = done.events
    assert isinstance(event, SignalsRead)
    assert {each.unknown for each in event.readings.values()} <= {
        "'gone' is not a cluster of this bot; its clusters: 'test'"
    }


class NothingReads:
    async def incidents_reading(self) -> frozenset[str]:
        return frozenset()


class OpenEverywhere(NothingReads):
    """`OpenTargets` with the same workload in three clusters."""

    async def open_targets(self) -> dict[str, str]:
        targets = {"INC-1": "east", "INC-2": "west", "INC-3": "gone"}
        return {builders.TARGET.model_copy(update={"cluster": each}).key: name for name, each in targets.items()}


class ManyOpen:
    """`OpenTargets` with so many workloads; `read` counts how often they were read."""

    def __init__(self, count: int, *reading: str) -> None:
        self.count, self.read, self.reading = count, 0, frozenset(reading)

    async def incidents_reading(self) -> frozenset[str]:
        return self.reading

    async def open_targets(self) -> dict[str, str]:
        self.read += 1
        targets = [builders.TARGET.model_copy(update={"name": f"llm-{number:03d}"}) for number in range(self.count)]
        return {target.key: f"INC-{number}" for number, target in enumerate(targets)}


async def test_where_more_are_open_than_can_be_sampled_they_are_not_read_each_round() -> None:
    runs = ManyOpen(MAX_WORKLOADS + 1)
    sampled = SampledWorkloads(runs, (), lambda target: True)
    rounds = [len(await sampled()) for _ in range(ROUNDS_KEPT)]
    assert (set(rounds), runs.read) == ({MAX_WORKLOADS}, 1)
    runs.count = 2
    assert [len(await sampled()), len(await sampled())] == [2, 2]
    assert runs.read == 3, "as few as these are read each round"


async def test_named_workloads_and_those_whose_incident_waits_for_a_reading_are_sampled_first() -> None:
    named = Target(cluster="test", namespace="serving", name="zz-named")
    last = f"INC-{MAX_WORKLOADS + 4}"
    sampled = SampledWorkloads(ManyOpen(MAX_WORKLOADS + 5, last), [named], lambda target: True)
    first, second, *others = await sampled()
    assert (first.target, second.incident_id) == (named, last)
    assert len(others) == MAX_WORKLOADS - 2


async def test_a_round_that_the_storage_fails_is_followed_by_one_that_asks_again() -> None:
    class FailsOnce(ManyOpen):
        async def incidents_reading(self) -> frozenset[str]:
            if self.read == 1:
                raise StorageUnavailableError("no answer")
            return await super().incidents_reading()

    sampled = SampledWorkloads(FailsOnce(MAX_WORKLOADS + 1), (), lambda target: True)
    with pytest.raises(StorageUnavailableError):
        await sampled()
    assert len(await sampled()) == MAX_WORKLOADS


async def test_a_workload_that_is_not_sampled_all_the_time_is_reported() -> None:
    left_out = LeftOut()
    runs = ManyOpen(MAX_WORKLOADS + 5)
    sampled = SampledWorkloads(runs, (), lambda target: True, left_out)
    read = {context.target for context in await sampled()}
    every = [Target.of_key(key) for key in await runs.open_targets()]
    assert (left_out.count, {target for target in every if not left_out.why(target)}) == (5, read)
    assert left_out.notices()["sampling"].startswith(f"5 of {MAX_WORKLOADS + 5} workloads are scraped only when")
    runs.count = 2
    for _ in range(ROUNDS_KEPT):
        await sampled()
    assert (left_out.count, left_out.notices()) == (0, {})


async def test_where_prometheus_keeps_the_history_no_workload_lacks_it() -> None:
    left_out = LeftOut(is_recorded_elsewhere=True)
    await SampledWorkloads(ManyOpen(MAX_WORKLOADS + 5), (), lambda target: True, left_out)()
    assert (left_out.count, left_out.notices()) == (0, {})


async def test_each_cluster_samples_its_own_workloads() -> None:
    named = [Target(cluster="east", namespace="serving", name="other")]
    east = SampledWorkloads(OpenEverywhere(), named, lambda target: is_of("east", target, ("east", "west")))
    west = SampledWorkloads(OpenEverywhere(), (), lambda target: is_of("west", target, ("east", "west")))
    assert [(each.target.key, each.incident_id) for each in await east()] == [
        ("east/serving/Deployment/llm", "INC-1"),
        ("east/serving/Deployment/other", ""),
    ]
    assert [each.incident_id for each in await west()] == ["INC-2"]
