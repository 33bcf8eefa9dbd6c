"""A watch holds long enough, is too late, breaks, or is unknown; a restart forgets no sample."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.watch_log import RedisWatchLog
from bot.adapters.yaml_playbooks import load_text
from bot.domain.incidents.effect import WatchSignals
from bot.domain.incidents.event import Progressed, Watched
from bot.domain.incidents.run import ActiveWatch, Run
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.signals.signal import Reading, Value
from bot.flow.handlers.read import ReadHandler
from bot.flow.handlers.watch import WatchHandler, held_seconds
from bot.flow.perform_effect import Done, EffectContext, Later
from bot.flow.ports.storage import Owed, WatchSample
from tests import builders
from tests.fakes.signals import ScriptedSignals
from tests.kit.events import only

pytestmark = pytest.mark.fast
PLAYBOOK = load_text("""
language: 1
playbook: watcher
title: A watch
opens_on: ['alertname="Any"']
signals:
  thrash: {label: Preemptions, better: lower, ratio: [num_preemptions, request_success], over: 1m}
  usage: {metric: kv_cache_usage_perc, over: 1m}
  restarts: {probe: restarts}
  finished: {metric: request_success, take: increase, over: 1m}
start: calm
states:
  calm:
    watch: {calm: thrash < 0.1, room: usage < 0.9}
    for: 6s
    within: 30s
    every: 2s
    broke: [{when: restarts.oom, to: over}]
    enough: finished >= 200
    held: over
  over: {end: fixed}
