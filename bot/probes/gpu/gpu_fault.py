"""The `gpu_fault` probe: which class of fault the GPUs of our replicas show, on which node, and who else acts there.

A register counts only when it changed in the incident's time; what cannot be dated is unknown, and people are asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bot.domain.changes.steps.node_steps import others_on
from bot.domain.cluster.objects import dig, is_finished, is_going_away, name_of, namespace_of, uid_of
from bot.domain.cluster.rotation import pods_of_workload
from bot.domain.cluster.snapshot import Obj, World
from bot.domain.kernel.errors import ClusterError
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Reading
from bot.flow.ports import Finder, ProbeRequest, SampleStore
from bot.probes.answers import answer, no_answer, unreadable
from bot.probes.declaration import Probe, Sources
from bot.probes.gpu.exporters import Exporters, GpuSeen, NodeSeen
from bot.probes.gpu.node_events import about_nodes, xids_in
from bot.probes.gpu.nodes import judge_node
from bot.probes.gpu.remediators import marks_of, remediators_of
from bot.probes.gpu.verdict import BEFORE_SECONDS, SOURCE
from bot.probes.gpu.xids import class_of, xid_of

SEVERITY = ("none", "stale", "application", "contained", "", "fatal")
"""From the mildest on. Unknown stands before fatal: it might be, and only a certain fatal fault outdoes that."""


@dataclass(frozen=True)
class Fault:
    """What one GPU or node shows; an empty `kind` is not known."""

    kind: str
    note: str = ""
    xids: tuple[int, ...] = ()
    gpu: GpuSeen | None = None
    node: str = ""


@dataclass(frozen=True)
class GpuFault:
    kind: str | None
    xids: str
    node: str
    gpu: str | None
    bus_id: str | None
    replica: str
    actors: str | None
    owners: str | None
    detail: str
    xid: float | None
    here: float
    others_pods: float | None
    remap_pending: bool | None
    remap_failed: bool | None
    others_act: bool | None


class ReadGpuFault:
    """Its history of registers is kept in the sample store, one key a node."""

    def __init__(self, *, exporters: Exporters, events: Finder, store: SampleStore, now: Callable[[], float]) -> None:
        self._exporters, self._events, self._store, self._now = exporters, events, store, now

    async def __call__(self, request: ProbeRequest) -> Reading:
        world = await request.world()
        if failed := unreadable(request, world, "pods", "nodes"):
            return failed
        nodes = _nodes_asked_for(request, world)
        if not nodes:
            return no_answer(request, "no replica is on a node")
        seen, said = await asyncio.gather(self._exporters.nodes(nodes), self._said(request))
        faults: list[Fault] = []
        since = request.context.began_at - BEFORE_SECONDS
        for node in sorted(nodes):
            told = xids_in(said.get(node, ()), since)
            faults += await self._on_node(node, seen[node], told, request, world)
            faults.append(_said_of(node, world, told, since))
        worst = max(faults, key=lambda fault: (SEVERITY.index(fault.kind), fault.gpu is not None))
        return _told(request, world, worst, faults)

    async def _on_node(
        self, node: str, seen: NodeSeen, told: Sequence[int], request: ProbeRequest, world: World
    ) -> list[Fault]:
        if seen.unreadable:
            return [Fault("", seen.unreadable, node=node)]
        ours = {(namespace_of(pod), name_of(pod)) for pod in pods_of_workload(world)}
        held = [gpu for gpu in seen.gpus if (gpu.namespace, gpu.pod) in ours]
        start, now = request.context.began_at - BEFORE_SECONDS, self._now()
        key = f"faults/{request.context.target.cluster}/{node}"
        earlier = await self._store.between(key, start, now)
        registers = {gpu.gpu: dict(gpu.values) for gpu in seen.gpus}
        await self._store.add(key, [Scrape(replica=node, at=now, ranks=registers)])
        reaches_back = bool(earlier) and earlier[0].at <= start + 60
        mapped = any(gpu.pod for gpu in seen.gpus)
        return [
            _named(judge_gpu(gpu.values, _before(earlier, gpu.gpu), told, reaches_back=reaches_back), gpu, node)
            # A node that is asked for by name is looked at whole: it may hold none of ours any more.
            for gpu in (held if request.spec.of == "target" and mapped else seen.gpus)
        ]

    async def _said(self, request: ProbeRequest) -> Mapping[str, Sequence[Obj]]:
        """Events only add to what registers say; without them the registers still speak."""
        try:
            return about_nodes(await self._events.node_events())
        except ClusterError:
            return {}


def judge_gpu(
    now: Mapping[str, float],
    before: Sequence[Mapping[str, float]],
    told: Sequence[int] = (),
    *,
    reaches_back: bool,
) -> Fault:
    """`before`: earlier readings of the incident's time; `reaches_back`: whether they begin where that time does.

    `told`: XIDs that the node's events date into that time.
    """
    recent = _recent_xids(now, before, told)
    found = [
        Fault(class_of(xid) or "", f"XID {xid} since the incident began ({xid_of(xid).meaning})") for xid in recent
    ]
    if now.get("row_remap_failure", 0.0) >= 1:
        found.append(Fault("fatal", "a memory row could not be remapped"))
    if any(now.get("ecc_dbe", 0.0) > was["ecc_dbe"] for was in before if "ecc_dbe" in was):
        found.append(Fault("fatal", "uncorrectable memory errors rose since the incident began"))
    is_old = reaches_back and before and before[0].get("row_remap_pending", 0.0) >= 1
    if now.get("row_remap_pending", 0.0) >= 1 and not is_old:
        found.append(Fault("contained", "a memory row waits for a reset to be remapped"))
    if "xid" not in now and "gpu_health" in now:
        found.append(Fault("" if now["gpu_health"] != 1 else "none", "AMD's exporter names no XIDs"))
    elif "xid" not in now:
        found.append(Fault("", "XIDs are not exported"))
    elif not recent and int(now["xid"]) != 0:
        found.append(_undated(int(now["xid"]), reaches_back=reaches_back, has_seen=any("xid" in was for was in before)))
    worst = max(found, key=lambda fault: SEVERITY.index(fault.kind), default=Fault("none"))
    notes = "; ".join(dict.fromkeys(fault.note for fault in found))
    return Fault(worst.kind, notes, xids=recent)


def _recent_xids(
    now: Mapping[str, float], before: Sequence[Mapping[str, float]], told: Sequence[int]
) -> tuple[int, ...]:
    """Those that the register took on while we looked, that the exporter counted lately, or that an event dates.

    A later XID overwrites the register: what stood there in between counts too.
    """
    seen = [int(values["xid"]) for values in (*before, now) if "xid" in values]
    came = [later for earlier, later in pairwise(seen) if later not in (earlier, 0)]
    names = [key.removeprefix("counted:") for values in (*before, now) for key in values if key.startswith("counted:")]
    dated = [int(now["xid"])] if now.get("xid", 0.0) in told else []
    return tuple(dict.fromkeys([*dated, *came, *(int(name) for name in names if name.isdigit())]))


def _undated(xid: int, *, reaches_back: bool, has_seen: bool) -> Fault:
    kind, meaning = xid_of(xid)
    if has_seen and reaches_back:
        return Fault("stale", f"XID {xid} seen, not recent ({meaning})")
    if kind == "application":
        return Fault("stale", f"XID {xid} seen, a program's fault ({meaning})")
    return Fault("", f"XID {xid} seen, its age is not known ({meaning})")


def _before(earlier: Sequence[Scrape], gpu: str) -> list[Mapping[str, float]]:
    return [scrape.ranks[gpu] for scrape in earlier if gpu in scrape.ranks]


def _named(fault: Fault, gpu: GpuSeen, node: str) -> Fault:
    note = f"{node}/{gpu.gpu}: {fault.note}" if fault.note else ""
    return Fault(fault.kind, note, fault.xids, gpu, node)


def _said_of(node: str, world: World, xids: tuple[int, ...], since: float) -> Fault:
    """What the node's events and marks say: an XID in an event has a date; a mark has no class."""
    if xids:
        worst = max(xids, key=lambda xid: SEVERITY.index(class_of(xid) or ""))
        note = f"{node}: event, XID {worst} ({xid_of(worst).meaning})"
        return Fault(class_of(worst) or "", note, xids=xids, node=node)
    verdict = judge_node(node, next((one for one in world.nodes if name_of(one) == node), None), since)
    notes = "; ".join(verdict.notes)
    # Not Ready, or marked as faulty lately: trouble, of which this does not say whether it is the GPU's.
    return Fault("none" if verdict.fault is False else "", notes, node=node)


