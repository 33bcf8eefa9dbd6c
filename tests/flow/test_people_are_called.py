"""People are called, over the real Redis and in virtual time: mentioned, paged, reminded, and called off again."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

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
from tests.flow.test_parked import MINUTE, UNANSWERED, Days
from tests.redis_server import VirtualTime

pytestmark = pytest.mark.fast
CONTACTS = Contacts(
    teams={
        "serving": Contact(team="serving", mentions=("S0SERVING",), has_pager=True),
        "lead": Contact(team="lead", mentions=("S0LEAD",), has_pager=True),
    }
)


async def begun(client: aioredis.Redis, tag: str, dies_at: tuple[int, Side] | None = None) -> Days:
    time = VirtualTime(client, tag)
    await time.start()
    read: dict[str, Any] = {"thrash": UNANSWERED, "load": 0.0, "again": {"fires": False, "names": ""}}
    scene = Scene(
        client, tag, time, Stage(dies_at), MemoryCluster(time.now), load_playbook(DRILL.with_name("parked.yaml")),
        lambda: read, answers={}, alerts=[], contacts=CONTACTS,
    )  # fmt: skip
    scene.people_are_there = False
    return Days(scene, read)


@pytest.fixture
async def days(client: aioredis.Redis, tag: str) -> Days:
    return await begun(client, tag)


def critical(days: Days) -> Alert:
    return builders.alert(starts_at=days.time.now(), severity="critical")


def sent(days: Days) -> list[tuple[str, str]]:
    return [(call.team, call.action) for call in days.scene.pages]


def mentions(days: Days, group: str) -> list[str]:
    """The messages that mention a group now."""
    return [str(message["text"]) for message in days.scene.messages() if f"<!subteam^{group}>" in str(message)]


async def test_from_the_first_question_to_the_end(days: Days) -> None:
    await days.arrives(critical(days))
    assert sent(days) == [("serving", "trigger")]
    (call,) = days.scene.pages
    assert (call.key, call.incident) == ("bot:INC-1:serving", "INC-1")
    assert len(mentions(days, "S0SERVING")) == 1

    await days.passes(16 * MINUTE)
    assert len(mentions(days, "S0SERVING")) == 2, "reminded at half of the time"
    assert sent(days) == [("serving", "trigger")], "a pager repeats its own calls"

    await days.passes(15 * MINUTE)
    assert sent(days)[1:] == [("lead", "trigger")], "nobody answered"
    assert len(mentions(days, "S0LEAD")) == 1

    await days.answers("INC-1", "taken")
    assert (await days.run()).ending == "handed_over"
    assert sorted(sent(days)[2:]) == [("lead", "resolve"), ("serving", "resolve")]
    assert len(mentions(days, "S0SERVING")) == 1, "the answered question mentions nobody any more"
    await days.passes(60 * MINUTE)
    assert len(sent(days)) == 4


async def test_an_incident_that_pages_nobody_only_mentions(days: Days) -> None:
    await days.arrives(builders.alert(starts_at=days.time.now(), severity="warning"))
    await days.passes(31 * MINUTE)
    assert sent(days) == []
    assert len(mentions(days, "S0LEAD")) == 1


async def test_a_bot_that_dies_around_a_page_calls_each_team_once(client: aioredis.Redis, tag: str) -> None:
    """The pager deduplicates by key: the same call may be sent twice, but no other, and no mention is repeated."""
    asyncio.get_running_loop().set_exception_handler(quiet_about_crashes)
    undisturbed = await begun(client, tag)
    await undisturbed.arrives(critical(undisturbed))
    paged = undisturbed.scene.stage.points.index("page serving trigger") + 1
    sides: tuple[Side, Side] = ("before", "after")
    for point, side in itertools.product(range(paged - 4, paged + 5), sides):
        days = await begun(client, f"{tag}-{point}-{side}", (point, side))
        await days.arrives(critical(days))
        assert days.bot.life.is_over, (point, side)
        days.bot = Bot(days.scene, "two")
        await days.passes(59)
        assert set(sent(days)) == {("serving", "trigger")}, (point, side)
        assert {call.key for call in days.scene.pages} == {"bot:INC-1:serving"}
        assert len(mentions(days, "S0SERVING")) == 1
        assert (await days.run()).pages["serving"].sent == "trigger"
