"""Alertmanager's part: alerts and silences, and the alerts that are not notified to the bot yet.

As in the real one: an alert that ends under a silence is never notified, and an alert that was notified as firing is
not notified again before it was notified as resolved.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

NEVER = "0001-01-01T00:00:00Z"


class _Asked(BaseModel):
    model_config = ConfigDict(frozen=True)


class Matcher(_Asked):
    """An equality: the bot creates no other matcher."""

    name: str
    value: str
    is_regex: Literal[False] = Field(alias="isRegex")
    is_equal: Literal[True] = Field(True, alias="isEqual")


class SilenceAsked(_Asked):
    matchers: tuple[Matcher, ...] = Field(min_length=1)
    starts_at: AwareDatetime = Field(alias="startsAt")
    ends_at: AwareDatetime = Field(alias="endsAt")
    created_by: str = Field(alias="createdBy")
    comment: str


class Alert(_Asked):
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    starts_at: AwareDatetime | None = Field(None, alias="startsAt")
    ends_at: AwareDatetime | None = Field(None, alias="endsAt")

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(json.dumps(self.labels, sort_keys=True).encode()).hexdigest()[:16]

    def is_over(self, at: datetime) -> bool:
        return self.ends_at is not None and self.ends_at <= at


class SilenceError(Exception):
    """Alertmanager refuses this silence; the message has the reason."""


@dataclass(frozen=True)
class Silence:
    silence_id: str
    asked: SilenceAsked
    starts_at: datetime
    ends_at: datetime
    updated_at: datetime

    def state(self, at: datetime) -> str:
        if at >= self.ends_at:
            return "expired"
        return "active" if at >= self.starts_at else "pending"

    def covers(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(matcher.name, "") == matcher.value for matcher in self.asked.matchers)

    def as_json(self, at: datetime) -> dict[str, Any]:
        return {
            "id": self.silence_id,
            "status": {"state": self.state(at)},
            "updatedAt": time_of(self.updated_at),
            "comment": self.asked.comment,
            "createdBy": self.asked.created_by,
            "endsAt": time_of(self.ends_at),
            "matchers": [matcher.model_dump(by_alias=True) for matcher in self.asked.matchers],
            "startsAt": time_of(self.starts_at),
        }


class Alertmanager:
    def __init__(self) -> None:
        self._alerts: dict[str, Alert] = {}
        self._silences: dict[str, Silence] = {}
        self._notified: set[str] = set()
        """Fingerprints of alerts that were notified to the bot as firing, and not yet as resolved."""

    def put(self, alerts: Sequence[Alert], at: datetime) -> None:
        """Takes monitoring's present alerts; an alert that still fires keeps its start."""
        for alert in alerts:
            known = self._alerts.get(alert.fingerprint)
            began = known.starts_at if known and not known.is_over(at) else alert.starts_at or at
            self._alerts[alert.fingerprint] = alert.model_copy(update={"starts_at": began})

    def silence(self, asked: SilenceAsked, at: datetime) -> str:
        """Returns its id. Raises `SilenceError` if its end has passed."""
        if asked.ends_at <= at:
            raise SilenceError("Failed to create silence: end time can't be in the past")
        made = Silence(str(uuid.uuid4()), asked, max(asked.starts_at, at), asked.ends_at, at)
        self._silences[made.silence_id] = made
        return made.silence_id

    def end_silence(self, silence_id: str, at: datetime) -> None:
        """Raises `SilenceError` if there is none with that id."""
        known = self._silences.get(silence_id)
        if known is None:
            raise SilenceError("silence not found")
        if known.state(at) != "expired":
            self._silences[silence_id] = replace(known, ends_at=at, updated_at=at)

    def silences(self, at: datetime) -> list[dict[str, Any]]:
        return [silence.as_json(at) for silence in self._silences.values()]

    def alerts(self, at: datetime) -> list[dict[str, Any]]:
        return [
            {
                "fingerprint": alert.fingerprint,
                "labels": alert.labels,
                "annotations": alert.annotations,
                "startsAt": time_of(alert.starts_at),
                "status": {"state": "suppressed" if by else "active", "silencedBy": by, "inhibitedBy": []},
            }
            for alert in self._alerts.values()
            if not alert.is_over(at)
            for by in [self._silenced_by(alert, at)]
        ]

    def pending(self, at: datetime) -> list[Alert]:
        """The alerts to notify now, in the order in which they came; drops those that will never be notified."""
        silent = {name for name, alert in self._alerts.items() if self._silenced_by(alert, at)}
        for name, alert in list(self._alerts.items()):
            if alert.is_over(at) and (name in silent or name not in self._notified):
                del self._alerts[name]
        return [
            alert
            for name, alert in self._alerts.items()
            if name not in silent and alert.is_over(at) == (name in self._notified)
        ]

    def mark_notified(self, alert: Alert, *, is_over: bool) -> None:
        if is_over:
            self._notified.discard(alert.fingerprint)
            if self._alerts.get(alert.fingerprint) == alert:
                del self._alerts[alert.fingerprint]
        else:
            self._notified.add(alert.fingerprint)

    def _silenced_by(self, alert: Alert, at: datetime) -> list[str]:
        every = self._silences.values()
        return [each.silence_id for each in every if each.state(at) == "active" and each.covers(alert.labels)]


def webhook(alert: Alert, *, is_over: bool) -> dict[str, Any]:
    """Alertmanager's webhook, version 4; each alert is its own group."""
    status = "resolved" if is_over else "firing"
    named = {"alertname": alert.labels.get("alertname", "")}
    return {
        "version": "4",
        "groupKey": f"{{}}:{json.dumps(alert.labels, sort_keys=True)}",
        "truncatedAlerts": 0,
        "status": status,
        "receiver": "incident-bot",
        "groupLabels": named,
        "commonLabels": alert.labels,
        "commonAnnotations": alert.annotations,
        "externalURL": "http://alertmanager.sandbox",
        "alerts": [
            {
                "status": status,
                "labels": alert.labels,
                "annotations": alert.annotations,
                "startsAt": time_of(alert.starts_at),
                "endsAt": time_of(alert.ends_at if is_over else None),
                "generatorURL": "http://prometheus.sandbox/graph",
                "fingerprint": alert.fingerprint,
            }
        ],
    }


def time_of(at: datetime | None) -> str:
    return NEVER if at is None else at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
