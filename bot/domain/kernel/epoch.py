"""An epoch is the life of one deployment's data in Redis. A new one starts with an empty Redis, which may be a loss.

Incident numbers must never repeat: people type them from old cards.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

Why = Literal["first", "kept", "emptied", "unknown"]
"""Slack shows nothing earlier · the data is from before there were epochs · it was lost · unknown."""
JUMP_AFTER_FAILOVER = 100
"""More than the number of incidents that open in the seconds that a failover may lose."""
JUMP_AFTER_LOSS = 1000
MATTERS_SECONDS = 24 * 3600.0
"""How long people are notified: old cards may be in use for that long."""


class Epoch(BaseModel):
    model_config = ConfigDict(frozen=True)

    epoch_id: str
    began_at: float
    why: Why
    after: int = 0
    """Incidents of this epoch have higher numbers."""

    @property
    def follows_a_loss(self) -> bool:
        return self.why in ("emptied", "unknown")

    def matters(self, now: float) -> bool:
        return self.follows_a_loss and now - self.began_at < MATTERS_SECONDS


def numbers_begin_at(now: float, highest: int) -> int:
    """Returns the number before the first one after a loss: the minute, with room for a thousand incidents in each.

    INC-2611221548001 is the first incident after a loss on 2026-11-22 at 15:48 UTC. `highest`: known from any source.
    """
    minute = int(datetime.fromtimestamp(now, UTC).strftime("%y%m%d%H%M"))
    return max(minute * 1000, highest + JUMP_AFTER_LOSS)


def notice(epoch: Epoch) -> str:
    """Returns the text for /readyz."""
    at = datetime.fromtimestamp(epoch.began_at, UTC)
    if epoch.why == "unknown":
        return f"Redis was empty at {at:%Y-%m-%d %H:%M} UTC, and Slack did not say whether there were incidents before"
    return f"Redis lost its data, noticed at {at:%Y-%m-%d %H:%M} UTC: incidents from before are not known any more"


def announcement(epoch: Epoch, *, reads_alertmanager: bool) -> str:
    """Returns the text for the channel, posted once."""
    first = (
        "Redis is empty. Either this is the first start here, or the bot lost its data."
        if epoch.why == "unknown"
        else "Redis lost the bot's data."
    )
    again = (
        "Alerts that fire now open new incidents."
        if reads_alertmanager
        else "Alerts open new incidents when Alertmanager repeats them, which may take hours: "
        "INCIDENT_BOT_ALERTMANAGER_URL is not set."
    )
    return (
        f"{first} Older incidents are not known any more: their buttons and numbers do nothing, and halts are lifted. "
        f"Check by hand what they had changed. {again} The next incident is INC-{epoch.after + 1}, "
        "so that no old number means a new incident."
    )
