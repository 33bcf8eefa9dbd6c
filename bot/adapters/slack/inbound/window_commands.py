"""`/incident maintenance` and `/incident freeze`: list, begin and end planned windows."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import structlog

from bot.adapters.slack.escape import code, line, mention, mentioned
from bot.adapters.slack.inbound.afterwards import Afterwards
from bot.adapters.slack.inbound.boundary import WARNING, NotDoneError, announce_in_time
from bot.adapters.slack.inbound.command import WORKLOAD_NAME, Command, reply
from bot.adapters.slack.outbound.message import Message
from bot.adapters.slack.outbound.window_line import SIGNS, window_line
from bot.adapters.slack.outbound.words import capitalized
from bot.adapters.slack.services import Services
from bot.domain.kernel.durations import seconds
from bot.domain.kernel.errors import ClusterError, UnknownClusterError
from bot.domain.kernel.planned_window import WindowKind
from bot.flow.plan_windows import Plan

log = structlog.get_logger(__name__)
LOOK_SECONDS = 0.7
"""The window is stored by then, and Slack waits for the answer: trouble with the cluster must not hide that."""

DOES: dict[WindowKind, str] = {
    "maintenance": "alerts open no incident, unless they are urgent",
    "freeze": "changes are only advised",
}


class WindowCommands:
    def __init__(self, services: Services) -> None:
        self._windows, self._playbooks = services.windows, services.playbooks
        self._messenger, self._afterwards = services.messenger, Afterwards()

    async def maintenance(self, command: Command) -> Message:
        return await self._answer("maintenance", command)

    async def freeze(self, command: Command) -> Message:
        return await self._answer("freeze", command)

    async def _answer(self, kind: WindowKind, command: Command) -> Message:
        target, _, rest = command.rest.partition(" ")
        if not target:
            return await self._list(kind)
        usage = f"`/incident {kind} NAMESPACE/WORKLOAD for 1h WHY`, or `/incident {kind} NAMESPACE/WORKLOAD off`"
        plan = Plan(command.command_id, kind, target, user=command.user, user_name=command.user_name)
        try:
            if rest.strip().lower() == "off":
                ended = await self._windows.end(plan)
                if ended:
                    over = f"{SIGNS[kind]} The {kind} of {code(target, 120)} is over, ended by {mention(command.user)}."
                    self._afterwards.begin(announce_in_time(self._messenger, over), "announce")
                    self._afterwards.begin(self._windows.announce_end(plan), "tell incidents")
                return reply(f"The {kind} of {code(target, 120)} is over." if ended else _none(kind, target))
            word, _, rest = rest.strip().partition(" ")
            how_long, _, why = rest.strip().partition(" ")
            if word.lower() != "for":
                raise NotDoneError(f"Write {usage}.")
            begun = await self._windows.begin(replace(plan, seconds=seconds(how_long), why=why))
        except ValueError as wrong:
            raise NotDoneError(f"Not done: {line(wrong, 300)}. Write {usage}.") from None
        # A window holds back what others rely on, so that they learn of it where they work.
        does = f"Until then, {DOES[kind]}."
        self._afterwards.begin(
            announce_in_time(self._messenger, f"{window_line(begun)}\n{does}", mentioned(why)), "announce"
        )
        ends = f"{does} `/incident {kind} {line(target, 120)} off` ends it."
        return reply(window_line(begun), ends, *await self._doubts(target))

    async def _doubts(self, target: str) -> tuple[str, ...]:
        """A window may be planned before its workload is there, but a mistyped name would cover nothing."""
        named = WORKLOAD_NAME.fullmatch(target)
        if named is None:
            return ()
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                found = await self._playbooks.workload(named[1] or "", named[2], named[3])
        except UnknownClusterError as error:
            # Where no cluster is named, the window covers the workload of this name in each of them.
            return (f"{WARNING} {line(capitalized(str(error)), 300)}.",) if error.name else ()
        except (ClusterError, TimeoutError) as error:
            log.info("window.workload_not_checked", target=target, reason=str(error) or "no answer in time")
            return ()
        return () if found else (f"{WARNING} The cluster has no workload {code(target, 120)} now. Is the name right?",)

    async def _list(self, kind: WindowKind) -> Message:
        found = [window_line(each) for each in await self._windows.open() if each.kind == kind]
        held = await self._windows.held() if kind == "maintenance" else ()
        waits = [f"• {code(each.alert.name, 80)} of {code(each.target, 120)} waits for the end" for each in held[:20]]
        return reply(*(found or [f"There is no {kind} now."]), *waits)


def _none(kind: WindowKind, target: str) -> str:
    return f"Nobody planned a {kind} of {code(target, 120)}. `/incident {kind}` lists those that are open."
