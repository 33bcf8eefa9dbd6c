"""One Alertmanager alert, as received.

Labels and annotations are external text: never trusted, never shown unescaped.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

AlertStatus = Literal["firing", "resolved"]

MAX_ALERTS_SENT = 1000
"""Of one webhook: realistic alerts of 1.5 KiB then fit the usual limit of its body, 2 MiB."""
LIMIT_ALERTS = f"use max_alerts: {MAX_ALERTS_SENT} and the group_by of deploy/alertmanager-snippet.yaml"


_OF_MODELS = re.compile(
    r"llm|model|inference|serving|token|ttft|tpot|kv|gpu|xid|ecc|rowremap|thermal|overheat|powerbrake", re.IGNORECASE
)


class Alert(BaseModel):
    model_config = ConfigDict(frozen=True)

    fingerprint: str
    status: AlertStatus
    starts_at: datetime
    ends_at: datetime | None = None
    labels: dict[str, str]
    annotations: dict[str, str] = Field(default_factory=dict)
    generator_url: str = ""
    received_at: float = 0.0
    """Epoch seconds of the storage's clock when the webhook was accepted."""

    maintenance: str = ""
    """What a maintenance window has to do with it, for the timeline; empty: nothing."""

    @property
    def name(self) -> str:
        return self.labels.get("alertname", "(no alertname)")

    @property
    def severity(self) -> str:
        return self.labels.get("severity", "none")

    @property
    def pages(self) -> bool:
        """Whether it pages: only if its rule calls it critical; the rest waits in the channel (K0)."""
        return self.severity in ("critical", "page")

    @property
    def names_models(self) -> bool:
        """Whether its rule is about inference or accelerators, and not about workloads of any kind."""
        return any(_OF_MODELS.search(text) for text in (self.name, *self.labels))

    @property
    def dedupe_key(self) -> str:
        """Alertmanager repeats alerts: the same key twice in a row means nothing new.

        Its webhook has nanoseconds, and the list of its API only whole milliseconds.
        """
        starts_at = self.starts_at.replace(microsecond=self.starts_at.microsecond // 1000 * 1000)
        return f"{self.fingerprint}/{starts_at.timestamp():.3f}/{self.status}"

    def evidence(self) -> dict[str, Any]:
        """Returns what the timeline keeps of it. What it has to do with maintenance is an entry of its own there."""
        return self.model_dump(mode="json", exclude={"maintenance"})

    def supersedes(self, other: Alert) -> bool:
        """Whether it replaces `other`: the newest startsAt wins, then the last to arrive, as a refiring may keep it.

        A resolved one that ended after `other` began is its end: of the starts that several Prometheus servers report,
        Alertmanager takes the earliest, also after it has sent a later one.
        """
        if self.starts_at > other.starts_at:
            return True
        is_its_end = self.status == "resolved" and self.ends_at is not None and self.ends_at > other.starts_at
        return self.status != other.status and (self.starts_at == other.starts_at or is_its_end)
