"""Maintenance windows and freezes with the real Redis, in virtual time: nothing is lost when one ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.planned_windows import RedisPlannedWindows
from bot.adapters.redis.store import RedisStore
from bot.domain.incidents.event import Commanded
from bot.domain.incidents.run import Run
from bot.domain.kernel.planned_window import PlannedWindow, WindowKind
from bot.domain.playbooks.library import Library
from bot.domain.reports import Roles, as_json, markdown
from bot.flow.keep_windows import AT_A_TIME, KeepWindows
from bot.flow.plan_windows import Plan, PlanWindows
from bot.flow.restrictions import Restrictions
from bot.flow.route_alerts import RouteAlerts
from tests import builders
from tests.fakes.cluster import MemoryCluster
from tests.flow.harness import Bot, Scene, timeline_text, until
from tests.flow.scenes import drill_playbook
from tests.kit.opened import opened
from tests.redis_server import VirtualTime

pytestmark = pytest.mark.fast
HOUR = 3600.0


@pytest.fixture
def windows(redis: Connection) -> RedisPlannedWindows:
    return RedisPlannedWindows(redis)


def window(kind: WindowKind, scene: Scene, *, hours: float = 1, target: str = "serving/ll*") -> PlannedWindow:
    now = scene.time.now()
    return PlannedWindow(
        kind=kind, targets=(target,), starts_at=now, ends_at=now + hours * HOUR, why="release", by="ana"
    )


def planned_by(scene: Scene) -> RedisPlannedWindows:
    return RedisPlannedWindows(scene.eyes._redis)


async def turns(bot: Bot, scene: Scene, count: int = 5) -> Run | None:
    for _ in range(count):
        await bot.turn()
        await scene.time.advance(1)
    return await scene.run()


# --- the store --------------------------------------------------------------------------------------------------------


async def test_a_window_replaces_one_of_its_kind_and_targets_and_ends_by_itself(
    windows: RedisPlannedWindows, time: VirtualTime
) -> None:
    now = time.now()
    first = PlannedWindow(kind="freeze", targets=("a/*",), starts_at=now, ends_at=now + 60, why="one", by="ana")
    longer = first.model_copy(update={"ends_at": now + 120, "why": "two"})
    other = first.model_copy(update={"kind": "maintenance"})
    for each in (first, longer, other):
        await windows.plan(each)
    assert {each.why for each in await windows.planned(at=now) if each.kind == "freeze"} == {"two"}
    assert await windows.planned(at=now + 60) == [longer]
    assert await windows.planned(at=now + 120) == []
    assert not await windows.end("freeze", ("a/*",)), "it has expired"


async def test_a_window_that_begins_while_the_one_before_it_is_cleared_away_stays(
    windows: RedisPlannedWindows, time: VirtualTime, redis: Connection
) -> None:
    now = time.now()
    old = PlannedWindow(kind="freeze", targets=("a/*",), starts_at=now, ends_at=now + 60, why="one", by="ana")
    new = old.model_copy(update={"ends_at": now + 7200, "why": "two"})

    class Late(RedisPlannedWindows):
        """Another replica plans the new window right after this one has read the old one."""

        async def planned(self, *, at: float) -> Sequence[PlannedWindow]:
            read = self._redis.client.hgetall

            async def reads(key: str) -> Any:
                found = await read(key)
                await windows.plan(new)
                return found

            self._redis.client.hgetall = reads  # type: ignore[method-assign,assignment]
            try:
                return await super().planned(at=at)
            finally:
                self._redis.client.hgetall = read  # type: ignore[method-assign]

    await windows.plan(old)
    assert await Late(redis).planned(at=now + 61) == []
    assert await windows.planned(at=now + 61) == [new]


# --- maintenance ------------------------------------------------------------------------------------------------------


async def test_an_alert_in_maintenance_opens_its_incident_when_the_window_ends(scene: Scene) -> None:
    await planned_by(scene).plan(window("maintenance", scene))
    bot = Bot(scene, "one")
    assert await turns(bot, scene) is None
    assert [each.alert.fingerprint for each in await scene.eyes.held()] == ["f1"]
    await scene.time.advance(HOUR)
    run = await until(scene, bot, lambda run: run.visit.number > 0, "opened")
    assert run.alerts["f1"].status == "firing"
    assert "held back during maintenance until" in await timeline_text(scene)
    assert await scene.eyes.held() == []


async def test_the_windows_are_read_once_for_all_alerts_that_they_hold(
    redis: Connection, store: RedisStore, time: VirtualTime
) -> None:
    looked: list[float] = []

    class Counted(RedisPlannedWindows):
        async def planned(self, *, at: float) -> Sequence[PlannedWindow]:
            looked.append(at)
            return await super().planned(at=at)

    windows = Counted(redis)
    await windows.plan(PlannedWindow(kind="maintenance", targets=(), starts_at=time.now(), ends_at=time.now() + HOUR))
    clusters = {"test": MemoryCluster(time.now)}
    library = Library({"drill": drill_playbook()})
    route = RouteAlerts(store, store, library, clusters, restrictions=Restrictions(windows), wake=lambda *_: None)
    alerts = [builders.alert(fingerprint=f"f{number}", deployment=f"llm-{number}") for number in range(20)]
    await store.accept(alerts, truncated=0)
    await route()
    looked.clear()
    await route.release()
    assert (len(await store.held()), len(looked)) == (20, 1)


async def test_a_window_that_people_end_early_releases_its_alerts(scene: Scene) -> None:
    windows = planned_by(scene)
    await windows.plan(window("maintenance", scene))
    bot = Bot(scene, "one")
    await turns(bot, scene)
    assert await windows.end("maintenance", ("serving/ll*",))
    assert await turns(bot, scene) is not None


async def test_an_alert_that_resolves_in_maintenance_opens_nothing(scene: Scene) -> None:
    await planned_by(scene).plan(window("maintenance", scene))
    bot = Bot(scene, "one")
    await turns(bot, scene)
    scene.alerts.append(builders.alert("resolved"))
    await turns(bot, scene)
    await scene.time.advance(HOUR)
    assert await turns(bot, scene) is None
    assert await scene.eyes.held() == []
    assert [why for _, why in await scene.eyes.unmatched(5)] == [
        "it is resolved, and no incident of its target is open"
    ]


async def test_the_newest_of_the_repeats_of_a_held_alert_counts(scene: Scene) -> None:
    await planned_by(scene).plan(window("maintenance", scene, hours=3))
    bot = Bot(scene, "one")
    await turns(bot, scene)
    await scene.time.advance(HOUR + 60)
    scene.alerts.append(builders.alert(severity="critical"))
    await turns(bot, scene)
    assert [each.alert.severity for each in await scene.eyes.held()] == ["critical"]


async def test_an_urgent_alert_opens_its_incident_in_maintenance_and_says_so(scene: Scene) -> None:
    urgent = scene.playbook.playbook.model_copy(update={"urgent": True})
    scene.playbook = scene.playbook.with_settings({})
    object.__setattr__(scene.playbook, "playbook", urgent)
    await planned_by(scene).plan(window("maintenance", scene))
    bot = Bot(scene, "one")
    assert await turns(bot, scene) is not None
    assert "urgent, so it opened an incident during maintenance until" in await timeline_text(scene)


@pytest.mark.parametrize("other", ["chat/*", "serving/other"])
async def test_maintenance_of_another_target_holds_nothing_back(other: str, scene: Scene) -> None:
    await planned_by(scene).plan(window("maintenance", scene, target=other))
    assert await turns(Bot(scene, "one"), scene) is not None


async def test_an_incident_that_is_open_goes_on_in_maintenance(scene: Scene) -> None:
    bot = Bot(scene, "one")
    await turns(bot, scene)
    await planned_by(scene).plan(window("maintenance", scene))
    scene.alerts.append(builders.alert(fingerprint="f2"))
    run = await turns(bot, scene)
    assert run is not None
    assert set(run.alerts) == {"f1", "f2"}


# --- freezes ----------------------------------------------------------------------------------------------------------


async def test_a_secret_in_the_reason_of_a_window_is_not_shown_by_what_it_holds_back(scene: Scene) -> None:
    windows = planned_by(scene)
    service = PlanWindows(windows, Restrictions(windows), scene.eyes, scene.eyes)
    await service.begin(Plan("c1", "freeze", "all", user="U0ANA", seconds=HOUR, why="a trial with PASSWORD=hunter2"))
    run = await until(scene, Bot(scene, "one"), lambda run: run.only_advice is not None, "advised")
    assert run.only_advice is not None
    assert "a trial with PASSWORD=(masked) (U0ANA)" in run.only_advice.text


async def test_a_freeze_turns_a_change_into_advice_until_it_ends(scene: Scene) -> None:
    await planned_by(scene).plan(window("freeze", scene))
    bot = Bot(scene, "one")
    run = await until(scene, bot, lambda run: run.advised is not None, "advised")
    assert run.advised is not None
    assert run.advised.advice is not None
    assert "freeze until" in run.advised.advice.text
    assert scene.cluster.sent == []
    await scene.time.advance(HOUR)
    run = await until(scene, bot, lambda run: not run.is_open, "closed")
    assert run.ending == "fixed"
    assert scene.cluster.applied, "people approved the change once the freeze was over"


async def test_a_freeze_that_begins_before_an_approval_turns_the_request_into_advice(scene: Scene) -> None:
    bot = Bot(scene, "one")
    scene.people_are_there = True
    await until(scene, bot, lambda run: run.open_question is not None, "asked")
    run = await until(scene, bot, lambda run: run.open_request is not None, "requested")
    await planned_by(scene).plan(window("freeze", scene))
    run = await until(scene, bot, lambda run: run.advised is not None, "advised")
    assert run.requests["R2"].status == "superseded"
    assert "it is only advised now: freeze until" in run.requests["R2"].decision_reason
    assert scene.cluster.sent == []


async def test_a_freeze_that_people_begin_takes_the_buttons_off_an_open_request(scene: Scene) -> None:
    bot = Bot(scene, "one")
    await until(scene, bot, lambda run: run.open_question is not None, "asked")
    scene.people_are_there = True
    run = await until(scene, bot, lambda run: run.open_request is not None, "requested")
    scene.people_are_there = False
    windows = planned_by(scene)
    service = PlanWindows(windows, Restrictions(windows), scene.eyes, scene.eyes)
    await service.begin(Plan("c1", "freeze", "serving/*", user="U0ANA", user_name="ana", seconds=HOUR, why="release"))
    await bot.runtime.windows.once()
    run = await until(scene, bot, lambda run: run.advised is not None, "advised")
    asked = run.requests["R2"]
    assert (asked.status, asked.presses) == ("superseded", ())
    assert asked.decision_reason.startswith("Freeze until")
    assert run.open_request is None


# --- planned by people ------------------------------------------------------------------------------------------------


async def test_a_planned_window_is_on_the_timelines_of_its_open_incidents(scene: Scene) -> None:
    bot = Bot(scene, "one")
    await turns(bot, scene)
    windows = planned_by(scene)
    service = PlanWindows(windows, Restrictions(windows), scene.eyes, scene.eyes)
    plan = Plan("c1", "freeze", "serving/*", user="U0ANA", user_name="ana", seconds=HOUR, why="release")
    begun = await service.begin(plan)
    assert await service.open() == [begun]
    await service.begin(replace(plan, command_id="c2", targets="chat/*"))
    await bot.runtime.windows.once()
    await turns(bot, scene)
    assert (await timeline_text(scene)).count("note: Freeze until") == 1
    ends = replace(plan, command_id="c3")
    assert await service.end(ends)
    await service.announce_end(ends)
    await turns(bot, scene)
    assert "note: Freeze ended by ana" in await timeline_text(scene)


@dataclass
class Planner:
    """People who plan windows, and one process that notifies the incidents of them."""

    store: RedisStore
    windows: RedisPlannedWindows
    time: VirtualTime
    woken: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.keep = self.another()

    def another(self, is_busy: Callable[[], bool] = lambda: False) -> KeepWindows:
        return KeepWindows(self.store, Restrictions(self.windows), self.woken.append, is_busy)

    async def begins(self, kind: WindowKind = "freeze", of: str = "all", seconds: float = HOUR) -> None:
        service = PlanWindows(self.windows, Restrictions(self.windows), self.store, self.store, self.woken.append)
        await service.begin(Plan("c1", kind, of, user="U0ANA", user_name="ana", seconds=seconds, why="release"))

    async def opened(self, many: int) -> list[str]:
        names = [f"INC-{number}" for number in range(1, many + 1)]
        await opened(self.store, *names)
        return names

    async def commands(self, incident: str) -> list[tuple[str, str]]:
        return [(event.command, event.user) for event in await self.inbox(incident)]

    async def inbox(self, incident: str) -> list[Commanded]:
        return [event for event in await self.store.inbox(incident) if isinstance(event, Commanded)]


@pytest.fixture
def planner(store: RedisStore, windows: RedisPlannedWindows, time: VirtualTime) -> Planner:
    return Planner(store, windows, time)


async def test_a_freeze_is_one_write_and_reaches_incidents_a_bounded_number_a_round(planner: Planner) -> None:
    many = await planner.opened(AT_A_TIME + 2)
    await planner.begins()
    assert planner.woken == []
    assert [await planner.commands(each) for each in many] == [[]] * len(many)
    for reached in (AT_A_TIME, AT_A_TIME + 2, AT_A_TIME + 2):
        await planner.keep.once()
        assert len(planner.woken) == reached
    assert [await planner.commands(each) for each in many] == [[("freeze", "U0ANA")]] * len(many)


async def test_a_freeze_is_notified_with_the_one_that_ends_last(planner: Planner) -> None:
    await planner.opened(1)
    await planner.begins(seconds=2 * HOUR)
    await planner.begins(of="serving/inc-1")
    await planner.keep.once()
    (longest,) = {event.to for event in await planner.inbox("INC-1")}
    assert longest == str(max(await planner.windows.planned(at=planner.time.now()), key=lambda one: one.ends_at))


async def test_a_freeze_that_a_process_has_half_notified_is_notified_by_the_next_one_and_once(planner: Planner) -> None:
    many = await planner.opened(AT_A_TIME + 2)
    await planner.begins()
    await planner.keep.once()
    for bot in (new := planner.another(), planner.keep, new, new):
        await bot.once()
    assert [await planner.commands(each) for each in many] == [[("freeze", "U0ANA")]] * len(many)


async def test_maintenance_is_noted_on_its_own_incidents_and_after_a_freeze(planner: Planner) -> None:
    await planner.opened(AT_A_TIME)
    await planner.begins("maintenance", "serving/inc-1")
    await planner.begins("freeze", "serving/inc-*")
    await planner.keep.once()
    assert await planner.commands("INC-1") == [("freeze", "U0ANA")]
    await planner.keep.once()
    assert await planner.commands("INC-1") == [("freeze", "U0ANA"), ("note", "U0ANA")]
    assert await planner.commands("INC-2") == [("freeze", "U0ANA")]


async def test_an_incident_that_opens_in_a_freeze_has_met_it_already(planner: Planner) -> None:
    await planner.begins()
    await planner.time.advance(1)
    await opened(planner.store, "INC-1", opened_at=planner.time.now())
    await planner.keep.once()
    assert await planner.commands("INC-1") == []


async def test_while_much_is_under_way_no_incident_is_notified_of_a_freeze_and_all_are_after_it(
    planner: Planner,
) -> None:
    busy = [True, False]
    await planner.opened(1)
    await planner.begins()
    keep = planner.another(lambda: busy.pop(0))
    await keep.once()
    assert await planner.commands("INC-1") == []
    await keep.once()
    assert await planner.commands("INC-1") == [("freeze", "U0ANA")]


async def test_a_window_of_the_settings_or_of_an_older_version_is_not_notified(planner: Planner) -> None:
    await planner.opened(1)
    now = planner.time.now()
    old = PlannedWindow(kind="freeze", targets=(), starts_at=now, ends_at=now + HOUR, why="release", by="ana")
    await planner.windows.plan(old)
    await planner.keep.once()
    assert await planner.commands("INC-1") == []


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"targets": "LLM"}, "is not a target"),
        ({"why": " "}, "a reason is needed"),
        ({"seconds": 25 * HOUR}, "lasts more than 0 and at most 24 hours"),
        ({"seconds": 0.0}, "lasts more than 0 and at most 24 hours"),
    ],
)
async def test_a_window_that_cannot_be_planned_says_why(wrong: dict[str, Any], why: str, scene: Scene) -> None:
    windows = planned_by(scene)
    service = PlanWindows(windows, Restrictions(windows), scene.eyes, scene.eyes)
    plan = Plan("c1", "maintenance", "serving/*", user="U0ANA", seconds=HOUR, why="release")
    with pytest.raises(ValueError, match=why):
        await service.begin(replace(plan, **wrong))
    assert await service.open() == []


async def test_held_alerts_that_cannot_be_read_keep_no_other_alert_waiting(scene: Scene) -> None:
    redis = scene.eyes._redis
    await redis.client.hset(redis.key("held"), "f9", "{}")
    assert await turns(Bot(scene, "one"), scene) is not None


async def test_nobody_cuts_a_longer_window_of_somebody_else_short(scene: Scene) -> None:
    windows = planned_by(scene)
    service = PlanWindows(windows, Restrictions(windows), scene.eyes, scene.eyes)
    own = Plan("c1", "freeze", "all", user="U0ANA", user_name="ana", seconds=24 * HOUR, why="release")
    await service.begin(own)
    with pytest.raises(ValueError, match=r"a freeze until .*: release \(ana\) is open and lasts longer"):
        await service.begin(Plan("c2", "freeze", "all", user="U0BEN", user_name="ben", seconds=HOUR, why="my test"))
    await service.begin(replace(own, command_id="c3", seconds=2 * HOUR))
    (window,) = await service.open()
    assert window.ends_at == scene.time.now() + 2 * HOUR, "one's own may become shorter"
    await service.begin(Plan("c4", "freeze", "all", user="U0BEN", user_name="ben", seconds=3 * HOUR, why="my test"))
    (window,) = await service.open()
    assert window.by == "ben"


async def test_an_alert_that_resolves_as_its_maintenance_ends_opens_nothing(
    store: RedisStore, redis: Connection, time: VirtualTime
) -> None:
    """Its resolve is accepted and not routed yet, and the held alert is older."""
    windows = RedisPlannedWindows(redis)
    route = RouteAlerts(
        store, store, Library({"drill": drill_playbook()}), {"test": MemoryCluster(time.now)},
        restrictions=Restrictions(windows), wake=lambda *_: None,
    )  # fmt: skip
    now = time.now()
    begun = PlannedWindow(
        kind="maintenance", targets=("serving/*",), starts_at=now, ends_at=now + 60, by="ana", user="U1", why="x"
    )
    await windows.plan(begun)
    await store.accept([builders.alert()], truncated=0)
    await route()
    assert len(await store.held()) == 1
    await time.advance(61)
    await store.accept([builders.alert(status="resolved")], truncated=0)
    await route.release()
    assert [each.alert.status for each in await store.intake(10)] == ["firing", "resolved"]


@pytest.mark.parametrize("name", ["Alice Smith", "Alice (SRE)"])
async def test_a_report_without_names_does_not_name_who_planned_a_freeze(scene: Scene, name: str) -> None:
    bot = Bot(scene, "one")
    await turns(bot, scene)
    windows = planned_by(scene)
    service = PlanWindows(windows, Restrictions(windows), scene.eyes, scene.eyes)
    await service.begin(
        Plan("c1", "freeze", "serving/*", user="U0ALICE", user_name=name, seconds=HOUR, why="release (v2)")
    )
    await bot.runtime.windows.once()
    await turns(bot, scene)
    run = await scene.run()
    assert run is not None
    entries = await scene.eyes.timeline(run.incident_id)
    text = markdown(entries, roles=Roles(entries)) + as_json(entries, roles=Roles(entries))
    assert "release (v2)" in text
    assert "Alice" not in text
