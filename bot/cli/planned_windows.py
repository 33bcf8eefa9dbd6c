"""Maintenance windows and freezes without Slack: everyone who can reach Redis may plan them."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator

from bot.cli.failures import CommandError
from bot.cli.options import command_line_user
from bot.dependencies import open_storage
from bot.domain.kernel.durations import seconds
from bot.domain.kernel.planned_window import WindowKind
from bot.flow.plan_windows import Plan, PlanWindows
from bot.flow.restrictions import Restrictions
from bot.settings import StorageSettings


async def plan_window(  # noqa: PLR0913 - the options of the command
    settings: StorageSettings, kind: WindowKind, target: str, *, how_long: str, why: str, by: str, off: bool
) -> str:
    """Lists the open windows of this kind, begins one, or ends one."""
    async with _planning(settings) as windows:
        if not target and off:
            raise CommandError(
                f"Not done: name what the {kind} is of, such as `incident-bot {kind} serving/llm --off`."
            )
        if not target:
            found = [f"{each.of}: {each}" for each in await windows.open() if each.kind == kind]
            held = await windows.held() if kind == "maintenance" else ()
            waits = [f"{each.alert.name} of {each.target} waits for the end" for each in held]
            return "\n".join([*(found or [f"There is no {kind} now."]), *waits])
        who = command_line_user(by)
        command_id = f"command-line/{kind}/{secrets.token_hex(8)}"
        try:
            if off:
                ends = Plan(command_id, kind, target, user=who)
                if ended := await windows.end(ends):
                    await windows.announce_end(ends)
                return f"The {kind} of {target} is over." if ended else f"Nobody planned a {kind} of {target}."
            asked = Plan(command_id, kind, target, user=who, seconds=seconds(how_long), why=why)
            begun = await windows.begin(asked)
        except ValueError as wrong:
            example = f"incident-bot {kind} serving/llm --for 1h --reason 'new driver'"
            raise CommandError(f"Not done: {wrong}. Example: {example}") from None
        return f"{begun.of}: {begun}"


@contextlib.asynccontextmanager
async def _planning(settings: StorageSettings) -> AsyncIterator[PlanWindows]:
    async with contextlib.AsyncExitStack() as stack:
        storage = open_storage(settings, stack)
        restrictions = Restrictions(storage.windows, settings.observing, settings.window_rules)
        yield PlanWindows(storage.windows, restrictions, storage.store, storage.store)
