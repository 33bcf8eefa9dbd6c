"""PagerDuty, Opsgenie and a signed webhook, over HTTP against doubles that behave as the real ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal

import httpx
import pytest

from bot.adapters.pagers import Pagers, pager_of, reachable
from bot.domain.approvals.configuration import Team
from bot.domain.incidents.effect import PageTeam
from bot.domain.incidents.event import Paged, PageFailed
from bot.domain.incidents.run import Page, PageAction, Run
from bot.domain.kernel.errors import PagerError
from bot.domain.kernel.signature import signature
from bot.flow.handlers.page import PageHandler
from bot.flow.perform_effect import Done, EffectContext, Later
from bot.flow.ports.people import PageCall
from bot.flow.ports.storage import Owed
from bot.sandbox.alerting.pagers import Fault, PagerRoutes
from bot.sandbox.alerting.pagers import Pagers as Doubles
from bot.sandbox.plain_http import async_http
from tests import builders
from tests.kit.served import served

pytestmark = pytest.mark.fast
ROUTING_KEY, SECRET = "0123456789abcdef0123456789ABCDEF", "a-secret-of-the-team"
Kind = Literal["pagerduty", "opsgenie", "webhook"]
KINDS: tuple[Kind, ...] = ("pagerduty", "opsgenie", "webhook")


class Lab:
    def __init__(self, url: str, doubles: Doubles, http: httpx.AsyncClient) -> None:
        self.url, self.doubles, self.http = url, doubles, http

    def pagers(self, kind: Kind, **fields: str) -> Pagers:
        keys = {
            "pagerduty": {"pagerduty": ROUTING_KEY},
            "opsgenie": {"opsgenie": SECRET},
            "webhook": {"webhook": f"{self.url}/webhook", "webhook_secret": SECRET},
        }[kind]
        team = Team.model_validate(keys | fields)
        return Pagers(self.http, {"serving": pager_of(team, pagerduty_url=self.url, opsgenie_url=self.url)})

    def states(self) -> list[str]:
        return [alert.state for alert in self.doubles.alerts]


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    doubles = Doubles(opsgenie_keys=(SECRET,), webhook_secret=SECRET)
    async with served(PagerRoutes(doubles).routes()) as url, async_http() as http:
        yield Lab(url, doubles, http)


def call(action: PageAction = "trigger", **fields: Any) -> PageCall:
    known = {
        "key": "bot:INC-1:serving", "team": "serving", "action": action, "at": 1_800_000_000.0,
        "text": "INC-1 serving/llm: Approve a canary", "incident": "INC-1", "title": "llm preempts",
        "target": "serving/llm", "link": "https://example.slack.com/archives/C1/p1",
    }  # fmt: skip
    return PageCall(**{**known, **fields})


@pytest.mark.parametrize("kind", KINDS)
async def test_a_page_is_triggered_acknowledged_and_resolved(lab: Lab, kind: Kind) -> None:
    pagers = lab.pagers(kind)
    seen = []
    for action in ("trigger", "acknowledge", "resolve"):
        await pagers.send("serving", call(action))
        seen += lab.states()
    assert seen == ["triggered", "acknowledged", "resolved"]
    (alert,) = lab.doubles.alerts
    assert (alert.text, alert.link) == (call().text, call().link)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_page_whose_answer_was_lost_rings_once(lab: Lab, kind: Kind) -> None:
    lab.doubles.faults.append(Fault(lost=True))
    pagers = lab.pagers(kind)
    with pytest.raises(PagerError) as lost:
        await pagers.send("serving", call())
    assert not lost.value.lasting
    await pagers.send("serving", call())
    assert lab.states() == ["triggered"]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_acknowledged_page_does_not_ring_again_and_a_resolved_one_does(lab: Lab, kind: Kind) -> None:
    pagers = lab.pagers(kind)
    for action in ("trigger", "acknowledge", "trigger"):
        await pagers.send("serving", call(action))
    assert lab.states() == ["acknowledged"]
    await pagers.send("serving", call("resolve"))
    await pagers.send("serving", call("trigger"))
    assert lab.states() == ["resolved", "triggered"]


@pytest.mark.parametrize("kind", KINDS)
async def test_the_end_of_a_page_that_never_arrived_is_accepted(lab: Lab, kind: Kind) -> None:
    await lab.pagers(kind).send("serving", call("resolve"))
    assert lab.states() == []


@pytest.mark.parametrize(
    ("status", "retry_after", "lasting", "seconds"),
    [
        (429, "17", False, 17.0),
        (429, "86400", False, 60.0),
        (429, "inf", False, 60.0),
        (429, "nan", False, 0.0),
        (503, "", False, 0.0),
        (500, "", False, 0.0),
        (403, "", True, 0.0),
    ],
)
async def test_what_is_tried_again_and_when(
    lab: Lab, status: int, retry_after: str, lasting: bool, seconds: float
) -> None:
    lab.doubles.faults.append(Fault(status=status, retry_after=retry_after))
    with pytest.raises(PagerError, match=f"PagerDuty answers HTTP {status}: fault") as refused:
        await lab.pagers("pagerduty").send("serving", call())
    assert (refused.value.lasting, refused.value.retry_after_seconds) == (lasting, seconds)


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        (
            "pagerduty",
            {"pagerduty": "short"},
            "PagerDuty answers HTTP 400: .* is invalid; Invalid routing key",
        ),
        ("opsgenie", {"opsgenie": "unknown"}, "Opsgenie answers HTTP 401: Could not authenticate"),
        ("webhook", {"webhook_secret": "another"}, "the webhook answers HTTP 401: wrong signature"),
    ],
)
async def test_a_wrong_key_is_a_lasting_refusal_that_does_not_show_it(
    lab: Lab, kind: Kind, fields: dict[str, str], reason: str
) -> None:
    with pytest.raises(PagerError, match=reason) as refused:
        await lab.pagers(kind, **fields).send("serving", call())
    assert refused.value.lasting


async def test_a_pager_that_nothing_listens_for_is_tried_again() -> None:
    team = Team.model_validate({"pagerduty": ROUTING_KEY})
    async with httpx.AsyncClient(timeout=1.0) as http:
        gone = Pagers(http, {"serving": pager_of(team, pagerduty_url="http://127.0.0.1:1", opsgenie_url="")})
        with pytest.raises(PagerError, match="PagerDuty does not answer: ConnectError") as refused:
            await gone.send("serving", call())
        assert not refused.value.lasting
        assert (await reachable(http, "PagerDuty", "http://127.0.0.1:1")).grade == "broken"


async def test_long_texts_are_cut_to_what_each_pager_accepts(lab: Lab) -> None:
    for kind in KINDS:
        await lab.pagers(kind).send("serving", call(text="x" * 3000))
    assert [len(alert.text) for alert in lab.doubles.alerts] == [1024, 130, 3000]


async def test_pagerduty_receives_what_its_documentation_names(lab: Lab) -> None:
    await lab.pagers("pagerduty").send("serving", call())
    (event,) = lab.doubles.requests
    assert (event["event_action"], event["dedup_key"]) == ("trigger", "bot:INC-1:serving")
    assert event["payload"]["severity"] == "critical"
    assert event["payload"]["timestamp"] == "2027-01-15T08:00:00+00:00"
    assert event["links"] == [{"href": call().link, "text": "Incident in Slack"}]


def test_the_signature_is_documented() -> None:
    """`printf '1800000000.{}' | openssl dgst -sha256 -hmac secret` gives the same."""
    expected = "v1=bb7079132825ac793cea8c013c1dd24d926b9b02132245b10588d9e5c0df70d7"
    assert signature("secret", "1800000000", b"{}") == expected


# --- the effect ------------------------------------------------------------------------------------------------------


async def no_links(incident_id: str) -> dict[str, str]:
    return {}


def context(page: Page, *, attempts: int = 0) -> tuple[EffectContext, PageTeam]:
    run: Run = builders.run(pages={"serving": page})
    effect = PageTeam(effect_id="page/serving", page="serving")
    owed = Owed("INC-1", effect, attempts, token="", run=run, taken_at=builders.START)
    return EffectContext(run, owed, builders.START), effect


PAGE = Page(name="serving", team="serving", text="x", since=builders.START)


async def test_a_page_is_sent_under_a_key_that_no_other_bot_has(lab: Lab) -> None:
    done = await PageHandler(lab.pagers("pagerduty"), no_links, deployment="eu")(*context(PAGE))
    assert isinstance(done, Done)
    (event,) = done.events
    assert isinstance(event, Paged)
    assert (event.action, event.through, event.key) == ("trigger", "PagerDuty", "eu:INC-1:serving")


async def test_a_page_that_is_as_wanted_is_not_sent_again(lab: Lab) -> None:
    sent = PAGE.model_copy(update={"sent": "trigger"})
    assert await PageHandler(lab.pagers("pagerduty"), no_links, deployment="eu")(*context(sent)) == Done()
    assert lab.doubles.requests == []


async def test_a_failure_is_reported_once_and_waits_longer_each_time(lab: Lab) -> None:
    handler = PageHandler(lab.pagers("pagerduty"), no_links, deployment="eu")
    lab.doubles.faults.append(Fault(status=503, count=3))
    first = await handler(*context(PAGE))
    assert isinstance(first, Later)
    (event,) = first.events
    assert isinstance(event, PageFailed)
    again = await handler(*context(PAGE.model_copy(update={"error": event.reason}), attempts=4))
    assert isinstance(again, Later)
    assert (first.after_seconds, again.after_seconds, again.events) == (1.0, 16.0, ())
    last = await handler(*context(PAGE.model_copy(update={"error": event.reason}), attempts=40))
    assert isinstance(last, Later)
    assert last.after_seconds == 60.0
