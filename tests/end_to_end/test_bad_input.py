"""Strangers, old buttons, broken senders and absent dependencies each get a clear answer from one running bot.

The tests share one incident and come in the order in which a bad day would bring them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from urllib.parse import urlencode

import httpx
import pytest
from slack_sdk.signature import SignatureVerifier

from bot.domain.incidents.run import Question
from bot.sandbox.scenarios import THRASH
from tests.end_to_end.stage import FIRST, Json, Stage, alert, as_body, slots, stage, webhook
from tests.waiting import until

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(120)]

MITIGATION = "Start one canary"
INSTEAD = "Scale llm"
UNMATCHED = webhook(alert("DiskFull"))


@pytest.fixture(scope="module")
def world() -> Iterator[Stage]:
    """One thrashing fleet and the incident about it, with its first question open."""
    with stage(with_alerting=False) as running:
        running.world.cause_trouble(THRASH)
        assert running.post(as_body(webhook(alert()))).json() == {"accepted": 1, "new": 1}
        until(lambda: running.message(MITIGATION), "the bot asks for a mitigation", 60, seen=running.describe)
        yield running


# --- the receiver ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "status", "reason"),
    [
        pytest.param(b"\x00\xff garbage", 400, "body: not JSON", id="garbage"),
        pytest.param(as_body(UNMATCHED)[:120], 400, "is it cut short?", id="half a payload"),
        pytest.param(b'{"alerts": "' + b"x" * 10_000_000 + b'"}', 413, "over 2097152 bytes", id="ten megabytes"),
        pytest.param(as_body(UNMATCHED | {"version": "3"}), 400, "webhook version '3'", id="another version"),
        pytest.param(as_body({"version": "4", "alerts": [{"status": "odd"}]}), 400, "alerts[0].status", id="no alert"),
    ],
)
def test_a_webhook_that_is_none_is_refused_with_the_reason(
    world: Stage, content: bytes, status: int, reason: str
) -> None:
    answer = world.post(content)
    assert (answer.status_code, reason in answer.json()["error"]) == (status, True), answer.text


def test_a_sender_with_a_wrong_token_learns_which_kind_of_credentials_are_wanted(world: Stage) -> None:
    answer = world.post(as_body(UNMATCHED), token="wrong")
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, 'Bearer realm="alerts"')


def test_fields_that_a_newer_alertmanager_adds_are_no_fault(world: Stage) -> None:
    newer = webhook({**alert("DiskFull"), "fromTheFuture": {"a": 1}}, alsoNew=[1, 2])
    assert world.post(as_body(newer)).json() == {"accepted": 1, "new": 1}


def test_none_of_these_opened_an_incident(world: Stage) -> None:
    assert world.run("INC-2") is None
    assert {slot.partition("/")[0] for slot in slots(world.messages())} == {FIRST}


# --- presses ---------------------------------------------------------------------------------------------------------


def deliver(world: Stage, payload: Json, *, age_seconds: int = 0, signed: bool = True) -> httpx.Response:
    """A click as Slack delivers it, from somebody who knows the signing secret or does not."""
    body = urlencode({"payload": json.dumps(payload)})
    timestamp = str(int(time.time()) - age_seconds)
    secret = world.world.bot_environment["SLACK_SIGNING_SECRET"]
    signature = SignatureVerifier(secret).generate_signature(timestamp=timestamp, body=body) if signed else "v0=00"
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "X-Slack-Request-Timestamp": timestamp,
        "X-Slack-Signature": str(signature),
    }
    return httpx.post(f"{world.world.bot_url}/slack/events", content=body, headers=headers, timeout=10)


def newest_click(world: Stage) -> Json:
    found = httpx.get(f"{world.world.slack_url}/__sandbox__/deliveries", params={"kind": "block_actions"}).json()
    payload: Json = found[-1]["payload"]
    return payload


def found(world: Stage, words: str) -> Json:
    message = world.message(words)
    assert message is not None, world.describe()
    return message


def wait_until_shown(world: Stage, user: str, words: str) -> None:
    until(
        lambda: any(words in text for text in world.whispers(user)),
        f"{user} is told: {words}", 10, seen=lambda: world.whispers(user),
    )  # fmt: skip


def open_question(world: Stage) -> Question | None:
    run = world.run()
    return run.open_question if run else None


def choose_first(world: Stage, user: str, message: Json) -> None:
    """The first of the other options in the message's menu."""
    elements = [each for block in message["blocks"] if block["type"] == "actions" for each in block["elements"]]
    (menu,) = [each for each in elements if each["type"] == "static_select"]
    world.press(user, message, menu["action_id"], value=menu["options"][0]["value"])


