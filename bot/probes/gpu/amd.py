"""Judges AMD's GPUs: registers by what changed, as NVIDIA's are.

Throttle residencies exist on MI300 and newer only. If they are not exported, temperatures decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bot.probes.gpu.verdict import Verdict, any_of, counted_errors, rose

HOT_JUNCTION, HOT_MEMORY = 100.0, 95.0
"""Degrees Celsius, below the point where the device slows itself down."""
AFID, ECC = "gpu_afid_errors", "gpu_ecc_uncorrect_total"
_HEAT = ("processor_hot", "socket_thermal", "vr_thermal", "hbm_thermal")
_POWER = "ppt"


def judge_gpu(
    where: str, now: Mapping[str, float], before: Sequence[Mapping[str, float]], *, reaches_back: bool
) -> Verdict:
    """`before`: earlier readings of the incident's time. `reaches_back`: whether they begin where that time does."""
    health = now.get("gpu_health")
    ill_note = "health is not exported" if health is None else "" if health == 1 else "its exporter calls it unhealthy"
    claims = [
        (None if health is None else health != 1, ill_note),
        counted_errors(ECC, now, before, reaches_back=reaches_back),
        *(_afid(name, now[name], before, reaches_back=reaches_back) for name in now if name.startswith(AFID)),
    ]
    thermal, heat_note = _heat(now, before)
    fault = any_of(*(claim for claim, _ in claims))
    return Verdict.on(where, fault, thermal, *(note for _, note in claims), heat_note)


def _afid(
    name: str, number: float, before: Sequence[Mapping[str, float]], *, reaches_back: bool
) -> tuple[bool | None, str]:
    """AMD's field identifiers name corrected and fatal events alike: people have to look up a new one."""
    if number <= 0:
        return False, ""
    seen = [was.get(name, 0.0) for was in before]
    if any(was != number for was in seen):
        return None, f"AFID {number:.0f} since the incident began, see AMD's list of field identifiers"
    if seen and reaches_back:
        return False, f"AFID {number:.0f} seen, not recent"
    return None, f"AFID {number:.0f} seen, its age is not known"


def _heat(now: Mapping[str, float], before: Sequence[Mapping[str, float]]) -> tuple[bool | None, str]:
    slowed = [name for name in _HEAT if _residency(now, before, name)]
    if slowed:
        return True, f"slowed down by {', '.join(slowed)}"
    power = "at its power limit, which is normal at full load" if _residency(now, before, _POWER) else ""
    junction = now.get("gpu_junction_temperature", now.get("gpu_edge_temperature"))
    memory = now.get("gpu_memory_temperature", 0.0)
    if any(f"gpu_violation_{name}_residency_percentage" in now for name in _HEAT):
        return False, power
    if junction is None:
        return None, "neither throttle residencies nor temperatures are exported"
    if junction >= HOT_JUNCTION or memory >= HOT_MEMORY:
        return True, f"{max(junction, memory):.0f} °C"
    return False, power


def _residency(now: Mapping[str, float], before: Sequence[Mapping[str, float]], name: str) -> bool:
    """Whether this slows it down now, or has done so since the readings began."""
    share, total = f"gpu_violation_{name}_residency_percentage", f"gpu_violation_{name}_residency_accumulated"
    return now.get(share, 0.0) > 0 or rose(total, now, before)
