"""One Alertmanager alert, as it was received.

Labels and annotations are text from outside: never trusted, never shown unescaped."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

AlertStatus = Literal["firing", "resolved"]


class Alert(BaseModel):
    model_config = ConfigDict(frozen=True)

    fingerprint: str
    status: AlertStatus
    starts_at: datetime
    ends_at: datetime | None = None
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    generator_url: str = ""
    received_at: float = 0.0
    """Epoch seconds of the storage's clock when the webhook was accepted."""

    @property
    def name(self) -> str:
        return self.labels.get("alertname", "(no alertname)")

    @property
    def severity(self) -> str:
        return self.labels.get("severity", "none")

    @property
    def pages(self) -> bool:
        """Only what its rule calls critical; the rest waits in the channel (K0)."""
        return self.severity in ("critical", "page")

    @property
    def dedupe_key(self) -> str:
        """Alertmanager repeats what it has sent: the same key twice in a row carries nothing new."""
        return f"{self.fingerprint}/{self.starts_at.timestamp():.3f}/{self.status}"

    def supersedes(self, other: Alert) -> bool:
        """The newest startsAt wins; of the same one, what arrives last: an alert may fire again without a new start."""
        if self.starts_at != other.starts_at:
            return self.starts_at > other.starts_at
        return self.status != other.status