def presses_of(world: Stage, user: str) -> list[str]:
    return [entry.text for entry in world.entries("press") if entry.who == user]


def test_a_stranger_learns_why_the_press_does_not_count_and_the_question_stays_open(world: Stage) -> None:
    choose_first(world, "U0MO", found(world, MITIGATION))
    wait_until_shown(world, "U0MO", "whose members may approve this")
    assert world.message(MITIGATION) is not None
    assert "does not count" in presses_of(world, "U0MO")[-1]


@pytest.mark.parametrize(("signed", "age_seconds"), [(False, 0), (True, 360)], ids=["unsigned", "six minutes old"])
def test_a_click_that_slack_cannot_have_sent_now_is_refused_and_leaves_no_trace(
    world: Stage, signed: bool, age_seconds: int
) -> None:
    click = newest_click(world)
    click["user"]["id"] = "U0ANA"
    assert deliver(world, click, signed=signed, age_seconds=age_seconds).status_code == 401
    assert presses_of(world, "U0ANA") == []


def number_of(request: Json) -> str:
    """A fleet that is slow to start is asked about something else first."""
    return str(request["text"]).removeprefix("Request ").partition(" ")[0]


def test_a_signed_click_that_is_sent_again_counts_once(world: Stage) -> None:
    request = found(world, MITIGATION)
    choose_first(world, "U0ANA", request)
    assert deliver(world, newest_click(world)).status_code == 200
    assert deliver(world, newest_click(world)).status_code == 200
    until(lambda: world.message(INSTEAD), "a replica is asked for", 30, seen=world.describe)
    assert presses_of(world, "U0ANA") == [f"pressed choose on {number_of(request)}"]
    assert len(world.entries("decided")) == 1


def test_an_old_button_is_answered_with_what_was_decided(world: Stage) -> None:
    world.press("U0BEN", found(world, MITIGATION), "approve", stale=True)
    wait_until_shown(world, "U0BEN", "That didn't count: ")
    assert world.state() == "relieve_scale_anyway"


def test_a_stranger_cannot_approve(world: Stage) -> None:
    world.press("U0MO", found(world, INSTEAD), "approve")
    wait_until_shown(world, "U0MO", "whose members may approve this")
    assert world.changes() == []


# --- absent neighbours -----------------------------------------------------------------------------------------------


def test_alerts_are_accepted_while_slack_fails_and_their_cards_appear_once_afterwards(world: Stage) -> None:
    world.slack_fails({"method": "*", "kind": "500", "seconds": 4})
    for name in ("one", "two"):
        assert world.post(as_body(webhook(alert(deployment=name)))).status_code == 200
    until(lambda: world.run("INC-3"), "both incidents are open while Slack fails", 10)
    until(lambda: {"INC-2/card", "INC-3/card"} <= set(slots(world.messages())), "both cards are in Slack", 30)
    cards = [slot for slot in slots(world.messages()) if slot.endswith("/card")]
    assert sorted(cards) == ["INC-1/card", "INC-2/card", "INC-3/card"]


def test_without_kubernetes_nothing_is_changed_and_the_timeline_says_why(world: Stage) -> None:
    """The last one: it ends the cluster's API for good."""
    world.world.family.kill("kubernetes")
    world.press("U0ANA", found(world, INSTEAD), "approve")
    question = until(lambda: open_question(world), "people are asked what next", 40, seen=world.describe)
    # Whichever is read first: the reason for the change, or the cluster.
    assert "cannot be read" in question.text
    assert question.text in [entry.text for entry in world.entries("question")]
    run = world.run()
    assert run is not None
    assert (run.is_open, run.ledger) == (True, ())
