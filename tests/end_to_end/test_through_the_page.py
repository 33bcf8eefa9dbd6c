"""A person at the page in a real browser, from the card to an approved canary; a stranger gets nowhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Locator, Page, expect

from bot.sandbox.alerting.rule import ThrashRule
from bot.sandbox.scenarios import THRASH
from tests.browser import chromium
from tests.end_to_end.stage import Stage, stage
from tests.waiting import until

pytestmark = [pytest.mark.end_to_end, pytest.mark.needs_server("chromium"), pytest.mark.timeout(180)]

PICTURE = Path(__file__).parents[2] / "deploy" / "reference" / "demo.png"
"""The picture of the README: `UPDATE_PICTURES=1` takes it again."""
TAKES_PICTURE = bool(os.environ.get("UPDATE_PICTURES"))
A_LOOK = 30_000
"""Milliseconds for the bot to sample, read and ask."""


@pytest.fixture
def world() -> Iterator[Stage]:
    with stage() as running:
        if TAKES_PICTURE:  # with a chart that shows the time before, as the demo has it
            running.world.prepare(THRASH)
            until(lambda: running.has_history_of(12), "the time before the trouble is sampled", 60)
        running.world.cause_trouble(THRASH)
        lasted = 30 if TAKES_PICTURE else 15
        until(lambda: running.has_history_of(lasted), "the trouble has lasted until first tokens are late", 60)
        # The rule would fire too, when its window has passed.
        running.world.raise_alert(ThrashRule.alertname)
        yield running


async def test_a_person_clicks_from_the_card_to_an_approved_canary_and_a_stranger_is_refused(world: Stage) -> None:
    async with chromium() as browser:
        page = await browser.new_page(viewport={"width": 1280, "height": 900})
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        await page.goto(f"{world.world.slack_url}/?as=U0ANA")
        thread = await open_thread(page)
        approve = thread.get_by_role("button", name="Approve")
        await expect(approve).to_be_visible(timeout=A_LOOK)
        await expect(thread.get_by_role("img", name="First token")).to_be_visible(timeout=A_LOOK)
        # The whole request can be read and decided without scrolling.
        await expect(thread.get_by_text("Recommended:")).to_be_in_viewport(ratio=1)
        await expect(approve).to_be_in_viewport(ratio=1)
        if TAKES_PICTURE:
            await page.mouse.move(1, 1)  # nothing is pointed at
            await expect(page.get_by_text("Needs approval").first).to_be_visible(timeout=A_LOOK)
            await page.screenshot(path=PICTURE)

        await expect(thread).to_contain_text("requests at once, on one canary first", timeout=A_LOOK)
        await act_as(page, "Mo Haddad")
        await approve.click()
        whisper = page.locator(".message.ephemeral")
        await expect(whisper.first).to_contain_text("you are not in @serving-oncall", timeout=A_LOOK)
        await expect(approve).to_be_visible()
        assert world.changes() == []

        await act_as(page, "Ana Alvarez")
        await expect(whisper).to_have_count(0)
        await approve.click()
        await expect(thread).to_contain_text("Approved by @Ana Alvarez", timeout=A_LOOK)
        await expect(page.locator("#messages")).to_contain_text("canary", timeout=A_LOOK)
        await silence_and_end_it(page, world)
        assert faults == []


async def silence_and_end_it(page: Page, world: Stage) -> None:
    """What is shown in the form is what Alertmanager then keeps from the bot, until somebody ends it."""
    await command(page, "silence INC-1 30m the load test goes on until noon")
    form = page.get_by_role("dialog")
    await expect(form).to_contain_text("cluster=sandbox deployment=llm namespace=serving", timeout=A_LOOK)
    await form.get_by_role("button", name="Silence").click()
    await expect(form).to_have_count(0, timeout=A_LOOK)
    card = page.locator("#messages .message", has=page.locator("h3"))
    await expect(card).to_contain_text("Silenced until", timeout=A_LOOK)
    assert alert_states(world) == ["suppressed"]
    await command(page, "silence INC-1 off")
    await expect(card).not_to_contain_text("Silenced until", timeout=A_LOOK)
    assert alert_states(world) == ["active"]


def alert_states(world: Stage) -> list[str]:
    found = httpx.get(f"{world.world.alertmanager_url}/api/v2/alerts", timeout=10).raise_for_status().json()
    return [each["status"]["state"] for each in found]


async def command(page: Page, words: str) -> None:
    await page.locator("#composer textarea").fill(f"/incident {words}")
    await page.keyboard.press("Enter")


async def open_thread(page: Page) -> Locator:
    """Through the replies below the card, as a person does."""
    card = page.locator("#messages .message", has_text="INC-1")
    await expect(card.locator("h3")).to_contain_text("llm", timeout=A_LOOK)
    await card.locator(".thread-bar").click(timeout=A_LOOK)
    thread = page.locator("#thread-messages")
    await expect(thread).to_be_visible()
    return thread


async def act_as(page: Page, name: str) -> None:
    await page.get_by_role("radio", name=name).click()
