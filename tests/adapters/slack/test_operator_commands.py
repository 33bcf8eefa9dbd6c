"""Commands of operators and the forms that they open: stored once, refused with a reason, nothing lost."""

from __future__ import annotations

import dataclasses

import pytest

from bot.adapters.slack.inbound.command import Command
from bot.adapters.slack.inbound.commands import Commands
from bot.adapters.slack.inbound.operator_commands import ASSUMED_OUTCOMES
from bot.adapters.slack.inbound.silencing import _covered
from bot.adapters.slack.outbound.message import Message
from bot.adapters.yaml_playbooks import load_text
from bot.domain.incidents.event import Commanded
from bot.domain.incidents.run import Halt
from bot.domain.kernel.silence import matchers_of
from bot.domain.playbooks.edges import CHANGE_OUTCOMES
from bot.domain.playbooks.library import Library
from bot.flow.receive_input import OPEN_READ
from tests import builders
from tests.adapters.slack.conftest import Bench, Counter, send_in, services_of, until, view_of, whispered
from tests.adapters.slack.runs import BEGAN, policy, run, waiting
from tests.domain.incidents.machine.steps import PLAYBOOK, TEXT


def watching(counter: Counter) -> None:
    counter.shelf.library = Library({"small": PLAYBOOK})
    counter.inbound.runs["INC-7"] = run(playbook="small", state="watch", machine_state="watch")


def stored(counter: Counter) -> Commanded:
    [(_, command)] = counter.inbound.commands.values()
    return command


async def announced(counter: Counter, words: str) -> list[str]:
    """The messages in the channel with these words, once there is one."""

    async def found() -> list[str]:
        return [message["text"] for message in await counter.slack.messages() if words in message["text"]]

    async def is_posted() -> bool:
        return bool(await found())

    await until(is_posted, f"the channel reads: {words}")
    return await found()


# --- lead ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "leads"),
    [("lead", "U0ANA"), ("lead me", "U0ANA"), ("lead INC-7 <@U0BEN|ben>", "U0BEN"), ("lead <@U0BEN>", "U0BEN")],
)
async def test_who_leads_is_who_says_so_or_whom_they_name(counter: Counter, text: str, leads: str) -> None:
    assert f"<@{leads}> leads INC-7" in await counter.say(text)
    assert (stored(counter).command, stored(counter).text) == ("lead", leads)


async def test_a_name_without_a_mention_leads_nothing(counter: Counter) -> None:
    assert "`@ben` is not an @mention of a person" in await counter.say("lead @ben")
    assert counter.inbound.commands == {}


# --- handover --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "to", "note"),
    [
        pytest.param("handover INC-7 <@U0BEN|ben> the cap is tried", "U0BEN", "the cap is tried", id="one-incident"),
        pytest.param("handover 7 <@U0BEN> good night", "U0BEN", "good night", id="one-by-its-number"),
        pytest.param("handover <@U0BEN> good night", "U0BEN", "good night", id="all-of-them"),
        pytest.param("handover", "", "", id="to-the-team-on-call"),
        pytest.param("handover sleep well", "", "sleep well", id="to-the-team-with-a-note"),
    ],
)
async def test_a_handover_names_the_next_lead_and_says_what_is_open(
    counter: Counter, text: str, to: str, note: str
) -> None:
    watching(counter)
    read = await counter.say(text)
    assert (stored(counter).command, stored(counter).to, stored(counter).text) == ("handover", to, note)
    assert f"1 open incident is handed over to {'<@U0BEN>' if to else 'the team on call'}." in read
    assert "INC-7" in read


async def test_a_handover_shows_times_in_the_zone_of_the_reader_as_the_card_does(counter: Counter) -> None:
    counter.inbound.runs["INC-7"] = waiting()
    assert "Waits for approval by <!date^" in await counter.say("handover <@U0BEN>")
    [text] = await announced(counter, "handed over to")
    assert "Waits for approval by <!date^" in text


async def test_a_handover_mentions_who_halted(counter: Counter) -> None:
    counter.inbound.runs["INC-7"] = run(halt=Halt(by="U0ANA"))
    assert "Halted by <@U0ANA>" in await counter.say("handover INC-7 <@U0BEN>")


async def test_all_open_incidents_are_handed_over_with_one_summary_in_the_channel(counter: Counter) -> None:
    watching(counter)
    counter.inbound.runs["INC-8"] = run(incident_id="INC-8")
    assert "2 open" in await counter.say("handover <@U0BEN>")
    assert sorted(incident for incident, _ in counter.inbound.commands.values()) == ["INC-7", "INC-8"]
    await announced(counter, "2 open incidents are handed over to")


