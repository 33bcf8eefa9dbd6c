"""The workload that an incident is about, and how it is identified from an alert's labels."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

WORKLOAD_LABELS = (("deployment", "Deployment"), ("statefulset", "StatefulSet"), ("leaderworkerset", "LeaderWorkerSet"))
SLO_ANNOTATIONS = {
    "ttft_target": "incident-bot/ttft-target",
    "tpot_target": "incident-bot/tpot-target",
    "objective": "incident-bot/slo-objective",
}
"""Settings of playbooks that a workload may set for itself."""
HINT_LABELS = ("service", "job", "pod", "exported_pod", "instance", "model_name")


class Target(BaseModel):
    model_config = ConfigDict(frozen=True)

    cluster: str = ""
    namespace: str = ""
    kind: str = "Deployment"
    name: str
    resolved: bool = True
    """False if the cluster could not be queried in time: the name then comes from the labels only."""
    slo: tuple[tuple[str, str], ...] = ()
    """The workload's annotations of `SLO_ANNOTATIONS`, by setting, as they were when it was found."""

    @property
    def key(self) -> str:
        return f"{self.cluster}/{self.namespace}/{self.kind}/{self.name}"

    @classmethod
    def of_key(cls, key: str) -> Target:
        """Returns the target of a `key`; names of Kubernetes objects contain no slash."""
        cluster, namespace, kind, name = key.rsplit("/", 3)
        return cls(cluster=cluster, namespace=namespace, kind=kind, name=name, resolved=kind != "Unknown")

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def named_by(labels: Mapping[str, str], cluster: str) -> Target:
    """Returns the best target from the labels alone; `resolved` only if they name a workload outright."""
    namespace = labels.get("namespace") or labels.get("exported_namespace", "")
    where = labels.get("cluster", cluster)
    for label, kind in WORKLOAD_LABELS:
        if labels.get(label):
            return Target(cluster=where, namespace=namespace, kind=kind, name=labels[label])
    for label in HINT_LABELS:
        if labels.get(label):
            return Target(cluster=where, namespace=namespace, kind="Unknown", name=labels[label], resolved=False)
    return Target(
        cluster=where, namespace=namespace, kind="Unknown", name=labels.get("alertname", "unknown"), resolved=False
    )
