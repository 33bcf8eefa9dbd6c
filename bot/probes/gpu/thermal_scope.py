"""The `thermal_scope` probe: which nodes are hot, and whether that is one node or the facility.

Every GPU is measured against its own slowdown limit if its exporter gives one. Unreadable nodes may be hot too, and so
may nodes with GPUs and without an exporter: if that would change the scope, it is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bot.domain.cluster.capacity import accelerators_of, allocatable
from bot.domain.cluster.objects import ZONE_LABEL, dig, labels_of, name_of
from bot.domain.cluster.rotation import pods_of_workload
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.incidents.subjects import FACILITY
from bot.domain.kernel.durations import lasting
from bot.domain.kernel.references import pick_in
from bot.domain.signals.probe_spec import Parameter
from bot.domain.signals.signal import Reading
from bot.domain.signals.window import Point, slope
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import answer, no_answer, unreadable
from bot.probes.declaration import Probe, Sources
from bot.probes.gpu import amd, nvidia
from bot.probes.gpu.exporters import Exporters, Gpu, Holder, NodeGpus
from bot.probes.gpu.held import holder_of
from bot.probes.gpu.history import RegisterHistory, place_of
from bot.probes.gpu.verdict import SOURCE

FACILITY_NODES, RACK_NODES, BRAKE_NODES = 3, 2, 2
"""This many hot nodes in all, in one rack, or slowed by the power brake are trouble of the facility."""
RACK_LABELS = ("topology.kubernetes.io/rack", "topology.rack", "rack")
"""There is no standard label for racks: `parameters: {rack: …}` names the cluster's own."""
GPU_KINDS = ("nvidia.com/gpu", "nvidia.com/mig-", "amd.com/gpu")
"""The names of nodes' resources that are GPUs, or slices of them, begin so."""
POWER_BRAKE = 0x80
SLOPE_SECONDS, SLOPE_NEEDS_SECONDS = 600.0, 30.0


@dataclass(frozen=True)
class Heat:
    """One GPU; None is unknown. `margin`: degrees below its limit; `beside_limit`: what is nearest to its limit."""

    gpu: Gpu
    celsius: float | None
    margin: float | None
    beside_limit: str
    slowed: bool | None
    brake: bool

    @property
    def is_hot(self) -> bool | None:
        """Whether it is slowed by heat or at its limit."""
        if self.slowed or (self.margin is not None and self.margin <= 0):
            return True
        return None if self.slowed is None and self.margin is None else False


@dataclass(frozen=True)
class _Node:
    name: str
    zone: str
    rack: str
    heats: tuple[Heat, ...]
    unreadable: str

    @property
    def is_hot(self) -> bool | None:
        states = [heat.is_hot for heat in self.heats]
        if any(states):
            return True
        return None if self.unreadable or not states or None in states else False

    @property
    def celsius(self) -> float:
        return max((heat.celsius for heat in self.heats if heat.celsius is not None), default=float("-inf"))

    @property
    def brakes(self) -> bool:
        return any(heat.brake for heat in self.heats)


@dataclass(frozen=True)
class ThermalScope:
    scope: str | None
    node: str
    zone: str | None
    replica: str
    where: str
    detail: str
    nodes: float
    hottest: float | None
    margin: float | None
    rising: float | None
    power_brake: float
    ours: float
    slowed: bool | None


class ReadThermalScope:
    def __init__(self, sources: Sources) -> None:
        self._exporters, self._now = Exporters(sources), sources.now
        self._history = RegisterHistory("heat", sources)

    async def __call__(self, request: ProbeRequest) -> Reading:
        snapshot = await request.snapshot()
        if failed := unreadable(request, snapshot, "pods", "nodes"):
            return failed
        if (pick := pick_in(request.spec.of)) is not None:
            pages = await self._exporters.read([request.context.picked.get(pick, "")])
        else:
            pages = await self._exporters.read_with(_nodes_with_gpus(snapshot))
        if not pages:
            return no_answer(request, "no node has a GPU exporter")
        rack = request.spec.parameters.get("rack")
        nodes = _nodes(snapshot, pages, (str(rack),) if rack else RACK_LABELS)
        rising = await self._rising([node for node in nodes if node.is_hot] or nodes, request)
        return _reading_of(request, snapshot, nodes, rising)

    async def _rising(self, nodes: Iterable[_Node], request: ProbeRequest) -> float | str:
        """Degrees per minute of the GPU that rises fastest, or why it is unknown."""
        slopes = list[float]()
        for node in nodes:
            celsius = {heat.gpu.index: {"celsius": heat.celsius} for heat in node.heats if heat.celsius is not None}
            since = self._now() - SLOPE_SECONDS
            readings = (await self._history.add(place_of(request, node.name), celsius, since)).scrapes
            for gpu in celsius:
                points = [Point(one.at, one.ranks[gpu]["celsius"]) for one in readings if gpu in one.ranks]
                if points[-1].at - points[0].at >= SLOPE_NEEDS_SECONDS:
                    slopes.append(60 * slope(points))
        return max(slopes) if slopes else f"temperatures have been watched for less than {lasting(SLOPE_NEEDS_SECONDS)}"


