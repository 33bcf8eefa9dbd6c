"""Judges NVIDIA's GPUs: registers by what changed, heat by clock events.

The stock list of fields of dcgm-exporter has no clock event reasons. Without them temperatures decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bot.probes.gpu.history import NO_RECORD, Record
from bot.probes.gpu.verdict import Verdict, any_of, counted_errors
from bot.probes.gpu.xids import counted_xids, new_xids, xid_of

HOT_GPU, HOT_MEMORY = 85.0, 95.0
"""Degrees Celsius, used if the GPU's own slowdown limit is unknown."""
SLOW_BY_HEAT_OR_POWER = 0x20 | 0x40 | 0x80
HW_SLOWDOWN = 0x8
LOW_CLOCK_SHARE = 0.6


def judge_gpu(
    where: str,
    now: Mapping[str, float],
    before: Sequence[Mapping[str, float]],
    *,
    fastest: float,
    reaches_back: bool,
    record: Record = NO_RECORD,
) -> Verdict:
    """`before`: earlier readings of the incident's time; `reaches_back`: whether they begin where that time does."""
    xid, xid_note = _judge_xid(now, before, record, reaches_back=reaches_back)
    remap = None if "row_remap_failure" not in now else now["row_remap_failure"] >= 1
    dbe, dbe_note = counted_errors("ecc_dbe", now, before, reaches_back=reaches_back)
    thermal, thermal_note = judge_heat(now, fastest)
    remap_note = "a row could not be remapped" if remap else ""
    return Verdict.on(where, any_of(xid, remap, dbe), thermal, xid_note, remap_note, dbe_note, thermal_note)


def _judge_xid(
    now: Mapping[str, float], before: Sequence[Mapping[str, float]], record: Record, *, reaches_back: bool
) -> tuple[bool | None, str]:
    """The register keeps the last XID forever, so only a change proves that one happened now."""
    if "xid" not in now:
        return None, "XIDs are not exported"
    xid = int(now["xid"])
    kind, meaning = xid_of(xid)
    # Apart from each other: merged, an older point of one would follow a newer one of the other.
    new = [*new_xids((*before, now)), *new_xids((*record.readings, now)), *counted_xids((*before, now))]
    if fatal := [number for number in new if xid_of(number).kind == "fatal"]:
        return True, f"XID {fatal[-1]} since the incident began ({xid_of(fatal[-1]).meaning})"
    if xid == 0:
        return False, ""
    if kind == "application":
        return False, f"XID {xid}, a program's fault ({meaning})"
    if kind == "contained":
        return False, f"XID {xid}, contained ({meaning})"
    if record.reaches_back or (reaches_back and any("xid" in was for was in before)):
        return False, f"XID {xid} seen, not recent ({meaning})"
    return None, f"XID {xid} seen, its age is not known ({meaning})"


def judge_heat(now: Mapping[str, float], fastest: float) -> tuple[bool | None, str]:
    clock = now.get("sm_clock", 0.0)
    is_slow = now.get("busy", 0.0) > 50 and 0 < clock < LOW_CLOCK_SHARE * fastest
    hot = [
        name
        for name, limit in (("temperature", HOT_GPU), ("memory_temperature", HOT_MEMORY))
        if now.get(name, 0.0) >= limit
    ]
    events = [name for name in ("sw_thermal", "hw_thermal", "hw_power_brake") if f"event:{name}" in now]
    if events:
        return True, f"slowed down by {', '.join(events)}"
    if "clock_reasons" in now:
        reasons = int(now["clock_reasons"])
        if reasons & SLOW_BY_HEAT_OR_POWER or (reasons & HW_SLOWDOWN and is_slow):
            return True, f"slowed down, clock event reasons {reasons:#x}"
        # Idle, set clocks and the power cap are normal: a saturated GPU runs at its power limit.
        return False, ""
    if hot:
        return True, f"{now[hot[0]]:.0f} °C"
    if is_slow:
        return None, f"{clock:.0f} MHz of {fastest:.0f} while busy, and clock event reasons are not exported"
    if "temperature" not in now:
        return None, "neither clock event reasons nor temperatures are exported"
    return False, ""
