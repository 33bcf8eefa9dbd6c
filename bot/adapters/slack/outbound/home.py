"""The app's Home: the open incidents, what waits for this person, and last week's numbers.

It is published when opened and updated for a day: shortly after a change, at Slack's pace, if its content differs.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from bot.adapters.slack import limits
from bot.adapters.slack.client import Refusal, ask
from bot.adapters.slack.escape import code, line
from bot.adapters.slack.limits import Block
from bot.adapters.slack.outbound.blocks import context, divider, fields, header, section
from bot.adapters.slack.outbound.card import linked, sign_of, standing
from bot.adapters.slack.outbound.request_message import called
from bot.adapters.slack.outbound.shown import Pace
from bot.adapters.slack.outbound.window_line import global_halt_line, window_line
from bot.adapters.slack.outbound.words import moment, time_beside
from bot.adapters.slack.services import Services
from bot.domain.approvals.grant import Request, is_asked
from bot.domain.incidents.run import Question, Run
from bot.domain.kernel.errors import StorageUnavailableError
from bot.domain.kernel.planned_window import PlannedWindow
from bot.domain.reports.statistics import statistics
from bot.flow.ports.storage import HaltWord

log = structlog.get_logger(__name__)
Json = dict[str, Any]

WEEK_SECONDS = 7 * 24 * 3600.0
VIEWED_SECONDS = 24 * 3600.0
MAX_VIEWERS = 100
QUIET_SECONDS = 5.0
"""Changes come in bursts; a Home is updated once per burst."""
WEEK_READ_EVERY_SECONDS = 60.0
"""The week's numbers need many runs and change slowly."""
OPEN_SHOWN = 20
UNKNOWN = "The bot's storage does not answer, so the open incidents are unknown. Try again soon."
WAITING_SHOWN = 10


@dataclass(frozen=True)
class Waiting:
    """One request or question that waits for a person."""

    incident_id: str
    what: str
    asked_at: float
    until: float | None
    link: str = ""


class Viewers(Protocol):
    """Who opened their Home, and what was last published there."""

    async def opened(self, user: str, at: float) -> None: ...

    async def since(self, at: float) -> Mapping[str, str]:
        """The people who opened it after `at`, latest first, with the hash of the last published content."""
        ...

    async def published(self, user: str, content: str) -> None: ...


@dataclass(frozen=True)
class Seen:
    """The data of every Home, read once for all of them."""

    still_open: Sequence[Run]
    recent: Sequence[Run]
    halt: HaltWord | None = None
    """Of everything."""
    windows: Sequence[PlannedWindow] = ()
    """Maintenance and freezes that are open."""
    unread: int = 0
    """How many more incidents are open but were not read."""


class Homes:
    """Publishes a Home when it is opened, and again when its content has changed."""

    def __init__(
        self, client: AsyncWebClient, services: Services, viewers: Viewers, pace: Pace, changed: asyncio.Event
    ) -> None:
        """`changed` is set when something that people see has changed."""
        self._client, self._services, self._viewers, self._pace, self._changed = (
            client,
            services,
            viewers,
            pace,
            changed,
        )
        # Changes from before this process started are unknown.
        changed.set()
        self._noticed_at: float | None = None
        self._recent: tuple[float, Sequence[Run]] = (float("-inf"), ())

    async def opened(self, event: Json) -> None:
        if event.get("tab", "home") != "home":
            return
        user, now = str(event["user"]), self._services.clock.now()
        try:
            await self._viewers.opened(user, now)
            await self._publish(user, await self._made_for(user, await self._seen(now), now))
        except StorageUnavailableError:
            await self._publish(user, tuple(section([UNKNOWN])))

    async def once(self) -> None:
        """Shortly after a change, update the Homes opened within a day; the next call continues with the rest."""
        if not self._changed.is_set():
            return
        now = self._services.clock.now()
        if self._noticed_at is None:
            self._noticed_at = now
        if now - self._noticed_at < QUIET_SECONDS:
            return
        self._changed.clear()
        is_done = False
        try:
            is_done = await self._refresh(now)
        finally:
            if is_done:
                self._noticed_at = None
            else:
                self._changed.set()

    async def _refresh(self, now: float) -> bool:
        """Whether every viewer's Home is up to date."""
        seen: Seen | None = None
        for user, stands in list((await self._viewers.since(now - VIEWED_SECONDS)).items())[:MAX_VIEWERS]:
            seen = seen or await self._seen(now)
            blocks = await self._made_for(user, seen, now)
            if _content(blocks) == stands:
                continue
            if await self._pace.take("home", user) > 0 or not await self._publish(user, blocks):
                return False
        return True

    async def _seen(self, now: float) -> Seen:
        incidents = self._services.incidents
        read_at, recent = self._recent
        if now - read_at >= WEEK_READ_EVERY_SECONDS:
            recent = await incidents.recent_runs()
            self._recent = (now, recent)
        page = await incidents.open_page()
        windows = await self._services.windows.open()
        unread = page.count - len(page.runs)
        return Seen(page.runs, recent, await incidents.global_halt(), windows, unread=unread)

    async def _made_for(self, user: str, seen: Seen, now: float) -> tuple[Block, ...]:
        return home(seen, await self._waiting_for(user, seen.still_open, now), now=now)

    async def _publish(self, user: str, blocks: tuple[Block, ...]) -> bool:
        """Whether Slack accepted it, or never will."""
        result = await ask(self._client.views_publish(user_id=user, view={"type": "home", "blocks": list(blocks)}))
        if isinstance(result, Refusal):
            log.warning("slack.home_failed", user=user, error=result.error)
            if not result.is_final:
                return False
        await self._viewers.published(user, _content(blocks))
        return True

    async def _waiting_for(self, user: str, runs: Sequence[Run], now: float) -> list[Waiting]:
        """Requests that this person may approve and has not, and questions that they may answer."""
        waiting: list[Waiting] = []
        for run in runs:
            request, question = run.open_request, run.open_question
            if request is not None and await self._may_approve(user, request, now):
                link = await self._link(run, request.slot)
                waiting.append(
                    Waiting(run.incident_id, called(run, request), request.asked_at, request.expires_at, link)
                )
            if question is not None and await self._may_answer(user, question, now):
                link = await self._link(run, question.slot)
                waiting.append(Waiting(run.incident_id, question.text, question.asked_at, question.expires_at, link))
        return waiting

    async def _may_approve(self, user: str, request: Request, now: float) -> bool:
        """False for a person who may only break the glass: nothing waits for them while the teams have time."""
        if any(judged.press.user == user for judged in request.presses):
            return False
        authority = await self._services.people.authority(user, request.policy, at=now)
        return authority.allowed and is_asked(request.policy, authority)

    async def _may_answer(self, user: str, question: Question, now: float) -> bool:
        if question.not_by == user:
            return False
        people = self._services.people
        judged = people.authority(user, question.by, at=now) if question.by else people.may_operate(user, at=now)
        return (await judged).allowed

    async def _link(self, run: Run, slot: str) -> str:
        return (await self._services.links(run.incident_id)).get(slot, "")


