"""A Slack that refuses the bot for a while, and the fate of the incidents during and after it."""

from __future__ import annotations

import pytest

from bot.domain.incidents.machine.waits import UNPOSTED_SECONDS
from bot.domain.incidents.run import Run
from bot.sandbox.slack.faults import Fault
from tests.flow.harness import Bot, Scene, play, timeline_text, until

OF_THE_WORKSPACE = (
    "invalid_auth",
    "token_revoked",
    "account_inactive",
    "not_in_channel",
    "channel_not_found",
    "is_archived",
    "missing_scope",
)
POST, UPDATE = "chat.postMessage", "chat.update"
LONG_SECONDS = 20.0


def refuse(scene: Scene, error: str, *, method: str = POST, seconds: float = LONG_SECONDS) -> None:
    scene.team.faults.replace([Fault(method=method, kind=f"error:{error}", seconds=seconds)], scene.time.now())


def asks(run: Run) -> bool:
    return run.open_request is not None


@pytest.mark.parametrize(
    ("error", "method"),
    [*((error, POST) for error in OF_THE_WORKSPACE), ("invalid_auth", UPDATE), ("not_in_channel", UPDATE)],
)
async def test_an_incident_goes_on_once_slack_lets_the_bot_in_again(scene: Scene, error: str, method: str) -> None:
    refuse(scene, error, method=method)
    ending = await play(scene)
    assert ending.ending == "fixed"
    assert ending.slack["card"] == 1
    assert "could not be updated" not in await timeline_text(scene)


async def test_a_request_that_slack_refused_is_posted_once_it_may_be(scene: Scene, bot: Bot) -> None:
    await until(scene, bot, lambda run: run.open_question is not None, "asked which mitigation")
    refuse(scene, "invalid_auth", method="*")
    ending = await play(scene)
    assert ending.ending == "fixed"
    assert [slot for slot in ending.slack if slot.startswith("request:")]


async def test_a_request_that_cannot_be_posted_expires_all_the_same(scene: Scene, bot: Bot) -> None:
    await until(scene, bot, lambda run: run.open_question is not None, "asked which mitigation")
    refuse(scene, "invalid_auth", seconds=24 * 3600.0)
    asked = await until(scene, bot, asks, "asking for a change")
    request = asked.open_request
    assert request is not None
    await pass_time(scene, bot, UNPOSTED_SECONDS + request.policy.expires_seconds)
    run = await scene.run()
    assert run is not None
    assert run.requests[request.request_id].status == "expired"
    assert "could not be posted" in await timeline_text(scene)


async def test_a_request_that_is_posted_late_has_its_whole_time(scene: Scene, bot: Bot) -> None:
    await until(scene, bot, lambda run: run.open_question is not None, "asked which mitigation")
    refuse(scene, "invalid_auth", seconds=UNPOSTED_SECONDS + 300.0)
    scene.people_are_there = True
    await until(scene, bot, asks, "asking for a change")
    scene.people_are_there = False
    await pass_time(scene, bot, UNPOSTED_SECONDS + 300.0)
    run = await until(scene, bot, lambda run: bool(run.open_request and run.open_request.posted_at), "posted")
    request = run.open_request
    assert request is not None
    assert request.posted_at is not None
    assert request.expires_at == request.posted_at + request.policy.expires_seconds


async def pass_time(scene: Scene, bot: Bot, seconds: float) -> None:
    ends_at = scene.time.now() + seconds
    while scene.time.now() <= ends_at:
        await bot.turn()
        await scene.time.advance(20.0)
    await bot.turn()


@pytest.mark.parametrize("word", ["show", "list"])
async def test_who_looks_at_an_incident_need_not_wait_for_the_next_try(scene: Scene, bot: Bot, word: str) -> None:
    scene.team.faults.replace([Fault(method=POST, kind="error:not_in_channel", count=1)], scene.time.now())
    await bot.turn()
    assert "card" not in scene.slots()
    await bot.turn()
    assert "card" not in scene.slots()
    await (bot.again.one("INC-1") if word == "show" else bot.again.all_of(["INC-1"]))
    await bot.wake.settled()
    assert "card" in scene.slots()


async def test_who_looks_at_an_incident_brings_back_what_was_given_up(scene: Scene, bot: Bot) -> None:
    refuse(scene, "no_text", seconds=60.0)
    await bot.turn()
    scene.team.faults.replace([], scene.time.now())
    await bot.turn()
    assert "card" not in scene.slots()
    await bot.again.one("INC-1")
    await bot.wake.settled()
    assert "card" in scene.slots()
