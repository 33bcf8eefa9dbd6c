"""Reports from the command line: the contents of the store, with a picture up to the moment of the export."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import pytest

from bot.adapters.pictures.charts import drawn
from bot.adapters.redis.connection import Connection
from bot.adapters.redis.samples import RedisSamples
from bot.adapters.redis.store import RedisStore
from bot.cli.failures import CommandError
from bot.cli.printed import as_pdf
from bot.domain.incidents.run import TimelineHead
from bot.domain.kernel.timeline import GENESIS, Entry, chain
from bot.domain.playbooks.bundle import Bundle
from bot.domain.reports import html
from bot.domain.signals.scrape import Scrape
from bot.sandbox import valkey
from tests import builders
from tests.browser import chromium
from tests.domain.reports.charted import WATCHED, fixed, thrash_line, usage_line
from tests.kit.commands import incident_bot
from tests.kit.settings import ENOUGH

BUNDLE = Bundle.of(WATCHED)


@pytest.fixture
def sampled(redis_server: valkey.Embedded, tag: str) -> dict[str, str]:
    """An environment in whose Redis INC-1 is open for ten minutes and its workload was sampled all the time."""
    now = time.time()
    run = builders.run(
        digest=BUNDLE.digest, playbook="test", state="calm", path=("calm",), opened_at=now - 1200, starts_at=now - 1200
    )

    async def put() -> None:
        connection = Connection.open(redis_server.url, tag=tag)
        store, samples = RedisStore(connection, owner="a test"), RedisSamples(connection)
        await store.accept([builders.alert()], truncated=0)
        (entry,) = await store.intake(1)
        assert await store.route(entry, run, "opens", bundle=BUNDLE)
        entries = chain([Entry(kind="opened", at=now - 1200, text="opened")], head=GENESIS, length=0)
        moved = run.with_(version=run.version + 1, timeline=TimelineHead(hash=entries[-1].hash, length=len(entries)))
        await store.commit(moved, consumed=1, entries=entries, effects=())
        for after in range(0, 1200, 5):
            ranks = {"0": {"kv_cache_usage_perc": 0.97}}
            await samples.add(run.target.key, [Scrape(replica="a", uid="a", at=now - 1200 + after, ranks=ranks)])
        await connection.close()

    asyncio.run(put())
    # The samples are in Redis: drawing them needs no cluster.
    nowhere = {"INCIDENT_BOT_KUBERNETES_IN_CLUSTER": "false", "INCIDENT_BOT_KUBERNETES_URL": "http://127.0.0.1:1"}
    return ENOUGH | nowhere | {"REDIS_URL": redis_server.url, "INCIDENT_BOT_REDIS_TAG": tag}


def test_the_page_of_an_open_incident_draws_its_whole_time(sampled: dict[str, str]) -> None:
    result = incident_bot("export", "INC-1", "--format", "html", **sampled)
    assert result.exit_code == 0, result.output
    drawn = re.findall(r">(\d\d:\d\d)</text>", result.stdout)
    first, last = (60 * int(each[:2]) + int(each[3:]) for each in (drawn[0], drawn[-1]))
    # Twenty minutes have a label every five, and the last one is left out where it would touch the time zone.
    assert (last - first) % 1440 >= 8


def test_a_history_that_does_not_answer_is_named_and_the_page_is_made(sampled: dict[str, str]) -> None:
    away = sampled | {"INCIDENT_BOT_PROMETHEUS_URL": "http://127.0.0.1:1"}
    result = incident_bot("export", "INC-1", "--format", "html", **away)
    assert result.exit_code == 0, result.output
    assert "usage: the history could not be read" in result.stderr


def test_a_page_needs_no_settings_but_those_of_redis(
    sampled: dict[str, str], redis_server: valkey.Embedded, tag: str
) -> None:
    only_redis = {"REDIS_URL": redis_server.url, "INCIDENT_BOT_REDIS_TAG": tag}

    async def close() -> None:
        connection = Connection.open(redis_server.url, tag=tag)
        store = RedisStore(connection, owner="a test")
        run = await store.load("INC-1")
        assert run is not None
        ended = Entry(kind="closed", at=time.time(), text="closed: fixed", data={"ending": "fixed"})
        entries = chain([ended], head=run.timeline.hash, length=run.timeline.length)
        moved = run.with_(
            version=run.version + 1, closed_at=ended.at, ending="fixed",
            timeline=TimelineHead(hash=entries[-1].hash, length=run.timeline.length + 1),
        )  # fmt: skip
        await store.commit(moved, consumed=0, entries=entries, effects=())
        await connection.close()

    opened = incident_bot("export", "INC-1", "--format", "html", **only_redis)
    assert (opened.exit_code, opened.stdout[:9]) == (0, "<!doctype")
    assert "INC-1 is open, and its chart ends before now: the settings are not complete" in opened.stderr
    asyncio.run(close())
    closed = incident_bot("export", "INC-1", "--format", "html", **only_redis)
    assert (closed.exit_code, closed.stdout[:9], closed.stderr) == (0, "<!doctype", "")


@pytest.mark.parametrize("wanted", ["md", "json", "html"])
def test_every_format_says_whether_the_timeline_ends_as_the_run_says(
    sampled: dict[str, str], redis_server: valkey.Embedded, tag: str, wanted: str
) -> None:
    def exported() -> str:
        return incident_bot("export", "INC-1", "--format", wanted, **sampled).stdout

    async def forge() -> None:
        connection = Connection.open(redis_server.url, tag=tag)
        forged = chain([Entry(kind="opened", at=1.0, text="nothing happened")], head=GENESIS, length=0)
        await connection.ask(
            connection.client.lset(connection.key("timeline", "INC-1"), 0, forged[0].model_dump_json())
        )
        await connection.close()

    fault = "entry 1 is not the one that the run ends in"
    assert fault not in exported()
    asyncio.run(forge())
    assert fault in exported()


PAGE = re.compile(rb"/Type\s*/Page\b(?!s)")


@pytest.mark.needs_server("chromium")
def test_a_report_is_printed_by_its_own_style_sheet_on_a_few_pages(tmp_path: Path) -> None:
    page = html(fixed(thrash_line(), usage_line()), lambda chart: drawn(chart, "svg"))
    as_pdf(page, tmp_path / "report.pdf")
    as_pdf(re.sub(r'<h1 class="appendix">.*(?=</body>)', "", page, flags=re.DOTALL), tmp_path / "first.pdf")
    whole, first = ((tmp_path / name).read_bytes() for name in ("report.pdf", "first.pdf"))
    assert whole.startswith(b"%PDF-")
    assert 1 <= len(PAGE.findall(first)) <= 4
    assert len(PAGE.findall(whole)) > len(PAGE.findall(first))


@pytest.mark.needs_server("chromium")
async def test_on_a_phone_the_name_of_a_column_leaves_room_for_the_value() -> None:
    async with chromium() as browser:
        page = await browser.new_page(viewport={"width": 390, "height": 844})
        await page.set_content(html(fixed(usage_line()), lambda chart: drawn(chart, "svg")))
        await page.locator('td[data-name="reason or permission"]').evaluate_all(
            "cells => cells.forEach(cell => cell.classList.remove('none'))"
        )
        too_wide = """cells => cells.filter(cell => parseFloat(getComputedStyle(cell, "::before").width)
            > parseFloat(getComputedStyle(cell).paddingLeft)).map(cell => cell.dataset.name)"""
        assert await page.locator("td").evaluate_all(too_wide) == []


def test_without_a_browser_a_pdf_is_refused_with_what_to_do_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandError, match="needs Chromium or Chrome on PATH"):
        as_pdf("<p>", tmp_path / "report.pdf")
    assert list(tmp_path.iterdir()) == []
