"""How many pods a rollout may add and how many may be unavailable, in whole pods.

Surge rounds up and unavailability down, so that a rollout can always move.
"""

from dataclasses import dataclass
from typing import Any

from bot.sandbox.kubernetes.quantities import resolve_int_or_percent

Obj = dict[str, Any]


@dataclass(frozen=True)
class Bounds:
    """Upper and lower bound of pods during a rollout."""

    replicas: int
    surge: int
    unavailable: int

    @property
    def most(self) -> int:
        return self.replicas + self.surge

    @property
    def least_available(self) -> int:
        return self.replicas - self.unavailable


def bounds_of(deployment: Obj) -> Bounds:
    spec = deployment["spec"]
    replicas, strategy = spec["replicas"], spec["strategy"]
    if strategy["type"] == "Recreate":
        return Bounds(replicas, 0, 0)
    rolling = strategy["rollingUpdate"]
    surge = resolve_int_or_percent(rolling["maxSurge"], replicas, round_up=True)
    unavailable = resolve_int_or_percent(rolling["maxUnavailable"], replicas, round_up=False)
    if surge == 0 and unavailable == 0:
        # Both percentages may round to zero; then one pod at a time goes first.
        unavailable = 1
    return Bounds(replicas, surge, min(unavailable, replicas))
