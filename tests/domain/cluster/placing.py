"""Nodes, and how many replicas fit on them."""

from __future__ import annotations

from bot.domain.cluster.capacity import Capacity
from bot.domain.cluster.snapshot import Obj

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def node(name: str, zone: str) -> Obj:
    status = {"allocatable": {"nvidia.com/gpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name, "labels": {HOST: name, ZONE: zone}}, "status": status}


def fits(found: Capacity | str) -> int:
    assert isinstance(found, Capacity), found
    return found.replicas_that_fit
