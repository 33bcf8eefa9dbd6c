"""The button that opens a pull request: only for who may approve, once, and answered to who pressed."""

from __future__ import annotations

import dataclasses

import pytest

from bot.adapters.slack.inbound.boundary import Click, NotDoneError
from bot.adapters.slack.inbound.presses import OLD_BUTTON
from bot.adapters.slack.inbound.pull_requests import NOTHING, WANTED, PullRequestButton
from bot.adapters.slack.press_value import ButtonValue
from bot.domain.incidents.run import Run
from tests.adapters.slack.conftest import CHANNEL, Bench, Counter, services_of, whispered
from tests.adapters.slack.runs import BEGAN, policy
from tests.adapters.slack.test_messages import for_the_owner, to_commit

SLOT = "outcome:5:0"


async def pressed(
    counter: Counter, *, user: str = "U0ANA", shown: Run | None = None, words: str = "not possible"
) -> None:
    run = shown or for_the_owner()
    counter.inbound.runs[run.incident_id] = run
    await counter.bench.messenger.show(run)
    message = next(each for each in await counter.slack.messages() if words in each["text"])
    where = {"user": user, "channel": CHANNEL, "ts": message["ts"], "action_id": "pull_request"}
    assert (await counter.slack.do("press", **where))["ok"]


async def test_a_press_is_stored_with_the_message_and_the_authority(counter: Counter) -> None:
    await pressed(counter)
    [(incident, event)] = counter.inbound.commands.values()
    assert (incident, event.command, event.to, event.user) == ("INC-7", "pull_request", SLOT, "U0ANA")
    assert event.authority is not None
    assert event.authority.allowed


async def test_who_may_not_approve_opens_none(counter: Counter) -> None:
    counter.people.allowed = ()
    await pressed(counter)
    await whispered(counter, "No pull request was opened")
    assert counter.inbound.commands == {}


async def test_a_storage_that_is_away_is_reported(counter: Counter) -> None:
    counter.inbound.away = True
    await pressed(counter)
    await whispered(counter, "may or may not have been recorded")


def click(about: str = SLOT, incident: str = "INC-7") -> Click:
    value = ButtonValue(incident, about).packed()
    assert value is not None
    return Click("U0ANA", "Ana", CHANNEL, "", "1.0", "2.0", value)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("run", "shown", "answer"),
    [
        pytest.param(for_the_owner(), click("outcome:6:0"), NOTHING, id="no-such-message"),
        pytest.param(for_the_owner(), click(incident="INC-99"), OLD_BUTTON, id="no-such-incident"),
        pytest.param(for_the_owner(by="U0BEN"), click(), WANTED, id="is-being-opened"),
        pytest.param(for_the_owner(by="U0BEN", url="https://x"), click(), WANTED, id="is-open"),
        pytest.param(for_the_owner().with_(closed_at=BEGAN + 9), click(), NOTHING, id="closed"),
    ],
)
async def test_a_press_that_comes_too_late_says_why(bench: Bench, run: Run, shown: Click, answer: str) -> None:
    services = dataclasses.replace(services_of(bench), may_want_pull_request=lambda _: policy(users=("U0ANA",)))
    services.incidents.runs["INC-7"] = run  # type: ignore[attr-defined]
    with pytest.raises(NotDoneError, match=answer.split(";", maxsplit=1)[0].replace(".", r"\.")):
        await PullRequestButton(services).pressed(shown)


async def test_what_is_in_force_may_be_committed_after_the_incident(counter: Counter) -> None:
    closed = to_commit().with_(closed_at=BEGAN + 900, ending="fixed", change=None)
    await pressed(counter, shown=closed, words="Request R3")
    [(_, event)] = counter.inbound.commands.values()
    assert event.to == "request:R3"


@pytest.mark.fast
async def test_where_two_people_have_to_approve_nobody_opens_one_alone(bench: Bench) -> None:
    services = dataclasses.replace(services_of(bench), may_want_pull_request=lambda _: policy(needed=2))
    services.incidents.runs["INC-7"] = for_the_owner()  # type: ignore[attr-defined]
    with pytest.raises(NotDoneError, match="require 2 of approvers, so one person cannot open a pull request here"):
        await PullRequestButton(services).pressed(click())


@pytest.mark.fast
async def test_a_bot_whose_settings_name_no_file_any_more_calls_the_button_old(bench: Bench) -> None:
    services = dataclasses.replace(services_of(bench), may_want_pull_request=None)
    services.incidents.runs["INC-7"] = for_the_owner()  # type: ignore[attr-defined]
    with pytest.raises(NotDoneError, match="older message"):
        await PullRequestButton(services).pressed(click())
