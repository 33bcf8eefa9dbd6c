"""The buttons of a card: each runs one `/incident` command, with the same permissions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bot.adapters.slack.inbound.boundary import Click, NotDoneError
from bot.adapters.slack.inbound.command import Answer, Command
from bot.adapters.slack.press_value import ButtonValue

ON_CARDS = ("lead", "halt", "resume", "skip")
OLD = "This button is from an older card; see `/incident help`."


def card_button(answer: Callable[[Command], Awaitable[Answer]]) -> Callable[[Click], Awaitable[Answer]]:
    """The handler of every button on a card."""

    async def pressed(click: Click) -> Answer:
        value = ButtonValue.unpacked(click.value)
        if value is None or value.about not in ON_CARDS:
            raise NotDoneError(OLD)
        command = Command.read(
            f"{value.about} {value.incident_id}",
            user=click.user,
            user_name=click.user_name,
            # The same click delivered twice is the same command.
            trigger_id=f"{click.message_ts}/{click.action_ts}",
            channel=click.channel,
            response_url=click.response_url,
        )
        return await answer(command)

    return pressed
