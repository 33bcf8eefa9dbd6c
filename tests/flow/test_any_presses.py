"""In no history of presses is a change applied twice, or without the approvals that its policy requires.

People press anything, repeatedly, late, on copies and old messages; messages appear late, deadlines are received late,
effects are performed twice and by two replicas in turns, alerts resolve, the world moves, somebody halts.
"""

from __future__ import annotations

import functools
import logging
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import pytest
import redis.asyncio as aioredis
from structlog.testing import capture_logs

from bot.domain.approvals.grant import Press
from bot.domain.incidents.event import Event, Judged
from bot.domain.incidents.machine import Decision, Rules, advance
from bot.domain.incidents.run import Run
from bot.domain.playbooks.bundle import Bundle
from tests import builders
from tests.flow.harness import APPROVERS, CHANNEL, LEAD, Bot, Scene, wanted_presses
from tests.flow.press_histories import NO_BUGS, TEAMS, Advance, Bugs, Claims, History, World
from tests.flow.press_oracle import Done, Memory, as_seen, why_not
from tests.flow.scenes import drill_scene

STEPS = 30
QUICK = 150
HISTORIES = 4000
MUTANT_HISTORIES = 2000
"""A planted bug is found in far fewer."""


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """An outcome that is not legal here is what these histories are full of."""
    caplog.set_level(logging.ERROR, logger="transitions.core")


def faults_of(seeds: Iterable[int], *, machine: Advance = advance, bugs: Bugs = NO_BUGS) -> Iterator[str]:
    for seed in seeds:
        with capture_logs():
            history = History(seed, machine=machine, bugs=bugs).play(STEPS)
        yield from (f"seed {seed}: {fault}" for fault in history.faults)


@functools.cache
def quick() -> tuple[History, ...]:
    with capture_logs():
        return tuple(History(seed).play(STEPS) for seed in range(QUICK))


@pytest.mark.fast
def test_no_short_list_of_histories_applies_what_people_did_not_let_happen() -> None:
    assert [(seed, history.faults) for seed, history in enumerate(quick()) if history.faults] == []


@pytest.mark.timeout(600)  # twenty seconds of work, beside other tests
def test_no_history_applies_what_people_did_not_let_happen() -> None:
    assert list(faults_of(range(QUICK, HISTORIES))) == []


@pytest.mark.fast
def test_the_histories_reach_every_end_of_a_request() -> None:
    reached: Counter[str] = Counter()
    for history in quick():
        reached["applied"] += sum(history.writer.won.values())
        for request in history.run.requests.values():
            reached[request.status] += 1
            reached["edited"] += bool(request.edited_by)
            reached["extended"] += bool(request.extended_by)
            reached["asked again"] += bool(request.asked_before) and request.status == "granted"
            reached["glass"] += any(judged.press.action == "break_glass" for judged in request.presses)
    wanted = {"applied", "granted", "refused", "expired", "superseded", "edited", "extended", "glass", "asked again"}
    assert {name for name, count in reached.items() if count} >= wanted, reached


# --- planted bugs -----------------------------------------------------------------------------------------------------


def altered(change: Callable[[Run, Judged], Judged]) -> Advance:
    """The real machine and the real grant, to which something about a press was reported wrongly."""

    def machine(run: Run, event: Event, bundle: Bundle, rules: Rules) -> Decision:
        known = isinstance(event, Judged) and event.press.about in run.requests
        return advance(run, change(run, event) if known and isinstance(event, Judged) else event, bundle, rules)

    return machine


def any_digest(run: Run, event: Judged) -> Judged:
    return pressed(event, digest=run.requests[event.press.about].digest)


def any_copy(run: Run, event: Judged) -> Judged:
    return pressed(event, channel="C1")


def any_reason(run: Run, event: Judged) -> Judged:
    return pressed(event, reason=event.press.reason or "none")


def any_repeat(run: Run, event: Judged) -> Judged:
    """As if nothing had ever been asked for before."""
    return pressed(event, reason=event.press.reason or "again") if event.press.action == "approve" else event


def any_time(run: Run, event: Judged) -> Judged:
    return event.model_copy(update={"pressed_at": run.requests[event.press.about].asked_at})


def any_situation(run: Run, event: Judged) -> Judged:
    resolved_at = run.requests[event.press.about].alerts_resolved_at
    return event.model_copy(update={"pressed_at": max(event.pressed_at, resolved_at or 0.0)})


def any_person(run: Run, event: Judged) -> Judged:
    everything = tuple(sorted(frozenset().union(*TEAMS.values())))
    allowed = event.authority.model_copy(update={"allowed": True, "teams": everything})
    return event.model_copy(update={"authority": allowed})


def any_request(run: Run, event: Judged) -> Judged:
    newest = run.open_request
    return any_digest(run, pressed(event, about=newest.request_id)) if newest else event


