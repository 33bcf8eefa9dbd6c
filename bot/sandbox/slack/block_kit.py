"""Block Kit's rules for the blocks that a bot of this kind sends: structure, sizes and unique ids, as tables.

Unknown blocks, elements and properties are refused: a message that passes here passes in Slack.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

from bot.sandbox.slack.errors import ApiError, Json
from bot.sandbox.slack.schema import Check, Problem, anything, by_type, flag, items, one_of, shape, string, whole

MESSAGE_BLOCKS = 50
VIEW_BLOCKS = 100

IDENTIFIER = string(255)
KIND = {"type": anything}


def plain(limit: int) -> Check:
    return by_type({"plain_text": shape({**KIND, "text": string(limit)}, {"emoji": flag})})


def text(limit: int) -> Check:
    return by_type(
        {
            "plain_text": shape({**KIND, "text": string(limit)}, {"emoji": flag}),
            "mrkdwn": shape({**KIND, "text": string(limit)}, {"verbatim": flag}),
        }
    )


CONFIRM = shape(
    {"title": plain(100), "text": text(300), "confirm": plain(30), "deny": plain(30)},
    {"style": one_of("primary", "danger")},
)
OPTION = shape(
    {"text": plain(75), "value": string(150)},
    {"description": plain(75), "url": string(3000)},
)
RICH_OPTION = shape({"text": text(75), "value": string(150)}, {"description": text(75)})
SLACK_FILE = shape({}, {"id": string(255), "url": string(3000)}, any_of=("id", "url"))
PICTURE = {"image_url": string(3000), "slack_file": SLACK_FILE}
STATEFUL = {"action_id": IDENTIFIER, "confirm": CONFIRM, "focus_on_load": flag}

BUTTON = shape(
    {**KIND, "text": plain(75)},
    {
        "action_id": IDENTIFIER,
        "value": string(2000),
        "url": string(3000),
        "style": one_of("primary", "danger"),
        "confirm": CONFIRM,
        "accessibility_label": string(75),
    },
)
STATIC_SELECT = shape(
    {**KIND, "options": items(OPTION, max_items=100)},
    {**STATEFUL, "placeholder": plain(150), "initial_option": OPTION},
)
USERS_SELECT = shape(KIND, {**STATEFUL, "placeholder": plain(150), "initial_user": string(255)})
RADIO_BUTTONS = shape(
    {**KIND, "options": items(RICH_OPTION, max_items=10)}, {**STATEFUL, "initial_option": RICH_OPTION}
)
CHECKBOXES = shape(
    {**KIND, "options": items(RICH_OPTION, max_items=10)},
    {**STATEFUL, "initial_options": items(RICH_OPTION, max_items=10)},
)
OVERFLOW = shape(
    {**KIND, "options": items(OPTION, max_items=5)},
    {"action_id": IDENTIFIER, "confirm": CONFIRM},
)
IMAGE_ELEMENT = shape({**KIND, "alt_text": string(2000)}, PICTURE, any_of=("image_url", "slack_file"))
TYPING = {
    "action_id": IDENTIFIER,
    "placeholder": plain(150),
    "focus_on_load": flag,
    "dispatch_action_config": anything,
}
PLAIN_TEXT_INPUT = shape(
    KIND,
    {
        **TYPING,
        "initial_value": string(3000, minimum=0),
        "multiline": flag,
        "min_length": whole(0, 3000),
        "max_length": whole(1, 3000),
    },
)
NUMBER_INPUT = shape(
    {**KIND, "is_decimal_allowed": flag},
    {**TYPING, "initial_value": string(255), "min_value": string(255), "max_value": string(255)},
)

CHOICES = {
    "static_select": STATIC_SELECT,
    "users_select": USERS_SELECT,
    "radio_buttons": RADIO_BUTTONS,
    "checkboxes": CHECKBOXES,
}
IN_ACTIONS = {**CHOICES, "button": BUTTON, "overflow": OVERFLOW}
IN_SECTION = {**IN_ACTIONS, "image": IMAGE_ELEMENT}
IN_INPUT = {**CHOICES, "plain_text_input": PLAIN_TEXT_INPUT, "number_input": NUMBER_INPUT}
IN_CONTEXT = {
    "image": IMAGE_ELEMENT,
    "plain_text": plain(3000),
    "mrkdwn": text(3000),
}
#: Rich text is passed on rather than written by bots like ours: its outline is checked, its styles are not.
RICH_TEXT_PART = by_type(
    dict.fromkeys(
        ("rich_text_section", "rich_text_list", "rich_text_preformatted", "rich_text_quote"),
        shape(
            {**KIND, "elements": items(anything, max_items=1000, min_items=0)},
            {"style": anything, "indent": anything, "border": anything},
        ),
    )
)

BLOCK_ID = {"block_id": IDENTIFIER}
BLOCKS: dict[str, Check] = {
    "section": shape(
        KIND,
        {
            **BLOCK_ID,
            "text": text(3000),
            "fields": items(text(2000), max_items=10),
            "accessory": by_type(IN_SECTION),
            "expand": flag,
        },
        any_of=("text", "fields"),
    ),
    "header": shape({**KIND, "text": plain(150)}, BLOCK_ID),
    "context": shape({**KIND, "elements": items(by_type(IN_CONTEXT), max_items=10)}, BLOCK_ID),
    "actions": shape({**KIND, "elements": items(by_type(IN_ACTIONS), max_items=25)}, BLOCK_ID),
    "divider": shape(KIND, BLOCK_ID),
    "image": shape(
        {**KIND, "alt_text": string(2000)},
        {**BLOCK_ID, **PICTURE, "title": plain(2000)},
        any_of=("image_url", "slack_file"),
    ),
    "input": shape(
        {**KIND, "label": plain(2000), "element": by_type(IN_INPUT)},
        {**BLOCK_ID, "hint": plain(2000), "optional": flag, "dispatch_action": flag},
    ),
    "rich_text": shape({**KIND, "elements": items(RICH_TEXT_PART, max_items=100)}, BLOCK_ID),
}

VIEW_PARTS = {
    "private_metadata": string(3000, minimum=0),
    "callback_id": string(255, minimum=0),
    "external_id": string(255, minimum=0),
}
MODAL = shape(
    {**KIND, "title": plain(24), "blocks": items(by_type(BLOCKS), max_items=VIEW_BLOCKS, min_items=0)},
    {
        **VIEW_PARTS,
        "submit": plain(24),
        "close": plain(24),
        "clear_on_close": flag,
        "notify_on_close": flag,
        "submit_disabled": flag,
    },
)
HOME = shape({**KIND, "blocks": items(by_type(BLOCKS), max_items=VIEW_BLOCKS, min_items=0)}, VIEW_PARTS)


def elements_of(block: Json) -> list[Json]:
    """The interactive parts of one block."""
    if block["type"] == "section":
        return [block["accessory"]] if block.get("accessory") else []
    if block["type"] == "input":
        return [block["element"]]
    return list(block.get("elements", ())) if block["type"] == "actions" else []


def repeated(values: list[Any]) -> list[Any]:
    return sorted({value for value in values if value and values.count(value) > 1})


def duplicates(blocks: list[Json], at: str) -> Iterator[Problem]:
    for block_id in repeated([block.get("block_id") for block in blocks]):
        yield Problem(f"block_id already exists: {block_id}", at)
    for index, block in enumerate(blocks):
        for action_id in repeated([element.get("action_id") for element in elements_of(block)]):
            yield Problem(f"action_id already exists: {action_id}", f"{at}/{index}")


def choices_not_offered(blocks: list[Json], at: str) -> Iterator[Problem]:
    """An initial option must be one of the options, letter by letter."""
    for index, block in enumerate(blocks):
        for element in elements_of(block):
            options = element.get("options", [])
            chosen = [element["initial_option"]] if element.get("initial_option") else []
            chosen += element.get("initial_options", [])
            if any(option not in options for option in chosen):
                yield Problem("initial option must be one of the options", f"{at}/{index}")


def problems_of_blocks(blocks: Any, at: str = "/blocks", *, max_items: int = MESSAGE_BLOCKS) -> list[Problem]:
    found = list(items(by_type(BLOCKS), max_items=max_items, min_items=0)(blocks, at))
    if not found:
        found += [*duplicates(blocks, at), *choices_not_offered(blocks, at)]
    return found


def problems_of_view(view: Any) -> list[Problem]:
    found = list(by_type({"modal": MODAL, "home": HOME})(view, "/view"))
    if found:
        return found
    found += problems_of_blocks(view["blocks"], "/view/blocks", max_items=VIEW_BLOCKS)
    has_inputs = any(block["type"] == "input" for block in view["blocks"])
    if view["type"] == "modal" and has_inputs and not view.get("submit"):
        found.append(Problem("missing required field: submit", "/view"))
    return found


def checked_blocks(blocks: Any) -> list[Json]:
    """Blocks as Slack would store them; raises `invalid_blocks` with every reason."""
    if found := problems_of_blocks(blocks):
        raise ApiError("invalid_blocks", *map(str, found))
    return with_ids(blocks)


def checked_view(view: Any) -> Json:
    if found := problems_of_view(view):
        raise ApiError("invalid_arguments", *map(str, found))
    return {**view, "blocks": with_ids(view["blocks"])}


def with_ids(blocks: list[Json]) -> list[Json]:
    """Slack gives every block and every interactive element an id if its author did not."""
    named = []
    for written in blocks:
        block = {"block_id": secrets.token_urlsafe(4), **written}
        if block["type"] == "actions":
            block["elements"] = [with_action_id(element) for element in block["elements"]]
        for key in ("accessory", "element"):
            if key in block:
                block[key] = with_action_id(block[key])
        named.append(block)
    return named


def with_action_id(element: Json) -> Json:
    return element if element["type"] == "image" else {"action_id": secrets.token_urlsafe(4), **element}


def files_in(blocks: list[Json]) -> Iterator[tuple[Json, str]]:
    """Every `slack_file` reference with its JSON pointer."""
    for index, block in enumerate(blocks):
        at = f"/blocks/{index}"
        candidates = [block, block.get("accessory") or {}]
        candidates += block["elements"] if block["type"] == "context" else []
        for candidate in candidates:
            if "slack_file" in candidate:
                yield candidate["slack_file"], f"{at}/slack_file"
