"""A storm of incidents in Slack: one message for those that can wait, a card at once for those that cannot.

Slack is the simulator with its real limits, time is virtual.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import pytest
import redis.asyncio as aioredis

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.summary import CLAIM_SECONDS, COMPETE, RedisSummary
from bot.adapters.slack.limits import SECTION, TEXT
from bot.adapters.slack.outbound.summary_message import MOVED, summary_line, summary_message
from bot.domain.incidents.run import InSlack
from bot.domain.kernel.errors import LostRunError, MessengerError
from tests import builders
from tests.fakes.shown import file_of
from tests.flow.paced_storm import CARDS, GRANTED, NEVER, PACE, Storm, asking, incident, of_a_storm, storm_at
from tests.redis_server import VirtualTime

pytestmark = pytest.mark.open_index_is_broken("incidents are shown without an alert that opened them")


@pytest.fixture(params=[PACE])
async def storm(request: pytest.FixtureRequest, client: aioredis.Redis, tag: str) -> Storm:
    return await storm_at(client, tag, request.param)


async def begins(storm: Storm, how_many: int, *, every_seconds: float = 0.1) -> None:
    for number in range(how_many):
        await storm.opens(incident(number), storm.time.now() + number * every_seconds)


@pytest.mark.parametrize("storm", [GRANTED], indirect=True)
async def test_of_200_incidents_at_once_each_gets_one_card_and_the_rest_waits_in_one_message(storm: Storm) -> None:
    await begins(storm, 200)
    await storm.until(20)
    assert len(storm.cards()) <= CARDS * 8
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
    await storm.until(10)
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
    assert storm.carded_at[wanted] - asked_at < 15


def in_any_minute(times: Sequence[float]) -> int:
    ordered = sorted(times)
    # Less the rounding of Slack's ts.
    return max(bisect_left(ordered, at + 59.99) - place for place, at in enumerate(ordered))


async def test_a_storm_of_hundreds_has_ten_cards_a_minute_and_slack_refuses_nothing(storm: Storm) -> None:
    for number in range(400):
        every = asking(incident(number)) if number % 2 else incident(number)
        await storm.opens(every, storm.time.now() + number * 0.01)
    await storm.until(600)
    assert in_any_minute([float(message["ts"]) for message in storm.messages("/card")]) == CARDS
    assert len(storm.carded_at) > 70
    assert storm.slack.too_fast == 0
    asked = [name for name in storm.carded_at if storm.runs[name].open_question]
    assert len(storm.carded_at) - len(asked) <= CARDS, "after the first minute only those that need a person"
    assert float(storm.messages("digest/")[0]["ts"]) - storm.time.now() + 600 < 2


async def test_in_a_long_storm_the_list_goes_on_below_the_newest_cards(storm: Storm) -> None:
    await begins(storm, 80)
    await storm.until(400)
    old, new = storm.messages("digest/")
    assert old["text"] == MOVED.text
    assert "incidents have no card yet" in new["text"]
    assert 300 <= float(new["ts"]) - float(old["ts"]) < 380


async def test_a_page_that_waits_for_a_person_overtakes_hundreds_that_wait_as_well(storm: Storm) -> None:
    for number in range(200):
        await storm.opens(asking(incident(number)), storm.time.now())
    await storm.until(30)
    await storm.opens(asking(incident(200, severity="page")), storm.time.now())
    await storm.opens(incident(201, severity="page"), storm.time.now())
    await storm.until(45)
    assert storm.carded_at["INC-200"] - storm.time.now() < 60
    assert "INC-201" not in storm.carded_at


async def test_closed_incidents_get_their_cards_last(storm: Storm) -> None:
    for number in range(20):
        closed = {"closed_at": builders.START, "ending": "fixed"} if number < 15 else {}
        await storm.opens(incident(number, **closed), storm.time.now())
    await storm.until(90)
    assert {f"INC-{number}" for number in range(15, 20)} <= storm.carded_at.keys()
    await storm.until(NEVER)
    assert len(storm.carded_at) == 20


async def test_a_file_of_an_incident_in_the_storm_waits_for_its_card(storm: Storm) -> None:
    await begins(storm, 40)
    await storm.until(20)
    last = storm.runs["INC-39"].with_(opened_at=storm.time.now() - 20)
    with pytest.raises(MessengerError, match="not in Slack yet") as later:
        await storm.messenger.upload(last, key="chart", name="chart.png", content=file_of(b""), comment="")
    assert later.value.retry_after_seconds == pytest.approx(2)
    assert "INC-39" in (await storm.waiting.load())[0]
    await storm.until(20)
    assert "INC-39" not in storm.carded_at


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
    store = RedisSummary(Connection(client, tag=tag, clock=time.prelude), (1, 1.0))
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


async def test_a_card_that_comes_back_keeps_its_turn_until_it_is_there(client: aioredis.Redis, tag: str) -> None:
    time = VirtualTime(client, tag)
    await time.start()
    store = RedisSummary(Connection(client, tag=tag, clock=time.prelude), (2, 60.0))

    async def turn(incident_id: str) -> tuple[float, bool]:
        wait, _, _, leaves = await store.turn(incident_id, "a line", 1.0, needs_a_person_below=2.0)
        return wait, leaves

    assert [await turn("INC-1"), await turn("INC-2")] == [(0.0, False)] * 2, "nothing waits: nothing to leave"
    await time.advance(50)
    assert await turn("INC-1") == (0.0, True), "Slack's own pace held it back"
    await time.advance(15)
    assert await turn("INC-3") == (0.0, False), "INC-2 is there for more than a minute"
    await time.advance(1)
    wait, leaves = await turn("INC-4")
    assert wait > 0
    assert leaves
    await store.leave("INC-1")
    await time.advance(58)
    assert (await turn("INC-4"))[0] > 0, "the minute of a card begins when it is there"
    await time.advance(7)
    assert (await turn("INC-4"))[0] == 0


async def test_who_is_looked_for_has_the_turn_whoever_waits_before(storm: Storm) -> None:
    await begins(storm, 50)
    await storm.until(20)
    wanted = [run.incident_id for run in storm.runs.values() if run.incident_id not in storm.carded_at][-1]
    await storm.messenger.want_card(wanted)
    assert (await storm.messenger.show(storm.runs[wanted])).events
    assert wanted not in (await storm.waiting.load())[0]


async def test_of_thousands_that_wait_each_looks_the_less_often_the_longer_its_turn_is_away(storm: Storm) -> None:
    waits: list[float] = []
    for number in range(4 * COMPETE):
        await storm.opens(incident(number), NEVER)
        try:
            await storm.messenger.show(incident(number))
        except MessengerError as error:
            waits.append(error.retry_after_seconds)
    assert waits[0] <= 60
    assert waits[-1] > 2 * 60


async def test_an_attempt_that_lands_late_is_found_and_its_twin_deleted(storm: Storm) -> None:
    storm.slack.lands_late.append("digest/")
    await begins(storm, 30, every_seconds=0.01)
    await storm.until(NEVER)
    assert storm.slack.lands_late == []
    assert len(storm.messages("digest/")) == 1
    assert len(storm.cards()) == 30


@pytest.mark.fast
def test_the_summary_begins_with_what_the_incidents_have_in_common_and_who_needs_a_person() -> None:
    runs = [of_a_storm(number, zone="eu-1a", node=f"gpu-{number % 40}") for number in range(200)]
    runs += [of_a_storm(number, model_name="llama-70b") for number in range(200, 210)]
    runs += [incident(number) for number in range(210, 213)]
    runs[7], runs[205] = asking(runs[7]), asking(runs[205]).with_(severity="page")
    message = summary_message({run.incident_id: summary_line(run) for run in runs})
    assert message.text.splitlines()[:8] == [
        "213 new incidents have no card yet.",
        "• *In zone eu-1a*: 200 incidents · 1 needs a person (INC-7, INC-0, INC-1, …)",
        "• *Model llama-70b*: 10 incidents · 1 needs a person (INC-205, INC-200, INC-201, …)",
        "• *Others*: 3 incidents",
        "🔴 *INC-205* KV cache thrash on llm · serving/llm · needs an answer",
        "🟠 *INC-7* KV cache thrash on llm · serving/llm · needs an answer",
        "🟠 *INC-0* KV cache thrash on llm · serving/llm",
        "🟠 *INC-1* KV cache thrash on llm · serving/llm",
    ]
    assert message.text.splitlines()[-1] == "… and 204 more: `/incident list`"


@pytest.mark.fast
def test_a_line_that_an_earlier_version_stored_is_shown() -> None:
    assert "🟠 *INC-1* llm" in summary_message({"INC-1": "🟠 *INC-1* llm"}).text


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
        await storm.messenger.show(run.with_(in_slack=InSlack(card_posted=True)))
    assert storm.cards() == {"INC-1": 1}
