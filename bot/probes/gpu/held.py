"""Which GPUs of a node count as those of our pods, and which of them are missing from the exporter's page.

Exporters drop a GPU that fell off the bus, so a missing GPU is unknown and never sound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bot.domain.cluster.capacity import accelerators_of
from bot.domain.cluster.objects import is_staying, labels_of, name_of, namespace_of
from bot.domain.cluster.snapshot import Obj
from bot.probes.gpu.exporters import Gpu, Holder

WHOLE_GPUS = ("nvidia.com/gpu", "amd.com/gpu")
"""Not slices of a GPU: several of them may be on one GPU."""


def holder_of(pod: Obj) -> Holder:
    return namespace_of(pod), name_of(pod)


def gpus_of(gpus: Sequence[Gpu], pods: Iterable[Obj]) -> list[Gpu]:
    """The GPUs that these pods hold, alone or with others; all of the node if the page maps none to them."""
    ours = {holder_of(pod) for pod in pods}
    return [gpu for gpu in gpus if not ours.isdisjoint(gpu.holders)] or list(gpus)


def is_shared(node: Obj | None) -> bool:
    """Whether the node offers slices of its GPUs under the name of whole ones, as NVIDIA's device plugin labels it."""
    labels = labels_of(node or {})
    product, strategy = labels.get("nvidia.com/gpu.product", ""), labels.get("nvidia.com/gpu.sharing-strategy", "none")
    return "-SHARED" in product or "-MIG-" in product or strategy != "none"


def missing_gpus(gpus: Sequence[Gpu], pods: Sequence[Obj], gone: Iterable[str], node: Obj | None) -> list[str]:
    """What is missing from the page of a node, for people. `gone`: GPUs of the node that were on an earlier page."""
    notes = [f"GPU {gpu} is no longer on the exporter's page" for gpu in gone]
    are_mapped = any(holder_of(pod) in gpu.holders for pod in pods for gpu in gpus)
    for pod in filter(is_staying, pods):
        limit = sum(accelerators_of(pod).get(kind, 0) for kind in WHOLE_GPUS)
        if is_shared(node):
            # All slices of a pod may be on one GPU.
            limit = min(limit, 1)
        shown = [gpu for gpu in gpus if holder_of(pod) in gpu.holders] if are_mapped else gpus
        if len(shown) < limit:
            notes.append(f"the exporter's page shows {len(shown)} of the {limit} GPUs of {name_of(pod)}")
    return notes