""")
GOOD: dict[str, object] = {"thrash": 0.0, "usage": 0.5, "restarts": {"oom": False}}
BAD = {**GOOD, "thrash": 2.0}
BLIND = {name: value for name, value in GOOD.items() if name != "thrash"}
BROKEN = {**BAD, "restarts": {"oom": True}}
LOOK = WatchSignals(effect_id="v3/watch", visit=3, state="calm", started_at=builders.START)


class Watching:
    """One watch that began at 0 and has until 30, looked at when the test says and with the readings that it gives."""

    def __init__(self, redis: Connection, playbook: CompiledPlaybook = PLAYBOOK) -> None:
        self._redis, self._playbook = redis, playbook
        self._run = builders.run(
            state="calm", number=3, watch=ActiveWatch(started_at=builders.START, until=builders.START + 30)
        )
        self.restart()

    def restart(self) -> None:
        """Another process goes on."""
        self.given: Mapping[str, object] = {}
        self._at = builders.START
        signals = ScriptedSignals(lambda: self.given, lambda: self._at)
        self._watch = WatchHandler(ReadHandler(signals, self._of), RedisWatchLog(self._redis), self._of)

    async def _of(self, run: Run) -> CompiledPlaybook:
        return self._playbook

    def continue_as(self, run: Run) -> None:
        self._run = run

    async def look(self, second: float, given: Mapping[str, object]) -> Done | Later:
        self.given, self._at = given, builders.START + second
        return await self._watch(EffectContext(self._run, Owed("INC-1", LOOK, 0, ""), self._at), LOOK)


async def playbook_of(run: Run) -> CompiledPlaybook:
    return PLAYBOOK


@pytest.fixture
def watching(redis: Connection) -> Watching:
    return Watching(redis)


async def verdict(watching: Watching, *samples: tuple[float, Mapping[str, object]]) -> Watched:
    """The verdict of the last sample; those before it come to none."""
    *before, (last, given) = samples
    for second, readings in before:
        assert isinstance(await watching.look(second, readings), Later), f"a verdict at {second} already"
    return only(await watching.look(last, given), Watched)


async def test_it_holds_once_every_part_has_held_long_enough(watching: Watching) -> None:
    event = await verdict(watching, (0, GOOD), (2, GOOD), (4, GOOD), (6, GOOD))
    assert (event.verdict, event.detail) == ("held", "held for 6 s")
    assert event.parts == {"calm": "held", "room": "held"}
    assert event.readings["thrash"].value == 0.0
    assert (event.readings["thrash"].called, event.readings["thrash"].better) == ("Preemptions", "lower")


MANY: dict[str, object] = {"finished": 200.0}


async def test_enough_evidence_ends_it_before_its_time_as_two_looks_in_a_row_show(watching: Watching) -> None:
    event = await verdict(watching, (0, GOOD), (2, GOOD | MANY))
    assert (event.verdict, event.detail) == ("held", "held: finished >= 200")


async def test_enough_evidence_against_it_ends_it_too(watching: Watching) -> None:
    event = await verdict(watching, (0, GOOD | MANY), (2, BAD | MANY), (4, BAD | MANY))
    assert event.verdict == "not_held"


async def test_what_cannot_be_read_is_no_evidence(watching: Watching) -> None:
    for second in (0.0, 2.0, 4.0):
        assert isinstance(await watching.look(second, BLIND | MANY), Later)


async def test_one_bad_look_begins_the_time_anew(watching: Watching) -> None:
    event = await verdict(watching, (0, GOOD), (2, GOOD), (4, BAD), (6, GOOD), (8, GOOD), (10, GOOD), (12, GOOD))
    assert event.verdict == "held"


async def test_a_gap_of_more_than_two_looks_begins_the_time_anew(watching: Watching) -> None:
    event = await verdict(watching, (0, GOOD), (2, GOOD), (10, GOOD), (12, GOOD), (14, GOOD), (16, GOOD))
    assert event.detail == "held for 6 s"


async def test_it_ends_once_the_time_that_is_left_is_too_short(redis: Connection) -> None:
    watching = Watching(redis, load_text(PLAYBOOK.source.text.replace("    enough: finished >= 200\n", "")))
    event = await verdict(watching, (22, GOOD), (24, BAD), (26, BAD), (28.5, BAD))
    assert (event.verdict, event.detail) == ("not_held", "held for only 0 s of 6 s (calm: not held)")


async def test_evidence_that_may_still_be_enough_is_waited_for_to_the_end(watching: Watching) -> None:
    """Two samples decide then: a canary that gets its requests late passes in the last minutes too."""
    event = await verdict(watching, (26, BAD), (28, BLIND), (28.5, GOOD | MANY), (29.5, GOOD | MANY))
    assert (event.verdict, event.detail) == ("held", "held: finished >= 200")


async def test_a_restart_forgets_no_look(watching: Watching) -> None:
    await watching.look(0, GOOD)
    await watching.look(3, GOOD)
    watching.restart()
    assert (await verdict(watching, (6, GOOD))).verdict == "held"


@pytest.mark.parametrize(
    ("given", "is_called", "why"),
    [
        pytest.param(BAD, "not_held", "calm: not held", id="did not hold"),
        pytest.param(BLIND, "unknown", "calm: unknown: Preemptions could not be read", id="cannot be read"),
        pytest.param(GOOD, "not_held", "held for only 0 s of 6 s", id="held too late"),
    ],
)
async def test_at_the_end_of_its_time_it_says_what_was_lacking(
    watching: Watching, given: Mapping[str, object], is_called: str, why: str
) -> None:
    event = await verdict(watching, (28, BAD), (30, given))
    assert event.verdict == is_called
    assert why in event.detail


async def test_what_breaks_ends_it_at_once(watching: Watching) -> None:
    event = await verdict(watching, (0, GOOD), (2, BROKEN))
    assert (event.verdict, event.broke, event.detail) == ("broke", 0, "broke: restarts.oom")


@pytest.fixture
def failing(redis: Connection) -> Watching:
    """A watch that also ends once it has been bad for four seconds."""
    clause = "{when: thrash > 1, for: 4s, to: worse}"
    text = PLAYBOOK.source.text.replace("to: over}]", f"to: over}}, {clause}]") + "  worse: {end: fixed}\n"
    return Watching(redis, load_text(text))


async def test_what_is_bad_for_long_enough_ends_it_before_its_time(failing: Watching) -> None:
    event = await verdict(failing, (0, BAD), (2, BAD), (4, BAD))
    assert (event.verdict, event.broke, event.detail) == ("broke", 1, "broke: thrash > 1, for 4 s")


@pytest.mark.parametrize("between", [pytest.param(GOOD, id="good"), pytest.param(BLIND, id="not-known")])
async def test_what_is_not_bad_without_a_gap_does_not_end_it(failing: Watching, between: Mapping[str, object]) -> None:
    event = await verdict(failing, (0, BAD), (2, BAD), (3, between), (4, BAD), (6, BAD), (8, BAD))
    assert event.detail == "broke: thrash > 1, for 4 s"


async def test_a_gap_between_bad_samples_restarts_their_time(failing: Watching) -> None:
    event = await verdict(failing, (0, BAD), (10, BAD), (12, BAD), (14, BAD))
    assert (event.verdict, event.broke) == ("broke", 1)


async def test_a_restart_remembers_how_long_it_has_been_bad(failing: Watching) -> None:
    for second in (0.0, 2.0):
        assert isinstance(await failing.look(second, BAD), Later)
    failing.restart()
    assert (await verdict(failing, (4, BAD))).broke == 1


async def test_what_ends_it_at_once_comes_before_what_needs_time(failing: Watching) -> None:
    assert (await verdict(failing, (0, BAD), (2, BAD), (4, BROKEN))).broke == 0


async def test_samples_of_an_earlier_version_are_read(redis: Connection, failing: Watching) -> None:
    """They do not say which clauses were true."""
    key = redis.key("watch", "INC-1", "3")
    earlier = json.dumps([builders.START, {"calm": "not held", "room": "held"}])
    await redis.script("watch_sample", [key], [earlier, 60])
    assert (await verdict(failing, (2, BAD), (4, BAD), (6, BAD))).broke == 1


async def test_it_reports_what_it_waits_for_and_comes_back_at_its_cadence(watching: Watching) -> None:
    again = await watching.look(0, BAD)
    assert isinstance(again, Later)
    assert again.after_seconds == 2.0
    (event,) = again.events
    assert isinstance(event, Progressed)
    assert event.text == "not yet: Preemptions 2"


async def test_while_it_waits_the_card_gets_new_numbers_every_minute(watching: Watching) -> None:
    waits = {"watch": ActiveWatch(started_at=builders.START, until=builders.START + 900, progress="not yet: calm")}
    read = {"thrash": Reading(name="thrash", value=1.0, at=builders.START + 2)}
    watching.continue_as(builders.run(state="calm", number=3, latest=read, **waits))
    still = await watching.look(60, BAD)
    assert isinstance(still, Later)
    assert still.events == (), "the numbers are not a minute old"
    again = await watching.look(62, BAD)
    assert isinstance(again, Later)
    (event,) = again.events
    assert isinstance(event, Progressed)
    assert (event.text, event.readings["thrash"].value) == ("not yet: Preemptions 2", 2.0)


async def test_a_part_that_holds_or_fails_again_is_reported_at_once(watching: Watching) -> None:
    waits = {"watch": ActiveWatch(started_at=builders.START, until=builders.START + 900, progress="not yet: …")}
    read = {"thrash": Reading(name="thrash", value=1.0, at=builders.START)}
    watching.continue_as(builders.run(state="calm", number=3, latest=read, **waits))
    assert (await watching.look(0, BAD), await watching.look(2, BAD)) == (Later(2.0), Later(2.0))
    later = await watching.look(4, BAD | {"usage": 0.95})
    assert isinstance(later, Later)
    assert [event.text for event in later.events if isinstance(event, Progressed)] == [
        "not yet: Preemptions 2; KV cache in use 0.95"
    ]


def test_what_a_watch_waits_for_is_reported_in_few_readings() -> None:
    waits = """
  calm:
    watch:
      ready: 'rotation.ready >= rotation.wanted'
      in_rotation: 'rotation.in_rotation >= rotation.wanted'
      enough_load: 'a + b + c + d + e > 0'
