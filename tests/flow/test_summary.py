"""A storm of incidents in Slack: one message for those that can wait, a card at once for those that cannot.

The messenger, its pace and its records are the real ones; Slack is the stand-in with its real limits, time is virtual.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
import redis.asyncio as aioredis
from slack_sdk.web.async_client import AsyncWebClient

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.pace import RedisPace
from bot.adapters.redis.shown import RedisShown
from bot.adapters.redis.summary import CLAIM_SECONDS, RedisSummary
from bot.adapters.slack.limits import SECTION, TEXT
from bot.adapters.slack.outbound.messenger import Place, SlackMessenger
from bot.adapters.slack.outbound.shown import Shown
from bot.adapters.slack.outbound.summary import LOOK_AGAIN_SECONDS, NEXT, Summary, summary_line, summary_message
from bot.domain.incidents.run import Post, Question, Run
from bot.domain.kernel.errors import LostRunError, MessengerError
from bot.sandbox.slack.arguments import Arguments
from bot.sandbox.slack.errors import ApiError
from bot.sandbox.slack.team import Settings, Team
from bot.sandbox.slack.web_api import METHODS
from tests import builders
from tests.redis_server import VirtualTime

pytestmark = pytest.mark.open_index_is_broken("incidents are shown without an alert that opened them")
CHANNEL = "C0INC"
CARDS_PER_SECOND, CARDS_AT_ONCE = 0.5, 10.0
GRANTED = {"post": (5.0, 5.0), "update": (2.0, 10.0), "card": (4.0, CARDS_AT_ONCE)}
"""A workspace with more than Slack's usual pace: a large storm is over sooner."""
PACE = {"post": (1.0, 5.0), "update": (50 / 60, 10.0), "card": (CARDS_PER_SECOND, CARDS_AT_ONCE)}
NEVER = 10_000.0


class PacedSlack(AsyncWebClient):
    """The SDK's client over the stand-in in this process, which refuses what comes too fast."""

    def __init__(self, team: Team, time: VirtualTime) -> None:
        super().__init__(token=team.settings.token, retry_handlers=[])
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
            said = METHODS[method](self._team, Arguments(values))
        except ApiError as refused:
            said = refused.answer()
        if lost := next((words for words in self.loses_answer_to if words in str(values.get("metadata"))), ""):
            self.loses_answer_to.remove(lost)
            raise aiohttp.ServerDisconnectedError
        return {"data": said, "headers": {}, "status_code": 200}


@dataclass
class Storm:
    """Shows every run when it is due, as `PerformEffect` does: later when it is told so, again after an event."""

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
        await self.redis.client.set(self.redis.key("run", run.incident_id), run.model_dump_json())
        self.runs[run.incident_id] = run
        heapq.heappush(self._due, (at, run.incident_id))

    async def until(self, at: float) -> None:
        """Everything that is due before; all there is with `NEVER`."""
        end = self.time.now() + at
        while self._due and self._due[0][0] <= end:
            due, incident_id = heapq.heappop(self._due)
            await self.time.advance(max(0.0, due - self.time.now()))
            await self._show(incident_id)

    async def _show(self, incident_id: str) -> None:
        run = self.runs[incident_id]
        try:
            events = await self.messenger.show(run)
        except MessengerError as error:
            if error.lasting:
                raise
            heapq.heappush(self._due, (self.time.now() + max(error.retry_after_seconds, 0.01), incident_id))
            return
        if events:
            self.carded_at.setdefault(incident_id, self.time.now())
            self.runs[incident_id] = self.runs[incident_id].with_(card_posted=True)
            heapq.heappush(self._due, (self.time.now(), incident_id))

    def messages(self, slot: str) -> list[dict[str, Any]]:
        every = self.team.messages.channels.get(CHANNEL, {}).values()
        return [m for m in every if slot in m.get("metadata", {}).get("event_payload", {}).get("slot", "")]

    def cards(self) -> Counter[str]:
        return Counter(m["metadata"]["event_payload"]["slot"].partition("/")[0] for m in self.messages("/card"))


@pytest.fixture(params=[PACE])
async def storm(request: pytest.FixtureRequest, client: aioredis.Redis, tag: str) -> Storm:
    time = VirtualTime(client, tag)
    await time.start()
    team = Team(Settings(bot_url="", signing_secret="", pace="real" if request.param is PACE else "fast"), time.now)
    slack, connection = PacedSlack(team, time), Connection(client, tag=tag, clock=time.prelude)
    pace = RedisPace(connection, request.param)
    waiting = RedisSummary(connection, request.param["card"])
    digest = Summary(slack, waiting, pace, time, channel=CHANNEL, deployment="tests")
    shown = RedisShown(connection, Shown, dataclasses.asdict)
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


async def begins(storm: Storm, how_many: int, *, every_seconds: float = 0.1) -> None:
    for number in range(how_many):
        await storm.opens(incident(number), storm.time.now() + number * every_seconds)


@pytest.mark.parametrize("storm", [GRANTED], indirect=True)
async def test_of_200_incidents_at_once_each_gets_one_card_and_the_rest_waits_in_one_message(storm: Storm) -> None:
    await begins(storm, 200)
    await storm.until(20)
    assert len(storm.cards()) <= CARDS_AT_ONCE + 20 * 4
    [digest] = storm.messages("digest/")
    assert "incidents have no card yet" in digest["text"]
    await storm.until(NEVER)
    assert storm.cards() == {f"INC-{number}": 1 for number in range(200)}
    [digest] = storm.messages("digest/")
    assert digest["text"] == "Many incidents began at once; each has its card now."


