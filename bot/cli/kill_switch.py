"""The kill switch without Slack: everyone who can reach Redis may use it, and each timeline names them."""

from __future__ import annotations

import secrets
from typing import Literal

from bot.cli import stored
from bot.cli.failures import CommandError
from bot.cli.options import command_line_user
from bot.domain.incidents.event import ALL, Commanded
from bot.flow.receive_input import ReceiveInput
from bot.settings import StorageSettings


async def pull(settings: StorageSettings, which: str, *, by: str, why: str) -> str:
    who = command_line_user(by)
    async with stored.receiving(settings) as inputs:
        if which.lower() == ALL:
            await inputs.halt_all(who, why)
            return "Everything is halted: no change is sent until `incident-bot resume all`."
        name = await _still_open(inputs, which)
        await _say(inputs, "halt", name, who, why)
        return f"{name} is halted: no change is sent until `incident-bot resume {name}`."


async def lift(settings: StorageSettings, which: str, *, by: str, why: str) -> str:
    who = command_line_user(by)
    async with stored.receiving(settings) as inputs:
        if which.lower() == ALL:
            was_halted = await inputs.global_halt() is not None
            await inputs.resume_all(who, why)
            return "The global halt is lifted." if was_halted else "There was no global halt."
        name = await _still_open(inputs, which)
        if halt := await inputs.global_halt():
            why_all = f" ({halt.why})" if halt.why else ""
            raise CommandError(
                f"Not resumed: {halt.by} halted everything{why_all}; `incident-bot resume all` lifts that."
            )
        was_halted = await inputs.is_halted(name)
        await _say(inputs, "resume", name, who, why)
        return f"{name} is resumed." if was_halted else f"{name} was not halted."


async def _still_open(inputs: ReceiveInput, which: str) -> str:
    run = await inputs.load(stored.incident_id(which))
    if run is None:
        raise CommandError(f"{which}: not in this Redis. Name an incident such as INC-7, or `all`.")
    if not run.is_open:
        raise CommandError(f"{run.incident_id} is closed ({run.ending_in_words}): it sends no calls.")
    return run.incident_id


async def _say(inputs: ReceiveInput, word: Literal["halt", "resume"], name: str, who: str, text: str) -> None:
    event_id = f"command-line/{word}/{secrets.token_hex(8)}"
    await inputs.command(Commanded(event_id=event_id, command=word, user=who, text=text), name)