def heat_of(gpu: Gpu, fastest: float) -> Heat:
    """`fastest`: the highest clock on its node; a slow clock is judged by it."""
    now = gpu.values
    if gpu.is_amd:
        slowed = amd.judge_gpu(gpu.index, now, (), reaches_back=False).thermal
        core = now.get("gpu_junction_temperature", now.get("gpu_edge_temperature"))
        nearest = _nearest((core, amd.HOT_JUNCTION), (now.get("gpu_memory_temperature"), amd.HOT_MEMORY))
        return Heat(gpu, core, *nearest, slowed, brake=False)
    # By its clocks only; temperatures are measured against the GPU's own limits below.
    cold = {name: 0.0 if name.endswith("temperature") else value for name, value in now.items()}
    slowed, _ = nvidia.judge_heat(cold, fastest)
    brake = bool(int(now.get("clock_reasons", 0.0)) & POWER_BRAKE) or "event:hw_power_brake" in now
    nearest = _nearest(
        (now.get("temperature"), now.get("slowdown_temperature") or nvidia.HOT_GPU),
        (now.get("memory_temperature"), now.get("memory_limit") or nvidia.HOT_MEMORY),
    )
    return Heat(gpu, now.get("temperature"), *nearest, slowed, brake=brake)


def _nearest(core: tuple[float | None, float], memory: tuple[float | None, float]) -> tuple[float | None, str]:
    """The smaller of both margins, and its temperature beside its limit."""
    read = [
        (limit - celsius, f"{part}{celsius:.0f} °C (limit {limit:.0f} °C)")
        for part, (celsius, limit) in (("", core), ("memory ", memory))
        if celsius is not None
    ]
    return min(read, default=(None, ""), key=lambda each: each[0])


def scope_of(hot: Sequence[tuple[str, str]], brakes: int) -> str:
    """`hot`: zone and rack of each hot node. Racks with the same name in two zones are different."""
    racks = Counter(place for place in hot if place[1])
    if len(hot) >= FACILITY_NODES or brakes >= BRAKE_NODES or any(count >= RACK_NODES for count in racks.values()):
        return FACILITY
    return "one" if hot else "none"


def _nodes_with_gpus(snapshot: ClusterSnapshot) -> set[str]:
    """Also those of our replicas, whose GPUs may have another name, without leaders that ask for none."""
    pods = pods_of_workload(snapshot)
    with_gpus = [pod for pod in pods if accelerators_of(pod)] or pods
    ours = {str(node) for pod in with_gpus if (node := dig(pod, "spec", "nodeName"))}
    return ours | {name_of(node) for node in snapshot.nodes if _has_gpus(node)}


def _has_gpus(node: Obj) -> bool:
    kinds = dig(node, "status", "allocatable") or {}
    return any(kind.startswith(GPU_KINDS) and allocatable(node, kind) > 0 for kind in kinds)


def _nodes(snapshot: ClusterSnapshot, pages: Mapping[str, NodeGpus], rack_labels: Sequence[str]) -> list[_Node]:
    """The hottest first."""
    labels = {name_of(node): labels_of(node) for node in snapshot.nodes}
    found = []
    for name, node in pages.items():
        own = labels.get(name, {})
        rack = next((own[label] for label in rack_labels if own.get(label)), "")
        fastest = max((gpu.values.get("sm_clock", 0.0) for gpu in node.gpus), default=0.0)
        heats = tuple(heat_of(gpu, fastest) for gpu in node.gpus)
        found.append(_Node(name, own.get(ZONE_LABEL, ""), rack, heats, node.unreadable))
    return sorted(found, key=lambda node: (node.is_hot is not True, -node.celsius, node.name))


