"""How fast the bot calls Slack: tokens a second and burst, by kind of call."""

from __future__ import annotations

UPDATES_BURST = 10.0
HOME_EVERY_SECONDS = 10.0
"""The shortest time between two updates of one person's Home."""


def cards_in_a_period(cards_per_minute: float) -> tuple[int, float]:
    """How many cards there may be in any period, and its seconds."""
    cards = int(cards_per_minute)
    return cards, 60 * cards / cards_per_minute


def slack_paces(
    *, posts_per_second: float, posts_burst: float, updates_per_minute: float
) -> dict[str, tuple[float, float]]:
    return {
        "post": (posts_per_second, posts_burst),
        "update": (updates_per_minute / 60, UPDATES_BURST),
        "home": (1 / HOME_EVERY_SECONDS, 1.0),
    }
