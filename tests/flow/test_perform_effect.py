"""One effect under a lease: its fate when its handler is done, fails, or is too late."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.store import RedisStore
from bot.domain.incidents.effect import Effect, ReadSignals, ShowInSlack
from bot.domain.incidents.event import EffectFailed, Event, Progressed
from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import ClusterError, MessengerError, StorageUnavailableError
from bot.flow import perform_effect
from bot.flow.perform_effect import Done, EffectContext, Later, Performed, PerformEffect
from bot.flow.ports.storage import Owed
from tests import builders
from tests.redis_server import VirtualTime

pytestmark = pytest.mark.fast
SHOW = ShowInSlack(effect_id="show")
READ = ReadSignals(effect_id="v1/read", visit=1, state="look", names=())
SEEN = Progressed(event_id="seen", effect_id="show", text="seen")


class Handled:
    """A handler that does what the test lists, in order, and keeps what it saw."""

    def __init__(self, *answers: Done | Later | Exception) -> None:
        self._answers = list(answers)
        self.jobs: list[EffectContext] = []

    async def __call__(self, context: EffectContext, effect: Any) -> Done | Later:
        self.jobs.append(context)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def owing(store: RedisStore, *effects: Effect) -> Run:
    await store.accept([builders.alert()], truncated=0)
    (entry,) = await store.intake(10)
    assert await store.route(entry, builders.run(), "opens", bundle=builders.bundle())
    run = builders.run(version=1, number=1)
    await store.commit(run, consumed=1, entries=(), effects=effects)
    return run


def performer(store: RedisStore, handler: Handled) -> PerformEffect:
    return PerformEffect(store, store, {ShowInSlack: handler, ReadSignals: handler})


async def outcome(store: RedisStore) -> Sequence[Event]:
    return await store.inbox("INC-1")


async def is_owed(store: RedisStore, effect_id: str = "show") -> bool:
    return ("INC-1", effect_id) in [(incident, owed) for incident, owed, _ in await store.owed_now(10)]


async def test_a_done_effect_leaves_its_outcome_and_is_owed_no_more(store: RedisStore, time: VirtualTime) -> None:
    await owing(store, SHOW)
    assert await performer(store, Handled(Done((SEEN,))))("INC-1", "show") == Performed(is_news=True)
    assert [event.event_id for event in await outcome(store)] == ["seen"]
    await time.advance(60)
    assert not await is_owed(store)


async def test_an_effect_that_is_not_over_is_owed_later_and_reports_its_progress(
    store: RedisStore, time: VirtualTime
) -> None:
    await owing(store, SHOW)
    assert await performer(store, Handled(Later(5.0, (SEEN,))))("INC-1", "show") == Performed(5.0, is_news=True)
    assert [event.event_id for event in await outcome(store)] == ["seen"]
    assert not await is_owed(store)
    await time.advance(5)
    assert await is_owed(store)


@pytest.mark.parametrize("asked", [True, False])
async def test_a_handler_is_ended_in_time_unless_it_asked_for_more(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch, *, asked: bool
) -> None:
    await owing(store, SHOW)

    class Long(Handled):
        async def __call__(self, context: EffectContext, effect: Any) -> Done | Later:
            if asked:
                context.may_take(60)
            await asyncio.sleep(0)
            return await super().__call__(context, effect)

    monkeypatch.setattr(perform_effect, "MAX_SECONDS", 0.0)
    performed = await performer(store, Long(Done((SEEN,))))("INC-1", "show")
    assert performed.again_after == (None if asked else 1.0)


async def test_an_effect_that_never_ends_is_given_up_with_the_time_that_it_had(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await owing(store, SHOW)

    class Endless(Handled):
        async def __call__(self, context: EffectContext, effect: Any) -> Done | Later:
            await asyncio.Event().wait()
            return Done()

    monkeypatch.setattr(perform_effect, "MAX_SECONDS", 0.0)
    monkeypatch.setattr(perform_effect, "ATTEMPTS", 1)
    await performer(store, Endless())("INC-1", "show")
    (event,) = await outcome(store)
    assert isinstance(event, EffectFailed)
    assert event.reason == "it did not end in time"


async def test_an_effect_that_somebody_else_performs_is_left_to_them(redis: Connection, store: RedisStore) -> None:
    await owing(store, SHOW)
    handler = Handled()
    assert await performer(RedisStore(redis, owner="two"), handler)("INC-1", "show") == Performed()
    assert handler.jobs == []


async def test_an_effect_of_a_state_that_was_left_is_not_performed(store: RedisStore) -> None:
    run = await owing(store, SHOW)
    left = builders.in_visit(run.with_(version=2), number=2)
    await store.commit(left, consumed=0, entries=(), effects=[READ])
    handler = Handled()
    assert await performer(store, handler)("INC-1", "v1/read") == Performed()
    assert handler.jobs == []
    assert await outcome(store) == []


async def test_a_lost_lease_is_taken_over_and_its_late_outcome_counts_once(
    redis: Connection, store: RedisStore, time: VirtualTime
) -> None:
    await owing(store, SHOW)
    other = RedisStore(redis, owner="two")
    slow = await store.take("INC-1", "show")
    await time.advance(16)
    assert await performer(other, Handled(Done((SEEN,))))("INC-1", "show") == Performed(is_news=True)
    assert slow is not None
    assert not await store.renew(slow)
    await store.settle(slow, [SEEN])
    assert [event.event_id for event in await outcome(store)] == ["seen"]


async def test_an_outcome_does_not_wait_for_a_renewal_that_misses_its_cancellation(
    redis: Connection, time: VirtualTime
) -> None:
    class DeafStore(RedisStore):
        """Loses the first cancellation, as client libraries do when it comes together with a time-out."""

        asked, missed = asyncio.Event(), False

        async def renew(self, owed: Owed) -> bool:
            self.asked.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if self.missed:
                    raise
                self.missed = True
                await asyncio.Event().wait()
            return True

    store = DeafStore(redis, owner="one")
    await owing(store, SHOW)

    async def shown_once_renewed(context: EffectContext, effect: Any) -> Done:
        await store.asked.wait()
        return Done((SEEN,))

    perform = PerformEffect(store, store, {ShowInSlack: shown_once_renewed}, renew_every=0.0, cancel_again_after=0.01)
    assert await perform("INC-1", "show") == Performed(is_news=True)
    assert store.missed


async def test_slack_that_refuses_for_now_is_tried_again_when_it_says_and_as_often_as_it_takes(
    store: RedisStore, time: VirtualTime
) -> None:
    await owing(store, SHOW)
    busy = [MessengerError("ratelimited", lasting=False, retry_after_seconds=7.0) for _ in range(5)]
    handler = Handled(*busy, Done())
    perform = performer(store, handler)
    for _ in busy:
        assert await perform("INC-1", "show") == Performed(7.0)
        await time.advance(7)
    assert await perform("INC-1", "show") == Performed()
    assert {context.owed.attempts for context in handler.jobs} == {0}
    assert await outcome(store) == []


async def test_slack_that_refuses_for_good_is_reported_to_the_run(store: RedisStore) -> None:
    await owing(store, SHOW)
    handler = Handled(MessengerError("channel_not_found", lasting=True))
    assert await performer(store, handler)("INC-1", "show") == Performed(is_news=True)
    (event,) = await outcome(store)
    assert isinstance(event, EffectFailed)
    assert (event.effect_kind, event.reason) == ("show_in_slack", "channel_not_found")
    assert not await is_owed(store)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        pytest.param(ValueError("a fault of ours"), "ValueError: a fault of ours", id="ours"),
        pytest.param(ClusterError("nobody answers"), "nobody answers", id="the cluster's"),
    ],
)
async def test_what_fails_three_times_is_given_up_and_reported_to_the_run(
    store: RedisStore, time: VirtualTime, fault: Exception, reason: str
) -> None:
    await owing(store, SHOW)
    perform = performer(store, Handled(fault, fault, fault))
    for wait in (1.0, 2.0):
        assert await perform("INC-1", "show") == Performed(wait)
        assert await outcome(store) == []
        await time.advance(wait)
    assert await perform("INC-1", "show") == Performed(is_news=True)
    (event,) = await outcome(store)
    assert isinstance(event, EffectFailed)
    assert event.reason == reason


async def test_without_the_storage_nothing_is_given_up(store: RedisStore, time: VirtualTime) -> None:
    await owing(store, SHOW)
    perform = performer(store, Handled(StorageUnavailableError("away"), Done()))
    with pytest.raises(StorageUnavailableError):
        await perform("INC-1", "show")
    await time.advance(16)
    assert await is_owed(store)
    assert await perform("INC-1", "show") == Performed()


async def test_an_effect_that_was_owed_anew_while_it_was_performed_is_due_again(store: RedisStore) -> None:
    run = await owing(store, SHOW)

    class Meanwhile(Handled):
        async def __call__(self, context: EffectContext, effect: Any) -> Done | Later:
            await store.commit(run.with_(version=2), consumed=0, entries=(), effects=[SHOW])
            return await super().__call__(context, effect)

    assert await performer(store, Meanwhile(Done()))("INC-1", "show") == Performed(0.0)
