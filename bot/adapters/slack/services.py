"""The Protocols that clicks and commands need from the rest of the bot; the wiring implements them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bot.domain.approvals.grant import Authority, Policy, Press
from bot.domain.incidents.effect import ExportFormat
from bot.domain.incidents.event import Commanded
from bot.domain.incidents.run import Run
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.planned_window import PlannedWindow
from bot.domain.kernel.target import Target
from bot.domain.kernel.timeline import Chained
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.library import Library
from bot.flow.open_by_hand import Opened, Opening
from bot.flow.plan_windows import Plan
from bot.flow.ports.people import Clock, Messenger, People
from bot.flow.ports.storage import HaltWord, HeldAlert, OpenPage


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

    async def of_channel(self, channel: str) -> Run | None:
        """The open incident that has this channel for itself, however many are open."""
        ...

    async def open_incidents(self) -> Sequence[str]:
        """The IDs of all of them."""
        ...

    async def recent_runs(self) -> Sequence[Run]:
        """The newest incidents, open and closed, newest first; enough for a week except in extreme cases."""
        ...

    async def load(self, incident_id: str) -> Run | None: ...

    async def timeline(self, incident_id: str) -> Sequence[Chained]: ...

    async def unmatched(self) -> Sequence[tuple[Alert, str]]:
        """The newest alerts that opened nothing, each with its reason."""
        ...

    async def global_halt(self) -> HaltWord | None:
        """Who halted everything, and why; None when no one has."""
        ...

    async def halt_all(self, by: str, why: str = "") -> None:
        """Stop sending the calls of every incident."""
        ...

    async def resume_all(self, by: str, why: str = "") -> None: ...

    async def export(self, incident_id: str, format: ExportFormat, user: str) -> bool:  # noqa: A002 - as in `ExportTimeline`
        """Owe the export, which arrives as a file in the thread; False when there is no such incident."""
        ...


class PlaybookService(Protocol):
    """The current playbooks, and those stored with open incidents."""

    @property
    def library(self) -> Library: ...

    async def playbook_of(self, run: Run) -> CompiledPlaybook:
        """The playbook that the run is in. Raise `PlaybookError` when it is no longer stored."""
        ...

    @property
    def clusters(self) -> Collection[str]:
        """The names of the bot's clusters."""
        ...

    async def workload(self, cluster: str, namespace: str, name: str) -> Target | None:
        """The workload of that name, of any kind. `cluster` may be empty if there is only one.

        Raise `UnknownClusterError`, and `ClusterError` on no answer.
        """
        ...

    async def open(self, opening: Opening) -> Opened:
        """Raise `OpeningError` with the errors by field; nothing is stored then."""
        ...


class Callers(People, Protocol):
    """Decides what a person may do in Slack."""

    async def may_halt(self, user: str, *, at: float) -> Authority:
        """Like `may_operate`. If Slack does not answer in time, its last answer counts: a halt changes nothing."""
        ...

    async def takes_part(self, user: str, *, at: float) -> Authority:
        """Whether this person may take part: not a guest, a bot, a deactivated account or from another company."""
        ...


class WindowService(Protocol):
    """Maintenance windows and freezes. Every method raises `StorageUnavailableError` on no answer."""

    async def open(self) -> Sequence[PlannedWindow]:
        """Those that are open now."""
        ...

    async def held(self) -> Sequence[HeldAlert]:
        """The alerts that wait for the end of a maintenance window."""
        ...

    async def begin(self, plan: Plan) -> PlannedWindow:
        """Stored when it returns; incidents are notified later. Raise `ValueError` with the reason for the person."""
        ...

    async def end(self, plan: Plan) -> bool:
        """False when people planned none for these targets. Raise `ValueError`."""
        ...

    async def announce_end(self, plan: Plan) -> None:
        """Note the end on the timelines of all its open incidents, which may take a while."""
        ...


async def _shown_already(incident_ids: Sequence[str]) -> None:
    """The default where Slack refuses nothing."""


@dataclass(frozen=True)
class Services:
    """The services that commands and clicks use."""

    incidents: IncidentService
    people: Callers
    messenger: Messenger
    clock: Clock
    playbooks: PlaybookService
    windows: WindowService
    links: Callable[[str], Awaitable[Mapping[str, str]]]
    """The addresses of an incident's requests and questions in Slack, by slot."""
    want_card: Callable[[str], Awaitable[None]]
    """Call when a person looks at an incident: its waiting card and thread are posted at once."""
    draw: Callable[[CompiledPlaybook, str, str], Awaitable[None]] | None = None
    """Post a playbook's picture in a channel, with a comment in mrkdwn. Raise `MessengerError`."""
    deployment: str = ""
    """The deployment's name, as the messages of this bot carry it."""
    silencers: Callable[[Target], Policy] | None = None
    """Who may approve a silence; None when the bot does not know Alertmanager's address."""
    may_want_pull_request: Callable[[Target], Policy] | None = None
    """Who may want a pull request with a patch; None where the settings name no repository."""
    show_again: Callable[[Sequence[str]], Awaitable[None]] = _shown_already
    """Call when a person looks at these incidents: messages that Slack refused are tried again now."""
