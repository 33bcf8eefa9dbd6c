"""The page in a real browser: what a person sees, and what reaches the bot."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser import chromium
from tests.sandbox.slack.fake_bot import FakeBot, plain
from tests.sandbox.slack.stand_in import StandIn, until

pytestmark = pytest.mark.needs_server("chromium")
Json = dict[str, Any]


def section(text: str) -> Json:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def actions(**buttons: Json) -> Json:
    elements = [
        {"type": "button", "text": plain(action.title()), "action_id": action, "value": "R1", **more}
        for action, more in buttons.items()
    ]
    return {"type": "actions", "elements": elements}


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as launched:
        yield launched


@pytest.fixture
async def page(browser: Browser, slack_with_bot: StandIn) -> AsyncIterator[Page]:
    """The page as Ana sees it; any script error or any request to elsewhere fails the test."""
    shown = await browser.new_page(viewport={"width": 1440, "height": 900}, timezone_id="Europe/Paris")
    faults: list[str] = []
    shown.on("pageerror", lambda error: faults.append(str(error)))
    shown.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
    base = slack_with_bot.team.base_url
    shown.on("request", lambda request: None if request.url.startswith((base, "data:")) else faults.append(request.url))
    await shown.goto(f"{base}/?as=U0ANA")
    await expect(shown.locator("#channel-name")).to_have_text("# inference-incidents")
    yield shown
    assert faults == []


async def test_a_card_appears_by_itself_and_its_thread_opens(page: Page, slack_with_bot: StandIn) -> None:
    ts = await slack_with_bot.post({"type": "header", "text": plain("INC-1 KV cache")}, section("*State* waiting"))
    await expect(page.locator("#messages h3")).to_have_text("INC-1 KV cache")
    await expect(page.locator("#thread")).to_be_hidden()
    await slack_with_bot.post(section("what I read"), thread_ts=ts)
    await expect(page.locator("#thread-messages")).to_contain_text("what I read")
    await expect(page.locator("#messages .thread-bar")).to_contain_text("1 reply")


async def test_an_edit_is_shown_in_place_and_marked(page: Page, slack_with_bot: StandIn) -> None:
    ts = await slack_with_bot.post(section("waiting"))
    await slack_with_bot.client.chat_update(channel="C0INC", ts=ts, text="x", blocks=[section("applied")])
    await expect(page.locator("#messages .message")).to_have_count(1)
    await expect(page.locator("#messages .message .text")).to_have_text("applied")
    await expect(page.locator("#messages .edited")).to_have_text("(edited)")


async def test_nothing_that_is_written_becomes_markup(page: Page, slack_with_bot: StandIn) -> None:
    evil = '<img src=x onerror="alert(1)"> &lt;b&gt; <javascript:alert(1)|click> `<script>alert(1)</script>`'
    await slack_with_bot.post(section(evil), {"type": "header", "text": plain("<img src=x onerror=alert(2)>")})
    await slack_with_bot.act("say", user="U0MO", channel="C0INC", text=evil)
    await expect(page.locator("#messages .message")).to_have_count(2)
    assert (
        await page.locator("#messages .text").all_inner_texts()
        == ['<img src=x onerror="alert(1)"> <b> <javascript:alert(1)|click> <script>alert(1)</script>'] * 2
    )
    assert await page.locator("#messages .text :is(img, script, b, a)").count() == 0
    assert await page.locator("#messages h3").inner_text() == "<img src=x onerror=alert(2)>"


MRKDWN = [
    ("*bold* text", "strong", "bold"),
    ("now *7* a second, with 9* stars", "strong", "7"),
    ("some _slanted_ words in snake_case_names", "em", "slanted"),
    ("~gone~", "s", "gone"),
    ("a `--flag=1` here", "code", "--flag=1"),
    ("```\n- old\n+ new\n```", "pre", "- old\n+ new"),
    ("&gt; quoted\nnot", "blockquote", "quoted"),
    ("ask <@U0BEN>", ".mention", "@Ben Okafor"),
    ("for <@U0ANA>", ".mention.me", "@Ana Alvarez"),
    ("to <!subteam^S0SERVING>", ".mention.group", "@serving-oncall"),
    ("in <#C0GEN>", ".mention", "#general"),
    ("hey <!channel>", ".mention.loud", "@channel"),
    ("see <https://example.test/a?b=1&amp;c=2|the dashboard>", "a", "the dashboard"),
    ("at <!date^1767229200^{date_num} {time}|fallback>", "time[data-format]", "2026-01-01 2:00 AM"),
]


async def test_mrkdwn_is_shown_as_slack_shows_it(page: Page, slack_with_bot: StandIn) -> None:
    for written, _, _ in MRKDWN:
        await slack_with_bot.post(section(written))
    texts = page.locator("#messages .message .text")
    await expect(texts).to_have_count(len(MRKDWN))
    shown = [await texts.nth(row).locator(selector).text_content() for row, (_, selector, _) in enumerate(MRKDWN)]
    assert shown == [expected for _, _, expected in MRKDWN]
    assert await page.locator("#messages a").get_attribute("href") == "https://example.test/a?b=1&c=2"


async def test_a_channel_that_is_named_is_a_click_away(page: Page, slack_with_bot: StandIn) -> None:
    await slack_with_bot.post(section("everything else is in <#C0GEN> and <#C0NOBODY|elsewhere>"))
    await page.locator("#messages .mention", has_text="#general").click()
    await expect(page.locator("#channel-name")).to_have_text("# general")
    await page.get_by_role("button", name="inference-incidents").click()
    await page.locator("#messages .mention", has_text="#general").press("Enter")
    await expect(page.locator("#channel-name")).to_have_text("# general")


async def test_a_confirmed_press_reaches_the_bot_as_the_acting_person(
    page: Page, slack_with_bot: StandIn, bot: FakeBot
) -> None:
    question = {"title": plain("Sure?"), "text": plain("Four pods"), "confirm": plain("Yes"), "deny": plain("No")}
    await slack_with_bot.post(section("waiting"), actions(approve={"style": "primary", "confirm": question}))
    await page.get_by_role("radio", name="Ben Okafor").click()
    await page.get_by_role("button", name="Approve").click()
    await page.get_by_role("button", name="No", exact=True).click()
    assert bot.received == []
    await page.get_by_role("button", name="Approve").click()
    await page.get_by_role("button", name="Yes").click()
    await expect(page.locator("#messages .text").first).to_have_text("Granted by @Ben Okafor")
    assert bot.received[0]["user"]["id"] == "U0BEN"
    await expect(page.locator(".message.ephemeral")).to_contain_text("Thank you, your press counts.")
    await page.get_by_role("radio", name="Ana Alvarez").click()
    await expect(page.locator(".message.ephemeral")).to_have_count(0)


async def test_a_modal_shows_objections_and_closes_when_the_bot_agrees(
    page: Page, slack_with_bot: StandIn, bot: FakeBot
) -> None:
    await slack_with_bot.post(section("waiting"), actions(edit={}))
    await page.get_by_role("button", name="Edit").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog).to_contain_text("Please complete this required field.")
    await dialog.get_by_label("Reason").fill("bad")
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog).to_contain_text("Say more than that.")
    await dialog.get_by_label("Reason").fill("fewer sequences at once")
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog).to_have_count(0)
    assert bot.received[-1]["view"]["state"]["values"]["reason"]["text"]["value"] == "fewer sequences at once"


async def test_escape_closes_a_modal_and_notifies_the_bot(page: Page, slack_with_bot: StandIn, bot: FakeBot) -> None:
    await slack_with_bot.post(actions(edit={}))
    await page.get_by_role("button", name="Edit").click()
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)

    async def is_closed() -> bool:
        return bool(bot.received[-1]["type"] == "view_closed")

    await until(is_closed, "the bot was notified that its modal was closed")


async def test_a_command_is_typed_and_its_answer_seen_by_that_person_only(page: Page, bot: FakeBot) -> None:
    box = page.locator("#composer textarea")
    await box.fill("/inc")
    await page.keyboard.press("Tab")
    await box.press_sequentially("list")
    await page.keyboard.press("Enter")
    await expect(page.locator(".message.ephemeral")).to_contain_text(["looking for list", "one open incident: INC-1"])
    assert (bot.received[0]["command"], bot.received[0]["text"]) == ("/incident", "list")


async def test_words_become_a_message_and_a_reply_in_the_thread(page: Page, slack_with_bot: StandIn) -> None:
    await page.locator("#composer textarea").fill("GPU 3 < 80 °C & <@U0BEN>")
    await page.keyboard.press("Enter")
    await expect(page.locator("#messages .text")).to_have_text("GPU 3 < 80 °C & <@U0BEN>")
    await page.locator("#messages .message").hover()
    await page.get_by_role("button", name="Reply").click()
    await page.locator("#thread-composer textarea").fill("on it")
    await page.keyboard.press("Enter")
    await expect(page.locator("#messages .thread-bar")).to_contain_text("1 reply")
    first, reply = await slack_with_bot.read("messages")
    assert (reply["text"], reply["thread_ts"], reply["user"]) == ("on it", first["ts"], "U0ANA")


async def test_a_bot_that_does_not_answer_is_reported_to_the_person(page: Page, slack_with_bot: StandIn) -> None:
    await slack_with_bot.post(actions(nobody_handles_this={}))
    await page.locator("#messages .actions .button").click()
    await expect(page.locator(".toast")).to_contain_text("This app answered with an error")


async def test_files_are_shown(page: Page, slack_with_bot: StandIn) -> None:
    text = "\n".join(f"line {number}" for number in range(40))
    await slack_with_bot.client.files_upload_v2(channel="C0INC", content=text, filename="INC-1.md", title="Timeline")
    await expect(page.locator(".file-preview")).to_contain_text("line 11")
    await expect(page.get_by_role("button", name="Show all 40 lines")).to_be_in_viewport()
    await page.get_by_role("button", name="Show all 40 lines").click()
    await expect(page.locator(".file-preview")).to_contain_text("line 39")


async def test_the_home_tab_of_the_bot_opens(page: Page) -> None:
    await page.get_by_role("button", name="incident-bot").click()
    await expect(page.locator(".home")).to_contain_text("No open incident.")


async def test_a_page_that_was_cut_off_catches_up(page: Page, slack_with_bot: StandIn) -> None:
    slack_with_bot.team.feed.close()
    await slack_with_bot.post(section("while you were away"))
    await expect(page.locator("#messages")).to_contain_text("while you were away")


async def test_on_a_narrow_screen_nothing_is_wider_than_the_screen(page: Page, slack_with_bot: StandIn) -> None:
    await page.set_viewport_size({"width": 390, "height": 800})
    await slack_with_bot.post(section("```" + "wide " * 60 + "```"), actions(approve={}, edit={}))
    await expect(page.locator("#messages pre")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("size", [(1280, 900), (390, 844)])
async def test_an_open_menu_of_the_last_message_is_all_in_sight(
    page: Page, slack_with_bot: StandIn, size: tuple[int, int]
) -> None:
    await page.set_viewport_size({"width": size[0], "height": size[1]})
    options = [{"text": plain(word), "value": word} for word in ("Details", "Edit values…", "More time")]
    menu = {"type": "overflow", "action_id": "more", "options": options}
    buttons = actions(approve={}, refuse={})
    for _ in range(20):
        await slack_with_bot.post(section("long ago"))
    await slack_with_bot.post(section("now"), {**buttons, "elements": [*buttons["elements"], menu]})
    await page.get_by_role("button", name="More").click()
    for item in await page.get_by_role("menuitem").all():
        await expect(item).to_be_in_viewport(ratio=1)


async def test_a_long_line_of_code_is_wrapped_as_in_slack(page: Page, slack_with_bot: StandIn) -> None:
    await slack_with_bot.post(section(f"```\n{'--a-flag=value ' * 40}\n```"))
    block = page.locator("#messages pre")
    await expect(block).to_be_visible()
    assert await block.evaluate("it => it.scrollWidth <= it.clientWidth")


async def test_a_permalink_to_a_reply_opens_its_thread(page: Page, slack_with_bot: StandIn) -> None:
    root = await slack_with_bot.post(section("the card"))
    reply = await slack_with_bot.post(section("the note"), thread_ts=root)
    await page.get_by_role("button", name="Close thread").click()
    link = (await slack_with_bot.client.chat_getPermalink(channel="C0INC", message_ts=reply))["permalink"]
    await slack_with_bot.post(text=f"see <{link}|the note>")
    await page.get_by_role("link", name="the note").click()
    await expect(page.locator("#thread-messages .pointed-at")).to_contain_text("the note")
