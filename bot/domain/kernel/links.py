"""The links of an incident: its alerts' runbooks and queries, and the dashboard of its workload."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, ConfigDict

from bot.domain.kernel.alert import Alert
from bot.domain.kernel.target import Target

MAX_LINKS = 7
DASHBOARD_BEFORE_SECONDS = 3600
"""How long before the first alert the dashboard begins."""
RUNBOOK_ANNOTATION = "runbook_url"
DASHBOARD_FIELDS = ("cluster", "namespace", "workload", "from", "to")

_NOT_IN_A_LINK = frozenset("<>\"'`|\\^{}")
_FIELD = re.compile(r"\$(?!__)([A-Za-z_]+)")
"""`$__all` and the like are Grafana's own."""


class Link(BaseModel):
    model_config = ConfigDict(frozen=True)

    label: str
    """External text: it may hold the name of an alert."""
    url: str
    """Safe in a link of any format."""


class Dashboards(BaseModel):
    """Addresses of dashboards, with `$cluster`, `$namespace`, `$workload`, `$from` and `$to` in them."""

    model_config = ConfigDict(frozen=True)

    url: str = ""
    targets: tuple[tuple[str, str], ...] = ()
    """Pattern of a target (see `Target.matches`) to its own address; of two that match, the later one counts."""

    def of(self, target: Target) -> str:
        """Returns the address for this target, in which `$from` and `$to` are still open; empty if there is none."""
        own = [url for pattern, url in self.targets if target.matches(pattern)]
        fields = {"cluster": target.cluster, "namespace": target.namespace, "workload": target.name}
        return _filled(own[-1] if own else self.url, fields)


def safe_url(raw: str) -> str:
    """Returns the address if it is an http or https one that is safe in a link of any format; else an empty text."""
    if not raw.startswith(("https://", "http://")) or not all(map(_may_be_in_a_link, raw)):
        return ""
    try:
        return raw if urlsplit(raw).hostname else ""
    except ValueError:
        return ""


def _may_be_in_a_link(char: str) -> bool:
    """Spaces and unseen characters end a link in some formats, and disguise it in others."""
    return char not in _NOT_IN_A_LINK and unicodedata.category(char)[0] not in "CZ"


def dashboard_address(raw: str) -> str:
    """Returns the address of a dashboard as an operator wrote it; raises `ValueError` if it can never be a link."""
    if strange := [name for name in _FIELD.findall(raw) if name not in DASHBOARD_FIELDS]:
        known = ", ".join(f"${name}" for name in DASHBOARD_FIELDS)
        raise ValueError(f"contains ${strange[0]}; only {known} are filled in")
    if raw and not safe_url(_filled(raw, dict.fromkeys(DASHBOARD_FIELDS, "1"))):
        raise ValueError("is not an http or https address without spaces and quotes")
    return raw


def links_of(alerts: Iterable[Alert], dashboard: str, *, starts_at: float, closed_at: float | None) -> tuple[Link, ...]:
    """Returns the links in the order: runbooks, dashboard, queries; each address once, and none that is not safe.

    `dashboard`: the address that `Dashboards.of` gave. It shows the incident from an hour before its first alert until
    its end, or until now.
    """
    every = list(alerts)
    end = "now" if closed_at is None else str(int(closed_at * 1000))
    window = {"from": str(int((starts_at - DASHBOARD_BEFORE_SECONDS) * 1000)), "to": end}
    board = safe_url(_filled(dashboard, window))
    found = (
        *_of_alerts("Runbook", ((alert.annotations.get(RUNBOOK_ANNOTATION, ""), alert.name) for alert in every)),
        *([Link(label="Dashboard", url=board)] if board else ()),
        *_of_alerts("Query", ((alert.generator_url, alert.name) for alert in every)),
    )
    return found[:MAX_LINKS]


def _of_alerts(what: str, urls: Iterable[tuple[str, str]]) -> list[Link]:
    named: dict[str, str] = {}
    for raw, name in urls:
        named.setdefault(raw.strip(), name)
    once = {url: name for raw, name in named.items() if (url := safe_url(raw))}
    return [Link(label=f"{what} of {name}" if len(once) > 1 else what, url=url) for url, name in once.items()]


def _filled(url: str, values: dict[str, str]) -> str:
    return _FIELD.sub(lambda found: quote(values[found[1]], safe="") if found[1] in values else found[0], url)
