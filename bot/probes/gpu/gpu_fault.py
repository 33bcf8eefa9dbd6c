"""The `gpu_fault` probe: which class of fault the GPUs of our replicas show, on which node, and who else acts there.

A register counts only if it changed in the incident's time, or if an event or the alert itself dates its XID. A fault
without a date is unknown, and people are asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bot.domain.changes.steps.node_steps import others_on
from bot.domain.cluster.objects import dig, is_cordoned, is_staying, name_of, uid_of
from bot.domain.cluster.rotation import pods_of_workload
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.errors import ClusterError
from bot.domain.kernel.references import pick_in
from bot.domain.signals.signal import Reading
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import answer, no_answer, unreadable
from bot.probes.declaration import Probe, Sources
from bot.probes.gpu.alerted import alerted_xids
from bot.probes.gpu.exporters import Exporters, Gpu, NodeGpus
from bot.probes.gpu.held import gpus_of, holder_of, missing_gpus
from bot.probes.gpu.history import NO_RECORD, Record, RegisterHistory, place_of, recorded_xids, start_of
from bot.probes.gpu.node_events import about_nodes, xids_in
from bot.probes.gpu.nodes import judge_node
from bot.probes.gpu.remediators import marks_of, remediators_of
from bot.probes.gpu.verdict import SOURCE, counted_errors
from bot.probes.gpu.xids import class_of, counted_xids, new_xids, primary_xids, xid_of

SEVERITY = ("none", "stale", "application", "contained", "", "fatal")
"""The mildest first. Unknown is next to fatal: it might be fatal, so only a certain fatal fault is worse."""


@dataclass(frozen=True)
class Fault:
    """What one GPU or node shows; an empty `kind` is unknown."""

    kind: str
    note: str = ""
    xids: tuple[int, ...] = ()
    gpu: Gpu | None = None
    node: str = ""
    old_xids: tuple[int, ...] = ()
    """XIDs that the register held before the incident's time."""


@dataclass(frozen=True)
class Dated:
    """XIDs of a node that are known to be new: from its events, and from the incident's alerts."""

    events: tuple[int, ...] = ()
    alerted: tuple[int, ...] = ()


NOTHING_DATED = Dated()


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
    on_gpu: float | None
    others_pods: float | None
    remap_pending: bool | None
    remap_failed: bool | None
    cordoned: bool | None
    others_act: bool | None


class ReadGpuFault:
    def __init__(self, sources: Sources) -> None:
        self._exporters, self._finder = Exporters(sources), sources.finder
        self._history, self._records = RegisterHistory("faults", sources), sources.registers

    async def __call__(self, request: ProbeRequest) -> Reading:
        snapshot = await request.snapshot()
        if failed := unreadable(request, snapshot, "pods", "nodes"):
            return failed
        nodes = sorted(_nodes_asked_for(request, snapshot))
        if not nodes:
            return no_answer(request, "no replica is on a node")
        pages, events = await asyncio.gather(self._exporters.read(nodes), self._events())
        alerted = alerted_xids(request.context.alerts, pods_of_workload(snapshot), pages)
        uuids = [gpu.uuid for page in pages.values() for gpu in page.gpus]
        recorded = await recorded_xids(self._records, uuids, request)
        faults: list[Fault] = []
        for node in nodes:
            dated = Dated(xids_in(events.get(node, ()), start_of(request)), alerted.get(node, ()))
            of_gpus = await self._gpu_faults(node, pages[node], dated, recorded, request, snapshot)
            old = {xid for fault in of_gpus for xid in fault.old_xids}
            dated = replace(dated, alerted=tuple(xid for xid in dated.alerted if xid not in old))
            faults += [*of_gpus, _node_fault(node, snapshot, dated, start_of(request))]
        worst = max(faults, key=lambda fault: (SEVERITY.index(fault.kind), fault.gpu is not None))
        return _reading_of(request, snapshot, worst, faults)

    async def _gpu_faults(
        self,
        node: str,
        page: NodeGpus,
        dated: Dated,
        recorded: Mapping[str, Record],
        request: ProbeRequest,
        snapshot: ClusterSnapshot,
    ) -> list[Fault]:
        if page.unreadable:
            return [Fault("", page.unreadable, node=node)]
        ours = [pod for pod in pods_of_workload(snapshot) if dig(pod, "spec", "nodeName") == node]
        registers = {gpu.index: gpu.values for gpu in page.gpus}
        readings = await self._history.add(place_of(request, node), registers, start_of(request))
        # All GPUs of a node that is asked for by name are judged: it may hold none of our replicas any more.
        gpus = gpus_of(page.gpus, ours) if request.spec.of == "target" else page.gpus
        judged = []
        for gpu in gpus:
            record = recorded.get(gpu.uuid, NO_RECORD)
            before, back = readings.before(gpu.index), readings.reaches_back
            judged.append((gpu, judge_gpu(gpu.values, before, dated, reaches_back=back, record=record)))
        seen = next((each for each in snapshot.nodes if name_of(each) == node), None)
        notes = missing_gpus(page.gpus, ours, readings.gone, seen)
        missing = [Fault("", f"{node}: {note}", node=node) for note in notes]
        return missing + [
            replace(fault, note=fault.note and f"GPU {gpu.index} of {node}: {fault.note}", gpu=gpu, node=node)
            for gpu, fault in judged
        ]

    async def _events(self) -> Mapping[str, Sequence[Obj]]:
        """Events only add to the registers, which count without them too."""
        try:
            return about_nodes(await self._finder.node_events())
        except ClusterError:
            return {}


