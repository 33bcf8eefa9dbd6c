"""Effects: Alertmanager keeps quiet about an incident, and speaks again. People ask for it, never the bot.

One silence for each alert name, narrowed by every label that all its alerts share; it has an end from the beginning.
"""

from __future__ import annotations

from collections.abc import Iterable

from bot.domain.alert import Alert
from bot.domain.effect import EndSilences, SilenceAlerts
from bot.domain.event import Silenced, SilencesEnded
from bot.flow.perform_effect import Done, Job
from bot.flow.ports import Silences


class SilenceForRun:
    def __init__(self, silences: Silences) -> None:
        self._silences = silences

    async def __call__(self, job: Job, effect: SilenceAlerts) -> Done:
        ids: list[str] = []
        wanted = shared_labels(alert for alert in job.run.alerts.values() if alert.status == "firing")
        for name, labels in wanted.items():
            key = f"{job.incident_id}/{effect.effect_id}/{name}"
            why = f"{effect.why} ({effect.wanted_by} in {job.incident_id})"
            ids.append(await self._silences.create(labels, starts_at=job.now, ends_at=effect.ends_at, why=why, key=key))
        event = Silenced(
            event_id=f"silenced/{effect.effect_id}",
            ids=tuple(ids),
            about=tuple(wanted),
            ends_at=effect.ends_at,
            user=effect.wanted_by,
        )
        return Done((event,))


class EndSilencesForRun:
    def __init__(self, silences: Silences) -> None:
        self._silences = silences

    async def __call__(self, job: Job, effect: EndSilences) -> Done:
        for silence in effect.ids:
            await self._silences.expire(silence)
        return Done((SilencesEnded(event_id=f"ended/{effect.effect_id}", ids=effect.ids),))


def shared_labels(alerts: Iterable[Alert]) -> dict[str, dict[str, str]]:
    """Alert name to the labels that all alerts of that name have alike."""
    shared: dict[str, dict[str, str]] = {}
    for alert in alerts:
        known = shared.setdefault(alert.name, dict(alert.labels))
        shared[alert.name] = {name: value for name, value in known.items() if alert.labels.get(name) == value}
    return shared
