"""Checks the app's installation: token, scopes, channel, and people who may decide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.adapters.slack.accounts import Home, reason_against
from bot.adapters.slack.client import Refusal, ask
from bot.domain.approvals.grant import Demand
from bot.domain.kernel.finding import Finding, broken, fine, weak

ABOUT = "slack"
SCOPES = frozenset(
    {"chat:write", "commands", "files:read", "files:write", "reactions:read", "users:read", "usergroups:read"}
)
CHANNEL_SCOPES = {False: ("channels:history", "channels:read"), True: ("groups:history", "groups:read")}
"""The keys are whether the channel is private."""
SCOPES_OF_INCIDENT_CHANNELS = frozenset({"channels:manage", "channels:read"})
"""Needed when each incident has its own channel."""


async def installation(
    client: AsyncWebClient,
    *,
    channel: str,
    others: Iterable[str] = (),
    deciders: Iterable[Demand],
    incident_channels: bool = False,
) -> tuple[Finding, ...]:
    """`others`: channels of some targets' incidents. `deciders`: the people and groups in the settings.

    `incident_channels`: whether incidents have one each.
    """
    scopes: frozenset[str] = frozenset()

    async def who_am_i() -> Any:
        nonlocal scopes
        response = await client.auth_test()
        scopes_header = {name.lower(): value for name, value in response.headers.items()}.get("x-oauth-scopes", "")
        scopes = frozenset(part.strip() for part in str(scopes_header).split(",") if part.strip())
        return response

    answer = await ask(who_am_i())
    if isinstance(answer, Refusal):
        if answer.lasting:
            return (
                broken(ABOUT, f"auth.test: {answer.error}", "Correct SLACK_BOT_TOKEN (xoxb-…), or slack.base_url."),
            )
        what = f"no usable answer from {client.base_url}: {answer.error}"
        return (broken(ABOUT, what, "Check slack.base_url and the network path (DNS, proxy, firewall), or try again."),)
    known = fine(ABOUT, f"is @{answer.get('user', '?')} in {answer.get('team', '?')}")
    if answer.get("is_enterprise_install"):
        # Slack then wants the workspace with each request for a list, a group or a new channel.
        known = broken(
            ABOUT,
            "the app is installed in an organization, not in a workspace",
            "Install it in the workspace of slack.channel, and use that token; until then no user group can be read.",
        )
    placed, is_private = await _channel(client, channel)
    placed_too = [(await _channel(client, each))[0] for each in sorted(set(others) - {channel})]
    named = tuple(deciders)
    groups = [await _group(client, each) for each in sorted({one.user_group for one in named} - {""})]
    members = [await _members(client, each) for each in sorted({one.channel for one in named} - {""})]
    people = await _people(client, sorted({user for one in named for user in one.users}), Home.of(answer))
    return (known, _scoped(scopes, is_private, incident_channels), placed, *placed_too, *groups, *members, *people)


async def socket_mode(client: AsyncWebClient, app_token: str) -> Finding:
    """Whether a connection may be opened; the address that Slack gives for one is not used."""
    answer = await ask(client.apps_connections_open(app_token=app_token))
    if isinstance(answer, Refusal):
        what = f"no press or command can arrive: apps.connections.open: {answer.error}"
        remedy = (
            "Correct SLACK_APP_TOKEN (xapp-…, with connections:write), and turn Socket Mode on in the app's settings."
        )
        return broken(ABOUT, what, remedy)
    return fine(ABOUT, "Socket Mode can be used")


def _scoped(scopes: frozenset[str], is_private: bool, incident_channels: bool) -> Finding:
    if not scopes:
        return weak(ABOUT, "did not report which scopes the token has", "Compare them with the app's manifest.")
    optional = SCOPES_OF_INCIDENT_CHANNELS if incident_channels else frozenset()
    missing = sorted({*SCOPES, *CHANNEL_SCOPES[is_private], *optional} - scopes)
    if missing:
        return broken(ABOUT, f"the token lacks {', '.join(missing)}", "Add the scopes and install the app again.")
    return fine(ABOUT, "has every scope it needs")


async def _channel(client: AsyncWebClient, channel: str) -> tuple[Finding, bool]:
    answer = await ask(client.conversations_info(channel=channel))
    if isinstance(answer, Refusal):
        what = f"channel {channel}: {answer.error}"
        return broken(ABOUT, what, "Correct slack.channel; a private channel is unknown until the bot is in it."), False
    found: dict[str, Any] = answer.get("channel") or {}
    name, is_private = f"#{found.get('name', channel)}", bool(found.get("is_private"))
    if found.get("is_archived"):
        return broken(ABOUT, f"{name} is archived", "Choose another slack.channel."), is_private
    if not found.get("is_member"):
        return broken(ABOUT, f"the bot is not in {name}", f"Run /invite with the bot's name in {name}."), is_private
    return fine(ABOUT, f"is in {name}"), is_private


async def _group(client: AsyncWebClient, group: str) -> Finding:
    answer = await ask(client.usergroups_users_list(usergroup=group))
    if isinstance(answer, Refusal):
        remedy = "Correct the group's id; until it can be read, every press of its members is refused."
        return broken(ABOUT, f"user group {group}: {answer.error}", remedy)
    count = len(answer.get("users") or ())
    if not count:
        return broken(ABOUT, f"user group {group} is empty: nobody in it can approve", "Add people to it in Slack.")
    return fine(ABOUT, f"user group {group} has {count} member{'s' if count > 1 else ''}")


async def _people(client: AsyncWebClient, users: Sequence[str], home: Home) -> list[Finding]:
    """Those who cannot decide; if all can, one finding that says so."""
    found: list[Finding] = []
    for user in users:
        answer = await ask(client.users_info(user=user))
        if isinstance(answer, Refusal):
            remedy = "Correct the user's id; until this account can be read, its presses are refused."
            found.append(broken(ABOUT, f"user {user}: {answer.error}", remedy))
        elif against := reason_against(answer.get("user"), home):
            found.append(broken(ABOUT, f"user {user} may never decide: {against}", "Name somebody else."))
    named = f"{len(users)} {'people' if len(users) > 1 else 'person'} named by id may decide"
    return found or ([fine(ABOUT, named)] if users else [])


async def _members(client: AsyncWebClient, channel: str) -> Finding:
    answer = await ask(client.conversations_members(channel=channel, limit=200))
    if isinstance(answer, Refusal):
        remedy = "Correct the channel's id, or invite the bot; until it can be read, its members' presses are refused."
        return broken(ABOUT, f"members of {channel}: {answer.error}", remedy)
    shown = await ask(client.conversations_info(channel=channel))
    found: dict[str, Any] = {} if isinstance(shown, Refusal) else shown.get("channel") or {}
    if found and not found.get("is_private"):
        what = f"any member of the workspace can join #{found.get('name', channel)}, and may then decide"
        return weak(ABOUT, what, "Name a user group or a private channel instead.")
    return fine(ABOUT, f"members of {channel} can be read")
