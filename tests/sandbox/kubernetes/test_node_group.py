"""The sandbox's node autoscaler: its events about Pending pods, the node that it adds, and its status."""

from __future__ import annotations

from collections.abc import Callable

from bot.domain.cluster.node_autoscaler import STATUS_NAME, UPDATED_ANNOTATION
from tests.processes import Running
from tests.sandbox.kubernetes.cluster import MERGE_PATCH, Obj, connect, eventually

LLM = "/apis/apps/v1/namespaces/serving/deployments/llm"
EVENTS = "/api/v1/namespaces/serving/events"


async def test_a_pending_pod_gets_a_node_up_to_the_maximum(
    own_stand_in: Callable[..., Running],
) -> None:
    running = own_stand_in("--seed-world", "demo", "--with-kubelet", "--node-group", "4:0.5")
    async with connect(running.url) as cluster:

        async def event(reason: str) -> Obj | None:
            _, _, found = await cluster.raw("GET", EVENTS, query={"fieldSelector": f"reason={reason}"})
            return next(iter(found["items"]), None)

        async def nodes() -> set[str]:
            _, _, found = await cluster.raw("GET", "/api/v1/nodes")
            return {one["metadata"]["name"] for one in found["items"]}

        await cluster.raw("PATCH", LLM, {"spec": {"replicas": 13}}, kind=MERGE_PATCH)
        asked = await eventually("a node is requested", lambda: event("TriggeredScaleUp"))
        assert (asked["source"], asked["involvedObject"]["kind"]) == ({"component": "cluster-autoscaler"}, "Pod")
        assert asked["message"] == "pod triggered scale-up: [{gpu-nodes 3->4 (max: 4)}]"

        async def has_joined() -> bool:
            return "gpu-node-4" in await nodes()

        await eventually("the node has joined", has_joined)
        await cluster.raw("PATCH", LLM, {"spec": {"replicas": 17}}, kind=MERGE_PATCH)
        refused = await eventually("the group is full", lambda: event("NotTriggerScaleUp"))
        assert refused["message"] == "pod didn't trigger scale-up: 1 max node group size reached"
        _, _, status = await cluster.raw("GET", f"/api/v1/namespaces/kube-system/configmaps/{STATUS_NAME}")
        assert UPDATED_ANNOTATION in status["metadata"]["annotations"]
