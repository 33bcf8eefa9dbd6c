"""The levels on /metrics come from Redis at scrape time; a level that Redis does not return is not on the page."""

from __future__ import annotations

import json
import re

from bot.adapters import logs
from bot.adapters.redis.connection import Connection
from bot.adapters.redis.store import RedisStore
from tests import builders
from tests.deploy.files import DEPLOY
from tests.kit.health import health


def store_on(connection: Connection) -> RedisStore:
    return RedisStore(connection, owner="one")


async def lines(connection: Connection) -> list[str]:
    page = await health(store_on(connection)).metrics()
    return [line for line in page.splitlines() if line.startswith(("incident_bot_intake", "incident_bot_open"))]


async def test_alerts_that_wait_and_incidents_that_are_open_are_counted(connection: Connection) -> None:
    store = store_on(connection)
    assert await lines(connection) == ["incident_bot_intake_alerts 0.0", "incident_bot_open_incidents 0.0"]
    await store.accept([builders.alert(), builders.alert(fingerprint="f2")], truncated=0)
    assert await lines(connection) == ["incident_bot_intake_alerts 2.0", "incident_bot_open_incidents 0.0"]
    first, _second = await store.intake(10)
    assert await store.route(first, builders.run(), "opens", bundle=builders.bundle())
    assert await lines(connection) == ["incident_bot_intake_alerts 1.0", "incident_bot_open_incidents 1.0"]


async def test_a_slack_that_takes_no_message_is_a_level_of_its_own(connection: Connection) -> None:
    for refused, level in ((False, "0.0"), (True, "1.0")):
        page = await health(store_on(connection), slack="refused" if refused else "").metrics()
        assert f"incident_bot_slack_refused {level}" in page


async def test_a_socket_mode_without_a_connection_is_reported_and_a_level_of_its_own(connection: Connection) -> None:
    for disconnected, level in (("", "0.0"), ("no press arrives", "1.0")):
        reported = health(store_on(connection), slack_disconnected=disconnected)
        assert (await reported.degraded()).get("socket_mode", "") == disconnected
        assert f"incident_bot_slack_disconnected {level}" in await reported.metrics()


async def test_workloads_that_are_not_scraped_all_the_time_are_a_level_of_their_own(connection: Connection) -> None:
    page = await health(store_on(connection), unsampled=7).metrics()
    assert "incident_bot_unsampled_workloads 7.0" in page


async def test_readiness_says_since_when_slack_has_not_answered(connection: Connection) -> None:
    silent = "Slack has not answered since 13:08 UTC"
    assert await health(store_on(connection), slack_silent=silent).degraded() == {"slack": silent}
    assert await health(store_on(connection), slack="refused", slack_silent=silent).degraded() == {"slack": "refused"}


async def test_the_dashboard_asks_for_levels_that_are_on_the_page(connection: Connection) -> None:
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked = {name for query in queries for name in re.findall(r"incident_bot_\w+", query)}
    assert asked == {line.split()[0] for line in await lines(connection)}


async def test_a_storage_that_is_away_leaves_its_levels_out_and_the_counters_in(unused_tcp_port: int) -> None:
    facts = logs.Facts()
    facts.count(None, "", {"event": "alert.routed"})
    away = Connection.open(f"redis://127.0.0.1:{unused_tcp_port}/0")
    page = await health(store_on(away), facts=facts).metrics()
    assert 'incident_bot_facts_total{fact="alert.routed"} 1.0' in page
    assert "incident_bot_intake_alerts" not in page
    assert "incident_bot_open_incidents" not in page
    await away.close()