def many_open(counter: Counter, many: int) -> list[str]:
    counter.inbound.runs = {each: run(incident_id=each) for each in (f"INC-{number}" for number in range(1, many + 1))}
    return sorted(counter.inbound.runs)


async def test_however_many_are_open_all_of_them_are_handed_over(counter: Counter) -> None:
    every = many_open(counter, OPEN_READ + 30)
    assert "80 open incidents are being handed over to <@U0BEN>." in await counter.say("handover <@U0BEN> good night")
    [text] = await announced(counter, "80 open incidents are handed over to <@U0BEN>.")
    assert sorted(incident for incident, _ in counter.inbound.commands.values()) == every
    assert {event.to for _, event in counter.inbound.commands.values()} == {"U0BEN"}
    shown = text.count("• *INC-")
    assert f"… and {80 - shown} more: each thread has its part." in text


async def test_a_handover_that_ends_half_way_says_how_many_are_left(counter: Counter) -> None:
    many_open(counter, OPEN_READ + 30)
    counter.inbound.commands_left = OPEN_READ + 10
    await counter.say("handover <@U0BEN>")
    await whispered(counter, "20 of 80 open incidents were not handed over")
    assert await announced(counter, "60 of 80 open incidents are handed over to <@U0BEN>.")
    assert len(counter.inbound.commands) == OPEN_READ + 10


async def test_a_summary_that_slack_refuses_is_reported_to_the_user_who_handed_over(counter: Counter) -> None:
    watching(counter)
    await counter.slack.faults({"method": "chat.postMessage", "kind": "error:is_archived"})
    await counter.say("handover <@U0BEN>")
    await whispered(counter, "Slack refused the summary in the channel")


async def test_a_handover_of_all_notifies_nobody_whom_an_alert_names(counter: Counter) -> None:
    counter.inbound.runs["INC-7"] = run(diagnosis="slow, cc <@U0CEO>", halt=Halt(by="U0ANA"))
    await counter.say("handover <@U0BEN>")
    [text] = await announced(counter, "handed over to <@U0BEN>")
    assert "slow, cc &lt;@U0CEO&gt;" in text
    assert "Halted by <@U0ANA>" in text
    assert "<@U0CEO>" not in text


async def test_a_name_without_a_mention_takes_nothing_over(counter: Counter) -> None:
    assert "`@ben` is not an @mention of a person" in await counter.say("handover @ben")
    assert "`ben` is not an @mention of a person" in await counter.say("handover ben")
    assert "`ben` is not an @mention of a person" in await counter.say("handover 7 ben")
    assert counter.inbound.commands == {}


async def test_a_number_without_an_incident_hands_nothing_over(counter: Counter) -> None:
    watching(counter)
    assert "There is no incident `INC-70`" in await counter.say("handover 70 <@U0BEN>")
    assert counter.inbound.commands == {}


@pytest.mark.parametrize("text", ["lead INC-7 <@U0GUEST>", "handover INC-7 <@U0GUEST> good night"])
async def test_somebody_who_takes_no_part_is_not_named(counter: Counter, text: str) -> None:
    watching(counter)
    counter.people.guests = frozenset({"U0GUEST"})
    answer = await counter.say(text)
    assert "<@U0GUEST> cannot" in answer
    assert "guests do not take part" in answer
    assert counter.inbound.commands == {}


# --- status ----------------------------------------------------------------------------------------------------------


async def test_a_status_may_come_with_the_command(counter: Counter) -> None:
    assert "in its thread" in await counter.say("status two of four are back, see <https://status.example|this>")
    assert stored(counter).text == "two of four are back, see https://status.example"


async def test_a_status_is_asked_for_in_a_form(counter: Counter) -> None:
    assert await counter.say("status") == ""
    assert (await send_in(counter, await view_of(counter, "status"), text="half are back", next="15"))["ok"]
    assert (stored(counter).command, stored(counter).text, stored(counter).seconds) == ("status", "half are back", 900)


async def test_a_status_that_cannot_be_stored_keeps_its_form_open(counter: Counter) -> None:
    await counter.say("status")
    view = await view_of(counter, "status")
    counter.inbound.away = True
    answer = await send_in(counter, view, text="half are back")
    assert "may or may not have been recorded" in answer["errors"]["field:next"]
    counter.inbound.away = False
    assert (await send_in(counter, view, text="half are back"))["ok"]
    assert stored(counter).seconds == 1800


