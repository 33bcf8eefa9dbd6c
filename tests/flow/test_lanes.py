"""People do not wait for machines: work that is stuck on a dependency leaves room for presses, cards and other work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from bot.adapters.redis.store import RedisStore
from bot.domain.incidents.effect import ApplyStep, Effect, JudgePress, ReadSignals, ShowInSlack, WatchSignals
from bot.domain.kernel.target import Target
from bot.flow.advance_run import Advanced
from bot.flow.handlers.judge import JudgeHandler
from bot.flow.perform_effect import Done, EffectContext, Handler, PerformEffect
from bot.flow.ports.storage import Waiting
from bot.flow.reconcile import AT_MOST, Checks, Reconcile
from bot.flow.wake import Wake
from tests import builders
from tests.fakes.incident_service import KnownPeople
from tests.redis_server import VirtualTime

pytestmark = pytest.mark.fast
STUCK = 60
MAX_SECONDS = 10.0
READ = ReadSignals(effect_id="v1/read", visit=1, state="look", names=())
WATCH = WatchSignals(effect_id="v1/watch", visit=1, state="verify", started_at=0.0)
APPLY = ApplyStep(effect_id="v1/apply/R1/0/0", request_id="R1", step=0)
JUDGE = JudgePress(effect_id="judge/p1", press=builders.press(user="U0ANA"), pressed_at=builders.START)
SHOW = ShowInSlack(effect_id="show")


async def soon(event: asyncio.Event) -> None:
    async with asyncio.timeout(MAX_SECONDS):
        await event.wait()


@dataclass
class Frozen:
    """A dependency that takes every question and answers none."""

    asked: int = 0

    async def __call__(self, context: EffectContext, effect: Any) -> Done:
        self.asked += 1
        await asyncio.Event().wait()
        return Done()


@dataclass
class Answered:
    """A handler that is done at once."""

    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, context: EffectContext, effect: Any) -> Done:
        self.done.set()
        return Done()


class World:
    """Many incidents, each owing one effect, over the real storage."""

    def __init__(self, store: RedisStore, handlers: Mapping[type, Handler]) -> None:
        self.store = store
        self.judged = asyncio.Event()
        self.wake = Wake(self._advance, PerformEffect(store, store, handlers))

    async def owing(self, incident: str, effect: Effect) -> None:
        target = Target(cluster="test", namespace="serving", name=incident.lower())
        await self.store.accept([builders.alert(fingerprint=incident)], truncated=0)
        (entry,) = await self.store.intake(10)
        run = builders.run(incident_id=incident, target=target)
        assert await self.store.route(entry, run, "opens", bundle=builders.bundle())
        await self.store.commit(
            builders.in_visit(run.with_(version=1), number=1), consumed=1, entries=(), effects=[effect]
        )
        self.wake.effect(incident, effect.effect_id, effect.lane)

    async def stuck_on(self, effect: Effect) -> None:
        for number in range(STUCK):
            await self.owing(f"INC-{number + 1}", effect)

    async def _advance(self, incident_id: str, waiting: Waiting | None) -> Advanced:
        if any(event.kind == "judged" for event in await self.store.inbox(incident_id)):
            self.judged.set()
        return Advanced()


async def test_a_press_is_judged_while_sixty_incidents_wait_for_a_frozen_api_server(store: RedisStore) -> None:
    frozen = Frozen()
    world = World(store, {ReadSignals: frozen, JudgePress: JudgeHandler(KnownPeople("U0LEA", "U0ANA"))})
    await world.stuck_on(READ)
    await world.owing("INC-100", JUDGE)
    await soon(world.judged)
    assert 0 < frozen.asked < STUCK, "they wait for room, and the press does not"
    await world.wake.stop()


@pytest.mark.parametrize(
    ("stuck", "free"),
    [
        pytest.param(READ, SHOW, id="a card while reads are stuck"),
        pytest.param(READ, APPLY, id="a granted call while reads are stuck"),
        pytest.param(WATCH, READ, id="a read while watches are stuck"),
        pytest.param(APPLY, SHOW, id="a card while rollouts are stuck"),
        pytest.param(SHOW, READ, id="a read while Slack is stuck"),
        pytest.param(SHOW, APPLY, id="a granted call while Slack is stuck"),
    ],
)
async def test_what_is_stuck_leaves_room_for_other_work(store: RedisStore, stuck: Effect, free: Effect) -> None:
    answered = Answered()
    handlers: dict[type, Handler] = {type(stuck): Frozen(), type(free): answered}
    world = World(store, handlers)
    await world.stuck_on(stuck)
    await world.owing("INC-100", free)
    await soon(answered.done)
    await world.wake.stop()


async def three_rounds(store: RedisStore, *, besides: Checks | None = None, seldom: Checks | None = None) -> None:
    """Returns once the third round has begun."""
    rounds, third = 0, asyncio.Event()

    async def route() -> int:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            third.set()
        return 0

    wake = World(store, {}).wake
    reconcile = Reconcile(store, store, wake, route, besides=besides or {}, seldom=seldom or {}, every_seconds=0.01)
    running = asyncio.create_task(reconcile.forever())
    await soon(third)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_stuck_look_beside_the_round_does_not_hold_up_the_next_round(store: RedisStore) -> None:
    async def stuck() -> None:
        await asyncio.Event().wait()

    await three_rounds(store, besides={"homes.not_refreshed": stuck})


async def test_what_is_checked_seldom_is_checked_at_the_start_and_not_in_each_round(store: RedisStore) -> None:
    checked = 0

    async def check() -> None:
        nonlocal checked
        checked += 1

    await three_rounds(store, seldom={"storage.not_swept": check})
    assert checked == 1


async def test_alerts_that_may_wait_are_routed_in_time_and_together_with_one_that_may_not(store: RedisStore) -> None:
    routed: asyncio.Queue[None] = asyncio.Queue()
    timers: list[tuple[float, Callable[[], None]]] = []

    async def route() -> int:
        routed.put_nowait(None)
        return 0

    world = World(store, {})
    world.wake.call_later = lambda seconds, call: timers.append((seconds, call))
    reconcile = Reconcile(store, store, world.wake, route, every_seconds=3600)
    running = asyncio.create_task(reconcile.forever())
    async with asyncio.timeout(10):
        await routed.get()
        for seconds in (0.5, 0.2, 0.9):
            reconcile.wake_routing(seconds)
        assert [seconds for seconds, _ in timers] == [0.5, 0.2], "the third is routed with them"
        assert routed.empty()
        timers[1][1]()
        await routed.get()
        reconcile.wake_routing()
        await routed.get()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_another_process_left_behind_is_taken_up_in_its_lane(store: RedisStore, time: VirtualTime) -> None:
    """Read from the storage alone, as after a restart."""
    frozen, answered = Frozen(), Answered()
    gone = World(store, {})
    await gone.wake.stop()
    await gone.stuck_on(READ)
    await gone.owing("INC-100", SHOW)
    await time.advance(60)
    world = World(store, {ReadSignals: frozen, ShowInSlack: answered})
    await Reconcile(store, store, world.wake, _nothing_to_route).once()
    await soon(answered.done)
    await world.wake.stop()


async def _nothing_to_route() -> int:
    return 0


async def test_what_waits_for_room_here_hides_nothing_that_another_process_left_behind(
    store: RedisStore, time: VirtualTime
) -> None:
    """More readings than one round takes up are due, and each of them is older than the card."""
    gone, answered = World(store, {}), Answered()
    await gone.wake.stop()
    for number in range(2 * AT_MOST):
        await gone.owing(f"INC-{number + 1}", READ)
    await time.advance(1)
    await gone.owing("INC-1000", SHOW)
    await time.advance(60)
    world = World(store, {ReadSignals: Frozen(), ShowInSlack: answered})
    reconcile = Reconcile(store, store, world.wake, _nothing_to_route)
    for _ in range(3):
        await reconcile.once()
    await soon(answered.done)
    await world.wake.stop()


async def test_owed_effects_are_taken_up_while_a_long_row_of_alerts_is_routed(
    store: RedisStore, time: VirtualTime
) -> None:
    routing, answered = asyncio.Event(), Answered()

    async def route() -> int:
        routing.set()
        await asyncio.Event().wait()
        return 0

    gone, world = World(store, {}), World(store, {ShowInSlack: answered})
    await gone.wake.stop()
    await gone.owing("INC-1", SHOW)
    running = asyncio.create_task(Reconcile(store, store, world.wake, route, every_seconds=0.01).forever())
    await soon(routing)
    await time.advance(60)
    await soon(answered.done)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await world.wake.stop()
