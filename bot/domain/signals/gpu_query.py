"""The only commands that ever run inside a replica: each queries its GPUs and changes nothing.

An enum rather than a text, so that no typed, configured or received text can become a command.
"""

from __future__ import annotations

from enum import Enum

FIELDS: dict[str, str] = {
    "index": "index",
    "temperature.gpu": "temperature",
    "temperature.memory": "memory_temperature",
    "clocks.sm": "sm_clock",
    "utilization.gpu": "busy",
    "ecc.errors.uncorrected.volatile.total": "ecc_dbe",
    "clocks_event_reasons.active": "clock_reasons",
    "gpu_recovery_action": "recovery",
}
"""The fields queried from `nvidia-smi`, and the names of their readings."""
OLD_FIELDS: dict[str, str] = {
    {"clocks_event_reasons.active": "clocks_throttle_reasons.active"}.get(field, field): name
    for field, name in FIELDS.items()
    if name != "recovery"
}
"""Names in drivers before 565: with one unknown field, nvidia-smi answers nothing."""


def _nvidia_smi(fields: dict[str, str]) -> tuple[str, ...]:
    return ("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")


class GpuQuery(Enum):
    NVIDIA = _nvidia_smi(FIELDS)
    NVIDIA_OLD = _nvidia_smi(OLD_FIELDS)
    AMD = ("rocm-smi", "--showtemp", "--json")

    @property
    def command(self) -> tuple[str, ...]:
        return tuple(self.value)
