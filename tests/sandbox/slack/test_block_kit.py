"""Block Kit errors, as a table: one fault per row, with the message for engineers."""

from typing import Any

import pytest

from bot.sandbox.slack.block_kit import checked_blocks, checked_view, problems_of_blocks, problems_of_view
from bot.sandbox.slack.errors import ApiError

pytestmark = pytest.mark.fast
Json = dict[str, Any]


def plain(text: str = "x") -> Json:
    return {"type": "plain_text", "text": text}


def mrkdwn(text: str = "x") -> Json:
    return {"type": "mrkdwn", "text": text}


def section(**parts: object) -> Json:
    return {"type": "section", "text": mrkdwn(), **parts}


def button(**parts: object) -> Json:
    return {"type": "button", "text": plain(), "action_id": "a", **parts}


def actions(*elements: Json, **parts: object) -> Json:
    return {"type": "actions", "elements": list(elements), **parts}


def options(count: int, size: int = 1) -> list[Json]:
    return [{"text": plain(f"{n}".zfill(size)), "value": f"v{n}"} for n in range(count)]


def select(**parts: object) -> Json:
    return {"type": "static_select", "action_id": "s", "options": options(2), **parts}


def question(element: Json, **parts: object) -> Json:
    return {"type": "input", "label": plain(), "element": element, **parts}


def confirm(**parts: object) -> Json:
    return {"title": plain(), "text": mrkdwn(), "confirm": plain(), "deny": plain(), **parts}


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        pytest.param([section()] * 51, "no more than 50 items", id="51-blocks"),
        pytest.param([section(text=mrkdwn("x" * 3001))], "less than 3001 characters", id="section-text"),
        pytest.param([section(text=mrkdwn(""))], "more than 0 characters", id="empty-text"),
        pytest.param([{"type": "section"}], "must provide one of: text, fields", id="empty-section"),
        pytest.param([section(fields=[mrkdwn("x" * 2001)])], "less than 2001", id="field"),
        pytest.param([section(fields=[mrkdwn()] * 11)], "no more than 10 items", id="11-fields"),
        pytest.param([{"type": "header", "text": plain("x" * 151)}], "less than 151", id="header"),
        pytest.param([{"type": "header", "text": mrkdwn()}], "unsupported type: mrkdwn", id="mrkdwn-header"),
        pytest.param([{"type": "context", "elements": [mrkdwn()] * 11}], "no more than 10 items", id="context"),
        pytest.param([actions(*[button(action_id=f"a{n}") for n in range(26)])], "no more than 25", id="actions"),
        pytest.param([actions(button(text=plain("x" * 76)))], "less than 76", id="button-text"),
        pytest.param([actions(button(text=mrkdwn()))], "unsupported type: mrkdwn", id="button-mrkdwn"),
        pytest.param([actions(button(value="x" * 2001))], "less than 2001", id="button-value"),
        pytest.param([actions(button(url="x" * 3001))], "less than 3001", id="button-url"),
        pytest.param([actions(button(action_id="x" * 256))], "less than 256", id="action-id"),
        pytest.param([actions(button(style="loud"))], "one of: primary, danger", id="button-style"),
        pytest.param([section(block_id="x" * 256)], "less than 256", id="block-id"),
        pytest.param([actions(button(), button())], "action_id already exists: a", id="action-id-twice"),
        pytest.param([section(block_id="b"), section(block_id="b")], "block_id already exists: b", id="block-twice"),
        pytest.param([actions(select(options=options(101)))], "no more than 100", id="101-options"),
        pytest.param([actions(select(options=options(2, 76)))], "less than 76", id="option-text"),
        pytest.param(
            [actions(select(initial_option={"text": plain("other"), "value": "v0"}))],
            "one of the options",
            id="initial",
        ),
        pytest.param(
            [actions({"type": "overflow", "action_id": "o", "options": options(6)})], "no more than 5", id="overflow"
        ),
        pytest.param([actions(button(confirm=confirm(title=plain("x" * 101))))], "less than 101", id="confirm-title"),
        pytest.param([actions(button(confirm=confirm(text=mrkdwn("x" * 301))))], "less than 301", id="confirm-text"),
        pytest.param([actions(button(confirm=confirm(deny=plain("x" * 31))))], "less than 31", id="confirm-deny"),
        pytest.param(
            [actions({"type": "plain_text_input", "action_id": "t"})], "unsupported type", id="input-in-actions"
        ),
        pytest.param([question(button())], "unsupported type: button", id="button-in-input"),
        pytest.param([question({"type": "number_input"})], "missing required field: is_decimal_allowed", id="number"),
        pytest.param(
            [{"type": "image", "image_url": "http://x/y.png"}], "missing required field: alt_text", id="alt-text"
        ),
        pytest.param([{"type": "image", "alt_text": "x"}], "must provide one of: image_url, slack_file", id="no-image"),
        pytest.param([section(colour="red")], "invalid additional property: colour", id="unknown-property"),
        pytest.param([{"type": "carousel"}], "unsupported type: carousel", id="unknown-block"),
        pytest.param(["text"], "missing required field: type", id="no-object"),
        pytest.param({"type": "section"}, "must be an array", id="no-list"),
    ],
)
def test_a_message_over_a_limit_is_refused_with_the_reason(blocks: Any, words: str) -> None:
    with pytest.raises(ApiError) as refused:
        checked_blocks(blocks)
    assert refused.value.code == "invalid_blocks"
    assert words in " ".join(refused.value.reasons)
    assert "[json-pointer:/blocks" in refused.value.reasons[0]


