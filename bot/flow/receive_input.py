"""Stores clicks and commands before they are acknowledged; the work starts afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bot.domain.approvals.grant import Press
from bot.domain.incidents.effect import ExportFormat
from bot.domain.incidents.event import Commanded, Pressed
from bot.domain.incidents.run import Run
from bot.domain.incidents.subjects import about_channel, own_channels
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.timeline import Chained
from bot.flow.ports.storage import EVERYTHING, AlertStore, CallClaims, HaltWord, OpenPage, RunStore

UNMATCHED_SHOWN = 200
RECENT = 200
OPEN_READ = 50
CHANNEL_READ = 5
"""A channel has one incident, and more only if people post requests of others in it."""


class ReceiveInput:
    def __init__(self, runs: RunStore, alerts: AlertStore, claims: CallClaims, wake: Callable[[str], None]) -> None:
        self._runs, self._alerts, self._claims, self._wake = runs, alerts, claims, wake

    async def press(self, press: Press, incident_id: str) -> bool:
        event = Pressed(event_id=f"press/{press.press_id}", press=press)
        return await self._store(incident_id, event)

    async def command(self, command: Commanded, incident_id: str) -> bool:
        """A halt or a reset takes effect when it is stored, before any run has processed it."""
        if command.command == "halt":
            await self._claims.set_halt(incident_id, by=command.user)
        elif command.command == "resume":
            await self._claims.set_halt(incident_id, by="")
        elif command.command == "reset" and (run := await self._runs.load(incident_id)) is not None:
            await self._claims.reset_breakers(run.target.key, cluster=run.target.cluster)
        return await self._store(incident_id, command)

    async def reopen(self, command: Commanded, run: Run) -> bool:
        """False if its target has a newer incident."""
        reopened = await self._runs.reopen(run, command)
        if reopened:
            self._wake(run.incident_id)
        return reopened

    async def _store(self, incident_id: str, event: Pressed | Commanded) -> bool:
        stored = await self._runs.append(incident_id, [event])
        if stored:
            self._wake(incident_id)
        return stored

    async def open_page(self) -> OpenPage:
        return await self._runs.open_page(OPEN_READ)

    async def of_channel(self, channel: str) -> Run | None:
        """The open incident that has this channel for itself. One of an earlier version is found among the newest."""
        listed = await self._runs.load_all(await self._runs.incidents_about(about_channel(channel), CHANNEL_READ))
        runs = [*listed, *(await self.open_page()).runs]
        return next((run for run in runs if run.is_open and channel in own_channels(run)), None)

    async def open_incidents(self) -> Sequence[str]:
        return await self._runs.open_incidents()

    async def recent_runs(self) -> Sequence[Run]:
        return await self._runs.load_all(await self._runs.recent_incidents(RECENT))

    async def load(self, incident_id: str) -> Run | None:
        return await self._runs.load(incident_id)

    async def timeline(self, incident_id: str) -> Sequence[Chained]:
        return await self._runs.timeline(incident_id)

    async def unmatched(self) -> Sequence[tuple[Alert, str]]:
        return await self._alerts.unmatched(UNMATCHED_SHOWN)

    async def is_halted(self, incident_id: str) -> bool:
        """Whether this incident is halted by itself, also if it has not processed that yet."""
        return incident_id in await self._claims.halts()

    async def global_halt(self) -> HaltWord | None:
        """Who halted everything, and why; None if no one has."""
        if not (by := (await self._claims.halts()).get(EVERYTHING, "")):
            return None
        word = await self._claims.halt_word()
        # Between the two reads somebody else may have lifted it.
        return word if word.by == by else HaltWord(by)

    async def halt_all(self, by: str, why: str = "") -> None:
        """Takes effect when it is stored; `KeepHalts` notifies the incidents, however many there are."""
        await self._claims.set_halt_of_all(HaltWord(by, why), halts=True)

    async def resume_all(self, by: str, why: str = "") -> None:
        """As above; an incident that was halted individually stays halted, and names its own halter."""
        await self._claims.set_halt_of_all(HaltWord(by, why), halts=False)

    async def export(self, incident_id: str, format: ExportFormat, user: str) -> bool:  # noqa: A002 - as in `ExportTimeline`
        at = await self._runs.now()
        event = Commanded(event_id=f"export/{user}/{at}", command="export", user=user, text=format)
        return await self._store(incident_id, event)