def judge_gpu(
    now: Mapping[str, float],
    before: Sequence[Mapping[str, float]],
    dated: Dated = NOTHING_DATED,
    *,
    reaches_back: bool,
    record: Record = NO_RECORD,
) -> Fault:
    """`before`: earlier readings of the incident's time. `reaches_back`: whether they begin where that time does."""
    old = _old_xid(now, before, record, reaches_back=reaches_back)
    recent = _recent_xids(now, before, dated, record, old)
    found = [
        Fault(class_of(xid) or "", f"XID {xid} since the incident began ({xid_of(xid).meaning})")
        for xid in primary_xids(recent)
    ]
    if now.get("row_remap_failure", 0.0) >= 1:
        found.append(Fault("fatal", "a memory row could not be remapped"))
    has_errors, errors = counted_errors("ecc_dbe", now, before, reaches_back=reaches_back)
    if errors:
        found.append(Fault("fatal" if has_errors else "" if has_errors is None else "none", errors))
    is_old = reaches_back and before and before[0].get("row_remap_pending", 0.0) >= 1
    if now.get("row_remap_pending", 0.0) >= 1 and not is_old:
        found.append(Fault("contained", "a memory row waits for a reset to be remapped"))
    if "xid" not in now and "gpu_health" in now:
        found.append(Fault("" if now["gpu_health"] != 1 else "none", "AMD's exporter names no XIDs"))
    elif "xid" not in now:
        found.append(Fault("", "XIDs are not exported"))
    elif not recent and int(now["xid"]) != 0:
        found.append(_undated(int(now["xid"]), is_old=old is not None))
    worst = max(found, key=lambda fault: SEVERITY.index(fault.kind), default=Fault("none"))
    notes = "; ".join(dict.fromkeys(fault.note for fault in found))
    return Fault(worst.kind, notes, xids=recent, old_xids=() if old is None or old in recent else (old,))


def _old_xid(
    now: Mapping[str, float], before: Sequence[Mapping[str, float]], record: Record, *, reaches_back: bool
) -> int | None:
    """The XID that the register holds, if it held the same one at the begin of the incident's time."""
    first = next((was["xid"] for was in before if "xid" in was), None) if reaches_back else None
    first = record.xids[0] if first is None and record.reaches_back else first
    return int(first) if first is not None and int(first) != 0 and first == now.get("xid") else None


def _recent_xids(
    now: Mapping[str, float],
    before: Sequence[Mapping[str, float]],
    dated: Dated,
    record: Record,
    old: int | None,
) -> tuple[int, ...]:
    """XIDs that the register took on while we watched, that the exporter counted lately, or that an event dates."""
    readings = (*before, now)
    known = {*dated.events, *(xid for xid in dated.alerted if xid != old)}
    in_events = [int(now["xid"])] if now.get("xid", 0.0) in known else []
    recorded = new_xids([*record.readings, now]) if record.xids else []
    changed = [*new_xids(readings), *recorded]
    return tuple(dict.fromkeys([*in_events, *changed, *counted_xids(readings)]))


def _undated(xid: int, *, is_old: bool) -> Fault:
    kind, meaning = xid_of(xid)
    if is_old:
        return Fault("stale", f"XID {xid} seen, not recent ({meaning})")
    if kind == "application":
        return Fault("stale", f"XID {xid} seen, a program's fault ({meaning})")
    return Fault("", f"XID {xid} seen, its age is not known ({meaning})")


def _node_fault(node: str, snapshot: ClusterSnapshot, dated: Dated, since: float) -> Fault:
    """By the XIDs of its events and of the alerts, else by its conditions and taints, which name no class."""
    if xids := (*dated.events, *dated.alerted):
        worst = _gravest(xids)
        source = "event," if worst in dated.events else "the alert names"
        note = f"{node}: {source} XID {worst} ({xid_of(worst).meaning})"
        return Fault(class_of(worst) or "", note, xids=xids, node=node)
    verdict = judge_node(node, next((one for one in snapshot.nodes if name_of(one) == node), None), since)
    notes = "; ".join(verdict.notes)
    # Not Ready, or marked as faulty lately: trouble, though maybe not the GPU's.
    return Fault("none" if verdict.fault is False else "", notes, node=node)


