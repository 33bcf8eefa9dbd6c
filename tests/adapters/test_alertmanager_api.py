"""Silences in a real Alertmanager: made once, with an end, about exactly the alerts that were meant, and ended."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from bot.adapters.alertmanager_api import AlertmanagerApi
from bot.domain.alert import Alert
from bot.domain.effect import EndSilences, SilenceAlerts
from bot.domain.errors import SourceError
from bot.domain.event import Silenced, SilencesEnded
from bot.domain.silence import matchers_of
from bot.flow.perform_effect import Job
from bot.flow.ports import Owed
from bot.flow.silence_alerts import EndSilencesForRun, SilenceForRun
from bot.sandbox import valkey
from tests import builders
from tests.end_to_end.monitoring import served
from tests.servers import required
from tests.waiting import until

CONFIG = '{"route": {"receiver": "nobody", "group_wait": "0s"}, "receivers": [{"name": "nobody"}]}'
ALERTS = [
    {"alertname": "Thrash", "namespace": "serving", "deployment": "llm", "pod": "llm-a"},
    {"alertname": "Thrash", "namespace": "serving", "deployment": "llm", "pod": "llm-b"},
    {"alertname": "Thrash", "namespace": "serving", "deployment": "other", "pod": "other-a"},
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("alertmanager")
    address = f"127.0.0.1:{valkey.free_port()}"
    (folder / "config.yml").write_text(CONFIG)
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


@pytest.fixture
async def api(url: str) -> AsyncIterator[AlertmanagerApi]:
    async with httpx.AsyncClient(timeout=5.0, trust_env=False) as http:
        yield AlertmanagerApi(http, url)


def fire(url: str) -> None:
    httpx.post(f"{url}/api/v2/alerts", json=[{"labels": labels} for labels in ALERTS]).raise_for_status()


def active(url: str) -> list[dict[str, Any]]:
    silences = httpx.get(f"{url}/api/v2/silences").raise_for_status().json()
    return [each for each in silences if each["status"]["state"] != "expired"]


def alert(fingerprint: str, labels: dict[str, str]) -> Alert:
    return builders.alert(fingerprint=fingerprint).model_copy(update={"labels": labels})


def job(effect: SilenceAlerts | EndSilences) -> Job:
    alerts = {f"f{n}": alert(str(n), labels) for n, labels in enumerate(ALERTS[:2])}
    resolved = builders.alert("resolved", fingerprint="r", alertname="Gone")
    run = builders.run(alerts={**alerts, "r": resolved})
    return Job(run, Owed(run.incident_id, effect, 1, "t"), time.time())


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
    done = await SilenceForRun(api)(job(wanted), wanted)
    again = await SilenceForRun(api)(job(wanted), wanted)
    assert again == done
    [event] = done.events
    assert isinstance(event, Silenced)
    [silence] = active(url)
    assert event.ids == (silence["id"],)
    assert "deploy (U0ANA in INC-1)" in silence["comment"]
    names = {each["name"] for each in silence["matchers"]}
    assert names == {"alertname", "namespace", "deployment"}
    await api.expire(silence["id"])


async def test_alertmanager_suppresses_what_is_silenced(api: AlertmanagerApi, url: str) -> None:
    fire(url)
    labels = {"alertname": "Thrash", "deployment": "llm"}
    silence = await api.create(labels, starts_at=time.time(), ends_at=time.time() + 600, why="x", key="k")

    def suppressed() -> set[str]:
        alerts = httpx.get(f"{url}/api/v2/alerts").json()
        return {each["labels"]["pod"] for each in alerts if each["status"]["state"] == "suppressed"}

    until(lambda: suppressed() == {"llm-a", "llm-b"}, "both alerts of llm are silent, and the other is not", 20)
    ended = EndSilences(effect_id="unsilence/1", ids=(silence, "00000000-0000-0000-0000-000000000000"))
    [event] = (await EndSilencesForRun(api)(job(ended), ended)).events
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
            await AlertmanagerApi(http, f"http://127.0.0.1:{valkey.free_port()}").expire("x")


@pytest.mark.fast
def test_a_silence_is_as_narrow_as_what_all_alerts_of_a_name_share() -> None:
    alerts = [alert(str(n), labels) for n, labels in enumerate(ALERTS)]
    assert matchers_of(alerts)["Thrash"].keys() == {"alertname", "namespace"}
