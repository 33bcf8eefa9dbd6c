"""Home, forms and private replies stay within Slack's limits and harmless, whatever they contain."""

from __future__ import annotations

import json
import time

import pytest

from bot.adapters.slack import limits
from bot.adapters.slack.client import SlackCircuits, SlackClient
from bot.adapters.slack.inbound import forms
from bot.adapters.slack.inbound.command import Command
from bot.adapters.slack.inbound.command_table import SLASH_COMMANDS
from bot.adapters.slack.inbound.commands import Commands
from bot.adapters.slack.inbound.decision_forms import GLASS_FORM, reason_form
from bot.adapters.slack.inbound.forms import Modal
from bot.adapters.slack.inbound.pins import which
from bot.adapters.slack.outbound.home import Seen, Waiting, home
from bot.adapters.slack.outbound.message import Message
from bot.adapters.slack.outbound.messenger import Place, SlackMessenger
from bot.adapters.slack.press_value import ButtonValue
from bot.adapters.slack.services import Services
from bot.adapters.yaml_playbooks import load_text
from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import Fault
from bot.domain.kernel.form import Answer, FormField
from bot.domain.kernel.timeline import GENESIS, Entry, chain
from bot.domain.playbooks.library import Library
from bot.flow.ports.storage import HaltWord
from bot.sandbox.slack.block_kit import problems_of_view
from tests.adapters.slack.runs import BEGAN, alert
from tests.adapters.slack.test_worst_inputs import INJECTION, OUR_TOKENS, assert_accepted, filled, visible
from tests.builders import policy
from tests.domain.incidents.machine.steps import TEXT
from tests.fakes.incident_service import KnownPeople, MemoryIncidents, MemoryPlaybooks
from tests.fakes.restrictions import MemoryWindowService
from tests.fakes.shown import MemoryPace, MemoryShownStore, MovableClock

HOSTILE = INJECTION + " \u200b\u2066\u200f *bold* @everyone"
LONG = "&" * 3_000
TEXTS = pytest.mark.parametrize(
    "text", ["x", HOSTILE, LONG, "word " * 900], ids=["short", "hostile", "escaped", "long"]
)


def runs(text: str, many: int = 100) -> dict[str, Run]:
    worst = filled(text, many=3)
    ids = [f"INC-{number}" for number in range(1, many + 1)]
    return {each: worst.with_(incident_id=each, closed_at=None, playbook="small") for each in ids}


def services(text: str, many: int = 100) -> Services:
    inbound, shelf = MemoryIncidents(*runs(text, many).values()), MemoryPlaybooks()
    inbound.alerts = [(alert(text), text) for _ in range(200)]
    entries = [Entry(at=BEGAN + n, kind="note", text=text, who=text) for n in range(300)]
    inbound.entries = chain(entries, head=GENESIS, length=0)
    by_hand = TEXT.replace("opens_on: ['alertname=~\".+\"']\n", "opens: by_hand\n")
    faults = {f"/etc/{text}{n}.yaml": (Fault("broken.yaml:3:1", text),) for n in range(100)}
    shelf.library = Library({"small": load_text(by_hand)}, faults)
    clock, store = MovableClock(time.time()), MemoryShownStore()
    nowhere = SlackClient(SlackCircuits(), insists=False)
    messenger = SlackMessenger(nowhere, store, MemoryPace(), clock, Place(channel="C0INC", deployment="t"))
    people = KnownPeople("U0ANA")
    links, want_card = messenger.links, messenger.want_card
    silencers = policy(users=("U0ANA",))
    windows = MemoryWindowService(clock.now)
    return Services(
        inbound,
        people,
        messenger,
        clock,
        shelf,
        windows,
        links,
        want_card,
        deployment="t",
        silencers=lambda _: silencers,
    )


def command(text: str, user: str = "U0ANA") -> Command:
    return Command.read(
        text, user=user, user_name=user, trigger_id="1.2", channel="C0INC", response_url="https://r.test"
    )


def assert_harmless(texts: object) -> None:
    """Nothing in it pings, links or hides but what the bot itself put there."""
    left = OUR_TOKENS.sub("", json.dumps(texts, ensure_ascii=False)).replace("<!channel>|", "")
    assert "<" not in left
    assert not set("\u200b\u200f\u202e\u2066") & set(left)
    assert "@here" not in left
    assert "@everyone" not in left


def assert_answer(answer: Message | Modal) -> None:
    if isinstance(answer, Message):
        assert_accepted(answer)
        return
    assert problems_of_view(answer.view) == []
    assert len(answer.view["private_metadata"]) <= limits.PRIVATE_METADATA


@TEXTS
@pytest.mark.parametrize("many", [0, 1, 100])
def test_home_holds_a_hundred_incidents(text: str, many: int) -> None:
    every = list(runs(text, many).values())
    waiting = [Waiting(each.incident_id, text, BEGAN, BEGAN, "https://ok.test/?a=1") for each in every]
    blocks = list(home(Seen(every, every, halt=HaltWord(text, text)), waiting, now=BEGAN + 900))
    assert problems_of_view({"type": "home", "blocks": blocks}) == []
    assert_harmless(visible(Message("x", tuple(blocks))))


@TEXTS
@pytest.mark.parametrize("word", sorted(SLASH_COMMANDS))
async def test_every_command_answers_within_the_limits_and_harmlessly(word: str, text: str) -> None:
    """With a hundred incidents open, whatever they hold and whatever is typed."""
    commands = Commands(services(text))
    for rest in ("", "INC-1", text, f"INC-1 {text}", f"INC-1 30m {text}"):
        answer = await commands.answer(command(f"{word} {rest}"))
        assert_answer(answer)
        if isinstance(answer, Message):
            assert_harmless([answer.text, visible(answer)])


@TEXTS
async def test_refusals_of_users_and_of_misspelt_words_fit_the_limits(text: str) -> None:
    for words, user in ((f"halt {text}", "U0MO"), (text, "U0ANA"), (f"graph {text}", "U0ANA")):
        answer = await Commands(services(text, many=1)).answer(command(words, user))
        assert_answer(answer)
        assert isinstance(answer, Message)
        assert_harmless([answer.text, visible(answer)])


@TEXTS
def test_every_form_is_one_that_slack_accepts(text: str) -> None:
    choices = {f"{n}": text for n in range(150)}
    fields = {
        "text": FormField(label=text[:300], why=text[:300], max_length=3_000),
        "number": FormField(label=text[:300], kind="number", min=-1e300, max=1e300, unit=text[:60]),
        "choice": FormField(label=text[:300], kind="choice", options=choices),
    }
    kept = {"channel": "C0INC", "response_url": "https://hooks.slack.test/" + "a" * 300}
    value = ButtonValue("INC-1234567", "R123456", digest="d" * 64)
    filled_in: dict[str, Answer] = {"text": text, "number": 1e300, "choice": "149"}
    views = [
        Modal("x", text, text, forms.inputs(fields, filled=filled_in), kept),
        Modal("pin", "Add to a timeline", "Add", forms.inputs(which(list(runs(text).values()))), kept),
        reason_form(GLASS_FORM, None, value, kept),
    ]
    for each in views:
        assert_answer(each)