# --- skip ------------------------------------------------------------------------------------------------------------


async def test_a_skip_is_chosen_among_the_written_exits(counter: Counter) -> None:
    watching(counter)
    assert await counter.say("skip") == ""
    view = await view_of(counter, "skip")
    explanation, chosen, _ = view["blocks"]
    assert explanation["text"]["text"].split("\n") == [
        "What comes next, and the outcome that each assumes:",
        "• choose: as if the check had not passed in time",
        "• calm: as if the check had passed",
    ]
    options = [option["value"] for option in chosen["element"]["options"]]
    assert sorted(options) == ["calm", "choose"]
    assert (await send_in(counter, view, to="choose", text="seen enough"))["ok"]
    assert (stored(counter).command, stored(counter).to, stored(counter).text) == ("skip", "choose", "seen enough")


@pytest.mark.parametrize(
    "outcome", [*CHANGE_OUTCOMES, "none_possible", "held", "not_held", "unknown", "taken", "beyond"]
)
def test_each_outcome_that_a_skip_assumes_is_in_words(outcome: str) -> None:
    assert outcome in ASSUMED_OUTCOMES


async def test_exits_with_one_title_are_distinguished_by_their_names(counter: Counter) -> None:
    titled = TEXT.replace("  choose:\n", "  choose:\n    title: The end\n")
    titled = titled.replace("  calm: {end", "  calm: {title: The end, end")
    watching(counter)
    counter.shelf.library = Library({"small": load_text(titled)})
    await counter.say("skip")
    _, chosen, _ = (await view_of(counter, "skip"))["blocks"]
    shown = [option["text"]["text"] for option in chosen["element"]["options"]]
    assert shown == ["The end (choose)", "The end (calm)"]


async def test_a_skip_of_a_wait_that_is_over_skips_no_later_one(counter: Counter) -> None:
    counter.shelf.library = Library({"small": PLAYBOOK})
    counter.inbound.runs["INC-7"] = run(playbook="small", state="watch", machine_state="watch", number=4)
    await counter.say("skip")
    view = await view_of(counter, "skip")
    # Another change is applied meanwhile, and its watch has the same exits.
    counter.inbound.runs["INC-7"] = run(playbook="small", state="watch", machine_state="watch", number=8)
    await send_in(counter, view, to="choose", text="seen enough")
    assert counter.inbound.commands == {}


async def test_a_skip_may_come_with_the_command(counter: Counter) -> None:
    watching(counter)
    assert "next is `choose`" in await counter.say("skip INC-7 choose seen enough")
    assert (stored(counter).to, stored(counter).text) == ("choose", "seen enough")


@pytest.mark.parametrize(
    ("text", "taught"),
    [("skip grow now", "it can skip to `choose`, `calm`"), ("skip choose", "Skipping needs a reason")],
)
async def test_a_skip_that_does_not_count_is_answered_with_one_that_would(
    counter: Counter, text: str, taught: str
) -> None:
    watching(counter)
    assert taught in await counter.say(text)
    assert counter.inbound.commands == {}


async def test_where_nothing_can_be_skipped_the_answer_says_so(counter: Counter) -> None:
    watching(counter)
    counter.inbound.runs["INC-7"] = run(playbook="small", state="calm", machine_state="calm")
    reason = "Nothing can be skipped in INC-7: it waits for no signal. Answer what it asks, if anything."
    assert reason in await counter.say("skip")


# --- silence ---------------------------------------------------------------------------------------------------------


async def test_a_silence_shows_what_it_covers_and_is_made_only_when_that_is_confirmed(counter: Counter) -> None:
    assert await counter.say("silence INC-7 30m deploy at noon") == ""
    assert counter.inbound.commands == {}
    view = await view_of(counter, "silence")
    wanted = matchers_of(counter.inbound.runs["INC-7"].alerts.values())
    assert wanted
    assert all(f"*{name}* with" in str(view["blocks"]) for name in wanted)
    pairs = [f"`{name}={value}`" for labels in wanted.values() for name, value in labels.items() if name != "alertname"]
    assert pairs
    assert all(pair in str(view["blocks"]) for pair in pairs)
    assert (await send_in(counter, view))["ok"]
    event = stored(counter)
    assert (event.command, event.seconds, event.text) == ("silence", 1800, "deploy at noon")
    assert event.silences == wanted
    assert event.authority is not None
    assert event.authority.allowed


def test_a_silence_shows_which_labels_it_covers_without_their_secrets() -> None:
    shown = "\n".join(_covered("Thrash", {"alertname": "Thrash", "token": "hunter2", "pod": "DB_PASS=hunter2"}))
    assert "hunter2" not in shown
    assert "token=(masked)" in shown


