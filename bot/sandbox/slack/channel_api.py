"""Creating, naming, filling and archiving channels, with Slack's errors."""

from __future__ import annotations

import re
from dataclasses import replace

from bot.sandbox.slack.arguments import Arguments
from bot.sandbox.slack.directory import BOT_USER, Channel
from bot.sandbox.slack.errors import ApiError, Json
from bot.sandbox.slack.team import Team
from bot.sandbox.slack.web_api import Method, open_channel

MAX_NAME_LENGTH = 80
MAX_TOPIC_LENGTH = 250
MAX_INVITED = 1000
_NAME = re.compile(r"[a-z0-9_-]+")


def create(team: Team, args: Arguments) -> Json:
    """Archived channels keep their names."""
    name = args.text("name").removeprefix("#")
    if problem := _wrong_with(name):
        raise ApiError(problem)
    if args.flag("is_private"):
        raise ApiError("missing_scope")
    if any(channel.name == name for channel in team.directory.channels.values()):
        raise ApiError("name_taken")
    made = Channel(
        id=f"C0MADE{len(team.directory.channels)}",
        name=name,
        topic="",
        members=(BOT_USER,),
        creator=BOT_USER,
        created=int(team.clock()),
    )
    return _kept(team, made)


def _wrong_with(name: str) -> str:
    if not name:
        return "invalid_name_required"
    if len(name) > MAX_NAME_LENGTH:
        return "invalid_name_maxlength"
    if not _NAME.fullmatch(name):
        return "invalid_name_specials"
    return "" if re.search("[a-z0-9]", name) else "invalid_name_punctuation"


def set_topic(team: Team, args: Arguments) -> Json:
    channel = team.directory.channel(open_channel(team, args))
    topic = args.text("topic")
    if len(topic) > MAX_TOPIC_LENGTH:
        raise ApiError("too_long")
    return _kept(team, replace(channel, topic=topic))


def invite(team: Team, args: Arguments) -> Json:
    """All or none, unless `force`: then those who can be invited are."""
    channel = team.directory.channel(open_channel(team, args))
    users = [user.strip() for user in args.required("users").split(",") if user.strip()]
    if len(users) > MAX_INVITED:
        raise ApiError("too_many_users")
    wrong = {user: why for user in users if (why := _why_not(team, channel, user))}
    if wrong and not args.flag("force"):
        raise ApiError(next(iter(wrong.values())))
    welcome = tuple(user for user in users if user not in wrong)
    if not welcome:
        raise ApiError(next(iter(wrong.values()), "no_user"))
    answer = _kept(team, replace(channel, members=(*channel.members, *welcome)))
    errors = [{"user": user, "ok": False, "error": why} for user, why in wrong.items()]
    return answer | ({"errors": errors} if errors else {})


def _why_not(team: Team, channel: Channel, user: str) -> str:
    person = team.directory.people.get(user)
    if person is None or person.is_deleted:
        return "user_not_found"
    if user == BOT_USER:
        return "cant_invite_self"
    return "already_in_channel" if user in channel.members else ""


def archive(team: Team, args: Arguments) -> Json:
    channel = team.directory.channel(args.required("channel"))
    if channel.is_archived:
        raise ApiError("already_archived")
    if channel.name == "general":
        raise ApiError("cant_archive_general")
    if BOT_USER not in channel.members:
        raise ApiError("not_in_channel")
    _kept(team, replace(channel, is_archived=True))
    return {"ok": True}


def _kept(team: Team, channel: Channel) -> Json:
    team.directory.keep(channel)
    team.feed.publish("channel", channel=channel.described())
    return {"ok": True, "channel": channel.described()}


CHANNEL_METHODS: dict[str, Method] = {
    "conversations.archive": archive,
    "conversations.create": create,
    "conversations.invite": invite,
    "conversations.setTopic": set_topic,
}
