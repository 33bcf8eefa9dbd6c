"""Which incident a command is about: the one that it names, else that of the channel, else the only open one."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from bot.adapters.slack.escape import code
from bot.adapters.slack.inbound.boundary import NotDoneError
from bot.adapters.slack.inbound.command import INCIDENT_ID, Command, closed, id_of
from bot.adapters.slack.inbound.command_table import NOTHING, SLASH_COMMANDS, works_when_closed
from bot.adapters.slack.services import IncidentService
from bot.domain.incidents.run import Run

LISTED = 20
"""How many incidents one reply lists."""


class Naming:
    def __init__(self, incidents: IncidentService) -> None:
        self._incidents = incidents

    async def run_and_text(self, command: Command) -> tuple[Run, str]:
        """The named incident and the text after it; the only open one when none is named.

        Raise `NotDoneError` when the incident is closed and the command would have no effect.
        """
        first, _, rest = command.rest.partition(" ")
        if not INCIDENT_ID.fullmatch(first):
            if numbered := await self._numbered(command.name, first):
                return numbered, rest.strip()
            return await self._only_open(command), command.rest
        run = await self._incidents.load(first.upper())
        if run is None:
            raise NotDoneError(no_such(first.upper(), (await self._incidents.open_page()).runs))
        if not run.is_open and not works_when_closed(command.name):
            raise NotDoneError(closed(run, command.name))
        return run, rest.strip()

    async def id_and_text(self, command: Command) -> tuple[str, str]:
        """Like `run_and_text`, but does not read a named incident: storing reveals whether it exists.

        Not for the kill switch, which takes effect before it is stored with the incident.
        """
        first, _, rest = command.rest.partition(" ")
        if INCIDENT_ID.fullmatch(first):
            return first.upper(), rest.strip()
        run, rest = await self.run_and_text(command)
        return run.incident_id, rest

    async def run_only(self, command: Command) -> Run:
        """For a command without further arguments. Extra text is an error, perhaps a mistyped incident ID."""
        run, rest = await self.run_and_text(command)
        if not rest:
            return run
        if rest == command.rest.strip():  # none of it names an incident
            raise NotDoneError(f"{code(rest, 60)} is not an incident such as INC-7: `{usage(command.name)}`.")
        named = f"/incident {command.name} {run.incident_id}"
        raise NotDoneError(f"`{named}` takes no further words: leave out {code(rest, 60)}.")

    async def _numbered(self, word: str, number: str) -> Run | None:
        """The incident that `7 TEXT` begins with; None where the number begins the text."""
        means = SLASH_COMMANDS[word].number
        if means not in ("incident or text", "open incident") or not (number.isascii() and number.isdigit()):
            return None
        named = id_of(number)
        run = await self._incidents.load(named)
        if run is not None and (run.is_open or works_when_closed(word)):
            return run
        still_open = await self._incidents.open_page()
        if run is not None and (means == "open incident" or not still_open.count):
            raise NotDoneError(closed(run, word))
        if means == "incident or text":
            return None
        first = "Where the text begins with a number, name the incident before it."
        raise NotDoneError(f"{no_such(named, still_open.runs)} {first}")

    async def _only_open(self, command: Command) -> Run:
        if (here := await self._incidents.of_channel(command.channel)) is not None:
            return here
        page = await self._incidents.open_page()
        if (only := page.only) is not None:
            return only
        if not page.count:
            raise NotDoneError(f"No incident is open; name one: `{usage(command.name)}`")
        ids = ", ".join(code(run.incident_id, 40) for run in page.runs[:LISTED])
        more = ", …" if page.count > LISTED else ""
        raise NotDoneError(f"{page.count} incidents are open; name one ({ids}{more}): `{usage(command.name)}`")


def usage(word: str) -> str:
    """The command as people type it, with its arguments."""
    return f"/incident {'' if word == NOTHING else word} {SLASH_COMMANDS[word].arguments}".strip()


def no_such(incident_id: str, runs: Sequence[Run]) -> str:
    ids = [run.incident_id for run in runs]
    close = difflib.get_close_matches(incident_id, ids, n=1, cutoff=0.5)
    hint = f" Did you mean {code(close[0], 40)}?" if close else " `/incident list` lists the open ones."
    return f"There is no incident {code(incident_id, 60)}.{hint}"
