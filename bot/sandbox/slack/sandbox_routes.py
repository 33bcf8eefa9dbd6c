"""The endpoints for tests, for the unattended demo and for the page: `/__sandbox__/…`, which Slack does not have.

A person's action is answered after the bot answered it, with what that person would see.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from bot.sandbox.slack import acts
from bot.sandbox.slack.bot_link import BotLink
from bot.sandbox.slack.directory import BOT_NAME, BOT_USER, ON_CALL_GROUP, TEAM_NAME
from bot.sandbox.slack.errors import ApiError, Json, SandboxError
from bot.sandbox.slack.faults import Fault
from bot.sandbox.slack.team import Team

ActKind = TypeVar("ActKind", bound=acts.Act)
Handler = Callable[[Request], Awaitable[Response]]
FAULTS = TypeAdapter(list[Fault])


class Event(BaseModel):
    model_config = ConfigDict(extra="forbid")

    event: Json


class Membership(BaseModel):
    """Who is in the on-call group from now on."""

    model_config = ConfigDict(extra="forbid")

    users: list[str]


def refusals_as_answers(handler: Handler) -> Handler:
    """Bad input is 400 with pydantic's reasons; a missing object is 404 with the existing ones."""

    async def guarded(request: Request) -> Response:
        try:
            return await handler(request)
        except ValidationError as invalid:
            reasons = invalid.errors(include_url=False, include_input=False, include_context=False)
            return JSONResponse({"ok": False, "error": "invalid_request", "reasons": reasons}, status_code=400)
        except (ApiError, SandboxError) as refused:
            return JSONResponse(refused.answer(), status_code=404)

    return guarded


class SandboxRoutes:
    def __init__(self, team: Team, link: BotLink) -> None:
        self._team = team
        self._link = link

    def routes(self) -> list[Route]:
        reads: dict[str, Handler] = {
            "calls": self.calls,
            "deliveries": self.deliveries,
            "messages": self.messages,
            "interactions/{id}": self.interaction,
            "page": self.page,
            "stream": self.stream,
        }
        writes: dict[str, Handler] = {
            "press": self._act(acts.Press, acts.press),
            "command": self._act(acts.Command, acts.command),
            "submit": self._act(acts.Submit, acts.submit),
            "close": self._act(acts.CloseView, acts.close_view),
            "say": self._act(acts.Say, acts.say),
            "react": self._act(acts.React, acts.react),
            "shortcut": self._act(acts.Shortcut, acts.shortcut),
            "home": self._act(acts.Act, acts.open_home),
            "event": self.event,
            "faults": self.faults,
            "usergroup": self.usergroup,
            "reset": self.reset,
            "refresh-sockets": self.refresh_sockets,
        }
        return [
            *(Route(f"/__sandbox__/{name}", refusals_as_answers(read)) for name, read in reads.items()),
            *(
                Route(f"/__sandbox__/{name}", refusals_as_answers(write), methods=["POST"])
                for name, write in writes.items()
            ),
        ]

    def _act(self, kind: type[ActKind], perform: Callable[[Team, BotLink, ActKind], Awaitable[Json]]) -> Handler:
        async def handler(request: Request) -> Response:
            act = kind.model_validate_json(await request.body())
            return JSONResponse(await perform(self._team, self._link, act))

        return handler

    async def event(self, request: Request) -> Response:
        act = Event.model_validate_json(await request.body())
        return JSONResponse(acts.outcome(await self._link.dispatch(act.event), ""))

    async def faults(self, request: Request) -> Response:
        """Replaces the list of faults; an empty list ends them."""
        self._team.faults.replace(FAULTS.validate_json(await request.body()), time.monotonic())
        return JSONResponse({"ok": True})

    async def usergroup(self, request: Request) -> Response:
        users = Membership.model_validate_json(await request.body()).users
        self._team.directory.group_members[ON_CALL_GROUP] = tuple(users)
        return JSONResponse({"ok": True, "users": users})

    async def reset(self, request: Request) -> Response:
        del request
        self._team.reset()
        return JSONResponse({"ok": True})

    async def refresh_sockets(self, request: Request) -> Response:
        del request
        await self._team.sockets.refresh()
        return JSONResponse({"ok": True})

    async def calls(self, request: Request) -> Response:
        """Recorded calls, optionally of one `method` and from number `since` on."""
        method = request.query_params.get("method")
        since = TypeAdapter(int).validate_python(request.query_params.get("since", 0))
        return JSONResponse([c for c in self._team.calls if method in (None, c["method"]) and c["n"] >= since])

    async def deliveries(self, request: Request) -> Response:
        kind = request.query_params.get("kind")
        return JSONResponse([sent for sent in self._team.deliveries if kind in (None, sent["kind"])])

    async def messages(self, request: Request) -> Response:
        """A channel's messages with replies, oldest first; with `user` also what only that person sees."""
        team, asked = self._team, request.query_params
        channel = team.directory.channel(asked.get("channel", "C0INC")).id
        found = [team.messages.with_thread_facts(channel, m) for m in team.messages.channels.get(channel, {}).values()]
        if user := asked.get("user"):
            whispers = team.messages.ephemerals.values()
            found += [w for w in whispers if (w["channel"], w["recipient"]) == (channel, user)]
        return JSONResponse(sorted(found, key=lambda message: message["ts"]))

    async def interaction(self, request: Request) -> Response:
        """What was posted to one interaction's response_url."""
        reply = self._team.response_urls.find(request.path_params["id"])
        if reply is None:
            raise SandboxError("no such interaction")
        return JSONResponse({"ok": True, "uses": reply.uses, "posts": reply.posts})

    async def page(self, request: Request) -> Response:
        """Everything a page needs when it opens."""
        del request
        team = self._team
        whole: Json = {
            "team": TEAM_NAME,
            "sockets": team.sockets.count,
            "bot": {"id": BOT_USER, "name": BOT_NAME},
            "people": [person.described() for person in team.directory.people.values()],
            "channels": [channel.described() for channel in team.directory.channels.values()],
            "groups": team.directory.groups(with_users=True),
            "messages": {channel: list(found.values()) for channel, found in team.messages.channels.items()},
            "ephemerals": list(team.messages.ephemerals.values()),
            "views": team.views.stacks,
            "homes": team.views.homes,
            "commands": team.settings.commands,
            "shortcuts": [{"callback_id": c, "title": t} for c, t in team.settings.message_shortcuts],
        }
        return JSONResponse(whole)

    async def stream(self, request: Request) -> Response:
        del request
        headers = {"Cache-Control": "no-store"}
        return StreamingResponse(self._team.feed.stream(), media_type="text/event-stream", headers=headers)
