"""A card's buttons issue `/incident` commands: same permissions, stored once, answered to the presser."""

from __future__ import annotations

from typing import Any

import pytest

from bot.adapters.slack.outbound.card import card
from bot.domain.incidents.run import ActiveWatch, Halt, Run
from tests.adapters.slack.conftest import CHANNEL, Counter, send_in, view_of, whispered
from tests.adapters.slack.runs import run, waiting
from tests.adapters.slack.test_operator_commands import watching

WATCHING = run(watch=ActiveWatch(started_at=run().opened_at, until=run().opened_at + 1200))


def handles(shown: Run, **links: str) -> dict[str, dict[str, Any]]:
    """The card's buttons by their ids."""
    rows = [block for block in card(shown, links=links).blocks if block["type"] == "actions"]
    return {button["action_id"]: button for row in rows for button in row["elements"]}


async def pressed(counter: Counter, action_id: str, *, user: str = "U0ANA", shown: Run | None = None) -> None:
    await counter.bench.messenger.show(shown or run())
    [card_shown] = [m for m in await counter.slack.messages() if m.get("thread_ts", m["ts"]) == m["ts"]]
    where = {"user": user, "channel": CHANNEL, "ts": card_shown["ts"], "action_id": action_id}
    assert (await counter.slack.do("press", **where))["ok"]


def stored(counter: Counter) -> list[tuple[str, str, str]]:
    return [(incident, event.command, event.text) for incident, event in counter.inbound.commands.values()]


@pytest.mark.fast
def test_a_card_offers_what_can_be_done_now() -> None:
    assert list(handles(run())) == ["say:lead", "say:halt"]
    assert list(handles(run(lead="U0ANA", halt=Halt(by="U0BEN")))) == ["say:resume"]
    assert list(handles(WATCHING)) == ["say:lead", "say:skip", "say:halt"]
    assert handles(run(closed_at=run().opened_at + 60)) == {}


@pytest.mark.fast
def test_a_wait_is_not_skipped_where_something_is_asked() -> None:
    """An answer ends it."""
    assert "say:skip" not in handles(waiting().with_(watch=WATCHING.watch))


@pytest.mark.fast
def test_a_card_leads_to_what_waits_where_its_address_is_known() -> None:
    assert handles(waiting(), **{"request:R3": "https://slack.test/p1"})["see"]["url"] == "https://slack.test/p1"
    assert "see" not in handles(waiting())
    assert "see" not in handles(waiting(), **{"request:R3": "javascript:alert(1)"})


@pytest.mark.fast
def test_a_halt_asks_whether_it_is_meant() -> None:
    assert "No change is sent" in handles(run())["say:halt"]["confirm"]["text"]["text"]


async def test_skip_opens_its_form_for_the_states_that_may_come_next(counter: Counter) -> None:
    watching(counter)
    await pressed(counter, "say:skip", shown=WATCHING)
    assert (await send_in(counter, await view_of(counter, "skip"), to="choose", text="seen enough"))["ok"]
    assert stored(counter) == [("INC-7", "skip", "seen enough")]


async def test_who_presses_i_lead_leads(counter: Counter) -> None:
    await pressed(counter, "say:lead")
    await whispered(counter, "leads INC-7")
    assert stored(counter) == [("INC-7", "lead", "U0ANA")]


@pytest.mark.parametrize(("word", "shown"), [("halt", run()), ("resume", run(halt=Halt(by="U0BEN")))])
async def test_halt_and_resume_are_stored_for_this_incident(counter: Counter, word: str, shown: Run) -> None:
    await pressed(counter, f"say:{word}", shown=shown)
    await whispered(counter, "INC-7")
    assert stored(counter) == [("INC-7", word, "")]


async def test_a_user_who_is_no_operator_is_refused_and_nothing_is_stored(counter: Counter) -> None:
    await pressed(counter, "say:halt", user="U0MO")
    await whispered(counter, "Not done", user="U0MO")
    assert stored(counter) == []


async def test_a_storage_that_is_away_is_reported(counter: Counter) -> None:
    counter.inbound.away = True
    await pressed(counter, "say:lead")
    await whispered(counter, "may or may not have been recorded. Check the message, then press again")


async def test_an_incident_of_a_newer_version_is_left_to_it_and_the_answer_says_so(counter: Counter) -> None:
    counter.inbound.newer = frozenset({"INC-7"})
    await pressed(counter, "say:lead")
    await whispered(counter, "INC-7 was stored by a newer version of the bot")
    assert stored(counter) == []


async def test_the_link_of_a_card_is_acknowledged_and_says_nothing(counter: Counter) -> None:
    await counter.bench.messenger.show(waiting())
    await pressed(counter, "see", shown=waiting())
    assert await counter.slack.whispers("U0ANA") == []
