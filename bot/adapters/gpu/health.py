"""GPU health from the exporters on the replicas' nodes, NVIDIA's or AMD's, and from what nodes and events say.

A fault is a change within the incident's time, not a register that has been set for months. What the exporter does not
export is unknown: nothing readable never means healthy.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from prometheus_client.parser import text_string_to_metric_families

from bot.adapters.gpu import amd
from bot.adapters.gpu.node_events import about_nodes, judge_events
from bot.adapters.gpu.nodes import judge_node
from bot.adapters.gpu.verdict import Verdict, any_of
from bot.adapters.gpu.xids import xid_of
from bot.domain.change.objects import dig, is_going_away, name_of, namespace_of
from bot.domain.change.world import Obj
from bot.domain.errors import ClusterError, SourceError
from bot.domain.scrape import Scrape
from bot.domain.signal import Reading
from bot.flow.ports import NodeEvents, PodFinder, PodPage, PodPages, Question, SampleStore
from bot.flow.probes import answer, pods_asked_for, unreadable

SOURCE = "GPU exporters and nodes"
DCGM_LABELS = {"app.kubernetes.io/name": "dcgm-exporter"}
AMD_LABELS = {"app.kubernetes.io/name": "metrics-exporter"}
"""As AMD's GPU operator labels device-metrics-exporter."""
DCGM_PORT, AMD_PORT = 9400, 5000
DEADLINE_SECONDS = 2.0
BEFORE_SECONDS = 1800.0
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


@dataclass(frozen=True)
class _Exporter:
    page: PodPage
    is_amd: bool

    @property
    def name(self) -> str:
        return "AMD's device-metrics-exporter" if self.is_amd else "dcgm-exporter"


class GpuHealth:
    """The `gpu_health` probe. Its history of registers is kept in the sample store, one key a node."""

    def __init__(
        self,
        *,
        finder: PodFinder,
        events: NodeEvents,
        pages: PodPages,
        store: SampleStore,
        now: Callable[[], float],
    ) -> None:
        self._finder, self._events, self._pages, self._store, self._now = finder, events, pages, store, now

    async def __call__(self, question: Question) -> Reading:
        world = await question.world()
        if failed := unreadable(question, world, "pods"):
            return failed
        replicas: dict[str, list[str]] = defaultdict(list)
        for pod in pods_asked_for(question, world):
            if node := dig(pod, "spec", "nodeName"):
                replicas[node].append(name_of(pod))
        if not replicas:
            return answer(question, dict.fromkeys(PARTS), missing=dict.fromkeys(PARTS, "no replica is on a node"))
        exporters, said = await asyncio.gather(self._exporters(), self._said(question))
        nodes = {name_of(node): node for node in world.nodes}
        gpus = await asyncio.gather(
            *(self._gpus(node, exporters.get(node), pods, question) for node, pods in replicas.items())
        )
        start = question.context.opened_at - BEFORE_SECONDS
        judged = {
            node: [judge_node(node, nodes.get(node), start), *said(node), *found]
            for node, found in zip(replicas, gpus, strict=True)
        }
        return _told(question, judged, replicas)

    async def _said(self, question: Question) -> Callable[[str], list[Verdict]]:
        """What events say of a node. They only add: without them the exporters and the nodes still speak."""
        start = question.context.opened_at - BEFORE_SECONDS
        try:
            events = about_nodes(await self._events.node_events())
        except ClusterError as error:
            note = f"events of nodes cannot be read: {error}"
            return lambda node: [Verdict(node, False, False, (note,))]
        return lambda node: [judge_events(node, events.get(node, ()), start)]

    async def _gpus(
        self, node: str, exporter: _Exporter | None, pods: Sequence[str], question: Question
    ) -> list[Verdict]:
        if exporter is None:
            return [Verdict(node, None, None, (f"no exporter of NVIDIA or AMD on {node}",))]
        try:
            page = await self._page(exporter)
        except SourceError as error:
            return [Verdict(node, None, None, (f"{node}: {error}",))]
        gpus = (amd.readings_of if exporter.is_amd else readings_of)(page, pods)
        if not gpus:
            return [Verdict(node, None, None, (f"{node}: no GPU on the exporter's page",))]
        found, start = list[Verdict](), question.context.opened_at - BEFORE_SECONDS
        key, now = f"gpus/{question.context.target.cluster}/{node}", self._now()
        earlier = await self._store.between(key, start, now)
        await self._store.add(key, [Scrape(replica=node, at=now, ranks=gpus)])
        fastest = max((values.get("sm_clock", 0.0) for values in gpus.values()), default=0.0)
        for gpu, values in gpus.items():
            before = [scrape.ranks[gpu] for scrape in earlier if gpu in scrape.ranks]
            reaches_back = bool(earlier) and earlier[0].at <= start + 60
            where = f"{node}/{gpu}"
            found.append(
                amd.judge_gpu(where, values, before, reaches_back=reaches_back)
                if exporter.is_amd
                else judge_gpu(where, values, before, fastest=fastest, reaches_back=reaches_back)
            )
        return found

    async def _exporters(self) -> dict[str, _Exporter]:
        """Node to its exporter; a node has GPUs of one maker."""
        nvidia, others = await asyncio.gather(
            self._finder.pods_labelled(DCGM_LABELS), self._finder.pods_labelled(AMD_LABELS)
        )
        return _found(others, AMD_PORT, is_amd=True) | _found(nvidia, DCGM_PORT, is_amd=False)

    async def _page(self, exporter: _Exporter) -> str:
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                return await self._pages.read(exporter.page)
        except TimeoutError as error:
            raise SourceError(f"{exporter.name} did not answer within {DEADLINE_SECONDS:g} s") from error
        except SourceError as error:
            raise SourceError(f"{exporter.name}: {error}") from error


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
    thermal, thermal_note = _judge_heat(now, fastest)
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


