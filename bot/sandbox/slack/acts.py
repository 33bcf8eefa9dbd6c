"""One person's action from beginning to end: notifies the bot, then carries out its answer.

Every function returns what that person sees; `shown` is Slack's own text if the bot did not answer.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from bot.sandbox.slack import interactions
from bot.sandbox.slack.block_kit import checked_blocks
from bot.sandbox.slack.bot_link import BotLink, Delivery
from bot.sandbox.slack.directory import APP_ID, TEAM_ID
from bot.sandbox.slack.errors import ApiError, Json, SandboxError
from bot.sandbox.slack.team import Team

MODAL_TROUBLE = "We had some trouble connecting. Try again?"


class Act(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user: str


class Press(Act):
    """A click: on a message (`channel`, `ts`) or in a view (`view_id`). `stale` presses a button that is gone."""

    action_id: str
    channel: str = ""
    ts: str = ""
    view_id: str = ""
    block_id: str = ""
    value: Any = None
    values: Json = {}
    stale: bool = False


class Command(Act):
    """A slash command. `wait_posts`: answer only after that many posts to its response_url, or `wait_seconds`."""

    channel: str
    command: str
    text: str = ""
    wait_posts: int = 0
    wait_seconds: float = 5.0


class Submit(Act):
    view_id: str
    values: Json = {}


class CloseView(Act):
    """The modal's close button, or with `all` the cross in its corner."""

    view_id: str
    all: bool = False


class Say(Act):
    channel: str
    text: str
    thread_ts: str = ""


class React(Act):
    channel: str
    ts: str
    name: str


class Shortcut(Act):
    """On a message with `channel` and `ts`, else a global one."""

    callback_id: str
    channel: str = ""
    ts: str = ""


def outcome(delivery: Delivery, shown: str, **facts: object) -> Json:
    """The result of the action; `shown` only if it failed."""
    result: Json = {"ok": delivery.ok, "status": delivery.status, "body": delivery.body, **facts}
    result["seconds"] = round(delivery.seconds, 4)
    if not delivery.ok:
        result |= {"error": delivery.error, "shown": shown}
    return result


def trouble(delivery: Delivery) -> str:
    if delivery.error == "operation_timeout":
        return "This app did not respond in time. Your action may not have counted."
    if delivery.status is None:
        return "This app is not reachable. Your action did not get there."
    return f"This app answered with an error (HTTP {delivery.status}). Your action may not have counted."


async def press(team: Team, link: BotLink, act: Press) -> Json:
    team.directory.person(act.user)
    if act.view_id:
        view = team.views.find(act.user, act.view_id)
        pressed = _pressed(view["blocks"], act)
        delivery = await link.interact(interactions.view_press(team, act.user, view, pressed))
        return outcome(delivery, trouble(delivery))
    channel = team.directory.channel(act.channel).id
    message = _message_as_pressed(team, channel, act)
    pressed = _pressed(message.get("blocks", []), act)
    payload = interactions.message_press(team, act.user, channel, message, pressed)
    delivery = await link.interact(payload)
    return outcome(delivery, trouble(delivery), id=payload["response_url"].rpartition("/")[2])


def _pressed(blocks: list[Json], act: Press) -> interactions.Pressed:
    value = act.value if isinstance(act.value, str) else None
    found = interactions.find_element(blocks, act.action_id, block_id=act.block_id, value=value)
    if found is None:
        raise SandboxError(f"nothing to press with action_id {act.action_id!r}", interactions.buttons_of(blocks))
    block, element = found
    state = interactions.state_of(blocks, {act.action_id: act.value, **act.values})
    return interactions.Pressed(block, element, act.value, state)


def _message_as_pressed(team: Team, channel: str, act: Press) -> Json:
    """The message now; with `stale`, its newest version that has the button."""
    whisper = team.messages.ephemerals.get(act.ts)
    if whisper and whisper["recipient"] == act.user:
        return whisper
    if not act.stale:
        return team.messages.get(channel, act.ts)
    value = act.value if isinstance(act.value, str) else None
    for version in reversed(team.messages.versions(channel, act.ts)):
        if interactions.find_element(version.get("blocks", []), act.action_id, block_id=act.block_id, value=value):
            return version
    raise SandboxError(f"no version of this message had action_id {act.action_id!r}")


async def command(team: Team, link: BotLink, act: Command) -> Json:
    channel = team.directory.channel(act.channel).id
    if act.command not in team.settings.commands:
        return {"ok": False, "error": "dispatch_unknown_command", "shown": f"{act.command} is not a valid command."}
    # Its place in the channel is before the bot's posts to the response_url.
    answer_ts = team.messages.next_ts()
    form, reply_id = interactions.command_form(team, act.user, channel, act.command, act.text)
    delivery = await link.command(form)
    answer = delivery.reply() if delivery.ok else {}
    shown = f"{act.command} failed with the error “{delivery.error}”."
    if not delivery.ok:
        return outcome(delivery, shown, id=reply_id, reply=None, posts=[])
    if answer:
        try:
            show_reply(team, act.user, channel, answer, ts=answer_ts)
        except ApiError as refused:
            return outcome(delivery, "", id=reply_id, reply=answer, posts=[]) | refused.answer() | {"shown": shown}
    reply = team.response_urls.find(reply_id)
    posts = await reply.posts_so_far(act.wait_posts, act.wait_seconds) if reply else []
    return outcome(delivery, "", id=reply_id, reply=answer or None, posts=posts)


