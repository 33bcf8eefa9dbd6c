"""What people's clicks and commands need from the rest of the bot, as one Protocol that wiring fulfils."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bot.domain.approvals.grant import Authority, Policy, Press
from bot.domain.incidents.effect import ExportFormat
from bot.domain.incidents.event import Commanded
from bot.domain.incidents.run import Run
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.target import Target
from bot.domain.kernel.timeline import Chained
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.library import Library
from bot.flow.open_by_hand import Opened, Opening
from bot.flow.ports import Clock, Messenger, OpenPage, People


class IncidentService(Protocol):
    """Every method raises `StorageUnavailableError` when the storage does not answer."""

    async def press(self, press: Press, incident_id: str) -> bool:
        """Stored when it returns, once by `press_id`; False when there is no such incident. The work follows."""
        ...

    async def command(self, command: Commanded, incident_id: str) -> bool:
        """Stored when it returns, once by `event_id`; False when there is no such incident."""
        ...

    async def reopen(self, command: Commanded, run: Run) -> bool:
        """Stored when it returns, once by `event_id`; False when its target has a newer incident."""
        ...

    async def open_page(self) -> OpenPage:
        """How many incidents are open, and the newest of them."""
        ...

    async def recent_runs(self) -> Sequence[Run]:
        """The newest incidents, open and closed, newest first; as many as a week has in all but the worst of times."""
        ...

    async def load(self, incident_id: str) -> Run | None: ...

    async def timeline(self, incident_id: str) -> Sequence[Chained]: ...

    async def unmatched(self) -> Sequence[tuple[Alert, str]]:
        """The newest alerts that opened nothing, each with its reason."""
        ...

    async def halted_by(self) -> str:
        """Who halted everything; empty while nobody has."""
        ...

    async def halt_all(self, by: str, why: str = "") -> None:
        """From here on no call of any incident is sent."""
        ...

    async def resume_all(self, by: str, why: str = "") -> None: ...

    async def export(self, incident_id: str, format: ExportFormat, user: str) -> bool:  # noqa: A002 - as in `ExportTimeline`
        """Owe the export, which arrives as a file in the thread; False when there is no such incident."""
        ...


class PlaybookService(Protocol):
    """The playbooks as they are now, and as open incidents keep them."""

    @property
    def library(self) -> Library: ...

    async def playbook_of(self, run: Run) -> CompiledPlaybook:
        """The playbook that the run is in. Raise `PlaybookError` when it is not kept any more."""
        ...

    async def workload(self, namespace: str, name: str) -> Target | None:
        """The workload of that name, of whichever kind. Raise `ClusterError` on no answer."""
        ...

    async def open(self, opening: Opening) -> Opened:
        """Raise `OpeningError` with what is wrong, by field. Nothing is stored then."""
        ...


class Callers(People, Protocol):
    """Who says something to the bot, and what that person may say."""

    async def may_halt(self, user: str, *, at: float) -> Authority:
        """As `may_steer`; while Slack does not say it in time, what it last said counts: a halt takes nothing away."""
        ...

    async def takes_part(self, user: str, *, at: float) -> Authority:
        """Whether this person belongs here at all: no guest, bot, deactivated account or other company's person."""
        ...


async def _shown_already(incident_ids: Sequence[str]) -> None:
    """Where nothing is ever refused."""


@dataclass(frozen=True)
class Services:
    """Everything behind the counter: who stores, who judges, who answers, and what time it is."""

    incidents: IncidentService
    people: Callers
    messenger: Messenger
    clock: Clock
    playbooks: PlaybookService
    links: Callable[[str], Awaitable[Mapping[str, str]]]
    """The addresses of an incident's requests and questions in Slack, by slot."""
    want_card: Callable[[str], Awaitable[None]]
    """Somebody looks at an incident: what waits of its card and thread waits no longer."""
    draw: Callable[[CompiledPlaybook, str, str], Awaitable[None]] | None = None
    """A playbook's picture into a channel, with a comment. Raise `MessengerError`."""
    deployment: str = ""
    """As the messages of this bot carry it."""
    silencers: Policy | None = None
    """Whose word a silence needs; None where the bot does not know Alertmanager's own address."""
    show_again: Callable[[Sequence[str]], Awaitable[None]] = _shown_already
    """Somebody looks at these incidents: what Slack refused to show of them is tried now."""
