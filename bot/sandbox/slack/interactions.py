"""People's actions, in the payloads that Slack sends to an app: presses, submissions, commands, shortcuts.

Pure: each function reads the workspace and returns a payload; `bot_link` sends it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from bot.sandbox.slack.block_kit import elements_of
from bot.sandbox.slack.directory import APP_ID, BOT_USER, TEAM_ID
from bot.sandbox.slack.errors import Json, SandboxError
from bot.sandbox.slack.team import Team

TEAM = {"id": TEAM_ID, "domain": "sandbox"}
TOKEN = "sandbox-verification-token"  # noqa: S105 - the deprecated field that every payload still carries
#: Which key of an action or of the state holds what a person chose.
CHOSEN = {
    "static_select": "selected_option",
    "radio_buttons": "selected_option",
    "overflow": "selected_option",
    "checkboxes": "selected_options",
    "users_select": "selected_user",
    "plain_text_input": "value",
    "number_input": "value",
}
INITIAL = {
    "static_select": "initial_option",
    "radio_buttons": "initial_option",
    "checkboxes": "initial_options",
    "users_select": "initial_user",
    "plain_text_input": "initial_value",
    "number_input": "initial_value",
}


def described_user(team: Team, user_id: str) -> Json:
    person = team.directory.person(user_id)
    return {"id": person.id, "username": person.handle, "name": person.handle, "team_id": person.team}


def envelope(team: Team, kind: str, user_id: str) -> Json:
    return {
        "type": kind,
        "user": described_user(team, user_id),
        "api_app_id": APP_ID,
        "token": TOKEN,
        "team": TEAM,
        "enterprise": None,
        "is_enterprise_install": False,
    }


def described_channel(team: Team, channel_id: str) -> Json:
    return {"id": channel_id, "name": team.directory.channel(channel_id).name}


def find_element(
    blocks: list[Json], action_id: str, *, block_id: str = "", value: str | None = None
) -> tuple[Json, Json] | None:
    """The block and the element; among buttons of one action id, the one with this value."""
    for block in blocks:
        if block_id and block["block_id"] != block_id:
            continue
        for element in elements_of(block):
            if element.get("action_id") != action_id:
                continue
            if element["type"] == "button" and value is not None and element.get("value") != value:
                continue
            return block, element
    return None


def buttons_of(blocks: list[Json]) -> list[Json]:
    """The buttons that could be pressed, for an error about a missing one."""
    return [
        {"block_id": block["block_id"], "action_id": element["action_id"], "value": element.get("value")}
        for block in blocks
        for element in elements_of(block)
        if "action_id" in element
    ]


def chosen(element: Json, value: Any) -> Any:
    """A person's plain choice in Slack's format; a whole option may be given instead of its value."""
    if element["type"] in ("plain_text_input", "number_input"):
        return None if value in (None, "") else str(value)
    if element["type"] == "users_select" or value is None:
        return value
    if element["type"] == "checkboxes":
        return [option_of(element, one) for one in value]
    return option_of(element, value)


def option_of(element: Json, value: Any) -> Json:
    wanted = value["value"] if isinstance(value, dict) else value
    for option in element["options"]:
        if option["value"] == wanted:
            return {"text": option["text"], "value": option["value"]}
    raise SandboxError(f"no option {wanted!r}", [option["value"] for option in element["options"]])


@dataclass(frozen=True)
class Pressed:
    """An element in its block, what the person chose there, and the state of everything around it."""

    block: Json
    element: Json
    choice: Any
    state: Json

    def action(self, action_ts: str) -> Json:
        element = self.element
        action: Json = {"type": element["type"], "action_id": element["action_id"], "block_id": self.block["block_id"]}
        if element["type"] == "button":
            action |= {name: element[name] for name in ("text", "value", "style", "url") if name in element}
        else:
            action[CHOSEN[element["type"]]] = chosen(element, self.choice)
        return {**action, "action_ts": action_ts}


def state_of(blocks: list[Json], values: Json) -> Json:
    """`state.values`: what was typed or chosen, else the initial value.

    `values` is `{block_id: {action_id: choice}}`, or `{action_id: choice}` if that is unambiguous.
    """
    state: Json = {}
    for block in blocks:
        for element in elements_of(block):
            if element["type"] not in INITIAL:
                continue
            action_id, key = element["action_id"], CHOSEN[element["type"]]
            initial = element.get(INITIAL[element["type"]])
            if element["type"] == "checkboxes":
                initial = initial or []
            inside = values.get(block["block_id"])
            given = inside if isinstance(inside, dict) and action_id in inside else values
            choice = chosen(element, given[action_id]) if action_id in given else initial
            state.setdefault(block["block_id"], {})[action_id] = {"type": element["type"], key: choice}
    return {"values": state}


def message_press(team: Team, user_id: str, channel: str, message: Json, pressed: Pressed) -> Json:
    """block_actions of a message. An ephemeral message itself is not in the payload, as in Slack."""
    reply = team.response_urls.issue(user_id, channel, message=message)
    is_ephemeral = bool(message.get("is_ephemeral"))
    container: Json = {
        "type": "message",
        "message_ts": message["ts"],
        "channel_id": channel,
        "is_ephemeral": is_ephemeral,
    }
    if message.get("thread_ts"):
        container["thread_ts"] = message["thread_ts"]
    payload = {
        **envelope(team, "block_actions", user_id),
        "container": container,
        "trigger_id": team.views.issue_trigger(user_id),
        "channel": described_channel(team, channel),
        "state": pressed.state,
        "response_url": team.response_urls.url(reply),
        "actions": [pressed.action(team.messages.next_ts())],
    }
    if not is_ephemeral:
        payload["message"] = copy.deepcopy(message)
    return payload


def view_press(team: Team, user_id: str, view: Json, pressed: Pressed) -> Json:
    """block_actions inside a modal or a Home tab; the view carries its state."""
    return {
        **envelope(team, "block_actions", user_id),
        "container": {"type": "view", "view_id": view["id"]},
        "trigger_id": team.views.issue_trigger(user_id),
        "view": {**view, "state": pressed.state},
        "actions": [pressed.action(team.messages.next_ts())],
    }


def submission(team: Team, user_id: str, view: Json, state: Json) -> Json:
    return {
        **envelope(team, "view_submission", user_id),
        "trigger_id": team.views.issue_trigger(user_id),
        "view": {**view, "state": state},
        "response_urls": [],
    }


def view_closed(team: Team, user_id: str, view: Json, *, is_cleared: bool) -> Json:
    return {**envelope(team, "view_closed", user_id), "view": view, "is_cleared": is_cleared}


def faults_of_inputs(view: Json, state: Json) -> dict[str, str]:
    """What Slack itself refuses before it calls the app: block id -> the text under the field."""
    faults = {}
    for block in view["blocks"]:
        if block["type"] != "input":
            continue
        element = block["element"]
        entry = state["values"][block["block_id"]][element["action_id"]]
        if words := fault_of_input(element, entry[CHOSEN[element["type"]]], is_optional=block.get("optional", False)):
            faults[block["block_id"]] = words
    return faults


def fault_of_input(element: Json, value: Any, *, is_optional: bool) -> str | None:
    if value in (None, "", []):
        return None if is_optional else "Please complete this required field."
    if element["type"] == "plain_text_input":
        if len(value) < element.get("min_length", 0):
            return f"Must be at least {element['min_length']} characters."
        if len(value) > element.get("max_length", 3000):
            return f"Must be at most {element.get('max_length', 3000)} characters."
    return fault_of_number(element, value) if element["type"] == "number_input" else None


def fault_of_number(element: Json, value: str) -> str | None:
    try:
        number = float(value) if element["is_decimal_allowed"] else int(value)
    except ValueError:
        return "Please enter a number." if element["is_decimal_allowed"] else "Please enter a whole number."
    if "min_value" in element and number < float(element["min_value"]):
        return f"Must be at least {element['min_value']}."
    if "max_value" in element and number > float(element["max_value"]):
        return f"Must be at most {element['max_value']}."
    return None


def command_form(team: Team, user_id: str, channel: str, command: str, text: str) -> tuple[Json, str]:
    """The form of a slash command and the id under which its replies are found."""
    reply = team.response_urls.issue(user_id, channel)
    person = team.directory.person(user_id)
    form = {
        "token": TOKEN,
        "team_id": TEAM_ID,
        "team_domain": TEAM["domain"],
        "channel_id": channel,
        "channel_name": team.directory.channel(channel).name,
        "user_id": user_id,
        "user_name": person.handle,
        "command": command,
        "text": text,
        "api_app_id": APP_ID,
        "is_enterprise_install": "false",
        "response_url": team.response_urls.url(reply),
        "trigger_id": team.views.issue_trigger(user_id),
    }
    return form, reply.id


def global_shortcut(team: Team, user_id: str, callback_id: str) -> Json:
    return {
        **envelope(team, "shortcut", user_id),
        "callback_id": callback_id,
        "action_ts": team.messages.next_ts(),
        "trigger_id": team.views.issue_trigger(user_id),
    }


def message_shortcut(team: Team, user_id: str, callback_id: str, channel: str, ts: str) -> Json:
    message = team.messages.get(channel, ts)
    reply = team.response_urls.issue(user_id, channel, message=message)
    return {
        **envelope(team, "message_action", user_id),
        "callback_id": callback_id,
        "action_ts": team.messages.next_ts(),
        "message_ts": ts,
        "channel": described_channel(team, channel),
        "message": copy.deepcopy(message),
        "trigger_id": team.views.issue_trigger(user_id),
        "response_url": team.response_urls.url(reply),
    }


def event_callback(team: Team, event: Json) -> Json:
    ts = team.messages.next_ts()
    seconds, _, micro = ts.partition(".")
    return {
        "token": TOKEN,
        "team_id": TEAM_ID,
        "api_app_id": APP_ID,
        "event": {"event_ts": ts, **event},
        "type": "event_callback",
        "event_id": f"Ev{seconds}{micro}",
        "event_time": int(seconds),
        "authorizations": [
            {
                "enterprise_id": None,
                "team_id": TEAM_ID,
                "user_id": BOT_USER,
                "is_bot": True,
                "is_enterprise_install": False,
            }
        ],
        "is_ext_shared_channel": False,
        "event_context": f"4-{seconds}{micro}",
    }
