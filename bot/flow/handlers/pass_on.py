"""What an incident that left its target's slot gives to others: an alert to the intake, its active changes."""

from __future__ import annotations

from bot.domain.incidents.effect import PassOnChanges, RouteAgain
from bot.domain.incidents.event import ChangesPassedOn
from bot.flow.perform_effect import Done, EffectContext
from bot.flow.ports.storage import AlertStore, RunStore


class RouteAgainHandler:
    """Repeating it after a crash is harmless: the incident that gets the alert twice ignores the repeat."""

    def __init__(self, alerts: AlertStore) -> None:
        self._alerts = alerts

    async def __call__(self, context: EffectContext, effect: RouteAgain) -> Done:
        await self._alerts.route_again(effect.alert, truncated=effect.truncated)
        return Done()


class PassOnHandler:
    """The event waits in the other incident's inbox, which is looked at every second."""

    def __init__(self, runs: RunStore) -> None:
        self._runs = runs

    async def __call__(self, context: EffectContext, effect: PassOnChanges) -> Done:
        by = context.incident_id
        event = ChangesPassedOn(event_id=f"passed-on/{by}", by=by, entries=effect.entries)
        await self._runs.append(effect.to, [event])
        return Done()
