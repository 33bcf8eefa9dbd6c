"""The GPUs of a node, and their metrics from a dcgm-exporter with its stock CSV.

Stock means: no throttle reasons and no ECC volatile counts, as in real clusters; `full_csv` adds them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

GPUS_PER_NODE = 4
HBM_MIB = 81079
CLOCK_EVENTS = {
    0x1: "gpu_idle",
    0x2: "clocks_setting",
    0x4: "power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}
SLOWING = 0x8 | 0x20 | 0x40 | 0x80
XID_MESSAGES = {
    13: "Graphics Engine Exception",
    31: "GPU memory page fault",
    48: "Double Bit ECC Error",
    63: "ECC page retirement or row remapping recording event",
    64: "ECC page retirement or row remapper recording failure",
    74: "NVLINK Error",
    79: "GPU has fallen off the bus",
    94: "Contained ECC error",
    95: "Uncontained ECC error",
}


@dataclass(frozen=True, slots=True)
class GpuUser:
    """The pod that holds a GPU, and how busy it is (0 to 1)."""

    namespace: str
    pod: str
    container: str
    busy: Callable[[], float]


@dataclass(frozen=True, slots=True)
class GpuTrouble:
    """The state of a GPU that an operator of the sandbox sets; None leaves a reading to the model."""

    xid: int = 0
    clock_event_reasons: int | None = None
    temperature: float | None = None
    hot_under_load: float | None = None
    """Its temperature while a pod holds it; without a pod it cools down."""
    memory_temperature: float | None = None
    sm_clock: float | None = None
    power: float | None = None
    fb_used: float | None = None
    row_remap_failure: int = 0
    uncorrectable_remapped_rows: int = 0
    correctable_remapped_rows: int = 0
    ecc_dbe_volatile: int = 0


@dataclass(slots=True)
class Gpu:
    index: int
    uuid: str
    user: GpuUser | None = None
    trouble: GpuTrouble = field(default_factory=GpuTrouble)

    @property
    def busy(self) -> float:
        return self.user.busy() if self.user else 0.0

    @property
    def clock_event_reasons(self) -> int:
        if self.trouble.clock_event_reasons is not None:
            return self.trouble.clock_event_reasons
        return 0 if self.busy else 0x1

    def reading(self, name: str) -> float:
        model = _READINGS[name]
        return float(model(self))


def _sm_clock(gpu: Gpu) -> float:
    if gpu.trouble.sm_clock is not None:
        return gpu.trouble.sm_clock
    if gpu.clock_event_reasons & SLOWING:
        return 705
    return 1980 if gpu.busy else 345


def _temperature(gpu: Gpu) -> float:
    if gpu.trouble.hot_under_load is not None and gpu.user is not None:
        return gpu.trouble.hot_under_load
    return gpu.trouble.temperature if gpu.trouble.temperature is not None else round(34 + 28 * gpu.busy)


def _fb_used(gpu: Gpu) -> float:
    if gpu.trouble.fb_used is not None:
        return gpu.trouble.fb_used
    return 74212 if gpu.user else 4


_READINGS: Mapping[str, Callable[[Gpu], float]] = {
    "DCGM_FI_DEV_SM_CLOCK": _sm_clock,
    "DCGM_FI_DEV_MEM_CLOCK": lambda _gpu: 2619,
    "DCGM_FI_DEV_MEMORY_TEMP": lambda gpu: (
        gpu.trouble.memory_temperature if gpu.trouble.memory_temperature is not None else _temperature(gpu) + 8
    ),
    "DCGM_FI_DEV_GPU_TEMP": _temperature,
    "DCGM_FI_DEV_POWER_USAGE": lambda gpu: (
        gpu.trouble.power if gpu.trouble.power is not None else round(72 + 520 * gpu.busy, 3)
    ),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": lambda _gpu: 0,
    "DCGM_FI_DEV_GPU_UTIL": lambda gpu: round(100 * min(1.0, 1.4 * gpu.busy)),
    "DCGM_FI_DEV_MEM_COPY_UTIL": lambda gpu: round(62 * gpu.busy),
    "DCGM_FI_DEV_ENC_UTIL": lambda _gpu: 0,
    "DCGM_FI_DEV_DEC_UTIL": lambda _gpu: 0,
    "DCGM_FI_DEV_XID_ERRORS": lambda gpu: gpu.trouble.xid,
    "DCGM_FI_DEV_FB_FREE": lambda gpu: HBM_MIB - 472 - _fb_used(gpu),
    "DCGM_FI_DEV_FB_USED": _fb_used,
    "DCGM_FI_DEV_FB_RESERVED": lambda _gpu: 472,
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": lambda gpu: gpu.trouble.uncorrectable_remapped_rows,
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": lambda gpu: gpu.trouble.correctable_remapped_rows,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": lambda gpu: gpu.trouble.row_remap_failure,
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS": lambda _gpu: 0,
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": lambda _gpu: 0,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": lambda gpu: round(min(1.0, 1.3 * gpu.busy), 6),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": lambda gpu: round(0.31 * gpu.busy, 6),
    "DCGM_FI_PROF_DRAM_ACTIVE": lambda gpu: round(0.72 * gpu.busy, 6),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": lambda gpu: gpu.trouble.ecc_dbe_volatile,
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": lambda gpu: gpu.clock_event_reasons,
}
STOCK_CSV = {
    "DCGM_FI_DEV_SM_CLOCK": ("gauge", "SM clock frequency (in MHz)."),
    "DCGM_FI_DEV_MEM_CLOCK": ("gauge", "Memory clock frequency (in MHz)."),
    "DCGM_FI_DEV_MEMORY_TEMP": ("gauge", "Memory temperature (in C)."),
    "DCGM_FI_DEV_GPU_TEMP": ("gauge", "GPU temperature (in C)."),
    "DCGM_FI_DEV_POWER_USAGE": ("gauge", "Power draw (in W)."),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": ("counter", "Total number of PCIe retries."),
    "DCGM_FI_DEV_GPU_UTIL": ("gauge", "GPU utilization (in %)."),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("gauge", "Memory utilization (in %)."),
    "DCGM_FI_DEV_ENC_UTIL": ("gauge", "Encoder utilization (in %)."),
    "DCGM_FI_DEV_DEC_UTIL": ("gauge", "Decoder utilization (in %)."),
    "DCGM_FI_DEV_XID_ERRORS": ("gauge", "Value of the last XID error encountered."),
    "DCGM_FI_DEV_FB_FREE": ("gauge", "Framebuffer memory free (in MiB)."),
    "DCGM_FI_DEV_FB_USED": ("gauge", "Framebuffer memory used (in MiB)."),
    "DCGM_FI_DEV_FB_RESERVED": ("gauge", "Framebuffer memory reserved (in MiB)."),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": (
        "counter",
        "Number of remapped rows for uncorrectable errors",
    ),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": ("counter", "Number of remapped rows for correctable errors"),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("gauge", "Whether remapping of rows has failed"),
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS": ("gauge", "vGPU License status"),
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": (
        "counter",
        "Total number of NVLink bandwidth counters for all lanes.",
    ),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("gauge", "Ratio of time the graphics engine is active."),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("gauge", "Ratio of cycles the tensor (HMMA) pipe is active."),
    "DCGM_FI_PROF_DRAM_ACTIVE": (
        "gauge",
        "Ratio of cycles the device memory interface is active sending or receiving data.",
    ),
}
FULL_CSV = {
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("counter", "Total number of double-bit volatile ECC errors."),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": ("gauge", "Current clock event reasons (bitmask)."),
}


class NodeGpus:
    """A node's GPUs, handed to pods lowest index first."""

    def __init__(self, node: str, count: int = GPUS_PER_NODE) -> None:
        self.node = node
        self.full_csv = False
        self.gpus = [Gpu(index, f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{node}.{index}')}") for index in range(count)]

    def assign(self, user: GpuUser, count: int) -> None:
        free = [gpu for gpu in self.gpus if gpu.user is None]
        for gpu in free[:count]:
            gpu.user = user

    def release(self, namespace: str, pod: str) -> None:
        for gpu in self.gpus:
            if gpu.user is not None and (gpu.user.namespace, gpu.user.pod) == (namespace, pod):
                gpu.user = None

    def metrics_text(self) -> str:
        families = {**STOCK_CSV, **(FULL_CSV if self.full_csv else {})}
        lines: list[str] = []
        for name, (kind, about) in families.items():
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{self._labels(gpu, _error_labels(name, gpu))} {gpu.reading(name):g}" for gpu in self.gpus]
        if self.full_csv:
            lines += self._window_counts()
        return "\n".join(lines) + "\n"

    def _window_counts(self) -> list[str]:
        """The exporter's own counts within its window; absent reasons have no series, as in the real one."""
        clocks, xids = "DCGM_EXP_CLOCK_EVENTS_COUNT", "DCGM_EXP_XID_ERRORS_COUNT"
        lines = [
            f"# HELP {clocks} Count of clock events within the user-specified time window",
            f"# TYPE {clocks} gauge",
        ]
        for gpu in self.gpus:
            for bit, event in CLOCK_EVENTS.items():
                if gpu.clock_event_reasons & bit:
                    extra = {"window_size_in_ms": "300000", "clock_event": event}
                    lines.append(f"{clocks}{self._labels(gpu, extra)} 1")
        lines += [f"# HELP {xids} Count of XID Errors within user-specified time window", f"# TYPE {xids} gauge"]
        for gpu in self.gpus:
            if gpu.trouble.xid:
                extra = {"window_size_in_ms": "300000", "xid": str(gpu.trouble.xid)}
                lines.append(f"{xids}{self._labels(gpu, extra)} 1")
        return lines

    def _labels(self, gpu: Gpu, extra: Mapping[str, str]) -> str:
        labels: dict[str, Any] = {
            "gpu": gpu.index,
            "UUID": gpu.uuid,
            "pci_bus_id": f"00000000:{0x1B + 0x20 * gpu.index:02X}:00.0",
            "device": f"nvidia{gpu.index}",
            "modelName": "NVIDIA H100 80GB HBM3",
            "Hostname": self.node,
            "DCGM_FI_DRIVER_VERSION": "570.172.08",
            **extra,
        }
        if gpu.user is not None:
            user = gpu.user
            labels |= {"container": user.container, "namespace": user.namespace, "pod": user.pod}
        return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def _error_labels(name: str, gpu: Gpu) -> dict[str, str]:
    if name != "DCGM_FI_DEV_XID_ERRORS":
        return {}
    message = XID_MESSAGES.get(gpu.trouble.xid, "No Error" if not gpu.trouble.xid else "Unknown Error")
    return {"err_code": str(gpu.trouble.xid), "err_msg": message}