async def test_a_silence_of_other_alerts_than_were_shown_is_not_made(counter: Counter) -> None:
    await counter.say("silence INC-7 30m deploy at noon")
    view = await view_of(counter, "silence")
    shown = counter.inbound.runs["INC-7"]
    counter.inbound.runs["INC-7"] = shown.with_(alerts=shown.alerts | {"f9": builders.alert(alertname="GpuFellOff")})
    assert "The firing alerts have changed" in (await send_in(counter, view))["errors"]["field:text"]
    assert counter.inbound.commands == {}


async def test_who_may_not_approve_what_is_of_low_risk_does_not_silence(counter: Counter) -> None:
    counter.people.teams = {"U0MO": ("model",)}
    assert "Not done" in await counter.say("silence INC-7 30m deploy at noon", user="U0MO")
    await counter.say("silence INC-7 30m deploy at noon")
    view = await view_of(counter, "silence")
    counter.people.allowed = ()
    assert "Not done" in (await send_in(counter, view))["errors"]["field:text"]
    assert counter.inbound.commands == {}


async def test_where_the_settings_ask_two_people_for_a_silence_nobody_makes_one_alone(
    bench: Bench, counter: Counter
) -> None:
    services = dataclasses.replace(services_of(bench), silencers=lambda _: policy(needed=2))
    command = Command("c1", "U0ANA", "Ana", "silence", "INC-7 30m deploy at noon")
    answer = await Commands(services).answer(command)
    assert isinstance(answer, Message)
    assert "require 2 of approvers for a silence" in answer.text


async def test_silences_are_ended(counter: Counter) -> None:
    counter.inbound.runs["INC-7"] = run(silences={"s1": BEGAN + 900})
    assert "being ended" in await counter.say("silence off")
    assert stored(counter).command == "unsilence"


async def test_silences_are_not_ended_where_there_are_none(counter: Counter) -> None:
    assert "INC-7 has no silence by the bot." in await counter.say("silence off")


@pytest.mark.parametrize(
    "text", ["silence", "silence 30m", "silence soon because", "silence 3h because", "silence 0s x"]
)
async def test_a_silence_without_end_or_reason_is_answered_with_how_it_would_count(counter: Counter, text: str) -> None:
    assert "/incident silence INC-7 30m WHY" in await counter.say(text)
    assert counter.inbound.commands == {}


# --- reopen and settings ---------------------------------------------------------------------------------------------


async def test_a_closed_incident_is_reopened_with_a_reason(counter: Counter) -> None:
    counter.inbound.runs["INC-7"] = run(closed_at=BEGAN + 900, ending="fixed")
    assert "Name the incident and the reason" in await counter.say("reopen INC-7")
    assert "open again" in await counter.say("reopen inc-7 it came back")
    assert (stored(counter).command, stored(counter).text) == ("reopen", "it came back")


async def test_an_incident_is_not_reopened_beside_another_of_its_target(counter: Counter) -> None:
    assert "INC-7 is already open" in await counter.say("reopen INC-7 x")
    counter.inbound.runs["INC-6"] = run(incident_id="INC-6", closed_at=BEGAN, ending="fixed")
    assert "newer incident" in await counter.say("reopen INC-6 x")
    assert "no incident `INC-99`" in await counter.say("reopen INC-99 x")
    assert counter.inbound.commands == {}


async def test_settings_say_what_they_are_may_be_and_why(counter: Counter) -> None:
    watching(counter)
    for text in ("settings", "settings small"):
        answer = await counter.say(text)
        assert "• `ceiling` *0.9* (at least 0.1, at most 1): a test" in answer
    assert "Did you mean `small`?" in await counter.say("settings smal")


@pytest.mark.parametrize("text", ["lead", "status x", "skip choose x", "silence 30m x", "reopen INC-7 x"])
async def test_only_operators_may_use_them(counter: Counter, text: str) -> None:
    watching(counter)
    assert "Not done: you are not in @serving-oncall" in await counter.say(text, user="U0MO")
    assert counter.inbound.commands == {}


async def test_a_form_of_a_person_who_is_no_longer_an_operator_is_refused(counter: Counter) -> None:
    await counter.say("status")
    view = await view_of(counter, "status")
    counter.people.allowed = ()
    answer = await send_in(counter, view, text="half are back")
    assert "Not done" in answer["errors"]["field:next"]
    assert counter.inbound.commands == {}
