"""Claims, leases, the breaker and the kill switch: the last thing that happens before a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from bot.adapters.redis.connection import Connection
from bot.flow.ports import ClaimVerdict

EVERYTHING = "*"


@dataclass(frozen=True)
class BreakerLimits:
    disruptive_changes: int = 3
    """On one workload within `seconds` (OPERATIONS section 5); more is a facility or a bot problem."""
    seconds: int = 3600
    lease_seconds: int = 600
    replicas: int = 0
    """Redis replicas that must confirm a claim before its call."""


class RedisClaims:
    def __init__(self, connection: Connection, limits: BreakerLimits | None = None) -> None:
        self._redis, self._limits = connection, limits or BreakerLimits()

    async def was_claimed(self, incident_id: str, call_id: str) -> bool:
        key = self._redis.key("claims", incident_id)
        return bool(await self._redis.ask(self._redis.client.hexists(key, call_id)))

    async def claim(
        self, incident_id: str, call_id: str, *, workload_key: str, lease_keys: Sequence[str], counts: bool
    ) -> ClaimVerdict:
        keys = [
            self._redis.key("halt"),
            self._redis.key("claims", incident_id),
            self._redis.key("leases"),
            self._redis.key("breaker", workload_key),
        ]
        limits = self._limits
        arguments = [
            incident_id,
            call_id,
            "counts" if counts else "free",
            limits.lease_seconds,
            limits.disruptive_changes,
            limits.seconds,
            *lease_keys,
        ]
        verdict = str(await self._redis.script("claim", keys, arguments))
        if verdict in ("claimed", "already_claimed"):
            await self._redis.wait_for_replicas(limits.replicas)
        return cast(ClaimVerdict, verdict)

    async def release(self, incident_id: str) -> None:
        await self._redis.script("release", [self._redis.key("leases")], [incident_id])

    async def halted_by(self, incident_id: str) -> str:
        found = await self._redis.ask(self._redis.client.hmget(self._redis.key("halt"), [EVERYTHING, incident_id]))
        return next((str(by) for by in found if by), "")

    async def set_halt(self, incident_id: str | None, *, by: str) -> None:
        key, field = self._redis.key("halt"), incident_id or EVERYTHING
        if by:
            await self._redis.ask(self._redis.client.hset(key, field, by))
        else:
            await self._redis.ask(self._redis.client.hdel(key, field))