def test_what_is_exactly_at_its_limit_passes() -> None:
    blocks = [
        {"type": "header", "text": plain("x" * 150)},
        section(text=mrkdwn("x" * 3000), fields=[mrkdwn("x" * 2000)] * 10, accessory=button()),
        actions(*[button(action_id=f"a{n}", value="x" * 2000) for n in range(25)]),
        actions(select(options=options(100, 75), initial_option=options(100, 75)[7])),
        *[{"type": "divider"}] * 46,
    ]
    assert problems_of_blocks(blocks) == []


def test_every_block_and_element_that_a_bot_of_this_kind_uses_passes() -> None:
    picture = {"image_url": "http://127.0.0.1/chart.png", "alt_text": "a chart"}
    blocks = [
        section(accessory={"type": "image", **picture}),
        {"type": "context", "elements": [plain(), mrkdwn(), {"type": "image", **picture}]},
        {"type": "image", "title": plain(), **picture},
        actions(
            button(style="primary", confirm=confirm(style="danger")),
            {"type": "users_select", "action_id": "u", "initial_user": "U0ANA"},
            {"type": "radio_buttons", "action_id": "r", "options": options(2)},
            {"type": "checkboxes", "action_id": "c", "options": options(2), "initial_options": options(1)},
        ),
        question({"type": "plain_text_input", "multiline": True, "max_length": 3000}, hint=plain(), optional=True),
        question({"type": "number_input", "is_decimal_allowed": False, "min_value": "1"}),
        {
            "type": "rich_text",
            "elements": [{"type": "rich_text_section", "elements": [{"type": "text", "text": "hello"}]}],
        },
    ]
    assert problems_of_blocks(blocks) == []


def test_parts_without_ids_are_given_some() -> None:
    block, other = checked_blocks([actions({"type": "button", "text": plain()}), section()])
    assert block["elements"][0]["action_id"]
    assert block["block_id"] != other["block_id"]


def modal(**parts: object) -> Json:
    return {"type": "modal", "title": plain(), "blocks": [section()], **parts}


@pytest.mark.parametrize(
    ("view", "words"),
    [
        pytest.param(modal(title=plain("x" * 25)), "less than 25", id="title"),
        pytest.param(modal(submit=plain("x" * 25)), "less than 25", id="submit"),
        pytest.param(modal(close=plain("x" * 25)), "less than 25", id="close"),
        pytest.param(modal(private_metadata="x" * 3001), "less than 3001", id="private-metadata"),
        pytest.param(modal(blocks=[section()] * 101), "no more than 100", id="101-blocks"),
        pytest.param(
            modal(blocks=[question({"type": "plain_text_input"})]), "missing required field: submit", id="no-submit"
        ),
        pytest.param({"type": "home", "blocks": [], "title": plain()}, "additional property: title", id="home-title"),
        pytest.param({"type": "drawer", "blocks": []}, "unsupported type: drawer", id="unknown-view"),
    ],
)
def test_a_view_over_a_limit_is_refused_with_the_reason(view: Json, words: str) -> None:
    with pytest.raises(ApiError, match="invalid_arguments") as refused:
        checked_view(view)
    assert words in " ".join(refused.value.reasons)


def test_a_view_takes_more_blocks_than_a_message() -> None:
    assert problems_of_view(modal(blocks=[section()] * 100)) == []
