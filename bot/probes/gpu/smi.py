"""GPUs as `nvidia-smi` or `rocm-smi` show them inside a replica, for nodes whose exporter cannot be read.

Neither shows XIDs. A GPU counts as healthy only if the driver itself asks for no recovery.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.domain.cluster.objects import dig, name_of, namespace_of
from bot.domain.cluster.snapshot import Obj
from bot.domain.flags.flags_in_spec import engine_container
from bot.domain.kernel.errors import SourceError
from bot.domain.signals.gpu_query import FIELDS, OLD_FIELDS, GpuQuery
from bot.flow.ports.readings import GpuShell
from bot.probes.gpu import amd, nvidia
from bot.probes.gpu.history import RegisterHistory
from bot.probes.gpu.verdict import Verdict, any_of, rose

DEADLINE_SECONDS = 2.5
_LOST = re.compile(r"\[(GPU is lost|GPU requires reset|Unknown Error)\]")
_BROKEN = re.compile(r"Unable to determine the device handle for GPU.*|No devices were found|.*GPU is lost.*")
_UNKNOWN_FIELD = "is not a valid field to query"
AMD_TEMPERATURES = {
    "Temperature (Sensor junction) (C)": "gpu_junction_temperature",
    "Temperature (Sensor edge) (C)": "gpu_edge_temperature",
    "Temperature (Sensor memory) (C)": "gpu_memory_temperature",
}


@dataclass(frozen=True)
class SmiGpu:
    """One line of nvidia-smi. `recovery` is None if the driver does not give it."""

    values: Mapping[str, float]
    lost: str = ""
    recovery: str | None = None


class Smi:
    """Asks the replicas; each sees the GPUs that it holds."""

    def __init__(self, shell: GpuShell, history: RegisterHistory) -> None:
        self._shell, self._history = shell, history

    async def judge(self, node: str, pods: Sequence[Obj], since: float) -> list[Verdict]:
        """`node`: its place in the history. `since`: when the incident's time began."""
        found = await asyncio.gather(*(self._judge_pod(f"{node}/{name_of(pod)}", pod, since) for pod in pods))
        return [verdict for verdicts in found for verdict in verdicts]

    async def _judge_pod(self, place: str, pod: Obj, since: float) -> list[Verdict]:
        name, engine = name_of(pod), engine_container(pod)
        if engine is None:
            return [Verdict.on(name, None, None, "no engine container to ask")]
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                if "amd.com/gpu" in (dig(engine[1], "resources", "limits") or {}):
                    return self._judge_amd(name, await self._ask(pod, engine[1], GpuQuery.AMD))
                return await self._judge_nvidia(place, pod, engine[1], since)
        except TimeoutError:
            # A GPU that has fallen off the bus hangs nvidia-smi, and so does a busy node.
            return [Verdict.on(name, None, None, f"no answer about its GPUs in {DEADLINE_SECONDS:g} s")]
        except SourceError as error:
            return [Verdict.on(name, None, None, str(error))]

    async def _ask(self, pod: Obj, container: Obj, query: GpuQuery) -> str:
        return await self._shell.ask(namespace_of(pod), name_of(pod), str(container["name"]), query)

    async def _judge_nvidia(self, place: str, pod: Obj, container: Obj, since: float) -> list[Verdict]:
        name, fields = name_of(pod), FIELDS
        text = await self._ask(pod, container, GpuQuery.NVIDIA)
        if _UNKNOWN_FIELD in text:
            text, fields = await self._ask(pod, container, GpuQuery.NVIDIA_OLD), OLD_FIELDS
        if broken := _BROKEN.search(text):
            return [Verdict.on(name, True, None, f"nvidia-smi: {broken[0].strip()[:160]}")]
        gpus = nvidia_gpus(text, fields)
        if not gpus:
            raise SourceError(f"nvidia-smi gave no GPU: {' '.join(text.split())[:160]}")
        readings = await self._history.add(place, {index: gpu.values for index, gpu in gpus.items()}, since)
        fastest = max(gpu.values.get("sm_clock", 0.0) for gpu in gpus.values())
        return [
            judge_nvidia(f"GPU {index} of {name}", gpu, readings.before(index), fastest=fastest)
            for index, gpu in gpus.items()
        ]

    def _judge_amd(self, name: str, text: str) -> list[Verdict]:
        gpus = amd_gpus(text)
        if not gpus:
            raise SourceError(f"rocm-smi gave no GPU: {' '.join(text.split())[:160]}")
        return [amd.judge_gpu(f"GPU {gpu} of {name}", values, (), reaches_back=False) for gpu, values in gpus.items()]


def nvidia_gpus(text: str, fields: Mapping[str, str]) -> dict[str, SmiGpu]:
    """GPUs by index. A missing value (`[N/A]`) is absent."""
    gpus: dict[str, SmiGpu] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(fields) or not cells[0].isdigit():
            continue
        row = dict(zip(fields.values(), cells, strict=True))
        lost = _LOST.search(line)
        recovery = row.get("recovery", "")
        gpus[row["index"]] = SmiGpu(
            values={name: number for name, cell in row.items() if (number := _number(cell)) is not None},
            lost=lost[1] if lost else "",
            recovery=None if not recovery or "N/A" in recovery or recovery.startswith("[") else recovery,
        )
    return gpus


def _number(cell: str) -> float | None:
    try:
        return float(int(cell, 16)) if cell.startswith("0x") else float(cell)
    except ValueError:
        return None


def judge_nvidia(where: str, now: SmiGpu, before: Sequence[Mapping[str, float]], *, fastest: float) -> Verdict:
    if now.lost:
        return Verdict.on(where, True, None, now.lost)
    has_errors = rose("ecc_dbe", now.values, before)
    needs = None if now.recovery is None else now.recovery != "None"
    thermal, heat_note = nvidia.judge_heat(now.values, fastest)
    recovery_note = {
        None: "XIDs are not visible to nvidia-smi and this driver names no recovery action",
        True: f"the driver asks for: {now.recovery}",
        False: "",
    }[needs]
    error_note = "uncorrectable memory errors rose" if has_errors else ""
    return Verdict.on(where, any_of(has_errors, needs), thermal, recovery_note, error_note, heat_note)


def amd_gpus(text: str) -> dict[str, dict[str, float]]:
    """Temperatures by card, under the exporter's names. rocm-smi may print warnings before its JSON."""
    try:
        cards = json.loads(text[text.index("{") :])
    except ValueError:
        return {}
    found: dict[str, dict[str, float]] = {}
    for card, values in cards.items():
        if card.startswith("card") and isinstance(values, dict):
            named = {name: _number(str(values.get(label, ""))) for label, name in AMD_TEMPERATURES.items()}
            found[card] = {name: value for name, value in named.items() if value is not None}
    return found
