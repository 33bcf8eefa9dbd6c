"""The bot's own health, for one store."""

from bot.adapters import logs
from bot.flow.health import Health, Levels


async def _accepts() -> str:
    return ""


def health(store: Levels, *, slack: str = "", unsampled: int = 0, facts: logs.Facts | None = None) -> Health:
    """`slack`: why Slack refuses the bot."""
    page = (facts or logs.Facts()).page
    clusters = {"kubernetes": _accepts}
    return Health(store, clusters=clusters, slack=lambda: slack, notices=dict, unsampled=lambda: unsampled, page=page)
