"""What a scenario is given, and what several of them need."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.load import back_to_back, webhook
from tests.bench.systems import Card, Surroundings, System

Figures = Mapping[str, float]


@dataclass(frozen=True)
class Size:
    """How much of each is sent."""

    webhooks: int = 2000
    large_webhooks: int = 400
    alerts: int = 50
    connections: int = 8
    cards: int = 80
    cards_per_second: float = 10.0
    presses: int = 2000
    commands: int = 1000
    steady_presses: int = 2000
    presses_per_second: float = 200.0
    incidents: int = 8
    """Those that the presses and commands are about."""
    crowd: int = 5000
    """Open incidents beside those."""
    turns: int = 10
    storm_groups: int = 2000
    storm_alerts: int = 5
    storm_within: float = 600.0
    """Seconds after which the storm counts as lost."""
    repeats: int = 500
    idle_seconds: float = 10.0
    quiet_seconds: float = 1.0
    """Without a call to Slack for so long, the work of an alert counts as done."""


Scenario = Callable[[Surroundings, System, Size], Coroutine[Any, Any, Figures]]


async def open_incidents(around: Surroundings, system: System, names: Sequence[str]) -> Mapping[str, Card]:
    """Also what warms a system up: its first incident imports and connects what the next ones use."""
    opening = [webhook(name, alerts=1, token=around.alert_token) for name in names]
    await back_to_back(system.url, opening, connections=1)
    return around.wait_for_cards(names)


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {f"p{share} ms": ordered[min(len(ordered) - 1, len(ordered) * share // 100)] * 1000 for share in (50, 99)}
