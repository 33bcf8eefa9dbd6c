"""Who else is repairing or replacing a node, by the taints, labels and annotations that operators put on it.

Two operators on one node undo each other's work: while one of these acts, the bot watches and proposes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bot.domain.cluster.objects import INCIDENT_ANNOTATION, annotations_of, dig, is_cordoned, labels_of
from bot.domain.cluster.snapshot import Obj
from bot.probes.gpu.nodes import PLAIN_CONDITIONS

_TAINTS = (
    (re.compile(r"^karpenter\.sh/disrupt"), "Karpenter"),
    (re.compile(r"^(ToBeDeleted|DeletionCandidateOf)ClusterAutoscaler"), "the cluster autoscaler"),
    (re.compile(r"nvsentinel", re.IGNORECASE), "NVSentinel"),
    (re.compile(r"^nvidia\.com/gpu-driver-upgrade"), "the GPU operator"),
    (re.compile(r"^(remediation\.medik8s\.io|medik8s\.io)/"), "medik8s"),
    (re.compile(r"^node\.kubernetes\.io/out-of-service"), "somebody who declared it out of service"),
)
_MARKS = (
    (re.compile(r"nvsentinel|quarantineHealthEvent", re.IGNORECASE), re.compile(r"."), "NVSentinel"),
    (
        re.compile(r"^nvidia\.com/gpu-driver-upgrade-state$"),
        re.compile(r"^(?!upgrade-done$|$)"),
        "the GPU operator (driver upgrade)",
    ),
    (re.compile(r"^amd\.com/gpu-remediation"), re.compile(r"."), "AMD's GPU operator"),
)
"""Label or annotation, the values that mean work in progress, and the operator."""


def remediators_of(node: Obj, incident_id: str) -> tuple[str, ...]:
    """Who acts on the node, without repetition. A cordon counts unless this incident made it."""
    return tuple(dict.fromkeys(_acting(node, incident_id)))


def marks_of(node: Obj) -> tuple[str, ...]:
    """What node-problem-detector and others report on the node; they do not act."""
    return tuple(
        f"{one.get('type')}: {one.get('reason') or 'no reason'}"
        for one in dig(node, "status", "conditions") or []
        if one.get("type") not in PLAIN_CONDITIONS and one.get("status") == "True"
    )


def _acting(node: Obj, incident_id: str) -> Iterator[str]:
    for taint in dig(node, "spec", "taints") or []:
        key = str(taint.get("key") or "")
        yield from (f"{who} (taint {key})" for pattern, who in _TAINTS if pattern.search(key))
    for key, value in {**labels_of(node), **annotations_of(node)}.items():
        yield from (who for name, values, who in _MARKS if name.search(key) and values.search(value))
    by = annotations_of(node).get(INCIDENT_ANNOTATION)
    if is_cordoned(node) and by != incident_id:
        yield f"{by or 'somebody else'} (cordon)"