def half_time_at_once(run: Run, event: Judged) -> Judged:
    half_at = run.requests[event.press.about].half_at
    early = event.press.action == "break_glass" and half_at is not None
    return event.model_copy(update={"pressed_at": max(event.pressed_at, half_at or 0.0)}) if early else event


def pressed(event: Judged, **fields: str) -> Judged:
    return event.model_copy(update={"press": event.press.model_copy(update=fields)})


@pytest.mark.parametrize(
    "bug",
    [any_digest, any_copy, any_reason, any_repeat, any_situation, any_time, any_person, any_request, half_time_at_once],
)
def test_a_grant_that_does_not_look_is_found(bug: Callable[[Run, Judged], Judged]) -> None:
    assert next(faults_of(range(MUTANT_HISTORIES), machine=altered(bug)), "")


def test_a_machine_that_asks_the_approvers_of_other_targets_is_found() -> None:
    def machine(run: Run, event: Event, bundle: Bundle, rules: Rules) -> Decision:
        everywhere = rules.approvals.model_copy(update={"of_targets": ()})
        return advance(run, event, bundle, rules.model_copy(update={"approvals": everywhere}))

    assert next(faults_of(range(MUTANT_HISTORIES), machine=machine), "")


class ForgetfulClaims(Claims):
    async def was_claimed(self, incident_id: str, call_id: str) -> bool:
        await super().was_claimed(incident_id, call_id)
        return False

    async def claim(self, incident_id: str, call_id: str, **rest: object) -> object:  # type: ignore[override]
        await super().was_claimed(incident_id, call_id)
        return "claimed"


class CarelessWorld(World):
    """Takes every call, whatever the value was before."""

    def patched(self, call: object) -> bool:
        return True


def test_calls_without_claims_and_preconditions_are_found_to_win_twice() -> None:
    found = faults_of(range(MUTANT_HISTORIES), bugs=Bugs(world=CarelessWorld, claims=ForgetfulClaims))
    assert next((fault for fault in found if "was applied 2 times" in fault), "")


# --- the real storage -------------------------------------------------------------------------------------------------

ROUNDS = 45
REDIS_HISTORIES = 12


@pytest.mark.parametrize("seed", range(REDIS_HISTORIES))
async def test_on_real_redis_with_two_bots_nothing_is_applied_without_peoples_word(
    client: aioredis.Redis, seed: int
) -> None:
    dice, memory = random.Random(seed), Memory()
    scene = await drill_scene(client, f"presses-{uuid.uuid4().hex}")
    scene.people_are_there = False
    crew = [Bot(scene, "bot-0"), Bot(scene, "bot-1")]
    with capture_logs():
        for _ in range(ROUNDS):
            for bot in crew:
                await bot.turn()
            run = await scene.run()
            if run is None or not run.is_open:
                continue
            remember(run, memory, scene.time.now())
            for press in drawn(run, scene, dice, memory):
                await dice.choice(crew).receive.press(press, run.incident_id)
            await scene.time.advance(dice.choice([1, 1, 5, 5, 200]))
    run = await scene.run()
    assert run is not None
    assert set(scene.cluster.applied.values()) <= {1}
    assert [wrong for call_id in scene.cluster.applied if (wrong := judged(run, call_id, memory))] == []


def remember(run: Run, memory: Memory, at: float) -> None:
    memory.saw_ends(run.requests, at)
    for name, request in run.requests.items():
        memory.shown.setdefault(name, (request.digest, tuple(as_seen(call) for call in request.plan.calls)))
        if request.posted_at is not None:
            memory.posted_at[name] = request.posted_at


def drawn(run: Run, scene: Scene, dice: random.Random, memory: Memory) -> list[Press]:
    """Answers to questions, and anything that people may do to a request; each press now and then twice."""
    presses = [press for press in wanted_presses(run, scene) if press.action == "choose"]
    for name in [name for name in memory.shown if dice.random() < 0.5]:
        user = dice.choice([*APPROVERS, LEAD, "U0EVE"])
        digest = dice.choice([memory.shown[name][0]] * 5 + ["0ld"])
        action = dice.choice(["approve"] * 6 + ["more_time", "edit"])
        press = builders.press(
            channel=CHANNEL, action=action, about=name, digest=digest, user=user, reason=dice.choice(["", "again"])
        )
        teams = frozenset({"approvers"}) if user != "U0EVE" else frozenset[str]()
        memory.presses.append(Done(press, scene.time.now(), teams))
        presses += [press] * dice.choice([1, 1, 2])
    scene.attempts += 1
    return [press.model_copy(update={"press_id": f"p{scene.attempts}/{press.user}/{press.about}"}) for press in presses]


def judged(run: Run, call_id: str, memory: Memory) -> str:
    _, request_id, step = call_id.rsplit("/", 2)
    request = run.requests[request_id]
    return why_not(request, request.plan.calls[_place(request.plan.steps, int(step))], memory)


def _place(steps: tuple[object, ...], step: int) -> int:
    """A step's place among the calls."""
    return sum(1 for each in steps[:step] if getattr(each, "step", "") == "call")
