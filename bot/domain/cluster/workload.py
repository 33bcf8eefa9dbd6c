"""Differences between workload kinds: the location of their pod templates, and the pods of one replica.

One replica of a Deployment or StatefulSet is a pod. One replica of a LeaderWorkerSet is a group of pods, of which the
leader serves; they start and end together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bot.domain.cluster.objects import annotations_of, dig, labels_of, name_of
from bot.domain.cluster.snapshot import Obj

KINDS = ("Deployment", "StatefulSet", "LeaderWorkerSet")
NUMBERED = ("StatefulSet", "LeaderWorkerSet")
"""Kinds whose replicas have fixed numbers: scaling in always ends the highest ones."""
POD_OF_IT = "-[a-z0-9]{1,10}-[a-z0-9]{5}"
"""The rest of a pod's name after its Deployment's: template hash and a random suffix."""
PODS_OF: Mapping[str, str] = {"Deployment": POD_OF_IT, **dict.fromkeys(NUMBERED, "-[0-9]+")}
"""By the kind of workload: the rest of a serving pod's name. The workers of a LeaderWorkerSet have two numbers."""
LEADER_WORKER_SET_PREFIX = "leaderworkerset.sigs.k8s.io/"
SET_NAME_LABEL = LEADER_WORKER_SET_PREFIX + "name"
GROUP_LABEL = LEADER_WORKER_SET_PREFIX + "group-index"
WORKER_LABEL = LEADER_WORKER_SET_PREFIX + "worker-index"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"
REVISION_HASH_LABEL = "controller-revision-hash"
STATEFUL_SET_LABELS = frozenset({POD_INDEX_LABEL, REVISION_HASH_LABEL, "statefulset.kubernetes.io/pod-name"})
"""Labels that the StatefulSet controller itself sets on its pods."""
LEADER = "0"
_SERVES_ON_EACH_POD = re.compile(r"--data[-_]parallel[-_](?:hybrid|external)[-_]lb\b|(?<!\S)-dp[he](?!\S)")
"""Flags of an engine that leaves the balance between nodes to the router. Else only the leader has an API server."""
_SERVES_ON_EACH_PORT = re.compile(r"--data[-_]parallel[-_]multi[-_]port[-_]external[-_]lb\b|(?<!\S)-dpm(?!\S)")
_IN_LEADER_WORKER_SET = ("spec", "leaderWorkerTemplate")
_OF_MODELS = re.compile(r"llm|model|inference|gpu|cuda|rocm|\btpu|neuron|sglang|triton|hugging|hf_", re.IGNORECASE)
"""What names, images, commands and variables of an inference engine have in them."""
_ANNOTATIONS = "incident-bot/"
"""Begins the bot's annotations, such as those with which a workload names its SLO."""


@dataclass(frozen=True)
class PodTemplate:
    """One of a workload's pod templates."""

    keys: tuple[str, ...]
    template: Obj
    pods: int = 1
    """How many of its pods one replica has."""

    @property
    def path(self) -> str:
        return "".join(f"/{part}" for part in self.keys)

    def in_spec(self, part: Obj) -> Obj:
        """Returns a part of the template as a part of the workload's spec."""
        for key in reversed(self.keys[1:]):
            part = {key: part}
        return part


def kind_of(workload: Obj | None) -> str:
    return str((workload or {}).get("kind") or "Deployment")


def pod_templates(workload: Obj | None) -> tuple[PodTemplate, ...]:
    """Returns the templates, that of the serving pods first."""
    if kind_of(workload) != "LeaderWorkerSet":
        keys: tuple[str, ...] = ("spec", "template")
        return (PodTemplate(keys, dig(workload, *keys) or {}),)
    leader, worker = (*_IN_LEADER_WORKER_SET, "leaderTemplate"), (*_IN_LEADER_WORKER_SET, "workerTemplate")
    size = pods_in_a_replica(workload)
    workers = dig(workload, *worker) or {}
    if not dig(workload, *leader):
        return (PodTemplate(worker, workers, size),)
    first = PodTemplate(leader, dig(workload, *leader))
    return (first, PodTemplate(worker, workers, size - 1)) if size > 1 else (first,)


def template_of(workload: Obj | None) -> Obj:
    """Returns the template of the serving pods; empty without a workload."""
    return pod_templates(workload)[0].template


def pods_in_a_replica(workload: Obj | None) -> int:
    return int(dig(workload, *_IN_LEADER_WORKER_SET, "size") or 1) if kind_of(workload) == "LeaderWorkerSet" else 1


def may_serve_models(obj: Obj) -> bool:
    """Whether a pod or a workload may run an inference engine: it asks for a device, or something in it names models.

    Wrong on the side of yes: an alert about what does not is shown to nobody.
    """
    if any(key.startswith(_ANNOTATIONS) for key in annotations_of(obj)) or _OF_MODELS.search(name_of(obj)):
        return True
    parts = [obj] if obj.get("kind") == "Pod" else [each.template for each in pod_templates(obj)]
    specs = [part.get("spec") or {} for part in parts]
    containers = [one for spec in specs for key in ("containers", "initContainers") for one in spec.get(key) or []]
    if any(spec.get("resourceClaims") for spec in specs) or any(map(_wants_a_device, containers)):
        return True
    labels = [labels_of(obj), *map(labels_of, parts)]
    said = [{key: one.get(key) for key in ("name", "image", "command", "args", "env", "envFrom")} for one in containers]
    # Without containers it was not read whole.
    return not containers or _OF_MODELS.search(json.dumps([labels, said])) is not None


def _wants_a_device(container: Obj) -> bool:
    """Resources that Kubernetes does not manage itself have a domain before a slash."""
    resources = container.get("resources") or {}
    return any("/" in name for part in ("requests", "limits") for name in resources.get(part) or {})


def is_ordered(workload: Obj | None) -> bool:
    """Whether it is a StatefulSet whose controller goes on with the next pod only once those before it are Ready."""
    return kind_of(workload) == "StatefulSet" and dig(workload, "spec", "podManagementPolicy") != "Parallel"


def number_of(pod: Obj) -> int:
    """Returns the replica number of a pod of a StatefulSet or LeaderWorkerSet; -1 without one."""
    labels = labels_of(pod)
    text = (
        labels.get(GROUP_LABEL) or labels.get(POD_INDEX_LABEL) or str(dig(pod, "metadata", "name")).rpartition("-")[2]
    )
    return int(text) if text.isdigit() else -1


def serves(pod: Obj) -> bool:
    """Whether the pod answers requests itself: any pod but the workers of a group."""
    return labels_of(pod).get(WORKER_LABEL, LEADER) == LEADER


def workers_serve(leader: Obj) -> bool:
    """Whether each pod of the group has its own engines and serves requests, according to the command line."""
    return _says(leader, _SERVES_ON_EACH_POD)


def has_a_page_for_each_engine(pod: Obj) -> bool:
    """Whether each engine of the pod has its own API server, each at the next port."""
    return _says(pod, _SERVES_ON_EACH_PORT)


def _says(pod: Obj, flag: re.Pattern[str]) -> bool:
    return any(flag.search(word) for word in words_of(dig(pod, "spec", "containers") or []))


def words_of(containers: Iterable[Obj]) -> list[str]:
    """Returns the words of their command lines."""
    return [str(word) for one in containers for part in ("command", "args") for word in one.get(part) or []]