def _judge_heat(now: Mapping[str, float], fastest: float) -> tuple[bool | None, str]:
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


PARTS = ("healthy", "fault", "thermal", "detail")


def _told(
    question: Question, by_node: Mapping[str, Sequence[Verdict]], replicas: Mapping[str, Sequence[str]]
) -> Reading:
    verdicts = [verdict for found in by_node.values() for verdict in found]
    fault = any_of(*(verdict.fault for verdict in verdicts))
    thermal = any_of(*(verdict.thermal for verdict in verdicts))
    trouble = any_of(fault, thermal)
    notes = tuple(dict.fromkeys(note for verdict in verdicts for note in verdict.notes))
    detail = "; ".join(notes) or "no fault and no thermal slowdown"
    reasons = dict.fromkeys(PARTS, "; ".join(notes))
    if fault is None and thermal is None:
        return answer(question, dict.fromkeys(PARTS), missing=reasons, source=SOURCE)
    parts = {"healthy": None if trouble is None else not trouble, "fault": fault, "thermal": thermal}
    reading = answer(question, parts | {"detail": detail[:600]}, missing=reasons, detail=detail[:900], source=SOURCE)
    return reading.model_copy(update={"by_replica": _healthy_replicas(by_node, replicas)})


def _healthy_replicas(
    by_node: Mapping[str, Sequence[Verdict]], replicas: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """1 for replicas on healthy nodes, 0 on others; a replica of which this is not known is absent."""
    found: dict[str, float] = {}
    for node, verdicts in by_node.items():
        trouble = any_of(*(verdict.fault for verdict in verdicts), *(verdict.thermal for verdict in verdicts))
        if trouble is not None:
            found |= dict.fromkeys(replicas[node], float(not trouble))
    return found


def _found(pods: Sequence[Obj], port_of_it: int, *, is_amd: bool) -> dict[str, _Exporter]:
    found: dict[str, _Exporter] = {}
    for pod in pods:
        node, address = dig(pod, "spec", "nodeName"), dig(pod, "status", "podIP")
        if node and address and not is_going_away(pod):
            ports = [p for c in dig(pod, "spec", "containers") or [] for p in c.get("ports") or []]
            port = next((int(p["containerPort"]) for p in ports if p.get("name") == "metrics"), port_of_it)
            found[node] = _Exporter(PodPage(namespace_of(pod), name_of(pod), address, port), is_amd)
    return found
