"""Slow requests with causes outside the engine: each part has its own reason if it is unknown."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.errors import SourceError
from bot.domain.kernel.target import Target
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Reading
from tests.kit import probes
from tests.kit.probes import Samples, request

pytestmark = pytest.mark.fast

OPENED = 100_000.0


class Gateway:
    """A router of which nothing is known until a test sets it."""

    def __init__(self, errors: float | None = None, p99: float | None = None) -> None:
        self._errors, self._p99 = errors, p99

    async def error_share(self, target: Target) -> float:
        return self._known(self._errors, "prometheus.router_errors")

    async def latency_p99(self, target: Target) -> float:
        return self._known(self._p99, "prometheus.gateway_p99")

    def _known(self, value: float | None, setting: str) -> float:
        if value is None:
            raise SourceError(f"no query is configured ({setting})")
        return value


def served(replicas: int, *, minutes: float = 30, **more: Any) -> list[Scrape]:
    """So many replicas side by side until the incident opened, one sample each half a minute."""
    return [
        Scrape(replica=f"llm-{number}", at=OPENED - 30 * step, **more)
        for step in range(int(2 * minutes))
        for number in range(replicas)
    ]


def cluster(*, replicas: int = 4, pending: int = 0, most: int | None = None, **fields: Any) -> ClusterSnapshot:
    owner = {"kind": "Deployment", "uid": "d", "controller": True}
    replica_set = {"metadata": {"name": "rs", "uid": "rs", "ownerReferences": [owner]}}
    phases = ["Running"] * (replicas - pending) + ["Pending"] * pending
    scaler = {
        "metadata": {"name": "llm"},
        "spec": {"maxReplicas": most, "scaleTargetRef": {"kind": "Deployment", "name": "llm"}},
    }
    return ClusterSnapshot(
        at=OPENED,
        workload={"kind": "Deployment", "metadata": {"name": "llm", "uid": "d"}, "spec": {"replicas": replicas}},
        replica_sets=(replica_set,),
        pods=tuple(_pod(f"llm-{number}", phase) for number, phase in enumerate(phases)),
        autoscalers=(scaler,) if most else (),
        **fields,
    )


def _pod(name: str, phase: str) -> Obj:
    owner = {"kind": "ReplicaSet", "uid": "rs", "controller": True}
    return {"metadata": {"name": name, "uid": name, "ownerReferences": [owner]}, "status": {"phase": phase}}


async def ask(
    seen: ClusterSnapshot, scrapes: Sequence[Scrape] = (), gateway: Gateway | None = None, **parameters: Any
) -> Reading:
    asked = request("upstream", seen, at=OPENED, parameters=parameters)
    return await probes.ask(asked, history=Samples(*scrapes), router=gateway or Gateway())


async def test_a_replica_that_waits_for_a_node_is_counted_and_named() -> None:
    reading = await ask(cluster(pending=1))
    assert (reading.fields["pending"], reading.fields["detail"]) == (1, "llm-3 is starting")


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "Insufficient gpu"}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"containerStatuses": [{"image": "i:2", "state": {"waiting": {"reason": reason, "message": message}}}]}


def running(*, not_ready_after: float) -> dict[str, Any]:
    """An engine that started 200 s before the incident, and is not Ready since so many seconds after that."""
    started, since = (
        datetime.fromtimestamp(at, UTC).isoformat() for at in (OPENED - 200, OPENED - 200 + not_ready_after)
    )
    return {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": since}],
        "containerStatuses": [{"state": {"running": {"startedAt": started}}}],
    }


def node_asked_for(pod: str, *, minutes_ago: float = 2) -> dict[str, Any]:
    at = datetime.fromtimestamp(OPENED - 60 * minutes_ago, UTC).isoformat()
    return {"reason": "TriggeredScaleUp", "involvedObject": {"uid": pod}, "lastTimestamp": at}


@pytest.mark.parametrize(
    ("status", "events", "waits_for", "detail"),
    [
        ({}, (), "start", "llm-3 is starting"),
        ({"conditions": [UNSCHEDULABLE]}, (), "gpu", "llm-3 cannot be scheduled: Insufficient gpu"),
        (
            {"conditions": [UNSCHEDULABLE]},
            (node_asked_for("llm-3"),),
            "node",
            "llm-3: a node is being added, requested 2 minutes ago",
        ),
        ({"conditions": [UNSCHEDULABLE]}, (node_asked_for("other"),), "gpu", "llm-3 cannot be scheduled"),
        (
            {"conditions": [UNSCHEDULABLE]},
            (node_asked_for("llm-3", minutes_ago=16),),
            "gpu",
            "llm-3 cannot be scheduled",
        ),
        (waiting("ImagePullBackOff"), (), "image", "llm-3: image i:2 cannot be pulled (ImagePullBackOff)"),
        (waiting("ErrImagePull"), (), "image", "llm-3: image i:2 cannot be pulled (ErrImagePull)"),
        (waiting("CreateContainerConfigError", "no key"), (), "config", "llm-3: CreateContainerConfigError: no key"),
        (waiting("ContainerCreating"), (), "start", "llm-3 is starting"),
        (running(not_ready_after=-20), (), "start", "llm-3 is starting"),
        (running(not_ready_after=0), (), "start", "llm-3 is starting"),
        (running(not_ready_after=90), (), "", ""),
    ],
)
async def test_why_a_replica_does_not_serve_decides_what_helps(
    status: dict[str, Any], events: tuple[dict[str, Any], ...], waits_for: str, detail: str
) -> None:
    seen = cluster(pending=1, scale_up_events=events)
    seen.pods[-1]["status"].update(status)
    reading = await ask(seen)
    assert reading.fields["waits_for"] == waits_for
    assert detail in str(reading.fields["detail"])


async def test_replicas_that_a_quota_refuses_have_no_pod_that_could_be_pending() -> None:
    seen = cluster(replicas=3)
    assert seen.workload is not None
    refused = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: team"}
    seen.workload["status"] = {"conditions": [refused], "replicas": 3, "updatedReplicas": 3}
    seen.workload["spec"]["replicas"] = 4
    reading = await ask(seen)
    assert (reading.fields["pending"], reading.fields["waits_for"]) == (0, "quota")
    assert "exceeded quota: team" in str(reading.fields["detail"])


async def test_nothing_is_waited_for_where_all_replicas_are_there() -> None:
    assert (await ask(cluster())).fields["waits_for"] == ""


@pytest.mark.parametrize(("most", "at_max"), [(None, False), (8, False), (4, True), (3, True)])
async def test_an_autoscaler_at_its_maximum_cannot_follow_the_load(most: int | None, at_max: bool) -> None:
    assert (await ask(cluster(most=most))).fields["at_max"] is at_max


async def test_autoscalers_that_cannot_be_read_may_be_at_their_maximum() -> None:
    reading = await ask(cluster(unreadable={"autoscalers": "forbidden"}))
    assert reading.unknown_parts["at_max"] == "forbidden"


@pytest.mark.parametrize(
    ("scrapes", "scaled_down", "before"),
    [
        pytest.param(served(4), False, 4, id="as-before"),
        pytest.param(served(6), True, 6, id="fewer-than-before"),
        pytest.param(served(3), False, 3, id="more-than-before"),
        pytest.param([*served(4), *served(6, minutes=5)], False, 4, id="a-rollout-had-more-for-a-moment"),
        pytest.param([*served(4), *served(9, role="canary")], False, 4, id="a-canary-is-none-of-them"),
        pytest.param([*served(4), *served(9, error="refused")], False, 4, id="who-did-not-answer-did-not-serve"),
    ],
)
async def test_a_fleet_that_shrank_before_the_incident_is_reported(
    scrapes: Sequence[Scrape], scaled_down: bool, before: float
) -> None:
    fields = (await ask(cluster(), scrapes)).fields
    assert (fields["scaled_down"], fields["replicas_before"]) == (scaled_down, before)


async def test_without_history_nobody_knows_whether_it_shrank() -> None:
    reading = await ask(cluster(), served(6, minutes=5))
    assert reading.unknown_parts["scaled_down"] == "only 5 min of the 30 min before the incident were sampled"
    assert (await ask(cluster(), served(6, minutes=5), over="8m")).fields["scaled_down"] is True


async def test_a_time_that_is_no_duration_leaves_only_the_replicas_before_unknown() -> None:
    reading = await ask(cluster(), served(6), over="soon")
    assert reading.unknown_parts["replicas_before"].startswith("'soon' is not a duration")
    assert "pending" in reading.fields


async def test_the_router_speaks_only_where_somebody_wrote_a_query() -> None:
    reading = await ask(cluster(), served(4))
    assert reading.unknown_parts == {
        "router_errors": "no query is configured (prometheus.router_errors)",
        "gateway_p99": "no query is configured (prometheus.gateway_p99)",
    }
    reading = await ask(cluster(), served(4), Gateway(errors=0.2, p99=3.5))
    assert (reading.fields["router_errors"], reading.fields["gateway_p99"]) == (0.2, 3.5)
