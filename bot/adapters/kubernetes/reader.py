"""The cluster state for planning and probes: everything read at once, each failed part with its own reason.

Only reads. Nodes and all pods of the cluster are large lists: they are kept for a moment and shared between snapshots.
An incident that has changed nothing also shares the lists of its namespace; plans and verification read all lists.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from bot.adapters.kubernetes.client import FORBIDDEN, Answer, KubernetesClient, NoAnswerError
from bot.adapters.kubernetes.credentials import NotSentError
from bot.adapters.kubernetes.paths import OLDER_POOL, is_built_in, path_of
from bot.domain.cluster.argo_cd import APPLICATIONS, argo_application
from bot.domain.cluster.flux import FLUX, flux_name
from bot.domain.cluster.node_autoscaler import STATUS_NAME, STATUS_NAMESPACE
from bot.domain.cluster.objects import CANARY_LABEL, JOB_LABEL, TAKEN_FROM_LABEL, dig, labels_of, name_of, uid_of
from bot.domain.cluster.rollout import rollout_state
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.volumes import CLAIMS, claims_of
from bot.domain.cluster.workload import KINDS, SET_NAME_LABEL, pod_templates
from bot.domain.flags.flags_in_spec import config_maps_named
from bot.domain.kernel.errors import ClusterError, RefusedError
from bot.domain.kernel.retry_after import retry_after
from bot.domain.kernel.target import Target

SNAPSHOT_SECONDS = 10.0
MAX_READS, READ_AGAIN_SECONDS = 10, 0.1
"""How often a workload is read until its controller has observed its last change, and the interval."""
BUSY, BUSY_SECONDS, MAX_BUSY_SECONDS = 429, 1.0, 3.0
"""The API server serves others first (priority and fairness): a read is tried once more, well within a snapshot's time.
"""
CLUSTER_WIDE_SECONDS = 2.0
SHARED_SECONDS = 1.0
"""How old answers about a namespace and its workloads may be that incidents share."""
STATUS_SECONDS = 30.0
"""Whether the cluster has a node autoscaler changes rarely."""

KEPT_AS: Mapping[str, tuple[str, str]] = {
    "Deployment": ("replica_sets", "ReplicaSet"),
    "StatefulSet": ("revisions", "ControllerRevision"),
    "LeaderWorkerSet": ("revisions", "ControllerRevision"),
}
"""The kind that stores the revisions of each kind of workload."""
CLUSTER_WIDE: Mapping[str, str] = {"nodes": "Node", "all_pods": "Pod"}
SCALE_UPS: Mapping[str, Mapping[str, str]] = {
    "triggered": {"fieldSelector": "reason=TriggeredScaleUp"},
    "not_triggered": {"fieldSelector": "reason=NotTriggerScaleUp"},
    "nominated": {"fieldSelector": "reason=Nominated"},
    # The scheduler writes many of these; Karpenter's own say that it adds no node.
    "failed": {"fieldSelector": "reason=FailedScheduling,source!=default-scheduler"},
}
"""Events of node autoscalers about pods; a field selector takes one reason only."""
LISTS: Mapping[str, tuple[str, Mapping[str, str] | None]] = {
    "services": ("Service", None),
    "endpoint_slices": ("EndpointSlice", None),
    "pdbs": ("PodDisruptionBudget", None),
    "quotas": ("ResourceQuota", None),
    "autoscalers": ("HorizontalPodAutoscaler", None),
    "scaled_objects": ("ScaledObject", None),
    "inference_pools": ("InferencePool", None),
    "older_pools": (OLDER_POOL, None),
    "cron_jobs": ("CronJob", None),
    "failed_creates": ("Event", {"fieldSelector": "reason=FailedCreate"}),
    "kills": ("Event", {"fieldSelector": "reason=Killing"}),
    **{name: ("Event", query) for name, query in SCALE_UPS.items()},
}
"""Lists of a namespace that are the same for all its workloads, by kind and query."""


class Labelled(NamedTuple):
    kind: str
    label: str


OURS: Mapping[str, Labelled] = {
    "canary": Labelled("Deployment", CANARY_LABEL),
    "canary_pods": Labelled("Pod", CANARY_LABEL),
    "released_pods": Labelled("Pod", TAKEN_FROM_LABEL),
    "jobs": Labelled("Job", JOB_LABEL),
}
"""What the bot made or labelled."""
NO_SUCH_API = "404 page not found\n"
MATCHES_NOTHING: Mapping[str, str] = {"labelSelector": "incident-bot/none=none"}


@dataclass(frozen=True)
class Part:
    """One list of the snapshot: the objects, or why they could not be read."""

    items: tuple[Obj, ...] = ()
    unreadable: str = ""
    is_refused: bool = False
    """Whether the API server answered, and forbids it."""


@contextlib.asynccontextmanager
async def workload_read(target: Target) -> AsyncIterator[None]:
    """Raises `ClusterError` if the target is no workload, or its read takes too long."""
    if target.kind not in KINDS or not target.resolved:
        raise ClusterError(f"{target} is not a workload that can be read: {target.kind}")
    try:
        async with asyncio.timeout(SNAPSHOT_SECONDS):
            yield
    except TimeoutError:
        raise ClusterError(f"the API server did not answer within {SNAPSHOT_SECONDS:.0f} s") from None


class KubernetesReader:
    def __init__(
        self,
        client: KubernetesClient,
        *,
        now: Callable[[], float] = time.time,
        cluster_wide_seconds: float = CLUSTER_WIDE_SECONDS,
        shared_seconds: float = SHARED_SECONDS,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client, self.now, self._pause = client, now, pause
        self._keep_seconds, self._shared_seconds = cluster_wide_seconds, shared_seconds
        self._kept: dict[str, tuple[float, asyncio.Future[Part]]] = {}

    async def snapshot(self, target: Target, *, incident_id: str) -> ClusterSnapshot:
        """Raises `ClusterError` if the workload itself cannot be read; `workload` is None if it does not exist."""
        async with workload_read(target):
            return await self._read(target, incident_id.lower())

    async def shared_snapshot(self, target: Target, *, incident_id: str) -> ClusterSnapshot:
        """As `snapshot`, and lists of the namespace may be a second old: all incidents there share them."""
        async with workload_read(target):
            return await self._read(target, incident_id.lower(), shared=True)

    async def _read(self, target: Target, slug: str, *, shared: bool = False) -> ClusterSnapshot:
        namespace, at = target.namespace, self.now()
        workload = await self._workload(target, shared=shared)
        of_workload = pods_query(target, workload)
        reads: dict[str, Awaitable[Part]] = {
            **(self._shared_lists(namespace) if shared else self._lists(namespace)),
            **(self._shared_ours(workload, namespace, slug) if shared else self._ours(workload, namespace, slug)),
            **{name: self._cluster_wide(name, kind) for name, kind in CLUSTER_WIDE.items()},
            "pods": self.part("Pod", namespace, of_workload),
            "autoscaler_status": self._autoscaler_status(),
        }
        if kept := KEPT_AS.get(target.kind):
            reads[kept[0]] = self.part(kept[1], namespace, of_workload)
        if argo_application(workload or {}):
            reads[APPLICATIONS] = self._cluster_wide(APPLICATIONS, "Application")
        if flux := flux_name(workload or {}):
            reads[FLUX] = self._one(flux.kind, flux.namespace, flux.name)
        templates = [each.template for each in pod_templates(workload)]
        maps = {name for template in templates for name in config_maps_named(template)}
        reads["config_maps"] = self._each("ConfigMap", namespace, maps)
        volumes = {name for template in templates for name in claims_of(template)}
        reads[CLAIMS] = self._each("PersistentVolumeClaim", namespace, volumes)
        lists = await asyncio.gather(*reads.values())
        parts = dict(zip(reads, lists, strict=True))
        own = without_other_canaries(parts["pods"], slug)
        parts["pods"] = merged(own, parts.pop("canary_pods"), parts.pop("released_pods"))
        parts["inference_pools"] = merged(parts["inference_pools"], parts.pop("older_pools"))
        parts["scale_up_events"] = merged(*(parts.pop(name) for name in SCALE_UPS))
        return _assembled(at, workload, parts)

    def _lists(self, namespace: str) -> dict[str, Awaitable[Part]]:
        return {name: self.part(kind, namespace, query) for name, (kind, query) in LISTS.items()}

    def _shared_lists(self, namespace: str) -> dict[str, Awaitable[Part]]:
        return {
            name: self.shared_part(f"{namespace}/{name}", kind, namespace, query, seconds=self._shared_seconds)
            for name, (kind, query) in LISTS.items()
        }

    def _ours(self, workload: Obj | None, namespace: str, slug: str) -> dict[str, Awaitable[Part]]:
        """What the bot made for this incident, and the pods that it released from this workload."""
        wanted = _values_of_ours(workload, slug)
        return {
            name: self.part(kind, namespace, {"labelSelector": f"{label}={wanted[label]}"})
            for name, (kind, label) in OURS.items()
        }

    def _shared_ours(self, workload: Obj | None, namespace: str, slug: str) -> dict[str, Awaitable[Part]]:
        """The same, out of what the bot made for all incidents: these are few."""
        wanted = _values_of_ours(workload, slug)

        async def of_this(name: str, kind: str, label: str) -> Part:
            query = {"labelSelector": label}
            part = await self.shared_part(f"{namespace}/{name}", kind, namespace, query, seconds=self._shared_seconds)
            mine = tuple(obj for obj in part.items if labels_of(obj).get(label) == wanted[label])
            return Part(mine, part.unreadable)

        return {name: of_this(name, kind, label) for name, (kind, label) in OURS.items()}

    async def _workload(self, target: Target, *, shared: bool) -> Obj | None:
        """The workload as its controller has observed it.

        Even an annotation raises the generation, and the status follows later. If the controller has not caught up
        after a second, the workload is returned as it is.
        """
        find = self.shared_find if shared else self.find
        workload = await find(target.kind, target.namespace, target.name)
        for _ in range(MAX_READS - 1):
            if workload is None or rollout_state(workload).is_observed:
                break
            await self._pause(READ_AGAIN_SECONDS)
            workload = await self.find(target.kind, target.namespace, target.name)
        return workload

    async def _each(self, kind: str, namespace: str, names: Collection[str]) -> Part:
        """Each by its name: the bot may not list them, and reads no other."""
        try:
            found = await asyncio.gather(*(self.find(kind, namespace, name) for name in sorted(names)))
        except ClusterError as error:
            return Part(unreadable=str(error))
        return Part(tuple(one for one in found if one is not None))

    async def _autoscaler_status(self) -> Part:
        """Cluster Autoscaler's ConfigMap: the only object outside of the workload's namespace that is read by name."""

        return await self._kept_for(
            STATUS_SECONDS, STATUS_NAME, lambda: self._one("ConfigMap", STATUS_NAMESPACE, STATUS_NAME)
        )

    async def find(self, kind: str, namespace: str, name: str, *, insists: bool = False) -> Obj | None:
        """One object, None if it does not exist. Raises `ClusterError` on anything else, `RefusedError` on a 403."""
        answer = await self._get(path_of(kind, namespace, name), insists=insists)
        return None if _is_absent(kind, answer) else _object(answer)

    async def shared_find(self, kind: str, namespace: str, name: str) -> Obj | None:
        """As `find`, and it may be a second old: alerts, samples and readings of one moment share the answer."""
        key = f"{namespace}/{kind}/{name}"
        part = await self._kept_for(self._shared_seconds, key, lambda: self._one(kind, namespace, name))
        if part.unreadable:
            self._kept.pop(key, None)
            raise (RefusedError if part.is_refused else ClusterError)(part.unreadable)
        return next(iter(part.items), None)

    async def _one(self, kind: str, namespace: str, name: str) -> Part:
        try:
            found = await self.find(kind, namespace, name)
        except ClusterError as error:
            return Part(unreadable=str(error), is_refused=isinstance(error, RefusedError))
        return Part((found,) if found is not None else ())

    async def listed(self, kind: str, namespace: str = "", query: Mapping[str, str] | None = None) -> tuple[Obj, ...]:
        """Raises `ClusterError` if the list cannot be read."""
        answer = await self._get(path_of(kind, namespace), query)
        return _items(answer)

    async def listed_if_any(self, kind: str, namespace: str) -> tuple[Obj, ...]:
        """As `listed`; if the cluster or the role lacks this kind, there are none that the bot could change."""
        answer = await self._get(path_of(kind, namespace))
        return () if answer.status == FORBIDDEN or _is_absent(kind, answer) else _items(answer)

    async def pods_labelled(self, labels: Mapping[str, str]) -> tuple[Obj, ...]:
        """Pods of any namespace with these labels."""
        wanted = ",".join(f"{key}={value}" for key, value in labels.items())
        return await self.listed("Pod", query={"labelSelector": wanted})

    async def node_events(self) -> tuple[Obj, ...]:
        """Events on Node objects, in any namespace: node-problem-detector lets its operator choose one."""
        part = await self._cluster_wide("node_events", "Event", {"fieldSelector": "involvedObject.kind=Node"})
        if part.unreadable:
            raise ClusterError(part.unreadable)
        return part.items

    async def read_text(self, path: str, query: Mapping[str, str]) -> Answer:
        """A log, which a kubelet writes."""
        return await self._get(path, query, passed_on=True)

    async def _get(self, path: str, query: Mapping[str, str] | None = None, **how: bool) -> Answer:
        ask = partial(self._client.request, "GET", path, query=query, deadline_seconds=SNAPSHOT_SECONDS, **how)
        try:
            answer = await ask()
            if answer.status == BUSY:
                await self._pause(retry_after(answer.retry_after, otherwise=BUSY_SECONDS, at_most=MAX_BUSY_SECONDS))
                answer = await ask()
            return answer
        except (NotSentError, NoAnswerError) as error:
            raise ClusterError(str(error)) from error

    async def part(self, kind: str, namespace: str = "", query: Mapping[str, str] | None = None) -> Part:
        if query == MATCHES_NOTHING:
            return Part()
        try:
            answer = await self._get(path_of(kind, namespace), query)
            # A cluster without this API has no such objects; neither does a missing namespace.
            return Part() if _is_absent(kind, answer) else Part(_items(answer))
        except ClusterError as error:
            return Part(unreadable=str(error))

    async def _cluster_wide(self, name: str, kind: str, query: Mapping[str, str] | None = None) -> Part:
        return await self.shared_part(name, kind, query=query)

    async def shared_part(
        self,
        name: str,
        kind: str,
        namespace: str = "",
        query: Mapping[str, str] | None = None,
        *,
        seconds: float | None = None,
    ) -> Part:
        """As `part`, and it may be `seconds` old, by default a few: callers with the same `name` share one list."""
        old = self._keep_seconds if seconds is None else seconds
        part = await self._kept_for(old, name, lambda: self.part(kind, namespace, query))
        if part.unreadable:
            self._kept.pop(name, None)
        return part

    async def _kept_for(self, seconds: float, name: str, read: Callable[[], Coroutine[Any, Any, Part]]) -> Part:
        kept = self._kept.get(name)
        if kept is None or _is_over(kept, seconds):
            self._kept.pop(name, None)
            self._forget_old()
            kept = self._kept[name] = (time.monotonic(), asyncio.ensure_future(read()))
        if kept[1].done():
            return kept[1].result()
        # A caller that gives up does not cancel the read for the others.
        return await asyncio.shield(kept[1])

    def _forget_old(self) -> None:
        """What was asked first comes first."""
        for name in tuple(itertools.takewhile(lambda name: _is_over(self._kept[name], STATUS_SECONDS), self._kept)):
            del self._kept[name]


def _is_over(kept: tuple[float, asyncio.Future[Part]], seconds: float) -> bool:
    asked_at, answer = kept
    failed = answer.done() and (answer.cancelled() or answer.exception() is not None)
    return failed or time.monotonic() - asked_at >= seconds


def _is_absent(kind: str, answer: Answer) -> bool:
    """Whether the API server says that there is none: a proxy before it may know no such path."""
    lacks_api = answer.body == NO_SUCH_API and not is_built_in(kind)
    return answer.status == 404 and (answer.is_of_server or lacks_api)


def _items(answer: Answer) -> tuple[Obj, ...]:
    found = _object(answer)
    if "items" not in found:
        raise ClusterError("the answer of the API server is not a list")
    return tuple(found["items"] or [])


def _object(answer: Answer) -> Obj:
    if answer.status == FORBIDDEN:
        raise RefusedError(answer.message)
    if not answer.is_ok or not answer.is_of_server:
        raise ClusterError(answer.message)
    found: Obj = answer.body
    return found


def _values_of_ours(workload: Obj | None, slug: str) -> dict[str, str]:
    """The values of the bot's labels on what belongs to this incident, and to this workload."""
    return {CANARY_LABEL: slug, JOB_LABEL: slug, TAKEN_FROM_LABEL: uid_of(workload or {}) or "none"}


