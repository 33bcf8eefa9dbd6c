"""Silences: created once, with an end, for exactly the intended alerts, and ended.

Each test runs on a real Alertmanager and on the sandbox's, which may not answer or keep quiet in another way.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from bot.adapters.alertmanager import read_listed
from bot.adapters.alertmanager_api import AlertmanagerApi, reachable
from bot.domain.incidents.effect import EndSilences, SilenceAlerts
from bot.domain.incidents.event import Silenced, SilencesEnded
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.errors import BadWebhookError, NoAnswerError, SourceError
from bot.domain.kernel.silence import matchers_of
from bot.flow.handlers.silence import PATIENCE_SECONDS, UNANSWERED_SECONDS, EndSilencesHandler, SilenceHandler
from bot.flow.perform_effect import EffectContext, Later
from bot.flow.ports.storage import Owed
from bot.sandbox import valkey
from tests import builders
from tests.end_to_end.monitoring import served
from tests.processes import running
from tests.servers import required
from tests.waiting import until

ALERTS = [
    {"alertname": "Thrash", "namespace": "serving", "deployment": "llm", "pod": "llm-a"},
    {"alertname": "Thrash", "namespace": "serving", "deployment": "llm", "pod": "llm-b"},
    {"alertname": "Thrash", "namespace": "serving", "deployment": "other", "pod": "other-a"},
]


@dataclass(frozen=True)
class Alerting:
    """An Alertmanager, and its notifications since it began: status and deployment."""

    url: str
    notified: list[tuple[str, str]]
    """Status and deployment."""

    def put(self, deployment: str, *, is_over: bool = False) -> None:
        alert: dict[str, Any] = {"labels": {"alertname": "Thrash", "deployment": deployment}}
        if is_over:
            alert["endsAt"] = _time(time.time())
        httpx.post(f"{self.url}/api/v2/alerts", json=[alert]).raise_for_status()

    def listed(self) -> list[dict[str, Any]]:
        return list(httpx.get(f"{self.url}/api/v2/alerts").raise_for_status().json())

    def state(self, deployment: str) -> str:
        """Empty for an alert that does not fire."""
        states = [each["status"]["state"] for each in self.listed() if each["labels"]["deployment"] == deployment]
        return str(states[0]) if states else ""

    def statuses_of(self, deployment: str) -> list[str]:
        return [status for status, name in self.notified if name == deployment]


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


@contextlib.contextmanager
def receiver() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Where the bot would listen."""
    notified: list[tuple[str, str]] = []

    class Webhooks(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            alerts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["alerts"]
            notified.extend((each["status"], each["labels"]["deployment"]) for each in alerts)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Webhooks)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", notified
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)


@contextlib.contextmanager
def real(folder: Path, bot_url: str) -> Iterator[str]:
    """Each alert is a group of its own, notified at once."""
    address = f"127.0.0.1:{valkey.free_port()}"
    to_the_bot = {"receiver": "incident-bot", "matchers": ['deployment!="elsewhere"']}
    each_alone = {"group_by": ["..."], "group_wait": "0s", "group_interval": "1s"}
    route = {"receiver": "everybody-else", "routes": [to_the_bot], **each_alone}
    webhook = {"url": f"{bot_url}/alertmanager", "send_resolved": True}
    receivers = [{"name": "incident-bot", "webhook_configs": [webhook]}, {"name": "everybody-else"}]
    (folder / "config.yml").write_text(json.dumps({"route": route, "receivers": receivers}))
    with served(
        folder / "alertmanager",
        f"http://{address}/-/ready",
        required("alertmanager"),
        f"--config.file={folder / 'config.yml'}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
    ):
        yield f"http://{address}"


@contextlib.contextmanager
def stand_in(folder: Path, bot_url: str) -> Iterator[str]:
    given = ("--rule", "none", "--api", bot_url, "--bot-url", bot_url, "--token", "t")
    with running("bot.sandbox.alerting", *given) as process:
        yield process.url


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(real, id="the real one", marks=pytest.mark.needs_server("alertmanager")),
        pytest.param(stand_in, id="the sandbox's"),
    ],
)
def alerting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alerting]:
    with receiver() as (bot_url, notified), request.param(tmp_path_factory.mktemp("alerting"), bot_url) as url:
        yield Alerting(url, notified)


@pytest.fixture
def url(alerting: Alerting) -> str:
    return alerting.url


@pytest.fixture
async def api(url: str) -> AsyncIterator[AlertmanagerApi]:
    async with httpx.AsyncClient(timeout=5.0, trust_env=False) as http:
        yield AlertmanagerApi(http, url, read_listed)


def fire(url: str) -> None:
    httpx.post(f"{url}/api/v2/alerts", json=[{"labels": labels} for labels in ALERTS]).raise_for_status()


