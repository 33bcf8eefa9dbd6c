"""An incident that is open in Redis, and commands for it."""

from __future__ import annotations

from typing import Any

from bot.adapters.redis.store import RedisStore
from bot.domain.incidents.event import Commanded
from tests import builders


async def opened(store: RedisStore, *incidents: str, **fields: Any) -> None:
    """Open incidents, each on a target of its own, that have received nothing but their alert."""
    for incident in incidents:
        await store.accept([builders.alert(fingerprint=incident)], truncated=0)
        (entry,) = await store.intake(10)
        target = builders.TARGET.model_copy(update={"name": incident.lower()})
        assert await store.route(
            entry, builders.run(incident_id=incident, target=target, **fields), "opens", bundle=builders.bundle()
        )


def command(word: str) -> Commanded:
    return Commanded.model_validate({"event_id": word, "command": word, "user": "ana"})
