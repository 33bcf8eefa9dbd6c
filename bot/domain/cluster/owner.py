"""Who keeps an object or a replica count, whether it reverts an edit by itself, and the text that it has to be given.

Flux, KServe, controllers and Argo CD with self-heal revert an edit within minutes: they are not edited, and people get
the text to put where the object is kept. What an Argo CD application ignores, or a mark excludes from Flux, is
edited all the same. Helm, a Flux HelmRelease without drift detection, and Argo CD without self-heal write their own
text with their next release or sync: the edit is made, and people get the text to commit. Of autoscalers only the
bounds are changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from bot.domain.cluster.argo_cd import (
    APPLICATIONS,
    INSTANCE,
    applications_named,
    argo_application,
    heals_itself,
    ignored_fields,
    respects_ignored,
)
from bot.domain.cluster.flux import flux_name, next_write_of_flux
from bot.domain.cluster.objects import (
    FIELD_MANAGER,
    annotations_of,
    controller_of,
    dig,
    labels_of,
    name_of,
    namespace_of,
    writers_of,
)
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import kind_of

MANAGED_BY = "app.kubernetes.io/managed-by"
API_VERSIONS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "HorizontalPodAutoscaler": "autoscaling/v2",
    "ScaledObject": "keda.sh/v1alpha1",
}
FORCE = "--force-conflicts"
UNLIMITED_BY_KEDA = 100
AUTOSCALERS = frozenset({"HorizontalPodAutoscaler", "ScaledObject"})
ONLY_OUT = "paused-scale-out"
PAUSES = ("paused", "paused-replicas", ONLY_OUT)
"""Annotations of a ScaledObject that keep it from scaling out; `paused-scale-in` does not (KEDA 2.18)."""
NOT_PAUSED = frozenset({"0", "f", "F", "false", "False", "FALSE"})
"""What KEDA reads as false (Go's ParseBool); other texts pause. `paused-replicas` is a number, and always pauses."""


@dataclass(frozen=True)
class Owner:
    tool: str
    """`Helm`, `Argo CD`, `Flux`, `KServe`, or the kind of the controller."""
    text: str
    """The owner, for people."""
    how: str
    """How to make the change through it."""
    next_write: str = ""
    """What reverts an edit that was not committed; empty if the owner reverts any edit by itself, within minutes."""
    unknown: str = ""
    """Why it is not known whether the owner reverts by itself: it then counts as if it did."""
    ignores: str = ""
    """The edited fields, if the owner reverts them only with its next write although it reverts others by itself."""
    leaves_alone: str = ""
    """The edited fields, if the owner never writes them."""

    @property
    def reverts(self) -> bool:
        return not (self.next_write or self.leaves_alone)


def owner_of(obj: Obj, snapshot: ClusterSnapshot) -> Owner | None:
    """Returns who keeps the object's spec; None if it is applied by hand. `snapshot` has those of Argo CD and Flux."""
    labels, annotations = labels_of(obj), annotations_of(obj)
    if service := labels.get("serving.kserve.io/inferenceservice"):
        return Owner("KServe", f"KServe InferenceService {service}", f"edit InferenceService {service}")
    controller = controller_of(obj)
    if controller is not None:
        who = f"{controller.get('kind')} {controller.get('name')}"
        return Owner(str(controller.get("kind")), who, f"edit {who}")
    if app := argo_application(obj):
        return _argo_owner(app, snapshot)
    if flux := flux_name(obj):
        how = f"commit it to git, then: flux reconcile {flux.kind.lower()} {flux.name}"
        next_write, unknown = next_write_of_flux(flux, obj, snapshot)
        return Owner("Flux", f"Flux {flux}", how, next_write=next_write, unknown=unknown)
    if labels.get(MANAGED_BY) == "Helm" or "meta.helm.sh/release-name" in annotations:
        release = annotations.get("meta.helm.sh/release-name") or labels.get(INSTANCE, name_of(obj))
        how, next_write = f"put it into the values of {release}, then: helm upgrade", "the next helm upgrade"
        if _is_applied_by_helm(obj):
            how += f" {FORCE} (without the option it fails on the fields that the bot wrote)"
            next_write += f" with {FORCE}"
        return Owner("Helm", f"Helm release {release}", how, next_write=next_write)
    return None


def _is_applied_by_helm(obj: Obj) -> bool:
    """Whether Helm uses server-side apply, as Helm 4 does for its own releases."""
    return any(one.manager == "helm" and one.operation == "Apply" for one in writers_of(obj))


def owner_of_edit(obj: Obj, snapshot: ClusterSnapshot, spec: Mapping[str, Any], *, kind: str = "") -> Owner | None:
    """Returns who keeps these parts of the object's spec: an Argo CD application may leave them alone."""
    owner, kind = owner_of(obj, snapshot), kind or kind_of(obj)
    if owner is None or owner.tool != "Argo CD" or owner.unknown:
        return owner
    found = applications_named(argo_application(obj), snapshot)
    group = API_VERSIONS.get(kind, "").rpartition("/")[0]
    ignored = [ignored_fields(one, obj, spec, group, kind) for one in found]
    if not all(ignored):
        return owner
    fields = ", ".join(ignored[0])
    if all(respects_ignored(one, obj) for one in found):
        return replace(owner, leaves_alone=fields)
    return replace(owner, next_write="its next sync", ignores=fields)


def _argo_owner(app: str, snapshot: ClusterSnapshot) -> Owner:
    text, how = f"Argo CD application {app}", f"commit it to git, then: argocd app sync {app}"
    if why := snapshot.unreadable.get(APPLICATIONS):
        return Owner("Argo CD", text, how, unknown=f"it could not be read: {why}")
    found = applications_named(app, snapshot)
    if not found:
        return Owner("Argo CD", text, how, unknown="it is not in this cluster")
    if any(map(heals_itself, found)):
        return Owner("Argo CD", text, how)
    return Owner("Argo CD", text, how, next_write="its next sync")


def unknown_manager(obj: Obj) -> str:
    """Returns the manager that an object without a known owner claims: nothing shows that it would revert an edit."""
    manager = labels_of(obj).get(MANAGED_BY, "")
    return "" if manager in ("", FIELD_MANAGER) else manager


# --- autoscalers ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Autoscaler:
    """The object that owns a workload's replica count, and its field for the minimum."""

    kind: Literal["HorizontalPodAutoscaler", "ScaledObject"]
    obj: Obj
    least: int
    most: int | None
    paused: str = ""
    """The annotations that keep it from adding replicas."""
    is_fixed: bool = False
    """Whether they keep it from taking replicas away too."""

    @property
    def text(self) -> str:
        return f"{self.kind} {name_of(self.obj)} (min {self.least}, max {self.most})"

    @property
    def lowest(self) -> int:
        """The fewest replicas that it ever decides by itself: KEDA goes below its floor while nothing is to be done."""
        idle = dig(self.obj, "spec", "idleReplicaCount")
        return self.least if idle is None else int(idle)

    @property
    def idle(self) -> str:
        """What it does below its floor, for people; empty if it never goes there."""
        if self.lowest >= self.least:
            return ""
        what = f"it goes to {self.lowest} replicas all the same (idleReplicaCount)"
        return f"while none of its triggers is active, {what}"

    @property
    def floor_field(self) -> str:
        return "minReplicas" if self.kind == "HorizontalPodAutoscaler" else "minReplicaCount"

    @property
    def maximum_field(self) -> str:
        return "maxReplicas" if self.kind == "HorizontalPodAutoscaler" else "maxReplicaCount"

    @property
    def how(self) -> str:
        fields = f"{self.floor_field} and {self.maximum_field}"
        return f"edit {fields} of {self.kind} {name_of(self.obj)}"


def autoscaler_of(snapshot: ClusterSnapshot) -> Autoscaler | None:
    """Returns the replica count's owner; None without one. KEDA's object comes before the autoscaler it creates."""
    workload = snapshot.workload or {}
    for scaled in snapshot.scaled_objects:
        if aims_at(scaled, workload):
            most, pauses = dig(scaled, "spec", "maxReplicaCount"), _pauses(scaled)
            return Autoscaler(
                "ScaledObject",
                scaled,
                least=int(dig(scaled, "spec", "minReplicaCount") or 0),
                most=UNLIMITED_BY_KEDA if most is None else int(most),
                paused=", ".join(f"autoscaling.keda.sh/{key}={value}" for key, value in pauses.items()),
                is_fixed=any(key != ONLY_OUT for key in pauses),
            )
    for scaler in snapshot.autoscalers:
        if aims_at(scaler, workload):
            most = dig(scaler, "spec", "maxReplicas")
            least = dig(scaler, "spec", "minReplicas")
            return Autoscaler(
                "HorizontalPodAutoscaler",
                scaler,
                1 if least is None else int(least),
                None if most is None else int(most),
            )
    return None


def aims_at(scaler: Obj, workload: Obj) -> bool:
    target = dig(scaler, "spec", "scaleTargetRef") or {}
    return target.get("name") == name_of(workload) and target.get("kind", "Deployment") == kind_of(workload)


def _pauses(scaled: Obj) -> dict[str, str]:
    given = annotations_of(scaled)
    notes = {key: given[name] for key in PAUSES if (name := f"autoscaling.keda.sh/{key}") in given}
    return {key: value for key, value in notes.items() if key == "paused-replicas" or value not in NOT_PAUSED}


# --- what the owner has to be given -----------------------------------------------------------------------------------


def patch_text(obj: Obj, spec: Mapping[str, Any], owner: Owner, *, kind: str = "") -> str:
    """Returns a patch as YAML: the wanted part of the spec and nothing else, headed by where to apply it.

    For Helm also the values, as far as charts agree on a name: `helm create` writes `replicaCount`.
    """
    kind = kind or kind_of(obj)
    head = f"# {kind} {namespace_of(obj)}/{name_of(obj)}: {owner.how}"
    if "strategy" in spec:
        head += "\n# no surge pod fits, so each replica ends before its successor starts;"
        head += "\n# put your own strategy back afterwards"
    if owner.tool == "Helm":
        head += "\n# the rendered object has to say this; the chart decides which of its values sets it"
        if "replicas" in spec:
            head += f" (in most charts: replicaCount: {spec['replicas']})"
    if owner.tool == "KServe":
        return f"{head}\n{_inference_service(labels_of(obj), namespace_of(obj), spec)}"
    named = {"apiVersion": API_VERSIONS.get(kind, "v1"), "kind": kind}
    metadata = {"name": name_of(obj), "namespace": namespace_of(obj)}
    return f"{head}\n{yaml_text({**named, 'metadata': metadata, 'spec': spec})}"


def _inference_service(labels: Mapping[str, str], namespace: str, spec: Mapping[str, Any]) -> str:
    containers = dig(spec, "template", "spec", "containers")
    part: dict[str, Any] = {"predictor": {"containers": containers}} if containers else {"predictor": dict(spec)}
    if "replicas" in spec:
        part = {"predictor": {"minReplicas": spec["replicas"]}}
    if containers and "strategy" in spec:
        part["predictor"]["deploymentStrategy"] = spec["strategy"]
    note = (
        "# with `predictor.model` instead of `containers`, the same lists stand under `model`\n" if containers else ""
    )
    return note + yaml_text(
        {
            "apiVersion": "serving.kserve.io/v1beta1",
            "kind": "InferenceService",
            "metadata": {"name": labels["serving.kserve.io/inferenceservice"], "namespace": namespace},
            "spec": part,
        }
    )


def yaml_text(value: Mapping[str, Any]) -> str:
    """Block-style YAML; texts are quoted as JSON, which is valid YAML, so that none is misread as another type."""
    return "\n".join(_mapping(value, ""))


def _mapping(value: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, each in value.items():
        if isinstance(each, Mapping) and each:
            yield f"{indent}{key}:"
            yield from _mapping(each, indent + "  ")
        elif isinstance(each, list | tuple) and each:
            yield f"{indent}{key}:"
            yield from _sequence(each, indent)
        else:
            yield f"{indent}{key}: {json.dumps(each, ensure_ascii=False)}"


def _sequence(values: Sequence[Any], indent: str) -> Iterator[str]:
    for each in values:
        if isinstance(each, Mapping) and each:
            first, *rest = _mapping(each, indent + "  ")
            yield f"{indent}- {first.lstrip()}"
            yield from rest
        else:
            yield f"{indent}- {json.dumps(each, ensure_ascii=False)}"
