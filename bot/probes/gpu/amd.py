"""GPUs by the page of AMD's device-metrics-exporter. Registers are judged by what changed, as NVIDIA's are.

Names are the exporter's lower-case fields behind a prefix that its operator chooses. The throttle residencies exist on
MI300 and newer only; where they are not exported, heat is judged by temperatures.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from prometheus_client.parser import text_string_to_metric_families

from bot.probes.gpu.verdict import Verdict, any_of

HOT_JUNCTION, HOT_MEMORY = 100.0, 95.0
"""Degrees Celsius, below where the device itself slows down."""
_FIELD = re.compile(
    r"^(?:\w*?_)?(gpu_(?:health|junction_temperature|edge_temperature|memory_temperature|ecc_uncorrect_total|afid_errors"
    r"|violation_(?:processor_hot|ppt|socket_thermal|vr_thermal|hbm_thermal)_residency_(?:accumulated|percentage)))$"
)
_LINE = re.compile(
    r"^\w*gpu_(?:health|\w+_temperature|ecc_uncorrect_total|afid_errors|violation_\w+)[{ ].*$", re.MULTILINE
)
AFID = "gpu_afid_errors"
_HEAT = ("processor_hot", "socket_thermal", "vr_thermal", "hbm_thermal")
_POWER = "ppt"


def readings_of(page: str, pods: Sequence[str]) -> dict[str, dict[str, float]]:
    """GPU id to its readings: those of the GPUs that these pods hold, or all where the page does not map them."""
    gpus: dict[str, dict[str, float]] = defaultdict(dict)
    held: set[str] = set()
    try:
        families = text_string_to_metric_families("\n".join(_LINE.findall(page)) + "\n")
        samples = [sample for family in families for sample in family.samples]
    except ValueError:
        return {}
    for sample in samples:
        gpu = sample.labels.get("gpu_id", "")
        if sample.labels.get("exported_pod", sample.labels.get("pod", "")) in pods:
            held.add(gpu)
        if field := _FIELD.match(sample.name):
            # The value is the number of the field identifier, as an XID's is, and there is a list of them.
            place = f":{sample.labels.get('afid_index', '0')}" if field[1] == AFID else ""
            gpus[gpu][field[1] + place] = sample.value
    return {gpu: values for gpu, values in gpus.items() if gpu in held or not held}


def judge_gpu(
    where: str, now: Mapping[str, float], before: Sequence[Mapping[str, float]], *, reaches_back: bool
) -> Verdict:
    """`before`: earlier readings of the incident's time; `reaches_back`: whether they begin where that time does."""
    health = now.get("gpu_health")
    ill_note = "health is not exported" if health is None else "" if health == 1 else "its exporter calls it unhealthy"
    claims: list[tuple[bool | None, str]] = [(None if health is None else health != 1, ill_note)]
    claims.append(_uncorrected(now, before, reaches_back=reaches_back))
    claims += [_afid(name, now[name], before, reaches_back=reaches_back) for name in now if name.startswith(AFID)]
    thermal, heat_note = _heat(now, before)
    notes = (*(note for _, note in claims), heat_note)
    fault = any_of(*(claim for claim, _ in claims))
    return Verdict(where, fault, thermal, tuple(f"{where}: {note}" for note in notes if note))


def _uncorrected(
    now: Mapping[str, float], before: Sequence[Mapping[str, float]], *, reaches_back: bool
) -> tuple[bool | None, str]:
    """The count stands for as long as the driver is loaded, so only a rise says that an error happened now."""
    count = now.get("gpu_ecc_uncorrect_total", 0.0)
    if count <= 0:
        return False, ""
    seen = [was["gpu_ecc_uncorrect_total"] for was in before if "gpu_ecc_uncorrect_total" in was]
    if any(was < count for was in seen):
        return True, f"uncorrectable errors rose to {count:.0f} since the incident began"
    if seen and reaches_back:
        return False, "uncorrectable errors seen, not recent"
    return None, "uncorrectable errors seen, their age is not known"


def _afid(
    name: str, number: float, before: Sequence[Mapping[str, float]], *, reaches_back: bool
) -> tuple[bool | None, str]:
    """AMD's field identifiers name corrected and fatal events alike: a new one is for people to look up."""
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
    """Whether it was slowed down by this now, or has been since the readings began."""
    share, total = f"gpu_violation_{name}_residency_percentage", f"gpu_violation_{name}_residency_accumulated"
    if now.get(share, 0.0) > 0:
        return True
    return any(was[total] < now[total] for was in before if total in was) if total in now else False
