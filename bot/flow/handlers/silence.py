"""Effects: create and end an incident's silence in Alertmanager. An authorized person decides it, never the bot.

It covers exactly what that person was shown, and it expires at a fixed time.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from bot.domain.incidents.effect import EndSilences, SilenceAlerts
from bot.domain.incidents.event import Silenced, SilencesEnded
from bot.domain.kernel.errors import NoAnswerError, SourceError
from bot.flow.perform_effect import Done, EffectContext, Later
from bot.flow.ports.people import Silences

log = structlog.get_logger()
AGAIN_SECONDS = 2.0
UNANSWERED_SECONDS = 5.0
PATIENCE_SECONDS = 300.0
"""For how long a silence whose answer was lost is looked for."""


class SilenceHandler:
    def __init__(self, silences: Silences | None) -> None:
        self._silences = silences

    async def __call__(self, context: EffectContext, effect: SilenceAlerts) -> Done | Later:
        """What was created before a failure is reported, so that it can be ended; the rest is tried again."""
        silences, created = _known(self._silences), dict[str, str]()
        why = f"{effect.why} ({effect.wanted_by} in {context.incident_id})"
        try:
            for name, labels in effect.about.items():
                key = f"{context.incident_id}/{effect.effect_id}/{name}"
                found = await silences.create(labels, starts_at=context.now, ends_at=effect.ends_at, why=why, key=key)
                if found not in context.run.silences:
                    created[name] = found
        except NoAnswerError as error:
            # It may be in force all the same: found again by its key, it can be ended.
            if context.now >= effect.wanted_at + PATIENCE_SECONDS:
                raise SourceError(f"{error}; whether it is in force is not known: look in Alertmanager") from error
            return Later(UNANSWERED_SECONDS, (_silenced(effect, created),) if created else ())
        except SourceError as error:
            if not created:
                raise
            log.warning("silence.partly_created", incident=context.incident_id, reason=str(error))
            return Later(AGAIN_SECONDS, (_silenced(effect, created),), failed=True)
        return Done((_silenced(effect, created),) if created else ())


class EndSilencesHandler:
    def __init__(self, silences: Silences | None) -> None:
        self._silences = silences

    async def __call__(self, context: EffectContext, effect: EndSilences) -> Done:
        silences = _known(self._silences)
        for silence in effect.ids:
            await silences.expire(silence)
        return Done((SilencesEnded(event_id=f"ended/{effect.effect_id}", ids=effect.ids),))


def _silenced(effect: SilenceAlerts, created: Mapping[str, str]) -> Silenced:
    """`created`: the names of the alerts, and the ids of their silences."""
    return Silenced(
        event_id=f"silenced/{effect.effect_id}/{'+'.join(created.values())}",
        ids=tuple(created.values()),
        about=tuple(created),
        ends_at=effect.ends_at,
        user=effect.wanted_by,
    )


def _known(silences: Silences | None) -> Silences:
    """Raises `SourceError` if this bot has no Alertmanager address although an earlier one had."""
    if silences is None:
        raise SourceError("INCIDENT_BOT_ALERTMANAGER_URL is not set: the bot cannot reach Alertmanager")
    return silences
