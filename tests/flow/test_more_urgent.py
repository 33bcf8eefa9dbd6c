"""A more urgent alert on a workload with an incident takes over, over the real Redis and in virtual time."""

from __future__ import annotations

import asyncio
import itertools

import pytest
import redis.asyncio as aioredis

from bot.adapters.yaml_playbooks import load_playbook
from bot.domain.approvals.contacts import Contact, Contacts
from bot.domain.kernel.alert import Alert
from tests import builders
from tests.fakes.cluster import MemoryCluster
from tests.flow.harness import Bot, Scene, quiet_about_crashes
from tests.flow.scenes import DRILL
from tests.flow.stage import Side, Stage
from tests.flow.test_parked import CALM, GROW, HOUR, MINUTE, PATCH, UNANSWERED, Days
from tests.redis_server import VirtualTime

pytestmark = pytest.mark.fast
CONTACTS = Contacts(teams={"serving": Contact(team="serving", mentions=("S0SERVING",), has_pager=True)})


async def begun(client: aioredis.Redis, tag: str, dies_at: tuple[int, Side] | None = None) -> Days:
    time = VirtualTime(client, tag)
    await time.start()
    read = {"thrash": UNANSWERED, "load": 0.0, "again": {"fires": False, "names": ""}}
    scene = Scene(
        client, tag, time, Stage(dies_at), MemoryCluster(time.now), load_playbook(DRILL.with_name("parked.yaml")),
        lambda: read, answers={}, alerts=[], contacts=CONTACTS,
        besides=(load_playbook(DRILL.with_name("urgent.yaml")),),
    )  # fmt: skip
    scene.people_are_there = False
    return Days(scene, read)


@pytest.fixture
async def days(client: aioredis.Redis, tag: str) -> Days:
    return await begun(client, tag)


def thrash(days: Days) -> Alert:
    return builders.alert(starts_at=days.time.now())


def xid(days: Days, **fields: str) -> Alert:
    return builders.alert(
        starts_at=days.time.now(), fingerprint="xid", alertname="GPUFatalXID", severity="critical", **fields
    )


async def test_an_xid_takes_over_while_a_request_waits_and_calls_people(days: Days) -> None:
    days.read["thrash"] = GROW
    await days.arrives(thrash(days))
    request = (await days.run()).open_request
    assert request is not None
    await days.arrives(xid(days))
    run = await days.run()
    assert (run.playbook, run.visit.state, run.requests[request.request_id].status) == ("urgent", "faulty", "withdrawn")
    assert await days.incidents() == ["INC-1"], "in the same incident, with its timeline and undo"
    assert (
        "GPUFatalXID: 'A GPU is faulty' is more urgent and takes over from 'Long waits'."
        in await days.timeline_text("INC-1")
    )
    assert [(call.team, call.action) for call in days.scene.pages] == [("serving", "trigger")]
    assert any(
        "<!subteam^S0SERVING>" in str(message) for message in days.scene.messages() if "takes over" in str(message)
    )


async def test_the_thrash_is_taken_up_again_after_the_fault(days: Days) -> None:
    await days.arrives(thrash(days))
    await days.arrives(xid(days))
    await days.answers("INC-1", "none")
    run = await days.run()
    assert (run.playbook, run.visit.state, run.is_open) == ("parked", "people", True)


async def test_while_the_fault_waits_for_a_ticket_the_thrash_has_a_fresh_incident(days: Days) -> None:
    await days.arrives(thrash(days))
    await days.arrives(xid(days))
    await days.answers("INC-1", "ticket")
    assert (await days.parked(), await days.slot()) == (["INC-1"], "INC-2")
    fresh = await days.run("INC-2")
    assert (fresh.playbook, list(fresh.alerts)) == ("parked", ["f1"])
    assert list((await days.run()).alerts) == ["xid"]


async def test_a_parked_watch_that_reads_alerts_does_not_swallow_a_more_urgent_one(days: Days) -> None:
    days.read["thrash"] = CALM
    await days.arrives(thrash(days))
    assert (await days.run()).reads_alerts
    await days.arrives(xid(days))
    assert ((await days.run("INC-2")).playbook, await days.slot()) == ("urgent", "INC-2")


async def test_a_more_urgent_alert_does_not_reopen_the_incident_that_has_just_ended(days: Days) -> None:
    days.read["thrash"] = PATCH
    await days.arrives(thrash(days))
    await days.answers("INC-1", "never")
    assert not (await days.run()).is_open
    await days.arrives(xid(days))
    assert (await days.run("INC-2")).playbook == "urgent"
    assert not (await days.run()).is_open


async def test_an_unanswered_fault_parks_and_the_thrash_has_a_fresh_incident(days: Days) -> None:
    await days.arrives(thrash(days))
    await days.arrives(xid(days))
    await days.passes(11 * MINUTE)
    assert (await days.parked(), await days.slot()) == (["INC-1"], "INC-2")
    await days.passes(2 * HOUR)
    assert not [run for run in [await days.run(name) for name in await days.incidents()] if not run.deadlines]


async def _crashing(client: aioredis.Redis, tag: str, dies_at: tuple[int, Side]) -> tuple[Days, bool]:
    days = await begun(client, tag, dies_at)
    asyncio.get_running_loop().set_exception_handler(quiet_about_crashes)
    await days.arrives(thrash(days))
    await days.arrives(xid(days))
    died = days.bot.life.is_over
    if died:
        days.scene.stage.dies_at = None
        await days.time.advance(20)
        days.bot = Bot(days.scene, "two")
    await days.passes(30)
    return days, died


async def test_a_bot_that_dies_meanwhile_takes_over_once(client: aioredis.Redis, tag: str) -> None:
    clean = await begun(client, f"{tag}-clean")
    await clean.arrives(thrash(clean))
    first = len(clean.scene.stage.points)
    await clean.arrives(xid(clean))
    sides: tuple[Side, ...] = ("before", "after")
    for number, side in itertools.product(range(first + 1, len(clean.scene.stage.points), 3), sides):
        days, died = await _crashing(client, f"{tag}-{number}-{side}", (number, side))
        run = await days.run()
        assert died
        assert (run.playbook, run.visit.state, run.diverts) == ("urgent", "faulty", 1), number
        assert (await days.timeline_text("INC-1")).count("continues in urgent") == 1
