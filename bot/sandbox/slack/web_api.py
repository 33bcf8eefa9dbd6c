"""The methods of Slack's Web API that a bot like ours calls, each a function from arguments to an answer.

Structures, errors and limits are Slack's; a missing method answers `unknown_method`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence

from bot.sandbox.slack.arguments import Arguments
from bot.sandbox.slack.block_kit import checked_blocks
from bot.sandbox.slack.directory import BOT_ID, BOT_NAME, BOT_USER, TEAM_ID, TEAM_NAME
from bot.sandbox.slack.errors import ApiError, Json
from bot.sandbox.slack.messages import BROADCAST
from bot.sandbox.slack.team import Team

MAX_TEXT_LENGTH = 40_000
MAX_UPDATE_LENGTH = 4_000
LARGEST_PAGE = 999

#: The scopes of the bot's token, in a header of every answer; a setup check reads it there.
SCOPES = (
    "channels:history",
    "channels:manage",
    "channels:read",
    "chat:write",
    "commands",
    "files:read",
    "files:write",
    "reactions:read",
    "usergroups:read",
    "users:read",
)

OF_THE_APP = frozenset({"apps.connections.open"})
"""Methods that take the app's token in place of the bot's."""

Method = Callable[[Team, Arguments], Json]
METHODS: dict[str, Method] = {}


def method(name: str) -> Callable[[Method], Method]:
    def register(function: Method) -> Method:
        METHODS[name] = function
        return function

    return register


@method("apps.connections.open")
def open_connection(team: Team, args: Arguments) -> Json:
    """Takes the app's own token, not the bot's."""
    del args
    address = team.base_url.replace("http://", "ws://", 1)
    return {"ok": True, "url": f"{address}/socket/{team.sockets.issue_ticket()}"}


# -- messages -----------------------------------------------------------------


def content_of(team: Team, args: Arguments, *, needs_text: bool = True) -> Json:
    """Text, blocks and metadata of a message; only the fields that the caller sent."""
    content: Json = {}
    if args.structure("attachments"):
        raise ApiError("invalid_arguments", "[ERROR] the simulator knows no attachments; send blocks")
    blocks = args.structure("blocks")
    if blocks is not None:
        content["blocks"] = team.files.resolve(checked_blocks(blocks))
    if args.text("text") or needs_text:
        content["text"] = args.text("text")[:MAX_TEXT_LENGTH]
    if needs_text and not content["text"] and not content.get("blocks"):
        raise ApiError("no_text")
    metadata = args.structure("metadata")
    if metadata is not None:
        content["metadata"] = checked_metadata(metadata)
    return content


def checked_metadata(metadata: object) -> Json | None:
    """None for the empty object, which removes metadata."""
    if metadata == {}:
        return None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("event_payload"), dict):
        raise ApiError("invalid_metadata_format")
    if not isinstance(metadata.get("event_type"), str) or set(metadata) - {"event_type", "event_payload"}:
        raise ApiError("invalid_metadata_format")
    return metadata


def joined_channel(team: Team, args: Arguments) -> str:
    channel = team.directory.channel(args.required("channel"))
    if BOT_USER not in channel.members:
        raise ApiError("not_in_channel")
    return channel.id


def open_channel(team: Team, args: Arguments) -> str:
    """A channel that is not archived."""
    channel = joined_channel(team, args)
    if team.directory.channel(channel).is_archived:
        raise ApiError("is_archived")
    return channel


@method("chat.postMessage")
def post_message(team: Team, args: Arguments) -> Json:
    channel = open_channel(team, args)
    content = {name: value for name, value in content_of(team, args).items() if value is not None}
    if args.text("thread_ts"):
        content["thread_ts"] = args.text("thread_ts")
        if args.flag("reply_broadcast"):
            content["subtype"] = BROADCAST
    posted = team.messages.post(channel, team.bot_message(content))
    return {"ok": True, "channel": channel, "ts": posted["ts"], "message": posted}


@method("chat.update")
def update_message(team: Team, args: Arguments) -> Json:
    """Blocks and metadata that are not sent stay unchanged."""
    channel = open_channel(team, args)
    ts = args.required("ts")
    old = team.messages.get(channel, ts)
    if old["user"] != BOT_USER:
        raise ApiError("cant_update_message")
    if len(args.text("text")) > MAX_UPDATE_LENGTH:
        raise ApiError("msg_too_long")
    changes = content_of(team, args, needs_text=False)
    if not changes.get("text") and not changes.get("blocks"):
        raise ApiError("no_text")
    changes["edited"] = {"user": BOT_USER, "ts": f"{int(team.clock())}.000000"}
    changed = team.messages.change(channel, ts, changes)
    return {"ok": True, "channel": channel, "ts": ts, "text": changed.get("text", ""), "message": changed}


@method("chat.delete")
def delete_message(team: Team, args: Arguments) -> Json:
    channel = open_channel(team, args)
    ts = args.required("ts")
    if team.messages.get(channel, ts)["user"] != BOT_USER:
        raise ApiError("cant_delete_message")
    team.messages.delete(channel, ts)
    return {"ok": True, "channel": channel, "ts": ts}


@method("chat.postEphemeral")
def post_ephemeral(team: Team, args: Arguments) -> Json:
    channel = open_channel(team, args)
    user = args.required("user")
    if user not in team.directory.channel(channel).members:
        raise ApiError("user_not_in_channel")
    content = content_of(team, args)
    if args.text("thread_ts"):
        content["thread_ts"] = args.text("thread_ts")
    whispered = team.messages.whisper(channel, user, team.bot_message(content))
    return {"ok": True, "message_ts": whispered["ts"]}


@method("chat.getPermalink")
def permalink(team: Team, args: Arguments) -> Json:
    channel = team.directory.channel(args.required("channel")).id
    ts = args.required("message_ts")
    message = team.messages.get(channel, ts)
    link = f"{team.base_url}/archives/{channel}/p{ts.replace('.', '')}"
    if message.get("thread_ts", ts) != ts:
        link += f"?thread_ts={message['thread_ts']}&cid={channel}"
    return {"ok": True, "channel": channel, "permalink": link}


# -- conversations --------------------------------------------------------------


def cursor_of(position: str) -> str:
    return base64.b64encode(f"next_ts:{position}".encode()).decode()


def position_of(cursor: str) -> str:
    try:
        prefix, _, position = base64.b64decode(cursor, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise ApiError("invalid_cursor") from None
    if prefix != "next_ts" or not position:
        raise ApiError("invalid_cursor")
    return position


def within(messages: Sequence[Json], args: Arguments) -> list[Json]:
    """Those between `oldest` and `latest`; the bounds themselves only if `inclusive`."""
    oldest, latest = args.text("oldest"), args.text("latest")
    edge = args.flag("inclusive")
    kept = []
    for message in messages:
        at = float(message["ts"])
        after = not oldest or at > float(oldest) or (edge and at == float(oldest))
        before = not latest or at < float(latest) or (edge and at == float(latest))
        if after and before:
            kept.append(message)
    return kept


def page_of(team: Team, channel: str, messages: Sequence[Json], args: Arguments) -> Json:
    """One page, beginning at the cursor; metadata only on request, as in Slack."""
    limit = args.number("limit", 100)
    if not 1 <= limit <= LARGEST_PAGE:
        raise ApiError("invalid_limit")
    start = 0
    if cursor := args.text("cursor"):
        position = position_of(cursor)
        start = next((n for n, message in enumerate(messages) if message["ts"] == position), len(messages))
    chosen = [team.messages.with_thread_facts(channel, message) for message in messages[start : start + limit]]
    has_more = start + limit < len(messages)
    if not args.flag("include_all_metadata"):
        chosen = [{name: part for name, part in m.items() if name != "metadata"} for m in chosen]
    answer: Json = {"ok": True, "messages": chosen, "has_more": has_more, "pin_count": 0}
    if has_more:
        answer["response_metadata"] = {"next_cursor": cursor_of(messages[start + limit]["ts"])}
    return answer


@method("conversations.history")
def history(team: Team, args: Arguments) -> Json:
    channel = joined_channel(team, args)
    return page_of(team, channel, within(team.messages.history(channel), args), args)


@method("conversations.replies")
def replies(team: Team, args: Arguments) -> Json:
    """The parent comes first whatever the bounds are."""
    channel = joined_channel(team, args)
    parent, *rest = team.messages.thread(channel, args.required("ts"))
    return page_of(team, channel, [parent, *within(rest, args)], args)


@method("conversations.info")
def conversation_info(team: Team, args: Arguments) -> Json:
    return {"ok": True, "channel": team.directory.channel(args.required("channel")).described()}


@method("conversations.members")
def members(team: Team, args: Arguments) -> Json:
    channel = team.directory.channel(args.required("channel"))
    return {"ok": True, "members": list(channel.members), "response_metadata": {"next_cursor": ""}}


@method("conversations.list")
def conversation_list(team: Team, args: Arguments) -> Json:
    limit = args.number("limit", 100)
    if not 1 <= limit <= LARGEST_PAGE + 1:
        raise ApiError("invalid_limit")
    found = [
        each for each in team.directory.channels.values() if not (each.is_archived and args.flag("exclude_archived"))
    ]
    cursor = args.text("cursor")
    start = next((n for n, each in enumerate(found) if each.id == position_of(cursor)), len(found)) if cursor else 0
    has_more = start + limit < len(found)
    after = cursor_of(found[start + limit].id) if has_more else ""
    channels = [channel.described() for channel in found[start : start + limit]]
    return {"ok": True, "channels": channels, "response_metadata": {"next_cursor": after}}


# -- people -----------------------------------------------------------------------


@method("auth.test")
def auth_test(team: Team, args: Arguments) -> Json:
    del args
    return {
        "ok": True,
        "url": f"{team.base_url}/",
        "team": TEAM_NAME,
        "user": BOT_NAME,
        "team_id": TEAM_ID,
        "user_id": BOT_USER,
        "bot_id": BOT_ID,
        "is_enterprise_install": False,
    }


@method("users.info")
def user_info(team: Team, args: Arguments) -> Json:
    return {"ok": True, "user": team.directory.person(args.required("user")).described()}


@method("users.list")
def user_list(team: Team, args: Arguments) -> Json:
    del args
    people = [person.described() for person in team.directory.people.values()]
    return {"ok": True, "members": people, "cache_ts": int(team.clock()), "response_metadata": {"next_cursor": ""}}


@method("usergroups.list")
def usergroup_list(team: Team, args: Arguments) -> Json:
    return {"ok": True, "usergroups": team.directory.groups(with_users=args.flag("include_users"))}


@method("usergroups.users.list")
def usergroup_users(team: Team, args: Arguments) -> Json:
    return {"ok": True, "users": list(team.directory.members_of(args.required("usergroup")))}


# -- views ------------------------------------------------------------------------


@method("views.open")
def open_view(team: Team, args: Arguments) -> Json:
    return {"ok": True, "view": team.views.open(args.required("trigger_id"), args.mapping("view"))}


@method("views.push")
def push_view(team: Team, args: Arguments) -> Json:
    return {"ok": True, "view": team.views.push(args.required("trigger_id"), args.mapping("view"))}


@method("views.update")
def update_view(team: Team, args: Arguments) -> Json:
    view = team.views.update(
        args.mapping("view"),
        view_id=args.text("view_id"),
        external_id=args.text("external_id"),
        view_hash=args.text("hash"),
    )
    return {"ok": True, "view": view}


@method("views.publish")
def publish_view(team: Team, args: Arguments) -> Json:
    user = team.directory.person(args.required("user_id")).id
    return {"ok": True, "view": team.views.publish(user, args.mapping("view"), view_hash=args.text("hash"))}


# -- files ------------------------------------------------------------------------


@method("files.getUploadURLExternal")
def upload_url(team: Team, args: Arguments) -> Json:
    file_id, url = team.files.expect(args.required("filename"), args.number("length", 0))
    return {"ok": True, "upload_url": url, "file_id": file_id}


@method("files.completeUploadExternal")
def complete_upload(team: Team, args: Arguments) -> Json:
    entries = args.structure("files")
    if not isinstance(entries, list) or not all(isinstance(e, dict) and e.get("id") for e in entries):
        raise ApiError("invalid_arguments", "[ERROR] missing required field: files")
    channel = open_channel(team, Arguments({"channel": args.text("channel_id")})) if args.text("channel_id") else ""
    stored = [team.files.complete(entry["id"], entry.get("title")) for entry in entries]
    if channel:
        content: Json = {
            "subtype": "file_share",
            "text": args.text("initial_comment"),
            "files": [team.files.described(file, is_shown=True) for file in stored],
            "upload": True,
        }
        if args.text("thread_ts"):
            content["thread_ts"] = args.text("thread_ts")
        posted = team.messages.post(channel, team.bot_message(content))
        for file in stored:
            file.shares.append({"channel": channel, "ts": posted["ts"], "thread_ts": posted.get("thread_ts")})
    return {"ok": True, "files": [team.files.described(file) for file in stored]}


@method("files.info")
def file_info(team: Team, args: Arguments) -> Json:
    described = team.files.described(team.files.get(args.required("file")))
    return {"ok": True, "file": described, "comments": [], "response_metadata": {"next_cursor": ""}}


# -- reactions ----------------------------------------------------------------------


@method("reactions.add")
def add_reaction(team: Team, args: Arguments) -> Json:
    channel = open_channel(team, args)
    team.messages.react(channel, args.required("timestamp"), args.required("name").strip(":"), BOT_USER)
    return {"ok": True}


@method("reactions.get")
def get_reactions(team: Team, args: Arguments) -> Json:
    channel = team.directory.channel(args.required("channel")).id
    message = team.messages.get(channel, args.required("timestamp"))
    return {"ok": True, "type": "message", "channel": channel, "message": message}
