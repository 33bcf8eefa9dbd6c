"""An alert that may open an incident is routed at once; one that only joins waits until the incident is looked at."""

from __future__ import annotations

import pytest

from bot.domain.kernel.alert import Alert
from bot.flow.accept_alerts import AcceptAlerts
from bot.flow.wake import REST_SECONDS
from tests import builders
from tests.flow.harness import Bot

pytestmark = pytest.mark.fast
JOINING = builders.alert(fingerprint="f2")
OPENING = builders.alert(fingerprint="f3", deployment="other")
REPEATED = builders.alert()


@pytest.mark.parametrize(
    ("alerts", "waits"),
    [
        pytest.param([JOINING], [REST_SECONDS], id="it joins"),
        pytest.param([OPENING], [0.0], id="it opens"),
        pytest.param([JOINING, OPENING], [0.0], id="one of them opens"),
        pytest.param([REPEATED], [], id="it is known"),
        pytest.param([], [], id="none"),
    ],
)
async def test_how_soon_accepted_alerts_are_routed(bot: Bot, alerts: list[Alert], waits: list[float]) -> None:
    await bot.store.accept([builders.alert()], truncated=0)
    await bot.runtime.route()
    await bot.wake.settled()
    woken: list[float] = []
    accept = AcceptAlerts(bot.store, woken.append, bot.runtime.may_wait)
    await accept(alerts, 0)
    assert woken == waits