def active(url: str) -> list[dict[str, Any]]:
    silences = httpx.get(f"{url}/api/v2/silences").raise_for_status().json()
    return [each for each in silences if each["status"]["state"] != "expired"]


def alert(fingerprint: str, labels: dict[str, str]) -> Alert:
    return builders.alert(fingerprint=fingerprint).model_copy(update={"labels": labels})


def job(effect: SilenceAlerts | EndSilences) -> EffectContext:
    alerts = {f"f{n}": alert(str(n), labels) for n, labels in enumerate(ALERTS[:2])}
    resolved = builders.alert("resolved", fingerprint="r", alertname="Gone")
    run = builders.run(alerts={**alerts, "r": resolved})
    return EffectContext(run, Owed(run.incident_id, effect, 1, "t"), time.time())


async def test_the_doctor_finds_it_and_its_version(url: str) -> None:
    async with httpx.AsyncClient(timeout=5.0, trust_env=False) as http:
        found = await reachable(http, url)
    assert (found.grade, found.what[:17]) == ("fine", "answers, version ")


async def test_the_incidents_alerts_are_silenced_once_and_no_others_and_then_ended(
    api: AlertmanagerApi, url: str
) -> None:
    fire(url)
    firing = [alert(str(n), labels) for n, labels in enumerate(ALERTS[:2])]
    wanted = SilenceAlerts(
        effect_id="silence/1",
        about=matchers_of([*firing, builders.alert("resolved", fingerprint="r", alertname="Gone")]),
        ends_at=time.time() + 600,
        why="deploy",
        wanted_by="U0ANA",
    )
    done = await SilenceHandler(api)(job(wanted), wanted)
    again = await SilenceHandler(api)(job(wanted), wanted)
    assert again == done
    [event] = done.events
    assert isinstance(event, Silenced)
    [silence] = active(url)
    assert event.ids == (silence["id"],)
    assert "deploy (U0ANA in INC-1)" in silence["comment"]
    names = {each["name"] for each in silence["matchers"]}
    assert names == {"alertname", "namespace", "deployment"}
    await api.expire(silence["id"])


async def test_silences_that_were_created_before_a_failure_are_known_and_can_be_ended(url: str) -> None:
    fire(url)

    class Fails(AlertmanagerApi):
        """Refuses the second silence, once."""

        tried = 0

        async def create(self, labels: Mapping[str, str], **about: Any) -> str:
            self.tried += 1
            if self.tried == 2:
                raise SourceError("Alertmanager: no answer")
            return await super().create(labels, **about)

    about = {"Thrash": {"alertname": "Thrash"}, "Late": {"alertname": "Late"}}
    wanted = SilenceAlerts(effect_id="s/2", about=about, ends_at=time.time() + 600, why="deploy", wanted_by="U0ANA")
    async with httpx.AsyncClient(timeout=5.0, trust_env=False) as http:
        api = Fails(http, url, read_listed)
        silences = SilenceHandler(api)
        context = job(wanted)
        partly = await silences(context, wanted)
        assert isinstance(partly, Later)
        [first] = partly.events
        assert isinstance(first, Silenced)
        assert first.about == ("Thrash",)
        knows = context.run.with_(silences=dict.fromkeys(first.ids, first.ends_at))
        whole = await silences(replace(context, run=knows), wanted)
        [second] = whole.events
        assert isinstance(second, Silenced)
        assert second.about == ("Late",)
        assert {each["id"] for each in active(url)} == {*first.ids, *second.ids}
        for silence in (*first.ids, *second.ids):
            await api.expire(silence)


async def test_a_silence_whose_answer_was_lost_is_found_again_and_can_be_ended(url: str) -> None:
    class LosesAnswers(AlertmanagerApi):
        """Creates it, and does not get the answers."""

        lost = 0

        async def create(self, labels: Mapping[str, str], **about: Any) -> str:
            created = await super().create(labels, **about)
            self.lost += 1
            if self.lost <= 5:
                raise NoAnswerError("Alertmanager: ReadTimeout")
            return created

    about = {"Thrash": {"alertname": "Thrash"}}
    now = time.time()
    wanted = SilenceAlerts(
        effect_id="s/3", about=about, ends_at=now + 600, why="deploy", wanted_by="U0ANA", wanted_at=now
    )
    async with httpx.AsyncClient(timeout=5.0, trust_env=False) as http:
        api = LosesAnswers(http, url, read_listed)
        silences, context = SilenceHandler(api), job(wanted)
        for _ in range(5):
            later = await silences(context, wanted)
            assert later == Later(UNANSWERED_SECONDS), "it is no failed attempt: those end after three"
        [event] = (await silences(context, wanted)).events
        assert isinstance(event, Silenced)
        [silence] = active(url)
        assert event.ids == (silence["id"],)
        await api.expire(silence["id"])
        api.lost = 0
        with pytest.raises(SourceError, match="whether it is in force is not known: look in Alertmanager"):
            await silences(replace(context, now=now + PATIENCE_SECONDS), wanted)
        for left in active(url):
            await api.expire(left["id"])


