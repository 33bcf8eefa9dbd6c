"""The storage behind the Slack app, in memory; `away` and `hangs` make it not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bot.domain.approvals.grant import Authority, Policy, Press
from bot.domain.incidents.effect import ExportFormat
from bot.domain.incidents.event import Commanded
from bot.domain.incidents.run import Run
from bot.domain.incidents.subjects import own_channels
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.errors import Fault, NewerFormError, OpeningError, PlaybookError, StorageUnavailableError
from bot.domain.kernel.form import problems
from bot.domain.kernel.target import Target, cluster_named
from bot.domain.kernel.timeline import Chained
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.library import Library
from bot.flow.open_by_hand import Opened, Opening
from bot.flow.ports.storage import HaltWord, OpenPage
from bot.flow.receive_input import OPEN_READ


class MemoryIncidents:
    """`IncidentService`; presses and commands are kept once by their ids, as the real one does."""

    def __init__(self, *runs: Run) -> None:
        self.runs = {run.incident_id: run for run in runs}
        self.presses: dict[str, tuple[str, Press]] = {}
        self.commands: dict[str, tuple[str, Commanded]] = {}
        self.entries: tuple[Chained, ...] = ()
        self.alerts: list[tuple[Alert, str]] = []
        self.halter = self.halt_reason = ""
        self.exports: list[tuple[str, str, str]] = []
        self.away = False
        self.newer: frozenset[str] = frozenset()
        """The incidents that a newer version of the bot has stored."""
        self.hangs = False
        self.commands_left: int | None = None
        """After so many commands the storage is away."""
        self.loses_answers = False
        """Whether a press or a command is stored, but its answer is lost."""

    async def _reach(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.away:
            raise StorageUnavailableError("the storage is away")

    def _answer(self) -> None:
        if self.loses_answers:
            raise StorageUnavailableError("the answer was lost")

    async def press(self, press: Press, incident_id: str) -> bool:
        await self._reach()
        if incident_id in self.runs:
            self.presses.setdefault(press.press_id, (incident_id, press))
        self._answer()
        return incident_id in self.runs

    async def command(self, command: Commanded, incident_id: str) -> bool:
        await self._reach()
        if self.commands_left is not None and len(self.commands) >= self.commands_left:
            raise StorageUnavailableError("the storage is away")
        if incident_id in self.runs:
            self.commands.setdefault(command.event_id, (incident_id, command))
        self._answer()
        return incident_id in self.runs

    async def reopen(self, command: Commanded, run: Run) -> bool:
        await self._reach()
        if any(each.is_open and each.target == run.target for each in self.runs.values()):
            return False
        self.commands.setdefault(command.event_id, (run.incident_id, command))
        return True

    async def open_page(self) -> OpenPage:
        await self._reach()
        still_open = [run for run in self.runs.values() if run.is_open]
        return OpenPage(
            len(still_open), [run for run in still_open[::-1][:OPEN_READ] if run.incident_id not in self.newer]
        )

    async def of_channel(self, channel: str) -> Run | None:
        await self._reach()
        return next((run for run in self.runs.values() if run.is_open and channel in own_channels(run)), None)

    async def open_incidents(self) -> Sequence[str]:
        await self._reach()
        return [run.incident_id for run in self.runs.values() if run.is_open]

    async def recent_runs(self) -> Sequence[Run]:
        await self._reach()
        return list(self.runs.values())

    async def load(self, incident_id: str) -> Run | None:
        await self._reach()
        if incident_id in self.newer:
            raise NewerFormError(incident_id)
        return self.runs.get(incident_id)

    async def timeline(self, incident_id: str) -> Sequence[Chained]:
        del incident_id
        await self._reach()
        return self.entries

    async def unmatched(self) -> Sequence[tuple[Alert, str]]:
        await self._reach()
        return self.alerts

    async def global_halt(self) -> HaltWord | None:
        await self._reach()
        return HaltWord(self.halter, self.halt_reason) if self.halter else None

    async def halt_all(self, by: str, why: str = "") -> None:
        await self._reach()
        self.halter, self.halt_reason = by, why

    async def resume_all(self, by: str, why: str = "") -> None:
        del by, why
        await self._reach()
        self.halter = ""

    async def export(self, incident_id: str, format: ExportFormat, user: str) -> bool:  # noqa: A002 - the port's name
        await self._reach()
        self.exports.append((incident_id, format, user))
        return incident_id in self.runs


class KnownPeople:
    """`Callers`: those named may do everything; others what the teams may that `teams` says they are in."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = allowed
        self.teams: dict[str, tuple[str, ...]] = {}
        self.guests: frozenset[str] = frozenset()

    async def authority(self, user: str, policy: Policy, *, at: float) -> Authority:
        allowed_teams = tuple(each.team for each in policy.all_demands if each.team in self.teams.get(user, ()))
        if allowed_teams:
            return Authority(allowed=True, reason="", teams=allowed_teams, read_at=at)
        found = await self.may_operate(user, at=at)
        teams = tuple(demand.team for demand in policy.demands) if found.allowed else ()
        return found.model_copy(update={"teams": teams})

    async def may_operate(self, user: str, *, at: float) -> Authority:
        allowed = user in self.allowed
        return Authority(allowed=allowed, reason="" if allowed else "you are not in @serving-oncall", read_at=at)

    async def may_halt(self, user: str, *, at: float) -> Authority:
        return await self.may_operate(user, at=at)

    async def takes_part(self, user: str, *, at: float) -> Authority:
        is_guest = user in self.guests
        return Authority(allowed=not is_guest, reason="guests do not take part" if is_guest else "", read_at=at)


class MemoryPlaybooks:
    """`PlaybookService`; forms are judged as the real one does. `workloads` are what the cluster has."""

    def __init__(self) -> None:
        self.library = Library({})
        self.workloads = [Target(cluster="prod-1", namespace="serving", name="llm")]
        self.openings: dict[str, Opening] = {}
        self.open_already = ""
        self.away = False

    async def playbook_of(self, run: Run) -> CompiledPlaybook:
        if run.playbook not in self.library.playbooks:
            raise PlaybookError((Fault(run.incident_id, f"its playbook '{run.playbook}' is not stored any more"),))
        return self.library.playbooks[run.playbook]

    @property
    def clusters(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(target.cluster for target in self.workloads))

    async def workload(self, cluster: str, namespace: str, name: str) -> Target | None:
        cluster = cluster_named(cluster, self.clusters)
        wanted = (cluster, namespace, name)
        found = (each for each in self.workloads if (each.cluster, each.namespace, each.name) == wanted)
        return next(found, None)

    async def open(self, opening: Opening) -> Opened:
        if self.away:
            raise StorageUnavailableError("the storage is away")
        form = self.library.playbooks[opening.playbook].playbook.form
        if wrong := problems(form, opening.fields or {}):
            raise OpeningError("; ".join(wrong.values()), wrong)
        if self.open_already:
            return Opened(self.open_already, is_new=False)
        self.openings.setdefault(opening.submission_id, opening)
        return Opened(f"INC-{100 + list(self.openings).index(opening.submission_id)}", is_new=True)
