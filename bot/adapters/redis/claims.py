"""Claims, leases, the breakers and the kill switch: the last check before a call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from bot.adapters.redis.connection import Connection
from bot.domain.approvals.advice import Observing
from bot.domain.cluster.node_disruption import NodeDisruption
from bot.domain.kernel.target import Target
from bot.flow.ports.storage import EVERYTHING, ClaimVerdict, HaltWord

NODE_BREAKER = "node-breaker"


@dataclass(frozen=True)
class BreakerLimits:
    disruptive_changes: int = 3
    """On one workload within `seconds` (OPERATIONS section 5); a higher number is a facility or a bot problem."""
    node_disruptions: int = 2
    """Different nodes of one cluster cordoned or drained within `seconds`."""
    cordoned_share: float = 0.1
    """Of the fleet's accelerators; one node is always allowed, or a small fleet could cordon none."""
    seconds: int = 3600
    lease_seconds: int = 600
    room_seconds: int = 30
    """A pod is bound or seen waiting within seconds; from then on it is counted where it is."""
    replicas: int = 0
    """Redis replicas that must confirm a claim before its call."""


class RedisClaims:
    def __init__(
        self,
        connection: Connection,
        limits: BreakerLimits | None = None,
        observing: Observing | None = None,
        *,
        owner: str = "",
    ) -> None:
        """`observing`: where no call is ever claimed. `owner`: as of the store that takes this process's effects."""
        self._redis, self._limits, self._owner = connection, limits or BreakerLimits(), owner
        self._observing = observing or Observing()

    async def was_claimed(self, incident_id: str, call_id: str) -> bool:
        key = self._redis.key("claims", incident_id)
        return bool(await self._redis.ask(self._redis.client.hexists(key, call_id)))

    async def claim(  # noqa: PLR0913 - as in `CallClaims`
        self,
        incident_id: str,
        call_id: str,
        *,
        workload_key: str,
        lease_keys: Sequence[str],
        disruption: str,
        node: NodeDisruption | None = None,
        playbook: str = "",
        effect_id: str = "",
    ) -> ClaimVerdict:
        if self._observing.anywhere and self._observing.is_on(playbook, Target.of_key(workload_key)):
            return "observe_only"
        keys = [
            self._redis.key("halt"),
            self._redis.key("claims", incident_id),
            self._redis.key("leases"),
            self._redis.key("breaker", workload_key),
            self._redis.key(NODE_BREAKER, node.cluster if node else ""),
            self._redis.key("run", incident_id),
            self._redis.key("owners"),
        ]
        limits = self._limits
        arguments = [
            incident_id,
            call_id,
            disruption,
            limits.lease_seconds,
            limits.disruptive_changes,
            limits.seconds,
            self._weighed(node) if node else "",
            limits.room_seconds,
            effect_id,
            self._owner,
            *lease_keys,
        ]
        # No call before the claim is safe: after a failover it could be made a second time.
        verdict = await self._redis.replicated_script("claim", keys, arguments, replicas=limits.replicas)
        return cast(ClaimVerdict, str(verdict))

    def _weighed(self, node: NodeDisruption) -> str:
        return json.dumps(
            {
                "name": node.node,
                "gpus": node.gpus,
                "fleet": node.fleet_gpus,
                "cordoned": dict(node.cordoned),
                "most": self._limits.node_disruptions,
                "share": self._limits.cordoned_share,
            }
        )

    async def breaker_open_until(self, workload_key: str, disruption: str, *, at: float) -> float:
        key, limits = self._redis.key("breaker", workload_key), self._limits
        made = await self._redis.ask(self._redis.client.zrange(key, 0, -1, withscores=True))
        counted = [made_at for _, made_at in made if made_at > at - limits.seconds]
        too_many = len(counted) - limits.disruptive_changes
        if too_many < 0 or disruption in {str(name) for name, _ in made}:
            return 0.0
        return float(counted[too_many]) + limits.seconds

    async def reset_breakers(self, workload_key: str, *, cluster: str) -> None:
        keys = self._redis.key("breaker", workload_key), self._redis.key(NODE_BREAKER, cluster)
        await self._redis.ask(self._redis.client.delete(*keys))

    async def hold(self, incident_id: str, lease_keys: Sequence[str]) -> None:
        arguments = [incident_id, self._limits.lease_seconds, *lease_keys]
        await self._redis.script("hold", [self._redis.key("leases")], arguments)

    async def release(self, incident_id: str, request_id: str = "") -> None:
        await self._redis.script("release", [self._redis.key("leases")], [incident_id, request_id])

    async def halted_by(self, incident_id: str) -> str:
        found = await self._redis.ask(self._redis.client.hmget(self._redis.key("halt"), [EVERYTHING, incident_id]))
        return next((str(by) for by in found if by), "")

    async def halts(self) -> Mapping[str, str]:
        found = await self._redis.ask(self._redis.client.hgetall(self._redis.key("halt")))
        return {str(what): str(by) for what, by in found.items()}

    async def set_halt(self, incident_id: str, *, by: str) -> None:
        key, client = self._redis.key("halt"), self._redis.client
        await self._redis.ask(client.hset(key, incident_id, by) if by else client.hdel(key, incident_id))

    async def set_halt_of_all(self, word: HaltWord, *, halts: bool) -> None:
        both = self._redis.client.pipeline(transaction=True)
        both.set(self._redis.key("halt-word"), json.dumps({"by": word.by, "why": word.why}))
        if halts:
            both.hset(self._redis.key("halt"), EVERYTHING, word.by)
        else:
            both.hdel(self._redis.key("halt"), EVERYTHING)
        await self._redis.ask(both.execute())

    async def halt_word(self) -> HaltWord:
        raw = await self._redis.ask(self._redis.client.get(self._redis.key("halt-word")))
        return HaltWord(**json.loads(raw)) if raw else HaltWord()
