"""A snapshot of the part of the cluster that planning may read: objects as the API returned them, at one moment.

Planning and progress checks are pure functions of it. `unreadable` lists what could not be read, by field name, with
the reason; no gap is silent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bot.domain.signals.scrape import ReplicaLoad

Obj = dict[str, Any]
"""A Kubernetes object as JSON, camelCase keys, exactly as the API returned it."""


@dataclass(frozen=True)
class ClusterSnapshot:
    at: float
    workload: Obj | None
    replica_sets: tuple[Obj, ...] = ()
    pods: tuple[Obj, ...] = ()
    """Pods of the workload (by its selector), our canary's pods, and pods that carry this incident's id.

    No pod of another incident's canary, although the workload's selector matches it.
    """
    services: tuple[Obj, ...] = ()
    endpoint_slices: tuple[Obj, ...] = ()
    pdbs: tuple[Obj, ...] = ()
    quotas: tuple[Obj, ...] = ()
    """ResourceQuotas of the workload's namespace."""
    failed_creates: tuple[Obj, ...] = ()
    """Events of the namespace about pods that could not be created."""
    scale_up_events: tuple[Obj, ...] = ()
    """Events of node autoscalers about Pending pods of the namespace: a node is added for them, or none is."""
    autoscaler_status: Obj | None = None
    """Cluster Autoscaler's own ConfigMap; None on a cluster without it."""
    kills: tuple[Obj, ...] = ()
    """Events of the namespace about containers that a kubelet ends."""
    nodes: tuple[Obj, ...] = ()
    all_pods: tuple[Obj, ...] = ()
    """Every pod of the cluster: the holders of accelerators, and the other pods on a node."""
    revisions: tuple[Obj, ...] = ()
    """ControllerRevisions of a StatefulSet; a Deployment's revisions are its ReplicaSets."""
    autoscalers: tuple[Obj, ...] = ()
    scaled_objects: tuple[Obj, ...] = ()
    """KEDA's, which own HorizontalPodAutoscalers."""
    inference_pools: tuple[Obj, ...] = ()
    """Of the Gateway API Inference Extension: their endpoint pickers send requests to the pods that they select."""
    applications: tuple[Obj, ...] = ()
    """Argo CD's, of every namespace; read only if one of them tracks the workload."""
    flux: tuple[Obj, ...] = ()
    """The HelmRelease or Kustomization that applies the workload, as its labels say."""
    config_maps: dict[str, Obj] = field(default_factory=dict)
    """By name: those from which the workload's pod templates take engine flags or variables."""
    claims: tuple[Obj, ...] = ()
    """PersistentVolumeClaims that the workload's pod templates name."""
    canary: Obj | None = None
    cron_jobs: tuple[Obj, ...] = ()
    """Of the workload's namespace: templates of Jobs."""
    jobs: tuple[Obj, ...] = ()
    """Jobs that this incident started."""
    load: dict[str, ReplicaLoad] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    worked_out: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """Results that take long to work out, such as room for replicas; a changed copy begins without any."""
