"""GPUs by the page of NVIDIA's dcgm-exporter. Registers are judged by what changed, heat by what the GPU says of it.

The stock list of fields has no clock event reasons: without them heat is judged by temperatures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from prometheus_client.parser import text_string_to_metric_families

from bot.probes.gpu.verdict import Verdict, any_of
from bot.probes.gpu.xids import xid_of

HOT_GPU, HOT_MEMORY = 85.0, 95.0
"""Degrees Celsius, where the GPU's own slowdown limit is not known."""
BLANK = 9e18
"""DCGM writes 9223372036854775794 for a reading that the GPU does not have."""
SLOW_BY_HEAT_OR_POWER = 0x20 | 0x40 | 0x80
HW_SLOWDOWN = 0x8
LOW_CLOCK_SHARE = 0.6
WANTED = {
    "DCGM_FI_DEV_XID_ERRORS": "xid",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "row_remap_failure",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "ecc_dbe",
    "DCGM_FI_DEV_GPU_TEMP": "temperature",
    "DCGM_FI_DEV_MEMORY_TEMP": "memory_temperature",
    "DCGM_FI_DEV_SM_CLOCK": "sm_clock",
    "DCGM_FI_DEV_GPU_UTIL": "busy",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": "clock_reasons",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": "clock_reasons",
}


def readings_of(page: str, pods: Sequence[str]) -> dict[str, dict[str, float]]:
    """GPU index to its readings: those of the GPUs that these pods hold, or all where the page does not map them."""
    lines = "\n".join(line for line in page.splitlines() if line.startswith(("DCGM_FI_DEV_", "DCGM_EXP_CLOCK")))
    gpus: dict[str, dict[str, float]] = defaultdict(dict)
    held: set[str] = set()
    try:
        samples = [sample for family in text_string_to_metric_families(lines + "\n") for sample in family.samples]
    except ValueError:
        return {}
    for sample in samples:
        gpu = sample.labels.get("gpu", sample.labels.get("UUID", ""))
        if sample.labels.get("exported_pod", sample.labels.get("pod", "")) in pods:
            held.add(gpu)
        if sample.name in WANTED and abs(sample.value) < BLANK:
            gpus[gpu][WANTED[sample.name]] = sample.value
        elif sample.name == "DCGM_EXP_CLOCK_EVENTS_COUNT" and sample.value > 0:
            gpus[gpu]["event:" + sample.labels.get("clock_event", "")] = sample.value
    return {gpu: values for gpu, values in gpus.items() if gpu in held or not held}


def judge_gpu(
    where: str,
    now: Mapping[str, float],
    before: Sequence[Mapping[str, float]],
    *,
    fastest: float,
    reaches_back: bool,
) -> Verdict:
    """`before`: earlier readings of the incident's time; `reaches_back`: whether they begin where that time does."""
    xid, xid_note = _judge_xid(now, before, reaches_back=reaches_back)
    remap = None if "row_remap_failure" not in now else now["row_remap_failure"] >= 1
    dbe = "ecc_dbe" in now and any(now["ecc_dbe"] > was["ecc_dbe"] for was in before if "ecc_dbe" in was)
    thermal, thermal_note = judge_heat(now, fastest)
    notes = (
        xid_note,
        "a row could not be remapped" if remap else "",
        "uncorrectable memory errors rose" if dbe else "",
        thermal_note,
    )
    fault = any_of(xid, remap, dbe)
    return Verdict(where, fault, thermal, tuple(f"{where}: {note}" for note in notes if note))


def _judge_xid(
    now: Mapping[str, float], before: Sequence[Mapping[str, float]], *, reaches_back: bool
) -> tuple[bool | None, str]:
    """The register keeps the last XID for ever, so only a change says that one happened now."""
    if "xid" not in now:
        return None, "XIDs are not exported"
    xid = int(now["xid"])
    kind, meaning = xid_of(xid)
    seen = [int(was["xid"]) for was in before if "xid" in was]
    came = [later for earlier, later in pairwise([*seen, xid]) if later not in (earlier, 0)]
    # A later XID overwrites the register: what stood there in between counts too.
    if fatal := [number for number in came if xid_of(number).kind == "fatal"]:
        return True, f"XID {fatal[-1]} since the incident began ({xid_of(fatal[-1]).meaning})"
    if xid == 0:
        return False, ""
    if kind == "application":
        return False, f"XID {xid}, a program's fault ({meaning})"
    if kind == "contained":
        return False, f"XID {xid}, contained ({meaning})"
    if seen and reaches_back:
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