def _gravest(xids: Iterable[int]) -> int:
    return max(primary_xids(xids), key=lambda xid: SEVERITY.index(class_of(xid) or ""))


def _reading_of(request: ProbeRequest, snapshot: ClusterSnapshot, worst: Fault, faults: Sequence[Fault]) -> Reading:
    node = next((one for one in snapshot.nodes if name_of(one) == worst.node), None)
    ours = _ours_on(snapshot, worst.node)
    notes = list(dict.fromkeys(fault.note for fault in (worst, *faults) if fault.note))
    detail = "; ".join(notes) or "no fault in the registers"
    values = worst.gpu.values if worst.gpu else {}
    holding = [pod for pod in ours if worst.gpu and holder_of(pod) in worst.gpu.holders]
    others = _others(request, snapshot, node)
    parts = GpuFault(
        kind=worst.kind or None,
        xid=float(_gravest(worst.xids)) if worst.xids else None,
        xids=", ".join(str(xid) for xid in worst.xids),
        node=worst.node,
        gpu=worst.gpu.uuid or worst.gpu.index if worst.gpu else None,
        bus_id=(worst.gpu.bus_id or None) if worst.gpu else None,
        replica=name_of((holding or ours)[0]) if ours else "",
        here=float(len(ours)),
        on_gpu=float(len(holding)) if worst.gpu else None,
        remap_pending=values["row_remap_pending"] >= 1 if "row_remap_pending" in values else None,
        remap_failed=values["row_remap_failure"] >= 1 if "row_remap_failure" in values else None,
        detail=detail[:600],
        cordoned=None if node is None else is_cordoned(node),
        others_act=others.act,
        actors=others.actors,
        others_pods=others.pods,
        owners=others.owners,
    )
    missing = {
        "kind": detail[:600],
        "xid": "no XID came in the incident's time",
        "gpu": "no single GPU is named",
        "on_gpu": "no single GPU is named",
        "bus_id": "the exporter does not name it",
        "remap_pending": "row remapping is not exported",
        "remap_failed": "row remapping is not exported",
        "cordoned": f"node {worst.node} cannot be read",
        "others_act": f"node {worst.node} cannot be read",
        "actors": f"node {worst.node} cannot be read",
        "others_pods": snapshot.unreadable.get("all_pods", f"node {worst.node} cannot be read"),
        "owners": snapshot.unreadable.get("all_pods", f"node {worst.node} cannot be read"),
    }
    return answer(request, parts, missing=missing, detail=detail[:900], source=SOURCE)


@dataclass(frozen=True)
class _Others:
    """Who else acts on the node, how it is marked, and whose pods run there. None is unknown."""

    act: bool | None = None
    actors: str | None = None
    pods: float | None = None
    owners: str | None = None


def _others(request: ProbeRequest, snapshot: ClusterSnapshot, node: Obj | None) -> _Others:
    if node is None:
        return _Others()
    acting = remediators_of(node, request.context.incident_id)
    actors = "; ".join([*acting, *(f"reported {mark}" for mark in marks_of(node))]) or "nobody else"
    if "all_pods" in snapshot.unreadable:
        return _Others(bool(acting), actors)
    others, listed = others_on(snapshot, node)
    return _Others(bool(acting), actors, float(len(others)), listed or "no pods of others")


def _nodes_asked_for(request: ProbeRequest, snapshot: ClusterSnapshot) -> frozenset[str]:
    """The nodes of our replicas, or the picked node."""
    if (pick := pick_in(request.spec.of)) is not None:
        name = request.context.picked.get(pick, "")
        return frozenset({name} if any(name_of(node) == name for node in snapshot.nodes) else ())
    return frozenset(str(node) for pod in pods_of_workload(snapshot) if (node := dig(pod, "spec", "nodeName")))


def _ours_on(snapshot: ClusterSnapshot, node: str) -> list[Obj]:
    mine = {uid_of(pod): pod for pod in pods_of_workload(snapshot)}.values()
    here = [pod for pod in mine if dig(pod, "spec", "nodeName") == node and is_staying(pod)]
    return sorted(here, key=name_of)


PROBE = Probe(
    name="gpu_fault",
    label="GPU faults",
    help="Which GPU is faulty, of which kind (none, stale, application, contained, fatal), where, and who acts on it.",
    answer=GpuFault,
    read=ReadGpuFault,
)
