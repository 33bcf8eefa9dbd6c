"""How large and how fast the demo world is: as scenarios are written, or as two cores run real engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.domain.kernel.durations import is_duration, seconds
from bot.sandbox.scenarios import Scenario

WRITTEN_FOR = 4
"""The replicas that the loads of scenarios are written for."""


@dataclass(frozen=True)
class Scale:
    """The replicas share the scenario's load, so each has as many clients as it is written for."""

    seed_world: str
    replicas: int
    slower: int
    """How many times as long all windows and waits last."""
    patience: int
    """How many times as long a start, and a whole run, may take. A quiet machine comes near neither limit."""

    def seconds(self, written: float) -> float:
        return written * self.slower

    def limit(self, written: float) -> float:
        return written * self.patience

    def windows(self, written: Mapping[str, str]) -> dict[str, str]:
        """Durations are stretched; settings that are no durations stay."""
        if self.slower == 1:
            return dict(written)
        return {name: self._stretched(text) if is_duration(text) else text for name, text in written.items()}

    def _stretched(self, duration: str) -> str:
        return f"{seconds(duration) * self.slower:.10g}s"

    def trouble(self, scenario: Scenario) -> Mapping[str, Any]:
        return scenario.trouble_load if self is SIMULATED else scenario.real_load or scenario.trouble_load

    def load(self, written: Mapping[str, Any]) -> dict[str, Any]:
        """Workers wait for their answers, so only open arrivals must come more slowly."""
        share = self.replicas / WRITTEN_FOR
        scaled = dict(written)
        for clients in ("workers", "burst"):
            if clients in scaled:
                scaled[clients] = round(scaled[clients] * share)
        if "arrivals_per_second" in scaled:
            scaled["arrivals_per_second"] *= share / self.slower
        return scaled


SIMULATED = Scale("demo", replicas=WRITTEN_FOR, slower=1, patience=1)
TWO_CORES = Scale("demo-of-two", replicas=2, slower=3, patience=8)
"""Real engines on the CPU: two cores run two of them and a canary, at about a third of the simulated speed each."""


def impossible_on_a_cpu(scenario: Scenario) -> str:
    """What this scenario needs that a real engine on the CPU has not; empty if it can be played."""
    deploy = scenario.deploy
    if scenario.fault.get("kind") in ("metrics_down", "cuda_oom", "slow", "stuck"):
        return f"the fault {scenario.fault['kind']}, which only a simulated engine can have"
    if scenario.image or (deploy and (deploy.image or deploy.env)):
        return "another image, and the engines run the vLLM of this machine"
    if deploy and "--attention-backend" in deploy.flags:
        return "an attention backend for GPUs"
    return ""
