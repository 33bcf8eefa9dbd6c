"""Who would take our edit back: the tool or controller that owns a workload or its replica count."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from bot.domain.change.objects import annotations_of, controller_of, dig, labels_of, name_of, namespace_of
from bot.domain.change.world import Obj, World


@dataclass(frozen=True)
class Owner:
    tool: str
    """`Helm`, `Argo CD`, `Flux`, `KServe`, `HPA`, or the kind of the controller."""
    text: str
    """Whom or what, for people."""
    how: str
    """How the change is made through it."""


def owner_of(workload: Obj) -> Owner | None:
    """Who would revert an edit of the workload's spec; None when it is applied by hand."""
    labels, annotations = labels_of(workload), annotations_of(workload)
    if service := labels.get("serving.kserve.io/inferenceservice"):
        return Owner("KServe", f"KServe InferenceService {service}", f"edit InferenceService {service}")
    controller = controller_of(workload)
    if controller is not None:
        who = f"{controller.get('kind')} {controller.get('name')}"
        return Owner(str(controller.get("kind")), who, f"edit {who}")
    if tracked := annotations.get("argocd.argoproj.io/tracking-id") or labels.get("argocd.argoproj.io/instance"):
        app = tracked.split(":")[0]
        return Owner("Argo CD", f"Argo CD application {app}", f"commit it to git, then: argocd app sync {app}")
    for kind, key in (("HelmRelease", "helm"), ("Kustomization", "kustomize")):
        if name := labels.get(f"{key}.toolkit.fluxcd.io/name"):
            return Owner("Flux", f"Flux {kind} {name}", f"commit it to git, then: flux reconcile {kind.lower()} {name}")
    if labels.get("app.kubernetes.io/managed-by") == "Helm" or "meta.helm.sh/release-name" in annotations:
        release = annotations.get("meta.helm.sh/release-name", name_of(workload))
        return Owner("Helm", f"Helm release {release}", f"put it into the values of {release}, then: helm upgrade")
    return None


def autoscaler_of(world: World) -> Owner | None:
    """Who owns the replica count; None when nobody does."""
    workload = world.workload or {}
    for scaler in world.autoscalers:
        target = dig(scaler, "spec", "scaleTargetRef") or {}
        if target.get("name") == name_of(workload) and target.get("kind", "Deployment") == "Deployment":
            return _scaler(scaler)
    return None


def _scaler(scaler: Obj) -> Owner:
    made_by = controller_of(scaler) or {}
    if made_by.get("kind") == "ScaledObject":
        who = f"ScaledObject {made_by.get('name')} (KEDA)"
        return Owner("KEDA", who, f"edit minReplicaCount and maxReplicaCount of {who}")
    most, least = dig(scaler, "spec", "maxReplicas"), dig(scaler, "spec", "minReplicas") or 1
    who = f"HorizontalPodAutoscaler {name_of(scaler)} (min {least}, max {most})"
    return Owner("HPA", who, f"edit minReplicas and maxReplicas of HorizontalPodAutoscaler {name_of(scaler)}")


def patch_text(workload: Obj, spec: dict[str, Any], owner: Owner) -> str:
    """What the owner has to be given: the wanted part of the spec, as YAML-readable JSON, and the way in."""
    head = f"# {workload.get('kind', 'Deployment')} {namespace_of(workload)}/{name_of(workload)}: {owner.how}"
    return f"{head}\n{json.dumps({'spec': spec}, indent=2)}"