def _content(blocks: Sequence[Block]) -> str:
    """A hash of all blocks except the last, which holds the time."""
    return hashlib.sha256(json.dumps(blocks[:-1], sort_keys=True).encode()).hexdigest()


def home(seen: Seen, waiting: Sequence[Waiting], *, now: float) -> tuple[Block, ...]:
    """Renders a Home; the same runs give the same Home."""
    still_open, recent = seen.still_open, seen.recent
    blocks: list[Block] = []
    if seen.halt:
        blocks += section([global_halt_line(seen.halt)])
    blocks += section([window_line(each) for each in seen.windows[:10]])
    blocks.append(header("Waiting for you"))
    blocks += section([_waits(each) for each in waiting[:WAITING_SHOWN]] or ["Nothing is waiting for you."])
    blocks += _more(len(waiting) - WAITING_SHOWN)
    blocks += [divider(), header("Open incidents")]
    # One block each, so that their lines do not run together.
    blocks += [block for run in still_open[:OPEN_SHOWN] for block in section([_stands(run)])]
    blocks += [] if still_open else section(["No incident is open."])
    blocks += _more(len(still_open) + seen.unread - OPEN_SHOWN)
    blocks += [divider(), header("The last seven days"), *fields(week([*recent, *still_open], now=now))]
    blocks += context(["As of " + moment(now) + ". `/incident stats 30` shows more, `/incident help` the commands."])
    return limits.fitted(blocks)


def week(runs: Iterable[Run], *, now: float) -> list[str]:
    """Numbers of the incidents opened within a week."""
    every = {run.incident_id: run for run in runs}.values()
    found = statistics(every, now - WEEK_SECONDS, now + 1)
    return [
        f"*Opened*\n{found.opened} ({found.paged} paged)",
        f"*Closed*\n{found.closed}" + (f" ({found.went_well} fixed, recovered or accepted)" if found.closed else ""),
        f"*Time to the first action (MTTA)*\n{found.until_acted}",
        f"*Time to the close (MTTR)*\n{found.until_closed}",
        f"*Time spent waiting for people*\n{found.waited}",
        f"*Presses for each incident*\n{found.presses:g} (median)"
        if found.presses is not None
        else "*Presses for each incident*\nnone yet",
    ]


def _stands(run: Run) -> str:
    what = f"{sign_of(run)} *{line(run.incident_id, 40)}* {line(run.called, 150)} · {code(run.target, 120)}"
    return f"{what}\n{standing(run)}"


def _waits(waiting: Waiting) -> str:
    until = f" by {time_beside(waiting.until, waiting.asked_at)}" if waiting.until is not None else ""
    return f"• *{line(waiting.incident_id, 40)}* {linked(line(waiting.what, 300), waiting.link)}{until}"


def _more(count: int) -> list[Block]:
    return context([f"… and {count} more: `/incident list`"]) if count > 0 else []