def _told(request: ProbeRequest, world: World, worst: Fault, faults: Sequence[Fault]) -> Reading:
    node = next((one for one in world.nodes if name_of(one) == worst.node), None)
    ours = _ours_on(world, worst.node)
    notes = list(dict.fromkeys(fault.note for fault in (worst, *faults) if fault.note))
    detail = "; ".join(notes) or "no fault in the registers"
    values = worst.gpu.values if worst.gpu else {}
    holder = worst.gpu.pod if worst.gpu and worst.gpu.pod in ours else ""
    others = _others(request, world, node)
    parts = GpuFault(
        kind=worst.kind or None,
        xid=float(worst.xids[-1]) if worst.xids else None,
        xids=", ".join(str(xid) for xid in worst.xids),
        node=worst.node,
        gpu=worst.gpu.uuid or worst.gpu.gpu if worst.gpu else None,
        bus_id=(worst.gpu.bus_id or None) if worst.gpu else None,
        replica=holder or (ours[0] if ours else ""),
        here=float(len(ours)),
        remap_pending=values["row_remap_pending"] >= 1 if "row_remap_pending" in values else None,
        remap_failed=values["row_remap_failure"] >= 1 if "row_remap_failure" in values else None,
        detail=detail[:600],
        others_act=others.act,
        actors=others.actors,
        others_pods=others.pods,
        owners=others.owners,
    )
    missing = {
        "kind": detail[:600],
        "xid": "no XID came in the incident's time",
        "gpu": "no single GPU is named",
        "bus_id": "the exporter does not name it",
        "remap_pending": "row remapping is not exported",
        "remap_failed": "row remapping is not exported",
        "others_act": f"node {worst.node} cannot be read",
        "actors": f"node {worst.node} cannot be read",
        "others_pods": world.unreadable.get("all_pods", f"node {worst.node} cannot be read"),
        "owners": world.unreadable.get("all_pods", f"node {worst.node} cannot be read"),
    }
    return answer(request, parts, missing=missing, detail=detail[:900], source=SOURCE)