def _reading_of(
    request: ProbeRequest, snapshot: ClusterSnapshot, nodes: Sequence[_Node], rising: float | str
) -> Reading:
    hot = [node for node in nodes if node.is_hot]
    unsure = [node for node in nodes if node.is_hot is None]
    scope, missing_scope = _scope(hot, unsure)
    first = nodes[0]
    margins = [heat.margin for node in nodes for heat in node.heats if heat.margin is not None]
    slows = [heat.slowed for node in nodes for heat in node.heats]
    slowed = True if any(slows) else None if None in slows or unsure else False
    ours = _ours(snapshot, {node.name for node in hot} or {first.name})
    parts = ThermalScope(
        scope=scope,
        node=first.name,
        zone=first.zone or None,
        replica=_replica(first, ours),
        where=_places(hot),
        nodes=float(len(hot)),
        hottest=first.celsius if margins and first.celsius > float("-inf") else None,
        margin=min(margins, default=None),
        rising=rising if isinstance(rising, float) else None,
        power_brake=float(sum(node.brakes for node in nodes)),
        ours=float(len(ours)),
        slowed=slowed,
        detail=_detail(hot, unsure, first)[:600],
    )
    missing = {
        "scope": missing_scope[:600],
        "zone": f"node {first.name} has no label {ZONE_LABEL}",
        "hottest": "no temperature is exported",
        "margin": "no temperature is exported",
        "rising": str(rising),
        "slowed": "; ".join(node.unreadable for node in unsure if node.unreadable)[:600]
        or "clock events are not exported",
    }
    return answer(request, parts, missing=missing, detail=_detail(hot, unsure, first)[:900], source=SOURCE)


def _scope(hot: Sequence[_Node], unsure: Sequence[_Node]) -> tuple[str | None, str]:
    brakes = sum(node.brakes for node in (*hot, *unsure))
    least = scope_of([(node.zone, node.rack) for node in hot], brakes)
    most = scope_of([(node.zone, node.rack) for node in (*hot, *unsure)], brakes)
    if least == most:
        return least, ""
    return None, "; ".join(node.unreadable or f"{node.name}: its heat is not known" for node in unsure)


def _places(hot: Sequence[_Node]) -> str:
    """How many hot nodes by zone and rack."""
    places = Counter(" ".join(filter(None, (node.zone, node.rack))) or "no zone" for node in hot)
    return ", ".join(f"{count} in {place}" for place, count in sorted(places.items())) or "no hot node"


def _detail(hot: Sequence[_Node], unsure: Sequence[_Node], first: _Node) -> str:
    lines = [f"{node.name} {_celsius(node)}{' power brake' if node.brakes else ''}".rstrip() for node in hot]
    lines += [node.unreadable or f"{node.name}: its heat is not known" for node in unsure]
    return "; ".join(lines) or f"no hot node; the warmest is {first.name} {_celsius(first)}".rstrip()


def _celsius(node: _Node) -> str:
    read = [(heat.margin, heat.beside_limit) for heat in node.heats if heat.margin is not None]
    return min(read, default=(0.0, ""))[1]


def _ours(snapshot: ClusterSnapshot, nodes: set[str]) -> dict[Holder, str]:
    """Our replicas on these nodes, with their node."""
    placed = {holder_of(pod): str(dig(pod, "spec", "nodeName") or "") for pod in pods_of_workload(snapshot)}
    return {pod: node for pod, node in sorted(placed.items()) if node in nodes}


def _replica(first: _Node, ours: Mapping[Holder, str]) -> str:
    """Our replica on the hottest GPU of the hottest node."""
    here = [pod for pod, node in ours.items() if node == first.name]
    by_heat = sorted(first.heats, key=lambda heat: -(heat.celsius or 0.0))
    holding = [pod for heat in by_heat for pod in here if pod in heat.gpu.holders]
    return next((name for _, name in (*holding, *here)), "")


PROBE = Probe(
    name="thermal_scope",
    label="GPU temperatures",
    units={"hottest": "°C", "margin": "°C", "rising": "°C a minute"},
    help="How far heat reaches, as scope: none, one (node) or facility (a rack or a hall).",
    answer=ThermalScope,
    parameters={
        "rack": Parameter("The label of nodes that names their rack."),
    },
    read=ReadThermalScope,
)