def show_reply(team: Team, user: str, channel: str, answer: Json, **where: str) -> None:
    """A command's immediate answer, or a post to a response_url: ephemeral unless it is in_channel."""
    content: Json = {"text": str(answer.get("text", ""))}
    if answer.get("blocks"):
        content["blocks"] = team.files.resolve(checked_blocks(answer["blocks"]))
    if not content["text"] and not content.get("blocks"):
        raise ApiError("no_text")
    content |= where
    if answer.get("response_type") == "in_channel":
        team.messages.post(channel, team.bot_message(content))
    else:
        team.messages.whisper(channel, user, team.bot_message(content))


def use_response_url(team: Team, reply_id: str, answer: Json) -> Json:
    """One use of a response_url; the posted body is kept for tests that ask for the interaction."""
    reply = team.response_urls.use(reply_id)
    if answer.get("delete_original"):
        if reply.is_ephemeral:
            team.messages.delete_whisper(reply.ts)
        elif reply.ts:
            team.messages.delete(reply.channel, reply.ts)
    elif answer.get("replace_original") and reply.ts:
        changes: Json = {"text": str(answer.get("text", ""))}
        changes["blocks"] = team.files.resolve(checked_blocks(answer.get("blocks") or []))
        if reply.is_ephemeral:
            team.messages.change_whisper(reply.ts, changes)
        else:
            changes["edited"] = {
                "user": team.messages.get(reply.channel, reply.ts)["user"],
                "ts": team.messages.next_ts(),
            }
            team.messages.change(reply.channel, reply.ts, changes)
    else:
        thread_ts = answer.get("thread_ts") or reply.thread_ts
        show_reply(team, reply.user, reply.channel, answer, **({"thread_ts": thread_ts} if thread_ts else {}))
    reply.keep(answer)
    return {"ok": True}


async def submit(team: Team, link: BotLink, act: Submit) -> Json:
    """Submits the modal: Slack's own checks first, then the bot's `response_action`."""
    view = team.views.find(act.user, act.view_id)
    state = interactions.state_of(view["blocks"], act.values)
    if faults := interactions.faults_of_inputs(view, state):
        return {"ok": False, "error": "invalid_inputs", "errors": faults}
    delivery = await link.interact(interactions.submission(team, act.user, view, state))
    if not delivery.ok:
        return outcome(delivery, MODAL_TROUBLE)
    answer = delivery.reply()
    try:
        errors = _do_response_action(team, act.user, view, answer)
    except ApiError as refused:
        return outcome(delivery, MODAL_TROUBLE) | refused.answer() | {"shown": MODAL_TROUBLE}
    result = outcome(delivery, "", response_action=answer.get("response_action"))
    return result | {"ok": False, "error": "refused", "errors": errors} if errors else result


def _do_response_action(team: Team, user: str, view: Json, answer: Json) -> dict[str, str]:
    """Error texts by field if the bot refused; empty if the modal moved on."""
    kind = answer.get("response_action")
    if kind == "errors":
        errors = answer.get("errors")
        inputs = [block["block_id"] for block in view["blocks"] if block["type"] == "input"]
        if not isinstance(errors, dict) or not errors or set(errors) - set(inputs):
            raise ApiError("invalid_response_action", f"[ERROR] errors must name input blocks: {inputs}")
        return errors
    if kind == "clear":
        team.views.close_all(user)
    elif kind == "update":
        team.views.update(answer["view"], view_id=view["id"])
    elif kind == "push":
        team.views.push_for(user, answer["view"])
    elif kind is None:
        team.views.close_top(user)
    else:
        raise ApiError("invalid_response_action", f"[ERROR] unknown response_action: {kind}")
    return {}


async def close_view(team: Team, link: BotLink, act: CloseView) -> Json:
    """Closing notifies the bot only if the view requests it; the modal goes away in any case."""
    view = team.views.find(act.user, act.view_id)
    closes_all = act.all or bool(view["clear_on_close"])
    if closes_all:
        team.views.close_all(act.user)
    else:
        team.views.close_top(act.user)
    if not view["notify_on_close"]:
        return {"ok": True}
    delivery = await link.interact(interactions.view_closed(team, act.user, view, is_cleared=closes_all))
    return outcome(delivery, trouble(delivery))


async def say(team: Team, link: BotLink, act: Say) -> Json:
    channel = team.directory.channel(act.channel).id
    content: Json = {"user": act.user, "text": act.text, "team": TEAM_ID}
    if act.thread_ts:
        content["thread_ts"] = act.thread_ts
    posted = team.messages.post(channel, content)
    delivery = await link.dispatch({**posted, "channel": channel, "channel_type": "channel", "event_ts": posted["ts"]})
    return outcome(delivery, "", ts=posted["ts"])


async def react(team: Team, link: BotLink, act: React) -> Json:
    channel = team.directory.channel(act.channel).id
    message = team.messages.get(channel, act.ts)
    team.messages.react(channel, act.ts, act.name, act.user)
    event = {
        "type": "reaction_added",
        "user": act.user,
        "reaction": act.name,
        "item_user": message["user"],
        "item": {"type": "message", "channel": channel, "ts": act.ts},
    }
    return outcome(await link.dispatch(event), "")


async def shortcut(team: Team, link: BotLink, act: Shortcut) -> Json:
    if act.ts:
        channel = team.directory.channel(act.channel).id
        payload = interactions.message_shortcut(team, act.user, act.callback_id, channel, act.ts)
    else:
        payload = interactions.global_shortcut(team, act.user, act.callback_id)
    delivery = await link.interact(payload)
    return outcome(delivery, trouble(delivery))


async def open_home(team: Team, link: BotLink, act: Act) -> Json:
    person = team.directory.person(act.user)
    event: Json = {"type": "app_home_opened", "user": person.id, "channel": f"D{person.id[1:]}", "tab": "home"}
    if view := team.views.homes.get(person.id):
        event["view"] = view
    return outcome(await link.dispatch({**event, "api_app_id": APP_ID}), "", view=team.views.homes.get(person.id))
