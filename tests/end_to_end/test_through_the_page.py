"""A person at the page in a real browser, from the card to an approved spare; a stranger gets nowhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.async_api import Locator, Page, expect

from bot.sandbox import demo
from tests.browser import chromium
from tests.end_to_end.stage import Stage, alert, as_body, stage, webhook

pytestmark = [pytest.mark.end_to_end, pytest.mark.needs_server("chromium"), pytest.mark.timeout(180)]

A_LOOK = 30_000
"""Milliseconds for the bot to sample, read and ask."""


@pytest.fixture
def world() -> Iterator[Stage]:
    with stage(with_alerting=False) as running:
        running.world.cause_trouble(demo.THRASH)
        running.post(as_body(webhook(alert())))
        yield running


async def test_a_person_clicks_from_the_card_to_an_approved_spare_and_a_stranger_is_refused(world: Stage) -> None:
    async with chromium() as browser:
        page = await browser.new_page(viewport={"width": 1440, "height": 1000})
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        await page.goto(f"{world.world.slack_url}/?as=U0ANA")
        thread = await open_thread(page)

        await thread.get_by_role("button", name="Cap the running requests").click(timeout=A_LOOK)
        await expect(thread).to_contain_text("@Ana Alvarez answered Cap the running requests", timeout=A_LOOK)

        approve = thread.get_by_role("button", name="Approve")
        await expect(thread).to_contain_text(
            "Start one spare replica of llm with --max-num-active-seqs", timeout=A_LOOK
        )
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
        await expect(page.locator("#messages")).to_contain_text("spare", timeout=A_LOOK)
        assert faults == []


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
