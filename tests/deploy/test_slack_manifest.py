"""The Slack app asks for exactly what the code uses."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.adapters.slack.app import COMMAND
from bot.adapters.slack.doctor import CHANNEL_SCOPES, SCOPES
from tests.deploy.files import ROOT, document

pytestmark = pytest.mark.fast

HISTORY = {"channels:history", "groups:history"}
READING_CHANNELS = {"channels:read", "groups:read"}
SCOPES_OF: dict[str, set[str]] = {
    "auth_test": set(),
    "chat_delete": {"chat:write"},
    "chat_getPermalink": set(),
    "chat_postEphemeral": {"chat:write"},
    "chat_postMessage": {"chat:write"},
    "chat_update": {"chat:write"},
    "conversations_history": HISTORY,
    "conversations_info": READING_CHANNELS,
    "conversations_members": READING_CHANNELS,
    "conversations_replies": HISTORY,
    "files_completeUploadExternal": {"files:write"},
    "files_getUploadURLExternal": {"files:write"},
    "files_info": {"files:read"},
    "usergroups_list": {"usergroups:read"},
    "usergroups_users_list": {"usergroups:read"},
    "users_info": {"users:read"},
    "views_open": set(),
}
"""Web API methods as the SDK names them, and the bot scopes that Slack's documentation asks for."""


def methods_called() -> set[str]:
    return {name for path in (ROOT / "bot" / "adapters" / "slack").glob("*.py") for name in _calls(path.read_text())}


def _calls(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and "_" in node.attr.strip("_") and hasattr(AsyncWebClient, node.attr):
            yield node.attr


def manifest_scopes() -> set[str]:
    return set(document("slack-manifest.yaml")["oauth_config"]["scopes"]["bot"])


def test_every_method_that_is_called_has_its_scopes_written_here() -> None:
    assert methods_called() == SCOPES_OF.keys()


def test_the_manifest_asks_for_these_scopes_and_no_other() -> None:
    assert manifest_scopes() == {"commands"}.union(*(SCOPES_OF[method] for method in methods_called()))


def test_doctor_looks_for_the_scopes_of_the_manifest() -> None:
    assert SCOPES.union(*CHANNEL_SCOPES.values()) == manifest_scopes()


def test_slack_is_told_the_one_address_of_the_bot() -> None:
    manifest = document("slack-manifest.yaml")
    (command,) = manifest["features"]["slash_commands"]
    addresses = {command["url"], manifest["settings"]["interactivity"]["request_url"]}
    assert command["command"] == COMMAND
    assert [address.endswith("/slack/events") for address in addresses] == [True]
