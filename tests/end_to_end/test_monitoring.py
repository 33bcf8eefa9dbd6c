"""The whole path with a real Prometheus and Alertmanager: they alert, the bot reads from Prometheus and verifies."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.cli.demo import is_verified
from bot.domain.kernel.timeline import first_break
from bot.sandbox.scenarios import THRASH
from tests.end_to_end.monitoring import monitoring
from tests.end_to_end.stage import Stage, stage
from tests.waiting import until

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.needs_server("prometheus"),
    pytest.mark.needs_server("alertmanager"),
    pytest.mark.timeout(300),
]


def test_a_real_alert_comes_to_a_verified_fix_and_its_end_is_received(tmp_path: Path) -> None:
    with stage(with_alerting=False, start_bot=False) as world:
        where = {"kubernetes_url": world.world.kubernetes_url, "bot_url": world.world.bot_url, "token": world.token}
        with monitoring(tmp_path, **where) as servers:
            world.world.bot_environment["INCIDENT_BOT_PROMETHEUS_URL"] = servers.prometheus
            world.world.start_bot()
            world.world.cause_trouble(THRASH)
            until(lambda: "VllmKVCacheThrash" in servers.firing(), "Prometheus' rule fires", 60)
            opened = until(world.run, "Alertmanager's webhook has opened the incident", 15)
            assert opened.target.key == "sandbox/serving/Deployment/llm"

            run = world.pressing_until(world.closed_run, "the incident is closed", 180)
            timeline = world.timeline()
            assert is_verified(run, timeline), world.describe()
            assert first_break(timeline) is None
            assert all(
                "Prometheus" in str(entry.data) for entry in world.entries("read") if entry.state == "verify_calm"
            )
            assert any(
                "VllmKVCacheThrash is firing" in text or "by alert VllmKVCacheThrash" in text
                for text in alert_entries(world)
            )
            until(
                lambda: "VllmKVCacheThrash" not in servers.firing(), "the rule fires no more", 30, seen=servers.firing
            )
            until(
                lambda: "VllmKVCacheThrash is resolved" in alert_entries(world),
                "the end was received",
                15,
                seen=lambda: alert_entries(world),
            )


def alert_entries(world: Stage) -> list[str]:
    """The timeline entries about alerts."""
    return [entry.text for kind in ("opened", "alert") for entry in world.entries(kind)]
