"""Messages on the timeline by shortcut and 📌, and the app's Home."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from bot.adapters.slack.outbound.home import QUIET_SECONDS, VIEWED_SECONDS, Seen, home, week
from bot.adapters.slack.outbound.words import day
from bot.domain.approvals.grant import Demand
from bot.domain.incidents.event import Commanded
from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import StorageUnavailableError
from bot.sandbox.slack.block_kit import checked_view
from tests.adapters.slack.conftest import CHANNEL, Counter, send_in, until, view_of, whispered
from tests.adapters.slack.runs import BEGAN, ledger_entry, policy, question, request, run, waiting

DAY = 24 * 3600.0
SERVING, PLATFORM, LEAD, MO = (
    Demand(team=team, users=(user,))
    for team, user in (("serving", "U0ANA"), ("platform", "U0BEN"), ("lead", "U0MO"), ("model", "U0MO"))
)
MODEL = policy(demands=(MO,))


def pinned(counter: Counter) -> list[tuple[str, Commanded]]:
    return [(incident, event) for incident, event in counter.inbound.commands.values() if event.command == "pin"]


async def posted(counter: Counter, text: str, *, thread_ts: str = "") -> str:
    return str((await counter.slack.do("say", user="U0BEN", channel=CHANNEL, text=text, thread_ts=thread_ts))["ts"])


async def card_of(counter: Counter, shown: Run) -> str:
    await counter.bench.messenger.show(shown)
    return str((await counter.slack.messages())[-1]["ts"])


async def pin(counter: Counter, ts: str, name: str = "pushpin", *, user: str = "U0ANA") -> dict[str, Any]:
    return await counter.slack.do("react", user=user, channel=CHANNEL, ts=ts, name=name)


async def use_shortcut(counter: Counter, ts: str) -> None:
    arguments = {"user": "U0ANA", "callback_id": "add_to_timeline", "channel": CHANNEL, "ts": ts}
    assert (await counter.slack.do("shortcut", **arguments))["ok"]


# --- reaction --------------------------------------------------------------------------------------------------------


async def test_a_pinned_message_of_a_thread_is_added_once_at_its_own_time_with_its_link(counter: Counter) -> None:
    ts = await posted(counter, "I see XIDs <!channel>", thread_ts=await card_of(counter, run()))
    assert (await pin(counter, ts))["ok"]
    assert (await pin(counter, ts, user="U0LEA"))["ok"]
    [(incident, event)] = pinned(counter)
    assert (incident, event.user, event.author, event.happened_at) == ("INC-7", "U0ANA", "U0BEN", float(ts))
    assert event.text == "I see XIDs ‹!channel›"
    assert f"/p{ts.replace('.', '')}" in event.link


@pytest.mark.parametrize("name", ["eyes", "white_check_mark"])
async def test_another_reaction_adds_nothing(counter: Counter, name: str) -> None:
    ts = await posted(counter, "fine", thread_ts=await card_of(counter, run()))
    assert (await pin(counter, ts, name))["ok"]
    assert pinned(counter) == []


async def test_a_guest_pins_nothing_and_gets_the_reason(counter: Counter) -> None:
    counter.people.guests = frozenset({"U0GUE"})
    ts = await posted(counter, "all is well", thread_ts=await card_of(counter, run()))
    assert (await pin(counter, ts, user="U0GUE"))["ok"]
    await whispered(counter, "Nothing was added: guests do not take part", user="U0GUE")
    arguments = {"user": "U0GUE", "callback_id": "add_to_timeline", "channel": CHANNEL, "ts": ts}
    assert (await counter.slack.do("shortcut", **arguments))["ok"]
    assert pinned(counter) == []


async def test_a_pin_outside_of_an_incidents_thread_is_not_ours(counter: Counter) -> None:
    assert (await pin(counter, await posted(counter, "lunch?")))["ok"]
    assert pinned(counter) == []


async def test_a_pin_that_cannot_be_stored_is_refused_so_that_slack_sends_it_again(counter: Counter) -> None:
    ts = await posted(counter, "I see XIDs", thread_ts=await card_of(counter, run()))
    counter.inbound.away = True
    assert (await pin(counter, ts))["status"] == 503
    counter.inbound.away = False

    async def is_added() -> bool:
        return len(pinned(counter)) == 1

    await until(is_added, "Slack's next attempt was stored")


# --- shortcut --------------------------------------------------------------------------------------------------------


async def test_the_shortcut_adds_a_message_to_the_only_open_incident(counter: Counter) -> None:
    await use_shortcut(counter, await posted(counter, "the hall is warm"))
    await whispered(counter, "Added to the timeline of INC-7")
    [(incident, event)] = pinned(counter)
    assert (incident, event.text) == ("INC-7", "the hall is warm")


async def test_with_several_open_the_shortcut_asks_which(counter: Counter) -> None:
    counter.inbound.runs["INC-8"] = run(incident_id="INC-8", title="Another")
    ts = await posted(counter, "the hall is warm")
    await use_shortcut(counter, ts)
    view = await view_of(counter, "pin")
    counter.inbound.away = True
    errors = (await send_in(counter, view, incident="INC-8"))["errors"]
    assert "may or may not have been recorded" in errors["field:incident"]
    counter.inbound.away = False
    assert (await send_in(counter, view, incident="INC-8"))["ok"]
    assert [incident for incident, _ in pinned(counter)] == ["INC-8"]


async def test_the_shortcut_asks_which_if_another_open_incident_cannot_be_read(counter: Counter) -> None:
    counter.inbound.runs["INC-8"] = run(incident_id="INC-8")
    counter.inbound.newer = frozenset({"INC-8"})
    await use_shortcut(counter, await posted(counter, "the hall is warm"))
    await view_of(counter, "pin")
    assert pinned(counter) == []


async def test_in_a_thread_the_shortcut_knows_which_although_several_are_open(counter: Counter) -> None:
    counter.inbound.runs["INC-8"] = run(incident_id="INC-8", title="Another")
    await use_shortcut(counter, await posted(counter, "here", thread_ts=await card_of(counter, run())))
    await whispered(counter, "Added to the timeline of INC-7")


async def test_without_an_open_incident_the_shortcut_says_so(counter: Counter) -> None:
    counter.inbound.runs.clear()
    await use_shortcut(counter, await posted(counter, "hello"))
    await whispered(counter, "No incident is open")


@pytest.mark.parametrize("fault", ["storage", "slack"])
async def test_a_shortcut_that_could_not_be_stored_is_reported(counter: Counter, fault: str) -> None:
    ts = await posted(counter, "hello")
    counter.inbound.away = fault == "storage"
    if fault == "slack":
        await counter.slack.faults({"method": "conversations.replies", "kind": "500"})
    await use_shortcut(counter, ts)
    await whispered(counter, "may or may not have been recorded. Please try again; adding it twice is harmless.")
    assert pinned(counter) == []


@pytest.mark.parametrize(
    ("error", "reply"),
    [
        pytest.param("not_in_channel", "Invite the bot to this channel", id="of-a-public-channel"),
        pytest.param("channel_not_found", "Invite the bot to this channel", id="of-a-private-channel"),
        pytest.param("missing_scope", "Slack does not show the bot this message (missing_scope)", id="of-the-app"),
        pytest.param("thread_not_found", "Slack does not show the bot this message (thread_not_found)", id="deleted"),
    ],
)
async def test_a_message_that_the_bot_may_not_read_is_reported_with_the_reason(
    counter: Counter, error: str, reply: str
) -> None:
    ts = await posted(counter, "hello")
    await counter.slack.faults({"method": "conversations.replies", "kind": f"error:{error}"})
    await use_shortcut(counter, ts)
    await whispered(counter, reply)
    assert "did not answer" not in str(await counter.slack.whispers("U0ANA"))
    assert pinned(counter) == []


async def test_a_pin_on_a_message_that_the_bot_may_not_read_is_left(counter: Counter) -> None:
    ts = await posted(counter, "hello")
    await counter.slack.faults({"method": "conversations.replies", "kind": "error:not_in_channel"})
    assert (await pin(counter, ts))["ok"]
    assert pinned(counter) == []


# --- Home ------------------------------------------------------------------------------------------------------------


async def home_of(counter: Counter, user: str) -> str:
    await counter.slack.do("home", user=user)

    async def is_published() -> bool:
        return user in (await counter.slack.page())["homes"]

    await until(is_published, "Home is there")
    return str((await counter.slack.page())["homes"][user]["blocks"])


async def test_home_shows_what_waits_for_this_person_and_what_is_open(counter: Counter) -> None:
    counter.inbound.runs["INC-7"] = waiting()
    await counter.bench.messenger.show(waiting())
    mine = await home_of(counter, "U0ANA")
    assert "|Cap llm at 6 sequences> by" in mine
    assert "/archives/C0INC/p" in mine
    theirs = await home_of(counter, "U0MO")
    assert "Nothing is waiting for you." in theirs
    assert "KV-cache OOM and preemption thrash" in theirs


async def test_home_shows_the_date_of_a_wait_that_may_end_tomorrow(counter: Counter) -> None:
    asked = waiting()
    until = asked.requests["R3"].asked_at + 86_400
    counter.inbound.runs["INC-7"] = waiting(expires_at=until)
    assert f"by {day(until)}" in (await home_of(counter, "U0ANA")).partition("Open incidents")[0]


@pytest.mark.parametrize(
    ("asked", "is_for_mo"),
    [
        pytest.param({"by": MODEL}, True, id="asked-of-the-team"),
        pytest.param({}, False, id="asked-of-operators"),
        pytest.param({"by": MODEL, "not_by": "U0MO"}, False, id="answered-what-it-depends-on"),
    ],
)
async def test_a_question_of_one_team_waits_for_its_people(
    counter: Counter, asked: dict[str, Any], *, is_for_mo: bool
) -> None:
    counter.people.teams = {"U0MO": ("model",)}
    counter.inbound.runs["INC-7"] = run(question="Q2", questions={"Q2": question(**asked)})
    assert ("Nothing is waiting for you." not in await home_of(counter, "U0MO")) is is_for_mo


async def test_nothing_waits_for_who_may_only_break_the_glass(counter: Counter) -> None:
    counter.people.teams = {"U0MO": ("lead",)}
    counter.inbound.runs["INC-7"] = waiting(policy=policy(demands=(SERVING, PLATFORM), break_glass=LEAD))
    assert "Nothing is waiting for you." in await home_of(counter, "U0MO")


async def test_home_without_storage_does_not_say_that_nothing_is_open(counter: Counter) -> None:
    counter.inbound.away = True
    assert "open incidents are unknown" in await home_of(counter, "U0ANA")


async def published(counter: Counter, user: str) -> int:
    calls = await counter.slack.calls("views.publish")
    return sum(1 for call in calls if call["args"]["user_id"] == user)


async def a_while_after_a_change(counter: Counter) -> None:
    counter.changed.set()
    await counter.homes.once()
    counter.bench.clock.move(QUIET_SECONDS)
    await counter.homes.once()


async def test_home_follows_what_concerns_its_viewer_without_being_opened_again(counter: Counter) -> None:
    counter.inbound.runs.clear()
    assert "Nothing is waiting for you." in await home_of(counter, "U0ANA")
    counter.inbound.runs["INC-7"] = waiting()
    await a_while_after_a_change(counter)
    assert "Cap llm at 6 sequences" in str((await counter.slack.page())["homes"]["U0ANA"]["blocks"])


async def test_a_burst_of_changes_is_followed_once_and_what_looks_the_same_not_at_all(counter: Counter) -> None:
    await home_of(counter, "U0ANA")
    assert await published(counter, "U0ANA") == 1
    await a_while_after_a_change(counter)
    assert await published(counter, "U0ANA") == 1
    counter.inbound.runs["INC-7"] = waiting()
    for _ in range(5):
        counter.changed.set()
        await counter.homes.once()
    assert await published(counter, "U0ANA") == 1
    counter.bench.clock.move(QUIET_SECONDS)
    await counter.homes.once()
    await counter.homes.once()
    assert await published(counter, "U0ANA") == 2


async def test_homes_that_nobody_opened_for_a_day_are_left_alone(counter: Counter) -> None:
    await home_of(counter, "U0ANA")
    counter.bench.clock.move(VIEWED_SECONDS)
    counter.inbound.runs["INC-7"] = waiting()
    await a_while_after_a_change(counter)
    assert await published(counter, "U0ANA") == 1


@pytest.mark.parametrize("hindrance", ["pace", "slack", "storage"])
async def test_a_home_that_could_not_follow_does_so_later(counter: Counter, hindrance: str) -> None:
    await home_of(counter, "U0ANA")
    counter.inbound.runs["INC-7"] = waiting()
    if hindrance == "pace":
        counter.bench.pace.waits["home"] = [3.0]
    elif hindrance == "slack":
        await counter.slack.faults({"method": "views.publish", "kind": "500"})
    counter.inbound.away = hindrance == "storage"
    with contextlib.suppress(StorageUnavailableError):
        await a_while_after_a_change(counter)
    assert "Cap llm" not in str((await counter.slack.page())["homes"]["U0ANA"]["blocks"])
    counter.inbound.away = False
    counter.bench.clock.move(1)
    await counter.homes.once()
    assert "Cap llm" in str((await counter.slack.page())["homes"]["U0ANA"]["blocks"])


async def test_home_says_first_that_everything_is_halted_and_by_whom(counter: Counter) -> None:
    await home_of(counter, "U0ANA")
    assert "Everything is halted" in await counter.say("halt all", user="U0ANA")
    await a_while_after_a_change(counter)
    blocks = (await counter.slack.page())["homes"]["U0ANA"]["blocks"]
    assert "*Everything is halted* by <@U0ANA>" in str(blocks[0])
    await counter.say("resume all", user="U0ANA")
    await a_while_after_a_change(counter)
    assert "Everything is halted" not in str((await counter.slack.page())["homes"]["U0ANA"]["blocks"])


@pytest.mark.fast
def test_the_week_counts_what_opened_in_it_and_knows_no_median_of_nothing() -> None:
    fixed = run(incident_id="INC-1", closed_at=BEGAN + 600, ending="fixed", ledger=(ledger_entry(),))
    left = run(
        incident_id="INC-2", closed_at=BEGAN + 1800, ending="handed_over", severity="ticket",
        questions={"Q2": question(status="answered", answered_at=BEGAN + 160)},
        requests={"R3": request(decided_by="U0ANA", decided_at=BEGAN + 320)},
    )  # fmt: skip
    old = run(incident_id="INC-0", opened_at=BEGAN - 8 * DAY, closed_at=BEGAN)
    lines = week([fixed, left, old, run()], now=BEGAN + DAY)
    assert lines == [
        "*Opened*\n3 (2 paged)",
        "*Closed*\n2 (1 fixed, recovered or accepted)",
        "*Time to the first action (MTTA)*\n2 min 35 s (median of 1)",
        "*Time to the close (MTTR)*\n20 min (median of 2)",
        "*Time spent waiting for people*\n90 s (median of 2)",
        "*Presses for each incident*\n1 (median)",
    ]
    assert week([], now=BEGAN)[2:] == [
        "*Time to the first action (MTTA)*\nnone yet",
        "*Time to the close (MTTR)*\nnone yet",
        "*Time spent waiting for people*\nnone yet",
        "*Presses for each incident*\nnone yet",
    ]


@pytest.mark.fast
def test_home_is_within_slacks_limits_however_much_is_open() -> None:
    many = [run(incident_id=f"INC-{n}", title="<!channel> " * 300) for n in range(300)]
    view = checked_view({"type": "home", "blocks": list(home(Seen(many, many), [], now=BEGAN))})
    assert "and 280 more" in str(view)
    assert "<!channel>" not in str(view)