async def test_who_must_answer_gets_the_card_at_once_in_the_middle_of_a_storm(storm: Storm) -> None:
    await begins(storm, 50)
    await storm.until(20)
    waiting = next(run for run in storm.runs.values() if run.incident_id not in storm.carded_at)
    asked_at = storm.time.now()
    # What is shown again is due at once, whenever it was put off to.
    await storm.opens(asking(waiting), asked_at)
    await storm.until(LOOK_AGAIN_SECONDS)
    assert storm.carded_at[waiting.incident_id] - asked_at < 5
    assert len(storm.messages(f"{waiting.incident_id}/question:Q1")) == 1
    assert waiting.incident_id not in storm.messages("digest/")[0]["text"]


async def test_who_is_looked_for_gets_the_card_next(storm: Storm) -> None:
    await begins(storm, 50)
    await storm.until(20)
    wanted = [run.incident_id for run in storm.runs.values() if run.incident_id not in storm.carded_at][-1]
    asked_at = storm.time.now()
    await storm.messenger.want_card(wanted)
    await storm.opens(storm.runs[wanted], asked_at)  # as `ShowAgain` does
    await storm.until(NEVER)
    assert storm.carded_at[wanted] - asked_at < LOOK_AGAIN_SECONDS + 5


async def test_few_incidents_have_no_digest(storm: Storm) -> None:
    await begins(storm, 8)
    await storm.until(NEVER)
    assert len(storm.cards()) == 8
    assert storm.messages("digest/") == []


async def test_a_digest_whose_answer_was_lost_is_found_again(storm: Storm) -> None:
    storm.slack.loses_answer_to.append("digest/")
    await begins(storm, 30, every_seconds=0.01)
    await storm.until(NEVER)
    assert storm.slack.loses_answer_to == []
    assert len(storm.messages("digest/")) == 1
    assert len(storm.cards()) == 30


async def test_the_next_storm_has_a_message_of_its_own(storm: Storm) -> None:
    await begins(storm, 30, every_seconds=0.01)
    await storm.until(NEVER)
    await storm.time.advance(60)
    for number in range(100, 130):
        await storm.opens(incident(number), storm.time.now())
    await storm.until(NEVER)
    assert [m["text"] for m in storm.messages("digest/")] == [
        "Many incidents began at once; each has its card now."
    ] * 2


async def test_who_has_lost_the_word_changes_nothing_that_the_next_one_says(client: aioredis.Redis, tag: str) -> None:
    time = VirtualTime(client, tag)
    await time.start()
    store = RedisSummary(Connection(client, tag=tag, clock=time.prelude), (1.0, 1.0))
    slow = await store.claim()
    assert slow
    assert await store.claim() == ""
    await time.advance(CLAIM_SECONDS + 1)
    quick = await store.claim()
    assert await store.keep("2.0", quick)
    assert not await store.keep("1.0", slow)
    await store.release(slow)
    assert await store.claim() == ""
    assert await store.load() == ({}, "2.0")
    await store.release(quick)
    assert await store.claim()


async def test_who_is_looked_for_has_the_turn_whoever_waits_before(storm: Storm) -> None:
    await begins(storm, 50)
    await storm.until(20)
    wanted = [run.incident_id for run in storm.runs.values() if run.incident_id not in storm.carded_at][-1]
    await storm.messenger.want_card(wanted)
    assert await storm.messenger.show(storm.runs[wanted])
    assert wanted not in (await storm.waiting.load())[0]


async def test_of_thousands_that_wait_each_looks_the_less_often_the_longer_its_turn_is_away(storm: Storm) -> None:
    waits: list[float] = []
    for number in range(4 * NEXT):
        await storm.opens(incident(number), NEVER)
        try:
            await storm.messenger.show(incident(number))
        except MessengerError as error:
            waits.append(error.retry_after_seconds)
    assert waits[0] <= 1 / CARDS_PER_SECOND
    assert waits[-1] > 2 * LOOK_AGAIN_SECONDS


async def test_an_attempt_that_lands_late_is_found_and_its_twin_deleted(storm: Storm) -> None:
    storm.slack.lands_late.append("digest/")
    await begins(storm, 30, every_seconds=0.01)
    await storm.until(NEVER)
    assert storm.slack.lands_late == []
    assert len(storm.messages("digest/")) == 1
    assert len(storm.cards()) == 30


@pytest.mark.fast
def test_names_from_outside_ping_nobody_and_fit_however_many_there_are() -> None:
    nasty = "<!channel> <@U0ANA> &`*" * 40
    closed = {"closed_at": builders.START, "ending": nasty}
    waiting = {f"INC-{number}": summary_line(incident(number, title=nasty, **closed)) for number in range(300)}
    message = summary_message(waiting)
    shown = message.text + str(message.blocks)
    assert "<!channel>" not in shown
    assert "<@U0ANA>" not in shown
    assert "and 288 more" in message.text
    assert len(message.text) < TEXT
    assert all(len(block["text"]["text"]) <= SECTION for block in message.blocks if block["type"] == "section")


async def test_an_incident_that_redis_lost_is_not_posted_again(storm: Storm) -> None:
    run = incident(1)
    await storm.opens(run, storm.time.now())
    await storm.until(NEVER)
    # A worker has loaded the run; before it looks at what stands in Slack, Redis is emptied.
    await storm.redis.client.flushall()
    await storm.time.start()
    with pytest.raises(LostRunError, match="INC-1 is not stored any more"):
        await storm.messenger.show(run.with_(card_posted=True))
    assert storm.cards() == {"INC-1": 1}
