"""The content of the workspace: people, channels, one user group; and Slack's representation of them.

People never change; membership of the user group may, since the bot must read it fresh, and channels may be created.
"""

from __future__ import annotations

from dataclasses import dataclass

from bot.sandbox.slack.errors import ApiError, Json

TEAM_ID = "T0SANDBOX"
TEAM_NAME = "Sandbox"
APP_ID = "A0INCIDENT"
BOT_ID = "B0INCIDENT"
BOT_USER = "U0INCIDENT"
BOT_NAME = "incident-bot"
CREATED = 1_760_000_000


@dataclass(frozen=True)
class Person:
    """An account; `handle` is the text of a mention without the id."""

    id: str
    handle: str
    real_name: str
    title: str = ""
    is_bot: bool = False
    is_restricted: bool = False
    is_deleted: bool = False
    team: str = TEAM_ID
    """Another company's workspace, for people who are here through a shared channel (Slack Connect)."""

    def described(self) -> Json:
        profile = {
            "real_name": self.real_name,
            "real_name_normalized": self.real_name,
            "display_name": self.real_name.split()[0] if not self.is_bot else self.handle,
            "title": self.title,
            "team": self.team,
        }
        if not self.is_bot and self.team == TEAM_ID:
            profile["email"] = f"{self.handle}@example.test"
        # As in Slack: `is_stranger` is only about people with whom the app shares no channel.
        of_elsewhere = {} if self.team == TEAM_ID else {"is_stranger": False}
        return of_elsewhere | {
            "id": self.id,
            "team_id": self.team,
            "name": self.handle,
            "real_name": self.real_name,
            "deleted": self.is_deleted,
            "is_bot": self.is_bot,
            "is_app_user": False,
            "is_admin": False,
            "is_owner": False,
            "is_restricted": self.is_restricted,
            "is_ultra_restricted": False,
            "tz": "Etc/UTC",
            "tz_label": "Coordinated Universal Time",
            "tz_offset": 0,
            "updated": CREATED,
            "profile": profile,
        }


@dataclass(frozen=True)
class Channel:
    id: str
    name: str
    topic: str
    members: tuple[str, ...]
    creator: str = "U0LEA"
    created: int = CREATED
    is_archived: bool = False

    def described(self) -> Json:
        return {
            "id": self.id,
            "name": self.name,
            "name_normalized": self.name,
            "is_channel": True,
            "is_group": False,
            "is_im": False,
            "is_mpim": False,
            "is_private": False,
            "is_archived": self.is_archived,
            "is_general": self.name == "general",
            "is_member": BOT_USER in self.members,
            "created": self.created,
            "creator": self.creator,
            "num_members": len(self.members),
            "topic": {"value": self.topic, "creator": self.creator if self.topic else "", "last_set": self.created},
            "purpose": {"value": "", "creator": "", "last_set": 0},
        }


PEOPLE = (
    Person("U0ANA", "ana", "Ana Alvarez", "Serving, on call"),
    Person("U0BEN", "ben", "Ben Okafor", "Serving"),
    Person("U0LEA", "lea", "Lea Lindqvist", "Serving lead"),
    Person("U0MO", "mo", "Mo Haddad", "Data platform"),
    Person("U0EXT", "xena", "Xena External", "Partner company", team="T0PARTNER"),
    Person("U0GUE", "gus", "Gus Guest", "Contractor", is_restricted=True),
    Person("U0OLD", "dana", "Dana Departed", "Left in spring", is_deleted=True),
    Person("U0BOT", "deploybot", "deploybot", is_bot=True),
    Person(BOT_USER, BOT_NAME, BOT_NAME, is_bot=True),
)
EVERYBODY = ("U0ANA", "U0BEN", "U0LEA", "U0MO", "U0EXT", "U0GUE", "U0BOT", BOT_USER)
CHANNELS = (
    Channel("C0INC", "inference-incidents", "Alerts, decisions and fixes of the serving fleet", EVERYBODY),
    Channel("C0GEN", "general", "Everything else", EVERYBODY),
)
ON_CALL_GROUP = "S0SERVING"
ON_CALL_MEMBERS = ("U0ANA", "U0BEN", "U0LEA")


class Directory:
    """Look-ups by id, and by `#name` for channels; raises Slack's errors."""

    def __init__(self) -> None:
        self.people = {person.id: person for person in PEOPLE}
        self.channels: dict[str, Channel] = {}
        self.group_members: dict[str, tuple[str, ...]] = {}
        self.reset()

    def reset(self) -> None:
        self.group_members = {ON_CALL_GROUP: ON_CALL_MEMBERS}
        self.channels = {channel.id: channel for channel in CHANNELS}

    def person(self, user_id: str) -> Person:
        if user_id not in self.people:
            raise ApiError("user_not_found")
        return self.people[user_id]

    def channel(self, id_or_name: str) -> Channel:
        wanted = id_or_name.removeprefix("#")
        for channel in self.channels.values():
            if wanted in (channel.id, channel.name):
                return channel
        raise ApiError("channel_not_found")

    def keep(self, channel: Channel) -> None:
        self.channels[channel.id] = channel

    def members_of(self, group_id: str) -> tuple[str, ...]:
        if group_id not in self.group_members:
            raise ApiError("no_such_subteam")
        return self.group_members[group_id]

    def groups(self, *, with_users: bool) -> list[Json]:
        members = self.group_members[ON_CALL_GROUP]
        group: Json = {
            "id": ON_CALL_GROUP,
            "team_id": TEAM_ID,
            "is_usergroup": True,
            "name": "Serving on-call",
            "handle": "serving-oncall",
            "description": "People who may approve changes to the serving fleet",
            "is_external": False,
            "date_create": CREATED,
            "date_update": CREATED,
            "date_delete": 0,
            "auto_type": None,
            "created_by": "U0LEA",
            "updated_by": "U0LEA",
            "deleted_by": None,
            "prefs": {"channels": [], "groups": []},
            "user_count": len(members),
        }
        if with_users:
            group["users"] = list(members)
        return [group]
