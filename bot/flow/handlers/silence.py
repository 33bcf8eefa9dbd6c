"""Effects: create and end an incident's silence in Alertmanager. An authorized person decides it, never the bot.

It covers exactly what that person was shown, and it expires at a fixed time.
"""

from __future__ import annotations

from bot.domain.incidents.effect import EndSilences, SilenceAlerts
from bot.domain.incidents.event import Silenced, SilencesEnded
from bot.domain.kernel.errors import SourceError
from bot.flow.perform_effect import Done, EffectContext
from bot.flow.ports import Silences


class SilenceHandler:
    def __init__(self, silences: Silences | None) -> None:
        self._silences = silences

    async def __call__(self, context: EffectContext, effect: SilenceAlerts) -> Done:
        silences, ids = _known(self._silences), list[str]()
        for name, labels in effect.about.items():
            key = f"{context.incident_id}/{effect.effect_id}/{name}"
            why = f"{effect.why} ({effect.wanted_by} in {context.incident_id})"
            ids.append(await silences.create(labels, starts_at=context.now, ends_at=effect.ends_at, why=why, key=key))
        event = Silenced(
            event_id=f"silenced/{effect.effect_id}",
            ids=tuple(ids),
            about=tuple(effect.about),
            ends_at=effect.ends_at,
            user=effect.wanted_by,
        )
        return Done((event,))


class EndSilencesHandler:
    def __init__(self, silences: Silences | None) -> None:
        self._silences = silences

    async def __call__(self, context: EffectContext, effect: EndSilences) -> Done:
        silences = _known(self._silences)
        for silence in effect.ids:
            await silences.expire(silence)
        return Done((SilencesEnded(event_id=f"ended/{effect.effect_id}", ids=effect.ids),))


def _known(silences: Silences | None) -> Silences:
    """Raises `SourceError` if this bot has no Alertmanager address although an earlier one had."""
    if silences is None:
        raise SourceError("INCIDENT_BOT_ALERTMANAGER_URL is not set: the bot cannot reach Alertmanager")
    return silences
