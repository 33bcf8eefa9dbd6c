"""A storm of incidents and the simulator of Slack; the messenger, its pace and its records are the real ones."""

from __future__ import annotations

import dataclasses
import heapq
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import redis.asyncio as aioredis

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.pace import RedisPace
from bot.adapters.redis.shown import RedisShown
from bot.adapters.redis.summary import RedisSummary
from bot.adapters.slack.client import SlackCircuits, SlackClient
from bot.adapters.slack.outbound.messenger import Place, SlackMessenger
from bot.adapters.slack.outbound.pace import slack_paces
from bot.adapters.slack.outbound.shown import Shown
from bot.adapters.slack.outbound.summary import Summary
from bot.domain.incidents.run import InSlack, Post, Question, Run
from bot.domain.incidents.stored_form import StoredForm
from bot.domain.kernel.errors import MessengerError
from bot.sandbox.slack.arguments import Arguments
from bot.sandbox.slack.errors import ApiError
from bot.sandbox.slack.team import Settings, Team
from bot.sandbox.slack.web_api import METHODS
from tests import builders
from tests.redis_server import VirtualTime

CHANNEL = "C0INC"
CARDS = 10
GRANTED = {"post": (5.0, 5.0), "update": (2.0, 10.0), "home": (1.0, 1.0)}
"""A workspace with more than Slack's usual pace: a large storm is over sooner."""
PACE = slack_paces(posts_per_second=1.0, posts_burst=3, updates_per_minute=50)
PERIODS = {PACE["post"]: 60.0, GRANTED["post"]: 2.5}
"""The seconds in which there are so many cards, by the pace of posts."""
NEVER = 10_000.0


class PacedSlack(SlackClient):
    """The SDK's client over the stand-in in this process, which refuses what comes too fast."""

    def __init__(self, team: Team, time: VirtualTime) -> None:
        circuits = SlackCircuits(elapsed=time.now, now=time.now)
        super().__init__(circuits, insists=False, token=team.settings.token, retry_handlers=[])
        self._team, self._time = team, time
        self.called: Counter[str] = Counter()
        self.too_fast = 0
        self.loses_answer_to: list[str] = []
        """Each once: words in the key of a message that is posted and whose answer never comes."""
        self.lands_late: list[str] = []
        """As `loses_answer_to`, but nobody finds that message before the next one with the same words is posted."""
        self._late: dict[str, Any] | None = None

    async def _request(self, *, http_verb: str, api_url: str, req_args: dict[str, Any]) -> dict[str, Any]:
        method = api_url.rpartition("/")[2]
        values: dict[str, Any] = {}
        for part in ("params", "data", "json"):
            values |= req_args.get(part) or {}
        wait = self._team.rate_limits.retry_after(method, str(values.get("channel", "")), self._time.now())
        if wait is not None:
            self.too_fast += 1
            return {"data": {"ok": False, "error": "ratelimited"}, "headers": {"Retry-After": wait}, "status_code": 429}
        self.called[method] += 1
        if words := next((words for words in self.lands_late if words in str(values.get("metadata"))), ""):
            if self._late is None:
                self._late = values
                raise aiohttp.ServerDisconnectedError
            self.lands_late.remove(words)
            METHODS[method](self._team, Arguments(self._late))
        try:
            answer = METHODS[method](self._team, Arguments(values))
        except ApiError as refused:
            answer = refused.answer()
        if lost := next((words for words in self.loses_answer_to if words in str(values.get("metadata"))), ""):
            self.loses_answer_to.remove(lost)
            raise aiohttp.ServerDisconnectedError
        return {"data": answer, "headers": {}, "status_code": 200}


@dataclass
class Storm:
    """Shows every run when it is due, as `PerformEffect` does: later when it is asked to, again after an event."""

    time: VirtualTime
    team: Team
    slack: PacedSlack
    messenger: SlackMessenger
    waiting: RedisSummary
    redis: Connection
    runs: dict[str, Run] = field(default_factory=dict)
    carded_at: dict[str, float] = field(default_factory=dict)
    _due: list[tuple[float, str]] = field(default_factory=list)

    async def opens(self, run: Run, at: float) -> None:
        await self.redis.client.set(self.redis.key("run", run.incident_id), StoredForm().text(run))
        self.runs[run.incident_id] = run
        heapq.heappush(self._due, (at, run.incident_id))

    async def until(self, at: float) -> None:
        """Everything that is due before; all there is with `NEVER`."""
        end = self.time.now() + at
        while self._due and self._due[0][0] <= end:
            due, incident_id = heapq.heappop(self._due)
            await self.time.advance(max(0.0, due - self.time.now()))
            await self._show(incident_id)
        if at != NEVER:
            await self.time.advance(max(0.0, end - self.time.now()))

    async def _show(self, incident_id: str) -> None:
        run = self.runs[incident_id]
        try:
            events, _ = await self.messenger.show(run)
        except MessengerError as error:
            if error.lasting:
                raise
            heapq.heappush(self._due, (self.time.now() + max(error.retry_after_seconds, 0.01), incident_id))
            return
        if events:
            self.carded_at.setdefault(incident_id, self.time.now())
            self.runs[incident_id] = self.runs[incident_id].with_(in_slack=InSlack(card_posted=True))
            heapq.heappush(self._due, (self.time.now(), incident_id))

    def messages(self, slot: str) -> list[dict[str, Any]]:
        every = self.team.messages.channels.get(CHANNEL, {}).values()
        return [m for m in every if slot in m.get("metadata", {}).get("event_payload", {}).get("slot", "")]

    def cards(self) -> Counter[str]:
        return Counter(m["metadata"]["event_payload"]["slot"].partition("/")[0] for m in self.messages("/card"))


async def storm_at(client: aioredis.Redis, tag: str, paces: dict[str, tuple[float, float]]) -> Storm:
    time = VirtualTime(client, tag)
    await time.start()
    team = Team(Settings(bot_url="", signing_secret="", pace="real" if paces is PACE else "fast"), time.now)
    slack, connection = PacedSlack(team, time), Connection(client, tag=tag, clock=time.prelude)
    pace = RedisPace(connection, paces)
    waiting = RedisSummary(connection, (CARDS, PERIODS[paces["post"]]))
    digest = Summary(slack, waiting, pace, time, channel=CHANNEL, deployment="tests")
    shown = RedisShown(connection, Shown, dataclasses.asdict, pace)
    messenger = SlackMessenger(slack, shown, pace, time, Place(CHANNEL, "tests"), digest)
    return Storm(time, team, slack, messenger, waiting, connection)


def incident(number: int, **fields: Any) -> Run:
    return builders.run(incident_id=f"INC-{number}", **fields)


def asking(run: Run) -> Run:
    question = Question(
        question_id="Q1", state="look", visit=0, text="What now?", choices={"stop": "Stop"}, asked_at=builders.START
    )
    post = Post(slot="question:Q1", kind="question", ref="Q1", at=builders.START)
    return run.with_(questions={"Q1": question}, question="Q1", posts=(post,))


def of_a_storm(number: int, **labels: str) -> Run:
    alert = builders.alert(fingerprint=f"f{number}")
    alert = alert.model_copy(update={"labels": alert.labels | labels})
    return incident(number, alerts={alert.fingerprint: alert})
