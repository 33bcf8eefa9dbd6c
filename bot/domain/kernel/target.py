"""The workload that an incident is about, and how it is identified from an alert's labels."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase

from pydantic import BaseModel, ConfigDict

from bot.domain.kernel.errors import UnknownClusterError

WORKLOAD_LABELS = (("deployment", "Deployment"), ("statefulset", "StatefulSet"), ("leaderworkerset", "LeaderWorkerSet"))
SLO_ANNOTATIONS = {
    "ttft_target": "incident-bot/ttft-target",
    "tpot_target": "incident-bot/tpot-target",
    "objective": "incident-bot/slo-objective",
}
"""Settings of playbooks that a workload may set for itself."""
_OBJECT_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
"""What Kubernetes takes as a name (a DNS subdomain)."""
POD_LABELS = ("exported_pod", "pod")
HINT_LABELS = ("exported_pod", "service", "job", "pod", "instance", "model_name")
"""What an exporter says of another object is `exported_…`; the labels beside it are the exporter's own."""
PATTERN = r"^([A-Za-z0-9_.*-]+/)?[a-z0-9.*-]+/[a-z0-9.*-]+$"
"""`namespace/workload` or `cluster/namespace/workload`, with `*` for anything."""


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
    among_several: bool = False
    """Whether the bot works on several clusters: texts then name this one."""

    @property
    def key(self) -> str:
        return f"{self.cluster}/{self.namespace}/{self.kind}/{self.name}"

    @classmethod
    def of_key(cls, key: str) -> Target:
        """Returns the target of a `key`; names of Kubernetes objects contain no slash."""
        cluster, namespace, kind, name = key.rsplit("/", 3)
        return cls(cluster=cluster, namespace=namespace, kind=kind, name=name, resolved=kind != "Unknown")

    @property
    def workload(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def matches(self, pattern: str) -> bool:
        """Whether a pattern of the settings is about it: `namespace/name` or `cluster/namespace/name`, with `*`."""
        where = f"{self.cluster}/{self.workload}" if pattern.count("/") > 1 else self.workload
        return fnmatchcase(where, pattern)

    def __str__(self) -> str:
        return f"{self.cluster}/{self.workload}" if self.among_several else self.workload


class TargetPattern(str):
    """A pattern of targets in the settings. Its type finds it there, whichever setting holds it."""

    __slots__ = ()


def checked_pattern(text: str) -> TargetPattern:
    """Returns the pattern of targets that an operator wrote. Raises `ValueError` if it can match none."""
    # Without a slash, `*` stands for any text, slashes too.
    if re.fullmatch(PATTERN, text) or (text and "/" not in text and "*" in text):
        return TargetPattern(text)
    namespace = f", such as {text}/*" if is_name(text) else ""
    raise ValueError(f"'{text}' matches no target; write NAMESPACE/WORKLOAD, with * for anything{namespace}")


def cluster_named(label: str, known: Collection[str]) -> str:
    """Returns the cluster that an alert's `cluster` label, or the cluster of a stored target, is about.

    `known`: the names of the bot's clusters. The only cluster need not be named, and if it has no name, it takes every
    label. Raises `UnknownClusterError`.
    """
    if label in known:
        return label
    if len(known) == 1 and not (label and all(known)):
        return next(iter(known))
    raise UnknownClusterError(label, known)


def is_of(cluster: str, target: Target, known: Collection[str]) -> bool:
    """Whether a stored target is about this cluster."""
    try:
        return cluster_named(target.cluster, known) == cluster
    except UnknownClusterError:
        return False


def named_by(labels: Mapping[str, str], cluster: str) -> Target:
    """Returns the best target from the labels alone; `resolved` only if they name a workload and its namespace.

    A value that no Kubernetes object can have as its name does not count: senders write what they like into a label.
    """
    namespace = name_in(labels, "exported_namespace") or name_in(labels, "namespace")
    where = labels.get("cluster") or cluster
    named = ((kind, name) for label, kind in WORKLOAD_LABELS if (name := name_in(labels, label)))
    kind, workload = next(named, ("", ""))
    if workload and namespace:
        return Target(cluster=where, namespace=namespace, kind=kind, name=workload)
    hints = (workload, *(labels.get(label, "") for label in (*HINT_LABELS, "alertname")))
    # Names of models have slashes, and keys are split at them.
    name = next(filter(None, hints), "unknown").replace("/", "-")
    return Target(cluster=where, namespace=namespace, kind="Unknown", name=name, resolved=False)


def target_labels(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Everything in the labels that identifies a workload: alerts that are equal in it are about the same one."""
    named = [labels.get(label, "") for label, _ in WORKLOAD_LABELS] + [labels.get(label, "") for label in HINT_LABELS]
    where = [labels.get(label, "") for label in ("cluster", "namespace", "exported_namespace")]
    return (*where, *(named if any(named) else [labels.get("alertname", "")]))


def is_name(text: str) -> bool:
    """Whether a Kubernetes object can have this name."""
    return _OBJECT_NAME.fullmatch(text) is not None


def name_in(labels: Mapping[str, str], label: str) -> str:
    """Returns the name of an object in this label; empty if there is none."""
    value = labels.get(label, "")
    return value if is_name(value) else ""
