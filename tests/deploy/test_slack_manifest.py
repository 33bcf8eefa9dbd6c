"""The Slack app asks for exactly what the code uses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.adapters.slack.doctor import CHANNEL_SCOPES, SCOPES, SCOPES_OF_INCIDENT_CHANNELS
from bot.adapters.slack.inbound import app
from bot.adapters.slack.inbound.app import COMMAND, HOME_OPENED, REACTION_ADDED
from bot.adapters.slack.inbound.pins import SHORTCUT
from tests.deploy.files import ROOT, document

pytestmark = pytest.mark.fast

HISTORY = {"channels:history", "groups:history"}
READING_CHANNELS = {"channels:read", "groups:read"}
SCOPES_OF: dict[str, set[str]] = {
    "apps_connections_open": set(),
    "auth_test": set(),
    "chat_delete": {"chat:write"},
    "chat_getPermalink": set(),
    "chat_postEphemeral": {"chat:write"},
    "chat_postMessage": {"chat:write"},
    "chat_update": {"chat:write"},
    "conversations_archive": set(),
    "conversations_create": set(),
    "conversations_history": HISTORY,
    "conversations_info": READING_CHANNELS,
    "conversations_invite": set(),
    "conversations_list": READING_CHANNELS,
    "conversations_members": READING_CHANNELS,
    "conversations_replies": HISTORY,
    "conversations_setTopic": set(),
    "files_completeUploadExternal": {"files:write"},
    "files_getUploadURLExternal": {"files:write"},
    "files_info": {"files:read"},
    "usergroups_list": {"usergroups:read"},
    "usergroups_users_list": {"usergroups:read"},
    "users_info": {"users:read"},
    "views_open": set(),
    "views_publish": set(),
}
"""Web API methods as the SDK names them, and the bot scopes that Slack's documentation asks for."""
OPTIONAL_SCOPES_OF = {
    "conversations_archive": {"channels:manage"},
    "conversations_create": {"channels:manage"},
    "conversations_invite": {"channels:manage"},
    "conversations_setTopic": {"channels:manage"},
}
"""Of the methods that are called only where each incident has a channel of its own."""


SCOPES_OF_EVENTS = {REACTION_ADDED: {"reactions:read"}, HOME_OPENED: set[str]()}


def methods_called() -> set[str]:
    return {name for path in (ROOT / "bot" / "adapters" / "slack").rglob("*.py") for name in _calls(path.read_text())}


def _calls(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Attribute) or ast.unparse(node) == "super().api_call":
            continue  # that passes on a method, which is named where it is called
        if "_" in node.attr.strip("_") and hasattr(AsyncWebClient, node.attr):
            yield node.attr


def subscribed_events() -> set[str]:
    """Each `app.event("…")` of the app, as its source has it: named by a constant of that module."""
    tree = ast.parse((ROOT / "bot" / "adapters" / "slack" / "inbound" / "app.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    named = [call.args[0] for call in calls if call.func.attr == "event"]  # type: ignore[attr-defined]  # seen above
    return {getattr(app, name.id) for name in named if isinstance(name, ast.Name) and name.id != "ANYTHING"}


def manifest_scopes() -> set[str]:
    return set(document("slack-manifest.yaml")["oauth_config"]["scopes"]["bot"])


def test_every_method_that_is_called_has_its_scopes_written_here() -> None:
    assert methods_called() == SCOPES_OF.keys()


def test_the_manifest_asks_for_these_scopes_and_no_other() -> None:
    used = [*(SCOPES_OF[method] for method in methods_called()), *SCOPES_OF_EVENTS.values()]
    assert manifest_scopes() == {"commands"}.union(*used)


def test_the_scopes_of_an_option_stand_in_the_manifest_as_comments() -> None:
    text = (ROOT / "deploy" / "slack-manifest.yaml").read_text()
    offered = set(re.findall(r"^ +# - ([a-z:.]+) ", text, re.MULTILINE))
    assert offered == set[str]().union(*OPTIONAL_SCOPES_OF.values())
    assert not offered & manifest_scopes()
    own = [path for path in (ROOT / "bot" / "adapters" / "slack").rglob("*.py") if path.name != "incident_channel.py"]
    assert not OPTIONAL_SCOPES_OF.keys() & {name for path in own for name in _calls(path.read_text())}
    assert offered <= SCOPES_OF_INCIDENT_CHANNELS


def test_the_manifest_asks_for_the_events_that_are_listened_to_and_no_other() -> None:
    assert set(document("slack-manifest.yaml")["settings"]["event_subscriptions"]["bot_events"]) == subscribed_events()
    assert subscribed_events() == SCOPES_OF_EVENTS.keys()


def test_the_shortcut_of_the_manifest_is_the_one_that_is_answered() -> None:
    [shortcut] = document("slack-manifest.yaml")["features"]["shortcuts"]
    assert (shortcut["callback_id"], shortcut["type"]) == (SHORTCUT, "message")


def test_doctor_looks_for_the_scopes_of_the_manifest() -> None:
    assert SCOPES.union(*CHANNEL_SCOPES.values()) == manifest_scopes()


def test_slack_is_given_the_one_address_of_the_bot() -> None:
    manifest = document("slack-manifest.yaml")
    (command,) = manifest["features"]["slash_commands"]
    settings = manifest["settings"]
    addresses = {
        command["url"],
        settings["interactivity"]["request_url"],
        settings["event_subscriptions"]["request_url"],
    }
    assert command["command"] == COMMAND
    assert [address.endswith("/slack/events") for address in addresses] == [True]
