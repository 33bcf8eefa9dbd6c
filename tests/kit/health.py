"""The bot's own health, for one store."""

from bot.adapters import logs
from bot.flow.health import Health, Levels


async def _accepts() -> str:
    return ""


def health(
    store: Levels,
    *,
    slack: str = "",
    slack_silent: str = "",
    slack_disconnected: str = "",
    unsampled: int = 0,
    facts: logs.Facts | None = None,
) -> Health:
    """`slack`: why Slack refuses the bot; `slack_silent`: since when it has not answered."""

    async def disconnected() -> str:
        return slack_disconnected

    page = (facts or logs.Facts()).page
    return Health(
        store,
        clusters={"kubernetes": _accepts},
        slack=lambda: slack,
        slack_silent=lambda: slack_silent,
        slack_disconnected=disconnected,
        notices=dict,
        unsampled=lambda: unsampled,
        page=page,
    )