async def test_what_fires_is_listed_as_it_would_be_sent_and_what_is_silenced_is_not(
    api: AlertmanagerApi, alerting: Alerting
) -> None:
    alerting.put("loud")
    alerting.put("quiet")
    quiet = {"alertname": "Thrash", "deployment": "quiet"}
    silence = await api.create(quiet, starts_at=time.time(), ends_at=time.time() + 600, why="x", key="f")
    until(lambda: alerting.state("quiet") == "suppressed", "the silence is in force", 20)
    firing = {each.labels["deployment"]: each for each in await api.firing()}
    assert "quiet" not in firing
    (loud,) = [each for each in alerting.listed() if each["labels"]["deployment"] == "loud"]
    assert firing["loud"].status == "firing"
    assert firing["loud"].fingerprint == loud["fingerprint"]
    assert firing["loud"].starts_at == datetime.fromisoformat(loud["startsAt"])
    await api.expire(silence)


@pytest.mark.needs_server("alertmanager")
async def test_alerts_that_other_receivers_get_are_not_listed(tmp_path: Path) -> None:
    with receiver() as (bot_url, notified), real(tmp_path, bot_url) as url:
        alerting = Alerting(url, notified)
        alerting.put("ours")
        alerting.put("elsewhere")
        async with httpx.AsyncClient(timeout=5.0, trust_env=False) as http:
            listed = await AlertmanagerApi(http, url, read_listed).firing()
    assert [alert.labels["deployment"] for alert in listed] == ["ours"]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("name", "asked"),
    [
        pytest.param("incident-bot", r"incident\-bot", id="of-the-snippet"),
        pytest.param("llm/alerts/incident-bot", r"llm/alerts/incident\-bot", id="of-an-alertmanagerconfig"),
        pytest.param("another", None, id="unknown-so-all-are-listed"),
    ],
)
async def test_the_bots_receiver_is_known_by_its_name(name: str, asked: str | None) -> None:
    requested: list[str | None] = []

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/receivers"):
            return httpx.Response(200, json=[{"name": "default"}, {"name": name}])
        requested.append(request.url.params.get("receiver"))
        return httpx.Response(200, json=[])

    async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as http:
        await AlertmanagerApi(http, "http://alertmanager", read_listed).firing()
    assert requested == [asked]


@pytest.mark.parametrize("body", [b"{}", b'[{"labels": {}}]', b"<html>"])
def test_what_is_no_list_of_alerts_is_refused(body: bytes) -> None:
    with pytest.raises(BadWebhookError):
        read_listed(body)


async def test_alertmanager_suppresses_what_is_silenced(api: AlertmanagerApi, url: str) -> None:
    fire(url)
    labels = {"alertname": "Thrash", "deployment": "llm"}
    silence = await api.create(labels, starts_at=time.time(), ends_at=time.time() + 600, why="x", key="k")

    def suppressed() -> set[str]:
        alerts = httpx.get(f"{url}/api/v2/alerts").json()
        return {each["labels"]["pod"] for each in alerts if each["status"]["state"] == "suppressed"}

    until(lambda: suppressed() == {"llm-a", "llm-b"}, "both alerts of llm are silent, and the other is not", 20)
    ended = EndSilences(effect_id="unsilence/1", ids=(silence, "00000000-0000-0000-0000-000000000000"))
    [event] = (await EndSilencesHandler(api)(job(ended), ended)).events
    assert isinstance(event, SilencesEnded)
    assert active(url) == []
    until(lambda: suppressed() == set(), "they speak again", 20)


async def test_an_alertmanager_that_refuses_or_is_away_is_a_reason_and_no_silence(
    api: AlertmanagerApi, url: str
) -> None:
    with pytest.raises(SourceError, match="HTTP 400"):
        await api.create({"alertname": "x"}, starts_at=time.time(), ends_at=time.time() - 60, why="x", key="past")
    assert active(url) == []
    async with httpx.AsyncClient(timeout=1.0, trust_env=False) as http:
        with pytest.raises(SourceError, match="ConnectError"):
            await AlertmanagerApi(http, f"http://127.0.0.1:{valkey.free_port()}", read_listed).expire("x")


