"""Draining an inbox: a lost race is run again, a deadline counts once, and our own errors block no incident."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence

import pytest

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.store import RedisStore
from bot.adapters.yaml_playbooks import StoredPlaybooks, load_playbook
from bot.domain.approvals.grant import Authority
from bot.domain.incidents.effect import Effect, Notify
from bot.domain.incidents.event import AlertChanged, Commanded, Judged, Posted, Pressed, StepSettled
from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import StaleRunError
from bot.domain.kernel.timeline import Chained, first_break
from bot.domain.playbooks.bundle import Bundle
from bot.flow import advance_run
from bot.flow.advance_run import AdvanceRun
from bot.flow.ports.storage import Committed
from tests import builders
from tests.flow.harness import (
    APPROVERS,
    RESTART_SECONDS,
    RULES,
    Bot,
    Scene,
    compiled_once,
    timeline_text,
    until,
    wanted_presses,
)
from tests.flow.scenes import DRILL, drill_playbook

pytestmark = pytest.mark.fast
STRANGE = StepSettled(
    event_id="strange", effect_id="v3/apply/R2/9/0", request_id="R2", step=99, call_id="x", result="done"
)
"""The outcome of a step that the plan does not have: nothing of ours makes it, and deciding about it fails."""


class Overtaken(RedisStore):
    """Somebody else commits first, once."""

    commits = 0

    async def commit(
        self, run: Run, *, consumed: int, entries: Sequence[Chained], effects: Sequence[Effect]
    ) -> Committed:
        self.commits += 1
        if self.commits == 1:
            raise StaleRunError("somebody else was first")
        return await super().commit(run, consumed=consumed, entries=entries, effects=effects)


async def opened(store: RedisStore) -> None:
    await store.accept([builders.alert()], truncated=0)
    (entry,) = await store.intake(10)
    bundle = Bundle.of(drill_playbook())
    assert await store.route(entry, builders.run(playbook=bundle.entry, digest=bundle.digest), "opens", bundle=bundle)


async def asked(scene: Scene, bot: Bot) -> Run:
    await until(scene, bot, lambda run: run.open_question is not None, "asked which mitigation")
    await bot.turn()
    scene.people_are_there = False
    return await until(scene, bot, lambda run: "request:R2:expiry" in run.deadlines, "asked for the cap")


async def test_a_commit_that_came_second_is_decided_again(redis: Connection) -> None:
    store = Overtaken(redis, owner="one")
    await opened(store)
    advanced = await AdvanceRun(store, compiled_once, RULES)("INC-1")
    assert [effect.effect_id for effect in advanced.effects] == ["v1/read", "show"]
    assert store.commits == 2
    assert await store.inbox("INC-1") == []


class PostedMeanwhile(RedisStore):
    """The card is posted between the look and the first commit."""

    commits = 0

    async def commit(
        self, run: Run, *, consumed: int, entries: Sequence[Chained], effects: Sequence[Effect]
    ) -> Committed:
        self.commits += 1
        if self.commits == 1:
            posted = Posted(event_id="posted:card", slot="card", ts="1.1", channel="C0INC")
            await self.append("INC-1", [posted])
        return await super().commit(run, consumed=consumed, entries=entries, effects=effects)


async def test_that_the_card_was_posted_is_read_with_the_next_event(redis: Connection) -> None:
    store = PostedMeanwhile(redis, owner="one")
    await opened(store)
    advance = AdvanceRun(store, compiled_once, RULES)
    assert (await advance("INC-1")).taken.keys() == {"v1/read", "show"}
    assert store.commits == 1
    assert (await advance("INC-1")).version == 2
    assert store.commits == 2
    assert await store.inbox("INC-1") == []


async def test_an_unknown_incident_is_no_work(store: RedisStore) -> None:
    assert (await AdvanceRun(store, compiled_once, RULES)("INC-9")).effects == ()


async def test_a_run_says_when_it_next_wants_to_be_woken(scene: Scene, bot: Bot) -> None:
    run = await asked(scene, bot)
    left = run.deadlines["request:R2:half"] - scene.time.now()
    assert (await bot.advance("INC-1")).wake_after == pytest.approx(left)


@pytest.mark.parametrize(
    ("users", "status"),
    [pytest.param(APPROVERS, "granted", id="approvers"), pytest.param(("U0EVE", "U0ADA"), "expired", id="strangers")],
)
async def test_a_press_in_time_counts_also_if_it_is_judged_after_the_deadline(
    scene: Scene, bot: Bot, users: Sequence[str], status: str
) -> None:
    run = await asked(scene, bot)
    expires_at = run.requests["R2"].expires_at
    assert expires_at is not None
    await scene.time.advance(expires_at - scene.time.now() - 1)
    (press, _) = wanted_presses(run, scene)
    for user in users:
        own = press.model_copy(update={"user": user, "press_id": user})
        await scene.eyes.append("INC-1", [Pressed(event_id=user, press=own)])
    await scene.time.advance(RESTART_SECONDS)
    run = await until(scene, Bot(scene, "two"), lambda run: run.requests["R2"].status != "open", "decided")
    assert run.requests["R2"].status == status


async def test_an_overdue_deadline_is_an_event_once_however_many_look(scene: Scene, bot: Bot) -> None:
    await asked(scene, bot)
    other = Bot(scene, "two")
    await scene.time.advance(1000)
    await asyncio.gather(bot.advance("INC-1"), other.advance("INC-1"), bot.advance("INC-1"))
    timeline = await timeline_text(scene)
    assert timeline.count("decided: R2 expired") == 1
    assert timeline.count("half of the time for R2") == 1
    assert scene.cluster.sent == []


async def test_an_event_that_fails_three_times_is_set_aside_and_asks_a_person(scene: Scene, bot: Bot) -> None:
    await asked(scene, bot)
    assert await scene.eyes.append("INC-1", [STRANGE])
    for _ in range(2):
        await bot.advance("INC-1")
    run = await scene.run()
    assert run is not None
    assert run.open_question is not None
    assert "could not be handled (step_settled): IndexError" in run.open_question.text
    assert "set aside after three failures" in await timeline_text(scene)
    assert await scene.eyes.inbox("INC-1") == []
    assert first_break(await scene.eyes.timeline("INC-1")) is None


async def test_what_came_before_a_failing_event_is_kept_and_what_came_after_it_follows(scene: Scene, bot: Bot) -> None:
    await asked(scene, bot)
    before, after = builders.alert(fingerprint="f2"), builders.alert(fingerprint="f3")
    for alert in (before, after):
        await bot.store.accept([alert], truncated=0)
        await bot.reconcile.route()
        if alert is before:
            await scene.eyes.append("INC-1", [STRANGE])
    await bot.wake.settled()
    await bot.advance("INC-1")
    run = await scene.run()
    assert run is not None
    assert set(run.alerts) == {"f1", "f2", "f3"}


async def test_a_stuck_incident_does_not_block_another(scene: Scene, bot: Bot) -> None:
    await asked(scene, bot)
    await scene.eyes.append("INC-1", [STRANGE])
    await bot.accept([builders.alert(fingerprint="f9", deployment="other")], 0)
    await bot.reconcile.route()
    await bot.wake.settled()
    other = await scene.eyes.load("INC-2")
    assert other is not None
    assert other.visit.number > 0


def in_another_language(bundle: Mapping[str, str]) -> Bundle:
    """Of a version of the bot that knows a key which this one does not know."""
    kept = json.loads(bundle["playbooks"])
    kept["drill"] |= {"source": f"at_most: 3\n{kept['drill']['source']}", "file": "drill.yaml"}
    return StoredPlaybooks()({**bundle, "playbooks": json.dumps(kept)})


def in_another_form(bundle: Mapping[str, str]) -> Bundle:
    """Of a version of the bot from before fragments had their name."""
    kept = json.loads(bundle["playbooks"])
    kept["drill"]["pieces"] = kept["drill"].pop("fragments")
    return StoredPlaybooks()({**bundle, "playbooks": json.dumps(kept)})


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (in_another_language, "drill.yaml:1:1: unknown key 'at_most'."),
        (in_another_form, "drill: this version of the bot cannot read how it is stored: 'fragments' is missing"),
    ],
)
async def test_a_run_whose_playbook_no_longer_compiles_says_so_and_can_be_closed(
    scene: Scene, bot: Bot, stored: Callable[[Mapping[str, str]], Bundle], why: str
) -> None:
    """Another version of the bot took over, which reads the language otherwise."""
    await asked(scene, bot)
    newer = AdvanceRun(scene.eyes, stored, RULES)
    for number in range(3):
        note = Commanded(event_id=f"note/{number}", command="note", user="U0ANA", text="anybody?")
        await scene.eyes.append("INC-1", [note])
        await newer("INC-1")
    await scene.time.advance(3600)
    await newer("INC-1")
    run = await scene.run()
    assert run is not None
    assert run.deadlines == {}
    texts = [post.data.get("text", "") for post in run.posts]
    (notice,) = [text for text in texts if "cannot continue by itself" in text]
    assert notice.startswith(f"INC-1 cannot continue by itself: {why}")
    assert notice.endswith(
        "Nothing more will be decided or changed. Let the version of the bot that opened it finish it, or close it "
        "with `/incident resolve INC-1`."
    )
    close = Commanded(event_id="close", command="resolve", user="U0ANA", text="by hand")
    await scene.eyes.append("INC-1", [close])
    await newer("INC-1")
    run = await scene.run()
    assert run is not None
    assert (run.ending, scene.cluster.sent) == ("resolved_by_hand", [])
    assert first_break(await scene.eyes.timeline("INC-1")) is None
    assert await scene.eyes.pending(10) == []


async def test_an_alert_of_a_closed_run_whose_playbook_no_longer_compiles_opens_it_again(
    scene: Scene, bot: Bot
) -> None:
    await asked(scene, bot)
    newer = AdvanceRun(scene.eyes, in_another_language, RULES)
    await scene.eyes.append("INC-1", [Commanded(event_id="close", command="resolve", user="U0ANA", text="by hand")])
    await newer("INC-1")
    again = AlertChanged(event_id="again", alert=builders.alert(starts_at=builders.START + 300))
    await scene.eyes.append("INC-1", [again])
    await newer("INC-1")
    run = await scene.run()
    assert run is not None
    assert run.is_open


async def test_a_press_on_a_run_whose_playbook_no_longer_compiles_decides_nothing_and_is_answered(
    scene: Scene, bot: Bot
) -> None:
    run = await asked(scene, bot)
    press = builders.press(about="R2", digest=run.requests["R2"].digest)
    authority = Authority(allowed=True, reason="on the list", teams=("approvers",), read_at=0.0)
    judged = Judged(event_id="judged/1", press=press, pressed_at=scene.time.now(), authority=authority)
    await scene.eyes.append("INC-1", [judged])
    advanced = await AdvanceRun(scene.eyes, in_another_language, RULES)("INC-1")
    (notice,) = [effect for effect in advanced.effects if isinstance(effect, Notify)]
    assert "can no longer be read" in notice.text
    after = await scene.run()
    assert after is not None
    assert after.requests["R2"].status == "open"


async def test_only_the_playbooks_of_the_last_runs_are_kept_in_memory(
    redis: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advance_run, "BUNDLES_KEPT", 2)
    store, read = RedisStore(redis, owner="one"), list[str]()

    def from_bundle(stored: Mapping[str, str]) -> Bundle:
        bundle = compiled_once(stored)
        read.append(str(bundle.entry_playbook.settings["calm_for"]))
        return bundle

    advance = AdvanceRun(store, from_bundle, RULES)
    runs = []
    for seconds in range(1, 4):
        bundle = Bundle.of(load_playbook(DRILL, {"calm_for": f"{seconds}s"}))
        await store.accept([builders.alert(fingerprint=f"f{seconds}")], truncated=0)
        (entry,) = await store.intake(10)
        target = builders.TARGET.model_copy(update={"name": f"llm-{seconds}"})
        runs.append(
            builders.run(incident_id=f"INC-{seconds}", target=target, playbook=bundle.entry, digest=bundle.digest)
        )
        assert await store.route(entry, runs[-1], "opens", bundle=bundle)
    first, second, third = runs
    for run in (first, second, first, third, first, second):
        await advance.playbook_of(run)
    assert read == ["1.0", "2.0", "3.0", "2.0"]


async def test_a_run_keeps_the_playbook_that_it_started_with_whatever_the_files_say_now(scene: Scene, bot: Bot) -> None:
    run = await asked(scene, bot)
    scene.playbook = load_playbook(DRILL, {"calm_for": "9s"})
    newer = Bot(scene, "after-the-edit")
    await newer.accept([builders.alert(fingerprint="f9", deployment="other")], 0)
    await newer.turn()
    kept, fresh = await scene.eyes.load("INC-1"), await scene.eyes.load("INC-2")
    assert kept is not None
    assert fresh is not None
    assert (await newer.advance.playbook_of(kept)).settings["calm_for"] == 2.0
    assert (await newer.advance.playbook_of(fresh)).settings["calm_for"] == 9.0
    assert kept.digest == run.digest != fresh.digest
