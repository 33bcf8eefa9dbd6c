"""The live page of an incident: only by a signed link, whole without script, and followed while it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.applications import Starlette

from bot.adapters import incident_pages
from bot.adapters.incident_pages import IncidentPages
from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import NewerFormError, StorageUnavailableError
from bot.domain.kernel.page_links import WITHIN_SECONDS, PageLinks
from tests import builders

pytestmark = pytest.mark.fast

NOW = 1_795_000_000.0
LINKS = PageLinks("https://bot.example.test/", b"secret")


class Kept:
    """One stored incident. `following`: what it is at each look."""

    def __init__(self, run: Run | None, *following: Run) -> None:
        self.run, self.rendered, self.away, self.is_newer = run, 0, False, False
        self._following = list(following)

    async def load(self, incident_id: str) -> Run | None:
        if self.away:
            raise StorageUnavailableError("away")
        if self.is_newer:
            raise NewerFormError(incident_id)
        if self._following:
            self.run = self._following.pop(0)
        return self.run if self.run is not None and self.run.incident_id == incident_id else None

    async def render(self, run: Run) -> str:
        self.rendered += 1
        return f"<main>{run.incident_id} version {run.version}</main>"


def client(kept: Kept, *, links: PageLinks = LINKS, now: Callable[[], float] = lambda: NOW) -> httpx.AsyncClient:
    app = Starlette(routes=IncidentPages(links, kept.load, kept.render, now).routes)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://bot.example.test")


def path_of(url: str, suffix: str = "") -> str:
    parts = urlsplit(url)
    return f"{parts.path}{suffix}?{parts.query}"


OPEN = builders.run(incident_id="INC-7", version=3)
URL = LINKS.of("INC-7", NOW)


async def test_a_signed_link_shows_the_page_and_keeps_its_address_to_itself() -> None:
    kept = Kept(OPEN)
    async with client(kept) as browser:
        answer = await browser.get(path_of(URL))
        assert (answer.status_code, answer.text) == (200, "<main>INC-7 version 3</main>")
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        await browser.get(path_of(URL))
        assert kept.rendered == 1
        kept.run = OPEN.with_(version=4)
        assert "version 4" in (await browser.get(path_of(URL))).text


@pytest.mark.parametrize(
    "url",
    [
        "/incidents/INC-7",
        path_of(URL)[:-1] + ("0" if URL[-1] != "0" else "1"),
        path_of(URL).replace("INC-7", "INC-8"),
        path_of(URL).replace("until=1", "until=2"),
        path_of(URL).replace("until=1", "until=\u0661"),
        path_of(LINKS.of("INC-8", NOW)),
        path_of(LINKS.of("INC-7", NOW - WITHIN_SECONDS)),
        path_of(PageLinks(LINKS.base, b"another").of("INC-7", NOW)),
    ],
    ids=["bare", "altered", "other-incident", "later", "strange-digit", "not-stored", "expired", "other-secret"],
)
async def test_any_other_link_learns_nothing(url: str) -> None:
    async with client(Kept(OPEN)) as browser:
        for each in (url, url.replace("?", "/events?")):
            answer = await browser.get(each)
            assert (answer.status_code, "INC-7" in answer.text) == (404, False)


async def test_without_storage_it_says_so() -> None:
    kept = Kept(OPEN)
    kept.away = True
    async with client(kept) as browser:
        assert (await browser.get(path_of(URL))).status_code == 503


async def test_an_incident_of_a_newer_version_is_left_to_its_replicas() -> None:
    kept = Kept(OPEN)
    kept.is_newer = True
    async with client(kept) as browser:
        answer = await browser.get(path_of(URL))
    assert (answer.status_code, "newer version of the bot" in answer.text) == (503, True)


async def test_a_stream_ends_once_a_newer_version_has_stored_its_incident(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incident_pages, "LOOK_EVERY_SECONDS", 0.0)
    kept = Kept(OPEN, OPEN)

    async def load(incident_id: str) -> Run | None:
        found = await kept.load(incident_id)
        kept.is_newer = True
        return found

    app = Starlette(routes=IncidentPages(LINKS, load, kept.render, lambda: NOW).routes)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://bot.example.test") as browser:
        answer = await browser.get(path_of(URL, "/events"))
    assert answer.text == "retry: 5000\n\n"


def test_without_a_public_address_there_are_no_links_and_no_routes() -> None:
    nowhere = PageLinks("", b"secret")
    assert nowhere.of("INC-7", NOW) == ""
    kept = Kept(OPEN)
    assert IncidentPages(nowhere, kept.load, kept.render, lambda: NOW).routes == []


async def test_a_change_is_sent_and_the_stream_ends_some_time_after_the_incident(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(incident_pages, "LOOK_EVERY_SECONDS", 0.0)
    kept = Kept(None, OPEN, OPEN, OPEN.with_(version=4), OPEN.with_(version=5, closed_at=NOW - 601))
    async with client(kept) as browser, asyncio.timeout(5):
        answer = await browser.get(path_of(URL, "/events"))
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [part for part in answer.text.split("\n") if part.startswith("data")] == ["data: 4"]


async def test_too_many_viewers_are_asked_to_reload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incident_pages, "VIEWERS", 0)
    async with client(Kept(OPEN)) as browser:
        assert (await browser.get(path_of(URL, "/events"))).status_code == 503
        assert (await browser.get(path_of(URL))).status_code == 200


async def test_the_script_is_served_from_the_same_origin() -> None:
    async with client(Kept(OPEN)) as browser:
        answer = await browser.get("/incidents/live.js")
        assert "EventSource" in answer.text


async def test_a_page_is_drawn_once_for_all_who_ask_at_once_and_again_after_a_failure() -> None:
    class Slow(Kept):
        def __init__(self) -> None:
            super().__init__(OPEN)
            self.go_on, self.fails = asyncio.Event(), True

        async def render(self, run: Run) -> str:
            await self.go_on.wait()
            page = await super().render(run)
            if self.fails:
                self.fails = False
                raise StorageUnavailableError("away")
            return page

    kept = Slow()
    async with client(kept) as browser:
        asking = [asyncio.create_task(browser.get(path_of(URL))) for _ in range(3)]
        await asyncio.sleep(0)
        kept.go_on.set()
        failed = await asyncio.gather(*asking, return_exceptions=True)
        assert {type(each) for each in failed} == {StorageUnavailableError}
        assert kept.rendered == 1
        answers = await asyncio.gather(*(browser.get(path_of(URL)) for _ in range(3)))
        assert {answer.text for answer in answers} == {"<main>INC-7 version 3</main>"}
        assert kept.rendered == 2
