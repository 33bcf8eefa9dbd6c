"""After an advice the bot watches whether the trouble ends, and says what is still missing in words for people."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.watch_log import RedisWatchLog
from bot.adapters.yaml_playbooks import load_text
from bot.domain.approvals.advice import ObserveRule, Observing
from bot.domain.incidents.effect import WatchAdvice
from bot.domain.incidents.event import AdviceWatched, Progressed
from bot.domain.incidents.run import ActiveChange, ActiveWatch, Run
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.flow.handlers.read import ReadHandler
from bot.flow.handlers.watch_advice import WatchAdviceHandler
from bot.flow.perform_effect import Done, EffectContext, Later
from bot.flow.ports.storage import Owed
from tests import builders
from tests.fakes.restrictions import restrictions
from tests.fakes.signals import ScriptedSignals
from tests.kit.events import only

pytestmark = pytest.mark.fast
PLAYBOOK = load_text("""
language: 1
playbook: test
title: A pool
opens_on: ['alertname="Any"']
settings: {calm_for: {default: 5s, why: w}}
signals:
  kv_usage: {metric: kv_cache_usage_perc, over: 1m}
  no_progress: {probe: no_progress}
start: grow
states:
  grow:
    change: set_flags
    risk: medium
    why: w
    still: kv_usage > 0.9 || no_progress.bad > 2
    with: {edits: [{flag: --max-num-seqs, value: 4}]}
    against: kv_thrash
    done: over
  over: {end: fixed}
""")
FULL: dict[str, object] = {"kv_usage": 0.97, "no_progress": {"bad": 0}}
CALM: dict[str, object] = FULL | {"kv_usage": 0.5}
ADVICE = WatchAdvice(effect_id="v1/advice/R1", visit=1, request_id="R1")
OBSERVING = Observing((ObserveRule(is_on=True),))


def advised() -> Run:
    return builders.run(
        state="grow",
        number=1,
        change=ActiveChange(state="grow", verb="set_flags", request_id="R1"),
        watch=ActiveWatch(started_at=builders.START, until=builders.START + 60),
        requests={"R1": builders.request(status="advised", visit=1)},
    )


async def look(
    redis: Connection, second: float, given: Mapping[str, object], *, observing: Observing = OBSERVING
) -> Done | Later:
    at = builders.START + second
    read = ReadHandler(ScriptedSignals(lambda: given, lambda: at), playbook_of)
    watch = WatchAdviceHandler(read, RedisWatchLog(redis), playbook_of, restrictions(observing=observing))
    return await watch(EffectContext(advised(), Owed("INC-1", ADVICE, 0, ""), at), ADVICE)


async def playbook_of(run: Run) -> CompiledPlaybook:
    return PLAYBOOK


@pytest.mark.parametrize(
    ("given", "text"),
    [
        pytest.param(FULL, "waits until the trouble is gone", id="still there"),
        pytest.param(
            {},
            "waits until the trouble is gone (unknown: KV cache in use, Replicas without progress could not be read)",
            id="not read",
        ),
        pytest.param(CALM, "the trouble is gone; must stay so for 5 s", id="gone"),
    ],
)
async def test_it_says_what_it_waits_for(redis: Connection, given: Mapping[str, object], text: str) -> None:
    later = await look(redis, 0, given)
    assert isinstance(later, Later)
    (event,) = later.events
    assert isinstance(event, Progressed)
    assert event.text == text


async def ended(redis: Connection, *samples: tuple[float, Mapping[str, object]]) -> AdviceWatched:
    """The result of the last sample; those before it come to none."""
    *before, (last, given) = samples
    for second, readings in before:
        assert isinstance(await look(redis, second, readings), Later), f"a result at {second} already"
    return only(await look(redis, last, given), AdviceWatched)


async def test_calm_for_long_enough_is_recovered_since_its_first_calm_look(redis: Connection) -> None:
    event = await ended(redis, (0, FULL), (2, CALM), (4, CALM), (7, CALM))
    assert (event.result, event.recovered_at) == ("recovered", builders.START + 2)


async def test_what_cannot_be_read_is_not_calm(redis: Connection) -> None:
    event = await ended(redis, (0, CALM), (3, {}), (6, CALM), (60, {}))
    assert event.result == "not_recovered"
    assert "could not be read" in event.detail


async def test_the_bot_may_propose_changes_again_as_soon_as_nothing_forbids_it(redis: Connection) -> None:
    assert only(await look(redis, 0, FULL, observing=Observing()), AdviceWatched).result == "lifted"
