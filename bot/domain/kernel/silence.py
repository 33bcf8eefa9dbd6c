"""The scope of a silence: one per alert name, narrowed by every label that all its alerts share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from bot.domain.kernel.alert import Alert

Matchers = Mapping[str, Mapping[str, str]]
"""Alert name to the labels that an alert must have to be silenced."""


def matchers_of(alerts: Iterable[Alert]) -> dict[str, dict[str, str]]:
    """Returns the matchers for the firing alerts among these."""
    shared: dict[str, dict[str, str]] = {}
    for alert in alerts:
        if alert.status != "firing":
            continue
        known = shared.setdefault(alert.name, dict(alert.labels))
        shared[alert.name] = {name: value for name, value in known.items() if alert.labels.get(name) == value}
    return shared


def digest_of(matchers: Matchers) -> str:
    """Equal digests mean exactly the same scope."""
    return hashlib.sha256(json.dumps(matchers, sort_keys=True, default=dict).encode()).hexdigest()
