"""A parked incident never mutes its workload: over days, with the real Redis, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis.asyncio as aioredis

from bot.adapters.yaml_playbooks import load_playbook
from bot.domain.approvals.contacts import Contact, Contacts
from bot.domain.incidents.event import Due
from bot.domain.incidents.run import PARKED_REMINDER, Halt, Run
from bot.domain.kernel.alert import Alert
from tests import builders
from tests.fakes.cluster import MemoryCluster
from tests.flow.harness import APPROVERS, LEAD, Bot, Scene
from tests.flow.scenes import DRILL
from tests.flow.stage import Stage
from tests.redis_server import VirtualTime

pytestmark = pytest.mark.fast
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
UNANSWERED, PATCH, GROW, CALM = 2.8, 1.5, 0.8, 0.0
"""What the thrash is where nobody answers, a patch is awaited, a replica is added, or only load is missing."""


class Days:
    """The bot, what it reads, and the passing of time; nobody answers unless a test does."""

    def __init__(self, scene: Scene, read: dict[str, Any]) -> None:
        self.scene, self.read, self.bot = scene, read, Bot(scene, "one")
        self.store, self.time = scene.eyes, scene.time

    async def arrives(self, *alerts: Alert) -> None:
        self.scene.alerts += alerts
        await self.passes(3)

    async def passes(self, seconds: float, *, step: float = 5 * MINUTE) -> None:
        """Work, let time pass in steps, work."""
        ends = self.time.now() + seconds
        while True:
            await self.bot.turn()
            if self.time.now() >= ends:
                return
            await self.time.advance(min(step, 1.0 if seconds < MINUTE else step, ends - self.time.now()))

    async def run(self, incident: str = "INC-1") -> Run:
        run = await self.store.load(incident)
        assert run is not None, f"{incident} is not stored"
        return run

    async def incidents(self) -> list[str]:
        return sorted(await self.store.recent_incidents(20))

    async def slot(self) -> str | None:
        return await self.store.open_incident(builders.TARGET.key)

    async def parked(self) -> list[str]:
        return list(await self.store.parked_incidents(builders.TARGET.key))

    async def answers(self, incident: str, choice: str) -> None:
        question = (await self.run(incident)).open_question
        assert question is not None
        channel, _ts = (await self.run(incident)).in_slack.places[f"question:{question.question_id}"]
        self.scene.attempts += 1
        press = builders.press(
            press_id=f"p{self.scene.attempts}", channel=channel, action="choose", about=question.question_id,
            value=choice, user=LEAD,
        )  # fmt: skip
        await self.bot.receive.press(press, incident)
        await self.passes(5)

    async def approves(self, incident: str = "INC-1") -> None:
        request = (await self.run(incident)).open_request
        assert request is not None
        channel, _ts = (await self.run(incident)).in_slack.places[f"request:{request.request_id}"]
        for user in APPROVERS[: request.policy.needed]:
            self.scene.attempts += 1
            press = builders.press(
                press_id=f"p{self.scene.attempts}", channel=channel, action="approve", about=request.request_id,
                digest=request.digest, user=user, reason="users wait",
            )  # fmt: skip
            await self.bot.receive.press(press, incident)
        await self.passes(20)

    async def timeline_text(self, incident: str) -> str:
        return "\n".join(item.entry.text for item in await self.store.timeline(incident))


@pytest.fixture
async def days(client: aioredis.Redis, tag: str) -> Days:
    time = VirtualTime(client, tag)
    await time.start()
    cluster = MemoryCluster(time.now)
    read: dict[str, Any] = {"thrash": UNANSWERED, "load": 0.0, "again": {"fires": False, "names": ""}}
    scene = Scene(
        client, tag, time, Stage(None), cluster, load_playbook(DRILL.with_name("parked.yaml")), lambda: read,
        answers={}, alerts=[], contacts=Contacts(approvers=Contact(team="approvers", mentions=("S0SERVING",))),
    )  # fmt: skip
    scene.people_are_there = False
    return Days(scene, read)


At = Callable[[float], Alert]


def fires(days: Days, **fields: Any) -> Alert:
    return builders.alert(starts_at=days.time.now(), **fields)


async def test_over_days_an_unanswered_incident_never_mutes_its_workload(days: Days) -> None:
    first = fires(days)
    await days.arrives(first)
    assert await days.slot() == "INC-1"
    await days.passes(31 * MINUTE)
    assert await days.slot() is None, "nobody answered: it is parked"
    assert await days.parked() == ["INC-1"]
    assert (await days.run()).open_question is not None, "it can still be answered"

    await days.passes(4 * HOUR)
    await days.arrives(first)
    assert await days.slot() == "INC-2", "the alert repeats: people are called again"
    assert [one.incident_id for one in (await days.run("INC-2")).parked_before] == ["INC-1"]
    assert "INC-1 is parked: waits for This needs people: Somebody has to look." in await days.timeline_text("INC-2")
    await days.passes(31 * MINUTE)
    assert await days.parked() == ["INC-1", "INC-2"]

    resolved = builders.alert("resolved", starts_at=first.starts_at.timestamp())
    await days.arrives(resolved)
    assert await days.incidents() == ["INC-1", "INC-2"], "an alert that resolves opens nothing"
    assert (await days.run("INC-2")).alerts_resolved_at is not None, "and is told to the one that has it"
    assert await days.store.unmatched(10) == []

    await days.passes(DAY - 5 * HOUR)
    await days.arrives(fires(days))
    assert await days.slot() == "INC-3", "it fires again: a fresh incident"
    await days.passes(HOUR)
    assert await days.slot() is None
    assert set(await days.parked()) <= {"INC-1", "INC-2", "INC-3"}


async def test_an_unanswered_incident_ends_at_its_reminder_where_another_has_the_target(days: Days) -> None:
    await days.arrives(fires(days))
    await days.passes(31 * MINUTE)
    parked_at = (await days.run()).parked
    assert parked_at is not None
    await days.passes(23 * HOUR + 50 * MINUTE)
    await days.arrives(fires(days))
    assert await days.slot() == "INC-2"
    await days.passes(20 * MINUTE)
    ended = await days.run()
    assert (ended.ending, ended.deadlines) == ("superseded", {})
    assert await days.parked() == []
    assert "INC-2 is open on the same workload" in await days.timeline_text("INC-1")


async def test_a_parked_incident_reminds_people_every_day(days: Days) -> None:
    days.read["thrash"] = PATCH
    await days.arrives(fires(days))
    assert await days.parked() == ["INC-1"]
    await days.passes(2 * DAY + HOUR, step=HOUR)
    reminded = [post for post in (await days.run()).posts if "is parked for" in post.data.get("text", "")]
    assert len(reminded) == 2
    assert "waits for: Is the owner's patch there?" in reminded[0].data["text"]
    assert reminded[0].data["mentions"] == ["S0SERVING"]


async def test_an_alert_that_only_repeats_does_not_open_an_incident_beside_a_wait_that_people_know(days: Days) -> None:
    days.read["thrash"] = PATCH
    first = fires(days)
    await days.arrives(first)
    await days.passes(5 * HOUR, step=HOUR)
    await days.arrives(first)
    assert await days.incidents() == ["INC-1"]
    days.read["thrash"] = UNANSWERED
    await days.arrives(fires(days, fingerprint="f2"))
    assert await days.slot() == "INC-2", "another alert does"
    assert await days.parked() == ["INC-1"]


async def test_a_parked_incident_that_continues_takes_a_free_slot(days: Days) -> None:
    days.read["thrash"] = PATCH
    await days.arrives(fires(days))
    days.read["thrash"] = UNANSWERED
    await days.answers("INC-1", "there")
    run = await days.run()
    assert (run.visit.state, run.parked, await days.slot()) == ("people", None, "INC-1")
    assert PARKED_REMINDER not in run.deadlines


async def test_a_parked_incident_that_continues_beside_another_ends_as_superseded(days: Days) -> None:
    days.read["thrash"] = PATCH
    await days.arrives(fires(days))
    days.read["thrash"] = UNANSWERED
    await days.arrives(fires(days, fingerprint="f2"))
    assert await days.slot() == "INC-2"
    await days.answers("INC-1", "there")
    assert (await days.run()).ending == "superseded"
    assert await days.slot() == "INC-2"
    assert await days.parked() == []


async def test_a_parked_incident_may_end_beside_another(days: Days) -> None:
    days.read["thrash"] = PATCH
    await days.arrives(fires(days))
    await days.arrives(fires(days, fingerprint="f2"))
    await days.answers("INC-1", "never")
    assert (await days.run()).ending == "handed_over"


async def test_what_a_superseded_incident_changed_belongs_to_the_next_one(days: Days) -> None:
    days.read["thrash"] = GROW
    await days.arrives(fires(days))
    await days.approves()
    assert await days.parked() == ["INC-1"], (await days.run()).visit.machine_state
    (held,) = (await days.run()).held
    days.read["again"] = {"fires": True, "names": "x"}
    await days.passes(2 * HOUR)
    assert ((await days.run()).visit.state, await days.parked()) == ("bad", ["INC-1"]), "nobody answered"
    days.read |= {"thrash": UNANSWERED, "again": {"fires": False, "names": ""}}
    await days.arrives(fires(days, fingerprint="f2"))
    assert (await days.run("INC-2")).parked_before[0].active_changes == (held.title,)
    await days.answers("INC-1", "look")
    assert (await days.run()).ending == "superseded"
    assert (await days.run("INC-2")).held == (held,), "with its undo"
    assert "INC-1 ended; what it changed is still in place" in await days.timeline_text("INC-2")


async def test_a_watch_that_reads_alerts_receives_them_and_takes_the_slot(days: Days) -> None:
    days.read["thrash"] = CALM
    await days.arrives(fires(days))
    assert (await days.run()).reads_alerts
    await days.passes(3 * HOUR)
    assert await days.slot() is None
    await days.arrives(fires(days, fingerprint="f2"))
    assert await days.incidents() == ["INC-1"]
    days.read["again"] = {"fires": True, "names": "VllmKVCacheThrash"}
    await days.passes(30 * MINUTE)
    assert ((await days.run()).visit.state, await days.slot()) == ("bad", "INC-1")


@pytest.mark.parametrize(
    ("load", "ending"), [pytest.param(9.0, "fixed", id="load"), pytest.param(0.0, "unproven", id="no-load")]
)
async def test_a_watch_for_a_day_ends_by_what_it_saw(days: Days, load: float, ending: str) -> None:
    days.read["thrash"] = CALM
    await days.arrives(fires(days))
    await days.passes(3 * HOUR)
    days.read["load"] = load
    await days.passes(22 * HOUR)
    assert ((await days.run()).ending, await days.parked()) == (ending, [])


async def test_an_alert_that_waits_in_the_inbox_as_the_incident_parks_opens_a_fresh_one(days: Days) -> None:
    await days.arrives(fires(days))
    run = await days.run()
    (name, at) = next((name, at) for name, at in run.deadlines.items() if name.endswith(":expiry"))
    await days.time.advance(at - days.time.now())
    assert await days.store.append("INC-1", [Due(event_id="due", deadline=name, due_at=at)])
    await days.arrives(fires(days, fingerprint="f2"))
    assert await days.parked() == ["INC-1"]
    assert await days.slot() == "INC-2"
    assert list((await days.run("INC-2")).alerts) == ["f2"]


async def test_a_halt_of_everything_reaches_parked_incidents(days: Days) -> None:
    days.read["thrash"] = PATCH
    await days.arrives(fires(days))
    await days.bot.receive.halt_all(LEAD, "a drill")
    await days.passes(10)
    assert (await days.run()).halt == Halt(by=LEAD, reason="a drill", with_all=True)
    assert [run.incident_id for run in (await days.store.open_page(10)).runs] == ["INC-1"]


@pytest.mark.parametrize("parked", [False, True], ids=["while-it-is-asked", "while-it-is-parked"])
async def test_an_incident_whose_trouble_went_away_ends_by_itself(days: Days, *, parked: bool) -> None:
    first = fires(days)
    await days.arrives(first)
    await days.passes(31 * MINUTE if parked else MINUTE, step=MINUTE)
    assert (await days.parked() == ["INC-1"]) is parked
    await days.arrives(builders.alert("resolved", starts_at=first.starts_at.timestamp()))
    await days.passes(15 * MINUTE, step=MINUTE)
    assert (await days.run()).is_open, "the alerts are resolved, and the signals are not calm"
    days.read["thrash"] = CALM
    await days.passes(25 * MINUTE, step=MINUTE)
    assert (await days.run()).ending == "resolved_by_itself"
    assert (await days.parked(), await days.slot()) == ([], None)
    assert any(file.endswith(".md") for file in days.scene.files()), "with the report"


async def test_a_bot_that_dies_leaves_a_parked_incident_as_it_is(days: Days) -> None:
    await days.arrives(fires(days))
    await days.passes(31 * MINUTE)
    days.bot = Bot(days.scene, "two")
    await days.passes(HOUR)
    assert await days.parked() == ["INC-1"]
    await days.answers("INC-1", "taken")
    assert (await days.run()).ending == "handed_over"


async def test_the_end_of_its_alert_reaches_an_incident_that_is_parked_beside_a_later_one(days: Days) -> None:
    """The repeat went to the later one. Without the end, the first would remind people for ever."""
    first = fires(days)
    await days.arrives(first)
    await days.passes(31 * MINUTE)
    assert await days.parked() == ["INC-1"]
    await days.passes(4 * HOUR)
    await days.arrives(first)
    assert await days.slot() == "INC-2"
    days.read["thrash"] = CALM
    await days.arrives(builders.alert("resolved", starts_at=first.starts_at.timestamp()))
    await days.passes(25 * MINUTE, step=MINUTE)
    assert (await days.run("INC-2")).ending == "resolved_by_itself"
    await days.passes(2 * HOUR, step=10 * MINUTE)
    assert (await days.run("INC-1")).ending == "resolved_by_itself"