@dataclass(frozen=True)
class _Others:
    """Who else acts on the node, what it is marked with, and whose pods run there. None: not known."""

    act: bool | None = None
    actors: str | None = None
    pods: float | None = None
    owners: str | None = None


def _others(request: ProbeRequest, world: World, node: Obj | None) -> _Others:
    if node is None:
        return _Others()
    acting = remediators_of(node, request.context.incident_id)
    actors = "; ".join([*acting, *(f"reported {mark}" for mark in marks_of(node))]) or "nobody else"
    if "all_pods" in world.unreadable:
        return _Others(bool(acting), actors)
    others, listed = others_on(world, node)
    return _Others(bool(acting), actors, float(len(others)), listed or "no pods of others")


def _nodes_asked_for(request: ProbeRequest, world: World) -> frozenset[str]:
    """The nodes of our replicas, or the one that was picked."""
    of = request.spec.of
    if of.startswith("picked."):
        name = request.context.picked.get(of.removeprefix("picked."), "")
        return frozenset({name} if any(name_of(node) == name for node in world.nodes) else ())
    return frozenset(str(node) for pod in pods_of_workload(world) if (node := dig(pod, "spec", "nodeName")))


def _ours_on(world: World, node: str) -> list[str]:
    mine = {uid_of(pod): pod for pod in pods_of_workload(world)}.values()
    return sorted(name_of(pod) for pod in mine if dig(pod, "spec", "nodeName") == node and _is_there(pod))


def _is_there(pod: Obj) -> bool:
    return not is_finished(pod) and not is_going_away(pod)


def _reader(sources: Sources) -> ReadGpuFault:
    exporters = Exporters(sources.finder, sources.pages, sources.amd_labels)
    return ReadGpuFault(exporters=exporters, events=sources.finder, store=sources.samples, now=sources.now)


PROBE = Probe(
    name="gpu_fault",
    help="Which GPU is faulty, of which class, where, and who else acts on it.",
    answer=GpuFault,
    read=_reader,
)
