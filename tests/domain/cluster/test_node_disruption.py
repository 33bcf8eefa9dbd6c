"""The impact of a node on the fleet is read fresh; missing data is reported, and never 0."""

from __future__ import annotations

import pytest

from bot.domain.cluster.node_disruption import NodeDisruption, node_disruption
from tests.domain.changes.snapshots import deployment, node, snapshot, template

pytestmark = pytest.mark.fast


def test_other_cordoned_nodes_weigh_with_their_accelerators() -> None:
    seen = snapshot(nodes=(node(1), node(2, gpus=8, unschedulable=True), node(3)))
    assert node_disruption(seen, "gpu-node-1") == NodeDisruption("gpu-node-1", 4, 16, {"gpu-node-2": 8})


def test_a_node_that_is_cordoned_already_takes_nothing_more() -> None:
    seen = snapshot(nodes=(node(1, unschedulable=True), node(2)))
    assert node_disruption(seen, "gpu-node-1") == NodeDisruption("gpu-node-1", 0, 8, {})


def test_accelerators_that_broke_still_belong_to_the_fleet() -> None:
    broken = node(1, gpus=0)
    broken["status"]["capacity"] = {"nvidia.com/gpu": "8"}
    assert node_disruption(snapshot(nodes=(broken, node(2))), "gpu-node-1") == NodeDisruption("gpu-node-1", 8, 12, {})


def test_a_workload_without_accelerators_has_no_share_to_weigh() -> None:
    plain = snapshot(workload=deployment(template(resources={})))
    assert node_disruption(plain, "gpu-node-1") == NodeDisruption("gpu-node-1", 0, 0, {})


def test_nodes_that_cannot_be_read_are_unknown() -> None:
    assert node_disruption(snapshot(unreadable={"nodes": "nodes is forbidden"}), "gpu-node-1") == "nodes is forbidden"
    assert node_disruption(snapshot(), "gpu-node-9") == "there is no node gpu-node-9"