def pods_query(target: Target, workload: Obj | None) -> dict[str, str]:
    """The workload's selector as a query; without a workload, the query that is answered with nothing."""
    if target.kind == "LeaderWorkerSet":
        return {"labelSelector": f"{SET_NAME_LABEL}={target.name}"}
    selector: Obj = dig(workload, "spec", "selector") or {"matchExpressions": []}
    terms = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    terms += [_term(expression) for expression in selector.get("matchExpressions") or []]
    return {"labelSelector": ",".join(terms)} if terms else dict(MATCHES_NOTHING)


def _term(expression: Mapping[str, Any]) -> str:
    key, values = str(expression["key"]), ",".join(expression.get("values") or [])
    texts = {
        "In": f"{key} in ({values})",
        "NotIn": f"{key} notin ({values})",
        "Exists": key,
        "DoesNotExist": f"!{key}",
    }
    return texts[expression["operator"]]


def without_other_canaries(pods: Part, slug: str) -> Part:
    """The workload's selector matches the canaries of all incidents: their pods carry its labels."""
    kept = tuple(pod for pod in pods.items if labels_of(pod).get(CANARY_LABEL, slug) == slug)
    return replace(pods, items=kept)


def merged(*parts: Part) -> Part:
    """Each object once: the canary's pods match both selectors in most clusters."""
    by_uid = {uid_of(obj): obj for part in parts for obj in part.items}
    return Part(tuple(by_uid.values()), next((part.unreadable for part in parts if part.unreadable), ""))


def _assembled(at: float, workload: Obj | None, parts: Mapping[str, Part]) -> ClusterSnapshot:
    single: dict[str, Any] = {name: next(iter(parts[name].items), None) for name in ("canary", "autoscaler_status")}
    lists: dict[str, Any] = {name: part.items for name, part in parts.items() if name not in (*single, "config_maps")}
    lists["config_maps"] = {name_of(one): one for one in parts["config_maps"].items}
    unreadable = {name: part.unreadable for name, part in parts.items() if part.unreadable}
    return ClusterSnapshot(at=at, workload=workload, unreadable=unreadable, **single, **lists)