@pytest.mark.fast
@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"null", b"{}", b'[{"id": "x"}]', b"[null]", b'"x"', b'{"status": "success"}']
)
@pytest.mark.parametrize("strange", ["GET", "POST"])
async def test_what_answers_in_alertmanagers_place_is_a_reason_and_no_silence(strange: str, body: bytes) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=body if request.method == strange else b"[]")

    async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as http:
        api = AlertmanagerApi(http, "http://proxy", read_listed)
        with pytest.raises(SourceError, match="Alertmanager: its answer is not in the form"):
            await silence(api, "llm")
        if strange == "GET":
            with pytest.raises(SourceError, match="Alertmanager: its answer is not in the form"):
                await api.expire("x")


async def silence(api: AlertmanagerApi, deployment: str) -> str:
    return await api.create(
        {"deployment": deployment}, starts_at=time.time(), ends_at=time.time() + 600, why="x", key=uuid.uuid4().hex
    )


async def test_an_end_under_a_silence_is_never_notified_and_other_alerts_are(
    api: AlertmanagerApi, alerting: Alerting
) -> None:
    alerting.put("a")
    until(lambda: alerting.statuses_of("a") == ["firing"], "the bot is notified that a fires", 20)
    made = await silence(api, "a")
    until(lambda: alerting.state("a") == "suppressed", "a is silent", 20)
    alerting.put("a", is_over=True)
    alerting.put("a-witness")
    until(lambda: alerting.statuses_of("a-witness"), "the bot is notified of another one", 20)
    # It fires again before the silence ends: in between, Alertmanager could notify of its end.
    alerting.put("a")
    until(lambda: alerting.state("a") == "suppressed", "a fires again in silence", 20)
    await api.expire(made)
    until(lambda: alerting.state("a") == "active", "a is not silent any more", 20)
    alerting.put("a-witness", is_over=True)
    until(lambda: alerting.statuses_of("a-witness") == ["firing", "resolved"], "the other one is over", 20)
    # Alertmanager remembers its notification of a, and nobody was notified that a ended meanwhile.
    assert alerting.statuses_of("a") == ["firing"]
    alerting.put("a", is_over=True)
    until(
        lambda: alerting.statuses_of("a") == ["firing", "resolved"],
        "the bot is notified of its end when nothing silences it",
        20,
    )


async def test_an_alert_that_begins_under_a_silence_is_notified_when_that_ends(
    api: AlertmanagerApi, alerting: Alerting
) -> None:
    made = await silence(api, "b")
    alerting.put("b")
    until(lambda: alerting.state("b") == "suppressed", "b fires in silence", 20)
    alerting.put("b-witness")
    until(lambda: alerting.statuses_of("b-witness"), "the bot is notified of another one", 20)
    assert alerting.statuses_of("b") == []
    await api.expire(made)
    until(lambda: alerting.statuses_of("b") == ["firing"], "the bot is notified of b", 20)


def test_a_silence_is_shown_as_it_was_made(url: str) -> None:
    matcher = {"name": "deployment", "value": "c", "isRegex": False, "isEqual": True}
    asked = {
        "matchers": [matcher], "startsAt": _time(time.time() - 60), "endsAt": _time(time.time() + 60),
        "createdBy": "x", "comment": "y",
    }  # fmt: skip
    made = httpx.post(f"{url}/api/v2/silences", json=asked).json()["silenceID"]
    [shown] = [each for each in active(url) if each["id"] == made]
    assert shown.keys() == {"id", "status", "updatedAt", "comment", "createdBy", "endsAt", "matchers", "startsAt"}
    assert (shown["status"], shown["matchers"]) == ({"state": "active"}, [matcher])
    assert shown["startsAt"] == shown["updatedAt"], "it covers nothing that was before it was made"
    assert httpx.delete(f"{url}/api/v2/silence/{made}").status_code == 200


@pytest.mark.parametrize(
    ("wrong", "status"),
    [({"matchers": []}, 422), ({"comment": None}, 422), ({"endsAt": "2020-01-01T00:00:00Z"}, 400)],
)
def test_a_silence_that_is_none_is_refused_in_the_same_way(url: str, wrong: dict[str, Any], status: int) -> None:
    matcher = {"name": "deployment", "value": "d", "isRegex": False, "isEqual": True}
    right = {"matchers": [matcher], "startsAt": "2020-01-01T00:00:00Z", "createdBy": "x", "comment": "y"}
    asked = right | {"endsAt": _time(time.time() + 60)} | wrong
    body = {name: value for name, value in asked.items() if value is not None}
    assert httpx.post(f"{url}/api/v2/silences", json=body).status_code == status


@pytest.mark.fast
def test_a_silence_is_as_narrow_as_what_all_alerts_of_a_name_share() -> None:
    alerts = [alert(str(n), labels) for n, labels in enumerate(ALERTS)]
    assert matchers_of(alerts)["Thrash"].keys() == {"alertname", "namespace"}