"""
    signals = "".join(f"  {name}: {{metric: num_requests_running, over: 1m}}\n" for name in "abcde")
    text = PLAYBOOK.source.text.replace("signals:\n", f"signals:\n  rotation: {{probe: rotation}}\n{signals}")
    text = text.replace("\n  calm:\n    watch: {calm: thrash < 0.1, room: usage < 0.9}\n", waits)
    loaded = load_text(text)
    seen = {"rotation.ready": 3.0, "rotation.wanted": 4.0, "rotation.in_rotation": 2.0, **dict.fromkeys("abcde", 0.0)}
    assert loaded.watch_values("calm", ("ready", "in_rotation", "enough_load"), seen) == (
        "Replicas in rotation: ready 3, wanted 4, in rotation 2; not enough load"
    )


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param({"usage": 0.96}, "KV cache in use 0.96", id="one"),
        pytest.param({"usage": 0.96, "thrash": 2.0}, "Preemptions 2; KV cache in use 0.96", id="each-of-two"),
        pytest.param({"waiting": 9.0}, "Requests running 20; Requests waiting 9", id="two-compared"),
    ],
)
def test_a_condition_of_many_readings_reports_those_that_keep_it_from_holding(
    seen: dict[str, Value], expected: str
) -> None:
    signals = "".join(f"  {name}: {{metric: num_requests_{name}, over: 1m}}\n" for name in ("running", "waiting"))
    text = PLAYBOOK.source.text.replace("signals:\n", f"signals:\n{signals}")
    calm = "{calm: 'usage < 0.9 && thrash < 0.1 && waiting <= 0.05 * running && !restarts.oom'}"
    loaded = load_text(text.replace("{calm: thrash < 0.1, room: usage < 0.9}", calm))
    good: dict[str, Value] = {"usage": 0.5, "thrash": 0.0, "waiting": 0.0, "running": 20.0, "restarts.oom": False}
    assert loaded.watch_values("calm", ("calm",), good | seen) == expected


def test_numbers_of_a_probe_have_their_units() -> None:
    text = PLAYBOOK.source.text.replace("signals:\n", "signals:\n  scene: {probe: crash_scene}\n")
    loaded = load_text(text.replace("{calm: thrash < 0.1, room: usage < 0.9}", "{steady: scene.steady_for > 600}"))
    seen: dict[str, Value] = {"scene.steady_for": 82.2}
    assert loaded.watch_values("calm", ("steady",), seen) == "Uptime and crashes: steady for 82.2 s"
    assert loaded.watch_values("calm", ("steady",), {}) == "Uptime and crashes: steady for ?"


def test_a_probe_that_explains_its_yes_or_no_is_quoted() -> None:
    text = PLAYBOOK.source.text.replace("signals:\n", "signals:\n  handed_out: {probe: handed_out}\n")
    loaded = load_text(text.replace("{calm: thrash < 0.1, room: usage < 0.9}", "{arrived: handed_out.live}"))
    seen: dict[str, Value] = {"handed_out.live": False, "handed_out.detail": "2 of 4 replicas run it so far"}
    assert loaded.watch_values("calm", ("arrived",), seen) == "Patch that was handed out: 2 of 4 replicas run it so far"
    assert (
        loaded.watch_values("calm", ("arrived",), {"handed_out.live": False}) == "Patch that was handed out: not live"
    )


async def test_a_watch_reads_what_the_sentences_about_users_name(redis: Connection) -> None:
    """Otherwise they would mix new readings with those from before the watch."""
    signal = "ttft: {histogram: time_to_first_token_seconds, quantile: 0.99, over: 1m}"
    sentence = "users:\n  - {say: 'Users wait ${ttft}'}\n"
    text = PLAYBOOK.source.text.replace("signals:", f"{sentence}signals:\n  {signal}", 1)
    loaded = load_text(text)

    async def of(run: Run) -> CompiledPlaybook:
        return loaded

    run = builders.run(state="calm", number=3, watch=ActiveWatch(started_at=builders.START, until=builders.START + 30))
    signals = ScriptedSignals(lambda: GOOD | {"ttft": 7.0, "thrash": 2.0}, lambda: builders.START)
    watch = WatchHandler(ReadHandler(signals, of), RedisWatchLog(redis), of)
    again = await watch(EffectContext(run, Owed("INC-1", LOOK, 0, ""), builders.START), LOOK)
    assert isinstance(again, Later)
    (event,) = again.events
    assert isinstance(event, Progressed)
    assert event.readings["ttft"].value == 7.0


async def test_a_watch_that_was_left_comes_to_nothing(watching: Watching) -> None:
    left = builders.run(state="calm", number=3, watch=None)
    watch = WatchHandler(ReadHandler(ScriptedSignals(dict, lambda: 0.0), playbook_of), NoLog(), playbook_of)
    assert await watch(EffectContext(left, Owed("INC-1", LOOK, 0, ""), builders.START), LOOK) == Done()


async def test_a_look_that_ends_a_watch_is_not_stored() -> None:
    run = builders.run(state="calm", number=3, watch=ActiveWatch(started_at=builders.START, until=builders.START + 30))
    signals = ScriptedSignals(lambda: BROKEN, lambda: builders.START)
    watch = WatchHandler(ReadHandler(signals, playbook_of), NoLog(), playbook_of)
    ended = await watch(EffectContext(run, Owed("INC-1", LOOK, 0, ""), builders.START), LOOK)
    assert only(ended, Watched).verdict == "broke"


class NoLog:
    """`WatchLog` that must not be asked."""

    async def add(self, incident_id: str, visit: int, sample: WatchSample) -> Sequence[WatchSample]:
        raise AssertionError("no sample is needed any more")


def test_nothing_has_held_before_the_first_look() -> None:
    assert held_seconds((), every=2.0) == 0.0
