"""A timeline as the bot writes it, with lines on it, as input for charts and pages."""

from __future__ import annotations

from typing import Any

from bot.adapters.yaml_playbooks import load_text
from bot.domain.incidents.series import Limit, Series, as_evidence
from bot.domain.kernel.timeline import GENESIS, Chained, Entry, chain
from bot.domain.signals.signal import Reading

OPENED = 1_795_000_000.0
UNKNOWN_FROM, UNKNOWN_TO = 480, 560
WATCHED = load_text(
    """
language: 1
playbook: test
title: Test
opens_on: ['alertname="Test"']
settings: {ceiling: {default: 0.9}}
signals:
  usage: {metric: kv_cache_usage_perc, over: 60s}
start: calm
states:
  calm: {watch: {calm: usage <= settings.ceiling}, for: 5m, within: 20m, held: over, not_held: over}
  over: {end: fixed, say: done}
"""
)
"""One watch of one signal: enough for a chart."""


def thrash_line() -> Series:
    moments = [at for at in range(-600, 1400, 20) if not UNKNOWN_FROM < at < UNKNOWN_TO]
    points = tuple((OPENED + at, 2.8 if -60 < at < 600 else 0.004) for at in moments)
    limits = (Limit(setting="recovered_ratio", value=0.01), Limit(setting="thrash_ratio", value=0.1))
    return Series(signal="thrash", unit="per finished", limits=limits, points=points)


def usage_line() -> Series:
    points = tuple((OPENED + at, 0.99 if -60 < at < 600 else 0.61) for at in range(-600, 1400, 20))
    limits = (Limit(setting="kv_ceiling", value=0.9),)
    return Series(signal="kv_usage", unit="ratio", limits=limits, points=points)


def fixed(*lines: Series, text: str = "Cap the running sequences", title: str = "KV-cache OOM") -> tuple[Chained, ...]:
    """Opened, decided, changed, verified, closed; with these lines where there are any."""
    entries = [
        _entry("opened", 0, "opened", data=_about(title)),
        _entry("baseline", 2, "baseline kept", data=_readings(2, 2.81, 0.991)),
        _entry("read", 2, "2 of 2 signals read", data=_readings(2, 2.81, 0.991)),
        _entry("press", 118, "pressed", who="U0ANA", data={"user": "U0ANA", "user_name": "Ana"}),
        _entry("answered", 120, text, who="U0ANA", data={"question": "Q1"}),
        _entry("decided", 240, "R2 approved", who="U0ANA", data={"request": "R2", "digest": "abcdef"}),
        _entry("call", 244, "set --max-num-seqs", data={"call": "INC-7/R2/0", "differences": [{"text": "64 → 6"}]}),
        _entry("read", 1380, "2 of 2 signals read", data=_readings(1380, 0.0004, 0.634)),
        _entry("verdict", 1380, "held", data={"verdict": "held", "parts": {"calm": "held"}, "text": text}),
        _entry("closed", 1382, "closed: fixed", data={"ending": "fixed", "held": [text]}),
    ]
    drawn = [_entry("chart", 1384, "drawn", data=as_evidence(lines))] if lines else []
    return chain([*entries, *drawn], head=GENESIS, length=0)


def _about(title: str) -> dict[str, Any]:
    return {"incident": "INC-7", "title": title, "target": "serving/llm", "severity": "page", "playbook": "kv"}


def _readings(after: float, thrash: float, usage: float) -> dict[str, Any]:
    readings = (
        Reading(name="thrash", value=thrash, unit="per finished", at=OPENED + after),
        Reading(name="kv_usage", value=usage, unit="ratio", at=OPENED + after),
        Reading(name="node", unknown="no exporter answers", at=OPENED + after),
    )
    return {reading.name: reading.model_dump(mode="json") for reading in readings}


def _entry(kind: Any, after: float, text: str, *, who: str = "", data: dict[str, Any] | None = None) -> Entry:
    return Entry(kind=kind, at=OPENED + after, text=text, who=who, state="verify", data=data or {})
