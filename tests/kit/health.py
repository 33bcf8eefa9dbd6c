"""The bot's own health, for one store."""

from bot.adapters import logs
from bot.flow.health import Health, Levels


async def _accepts() -> str:
    return ""


def health(store: Levels, *, slack: str = "", facts: logs.Facts | None = None) -> Health:
    """`slack`: why Slack refuses the bot."""
    page = (facts or logs.Facts()).page
    return Health(store, clusters={"kubernetes": _accepts}, slack=lambda: slack, notices=dict, page=page)
