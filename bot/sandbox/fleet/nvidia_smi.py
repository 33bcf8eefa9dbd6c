"""`nvidia-smi --query-gpu` as a container sees it: its own GPUs, counted from 0, one line of CSV each.

Texts and exit codes are the program's own: an unknown field returns nothing, and a lost GPU stops it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bot.sandbox.fleet.gpus import Gpu

LOST_XID = 79
NEEDS_RESET = frozenset({48, 64, 74, 95, 119, 120})
FIELD_EXIT, LOST_EXIT = 2, 15

FIELDS: Mapping[str, Callable[[Gpu], str]] = {
    "uuid": lambda gpu: gpu.uuid,
    "temperature.gpu": lambda gpu: f"{gpu.reading('DCGM_FI_DEV_GPU_TEMP'):.0f}",
    "temperature.memory": lambda gpu: f"{gpu.reading('DCGM_FI_DEV_MEMORY_TEMP'):.0f}",
    "clocks.sm": lambda gpu: f"{gpu.reading('DCGM_FI_DEV_SM_CLOCK'):.0f}",
    "utilization.gpu": lambda gpu: f"{gpu.reading('DCGM_FI_DEV_GPU_UTIL'):.0f}",
    "ecc.errors.uncorrected.volatile.total": lambda gpu: str(gpu.trouble.ecc_dbe_volatile),
    "clocks_event_reasons.active": lambda gpu: f"0x{gpu.clock_event_reasons:016X}",
    "clocks_throttle_reasons.active": lambda gpu: f"0x{gpu.clock_event_reasons:016X}",
    "gpu_recovery_action": lambda gpu: "GPU Reset" if gpu.trouble.xid in NEEDS_RESET else "None",
}


@dataclass(frozen=True, slots=True)
class Ran:
    stdout: str
    stderr: str = ""
    exit_code: int = 0


def run(command: Sequence[str], gpus: Sequence[Gpu]) -> Ran | None:
    """None for an unknown program: the container has only this one query."""
    match list(command):
        case ["nvidia-smi", query, "--format=csv,noheader,nounits"] if query.startswith("--query-gpu="):
            return _queried(query.removeprefix("--query-gpu=").split(","), gpus)
        case _:
            return None


def _queried(fields: Sequence[str], gpus: Sequence[Gpu]) -> Ran:
    strange = next((field for field in fields if field not in FIELDS and field != "index"), None)
    if strange is not None:
        return Ran(f'Field "{strange}" is not a valid field to query.\n', exit_code=FIELD_EXIT)
    lost = next((gpu for gpu in gpus if gpu.trouble.xid == LOST_XID), None)
    if lost is not None:
        bus = f"0000:{0x1B + 0x20 * lost.index:02X}:00.0"
        message = (
            f"Unable to determine the device handle for GPU{bus}: GPU is lost.  Reboot the system to recover this GPU"
        )
        return Ran(f"{message}\n", exit_code=LOST_EXIT)
    if not gpus:
        return Ran("No devices were found\n", exit_code=6)
    lines = [
        ", ".join(str(index) if field == "index" else FIELDS[field](gpu) for field in fields)
        for index, gpu in enumerate(gpus)
    ]
    return Ran("".join(f"{line}\n" for line in lines))
