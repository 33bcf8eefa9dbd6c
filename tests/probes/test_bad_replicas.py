"""How many replicas are bad, and what only these have in common."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bot.domain.cluster.objects import ZONE_LABEL
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.signals.scrape import Histogram, Scrape
from bot.domain.signals.signal import Reading
from tests.kit import probes
from tests.kit.probes import Samples, request
from tests.probes.clusters import OPENED, revision, snapshot, template

pytestmark = pytest.mark.fast

GPU = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
SETTINGS = {"thrash_ratio": 0.1, "window": "5m"}
BAD, GOOD = 2.8, 0.0


def pod(name: str, node: str, *, rs: str = "rs-1", ready: str = "True") -> Obj:
    return {
        "metadata": {
            "name": name,
            "namespace": "serving",
            "uid": name,
            "labels": {"app": "llm", "pod-template-hash": rs},
            "ownerReferences": [{"kind": "ReplicaSet", "name": rs, "uid": rs, "controller": True}],
        },
        "spec": {"nodeName": node, "containers": [GPU]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
    }


def node(name: str, zone: str = "", gpus: int = 8) -> Obj:
    return {
        "metadata": {"name": name, "labels": {ZONE_LABEL: zone} if zone else {}},
        "spec": {},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def world(*pods: Obj, nodes: tuple[Obj, ...]) -> ClusterSnapshot:
    serving = template()
    serving["spec"]["containers"][0] |= GPU
    sets = revision(2, serving, minutes_before=20), revision(1, serving, minutes_before=9000)
    return snapshot(*sets, pods=pods, all_pods=pods, nodes=nodes)


LENGTHS = {"time_to_first_token_seconds": 0.2, "request_prompt_tokens": 500.0, "request_generation_tokens": 250.0}


def samples(ratios: Mapping[str, float]) -> Samples:
    """A page every 30 seconds: each replica finishes a request a second, and preempts as often as its ratio says."""
    return Samples(
        *(
            Scrape(
                replica=name,
                at=OPENED - 300 + past,
                ranks={"0": {"request_success": past, "num_preemptions": past * ratio, "num_requests_running": 9.0}},
                histograms={"0": {name: Histogram(sum=past * mean, count=past) for name, mean in means.items()}},
            )
            for name, ratio in ratios.items()
            for means in [LENGTHS | {"e2e_request_latency_seconds": 1 + ratio}]
            for past in range(0, 301, 30)
        )
    )


async def ask(seen: ClusterSnapshot, ratios: Mapping[str, float], **parameters: Any) -> Reading:
    asked = parameters or {"thrash_above": "settings.thrash_ratio", "over": "settings.window"}
    return await probes.ask(
        request("bad_replicas", seen, at=OPENED, parameters=asked, settings=SETTINGS), history=samples(ratios)
    )


ZONES = node("n1", "a"), node("n2", "a"), node("n3", "b"), node("n4", "b")
EIGHT = [pod(f"llm-{number}", f"n{number // 2 + 1}", rs=f"rs-{1 + number % 2}") for number in range(8)]


def ratios(*bad: int, of: int = 8) -> dict[str, float]:
    return {f"llm-{number}": BAD if number in bad else GOOD for number in range(of)}


async def test_bad_replicas_of_one_node_are_found() -> None:
    reading = await ask(world(*EIGHT, nodes=ZONES), ratios(0, 1))
    assert reading.fields == {
        "bad": 2,
        "judged": 8,
        "node": "n1",
        "zone": "",
        "revision": "",
        "starts_outside": False,
        "summary": "2 of 8 replicas thrash; both run on node n1",
    }


async def test_bad_replicas_of_one_zone_are_found() -> None:
    reading = await ask(world(*EIGHT, nodes=ZONES), ratios(4, 5, 6, 7))
    assert (reading.fields["zone"], reading.fields["node"]) == ("b", "")


async def test_bad_replicas_of_one_revision_are_found_by_its_number() -> None:
    reading = await ask(world(*EIGHT, nodes=ZONES), ratios(1, 3, 5, 7))
    assert (reading.fields["revision"], reading.fields["node"]) == ("2", "")


async def test_that_only_replicas_of_the_revision_before_are_bad_is_reported_and_is_no_reason_to_go_back_to_it() -> (
    None
):
    reading = await ask(world(*EIGHT, nodes=ZONES), ratios(0, 2, 4, 6))
    assert reading.fields["revision"] == ""
    assert reading.detail == "4 of 8 replicas thrash; all four are of revision 1"


async def test_without_numbers_a_revision_is_its_hash() -> None:
    pods = [pod(f"llm-{number}", "n1", rs="rs-1") for number in range(4)]
    for one in pods:
        one["metadata"]["labels"] = {"controller-revision-hash": "new" if one["metadata"]["name"] > "llm-1" else "old"}
    seen = world(*pods, nodes=ZONES)
    numberless = {**(seen.workload or {}), "kind": "StatefulSet", "status": {"updateRevision": "new"}}
    owner = {"kind": "StatefulSet", "name": "llm", "uid": numberless["metadata"]["uid"], "controller": True}
    for one in pods:
        one["metadata"]["ownerReferences"] = [owner]
    reading = await ask(replace(seen, workload=numberless, replica_sets=()), ratios(2, 3, of=4))
    assert reading.fields["revision"] == "new"


async def test_replicas_without_samples_leave_it_unknown() -> None:
    reading = await ask(
        world(*EIGHT, nodes=ZONES), {name: ratio for name, ratio in ratios(0, 1).items() if name != "llm-5"}
    )
    assert (reading.fields["bad"], reading.fields["judged"]) == (2, 7)
    assert reading.unknown_parts["node"] == "not read: llm-5"


async def test_a_replica_that_is_not_ready_is_not_asked_about() -> None:
    pods = [*EIGHT[:7], pod("llm-7", "n1", ready="False")]
    reading = await ask(world(*pods, nodes=ZONES), ratios(0, 1, of=7))
    assert reading.fields["node"] == "n1"


async def test_nodes_without_a_zone_leave_only_the_zone_unknown() -> None:
    bare = tuple(node(f"n{number}") for number in range(1, 5))
    reading = await ask(world(*EIGHT, nodes=bare), ratios(0, 2))
    assert set(reading.unknown_parts) == {"zone", "starts_outside"}
    assert (reading.fields["node"], reading.fields["revision"]) == ("", "")


@pytest.mark.parametrize(
    ("gpus_in", "gpus_out", "outside"),
    [
        pytest.param(2, 8, True, id="room-only-outside"),
        pytest.param(8, 8, False, id="room-in-the-zone-too"),
        pytest.param(2, 2, False, id="no-room"),
    ],
)
async def test_a_replacement_starts_outside_only_where_the_zone_is_full(
    gpus_in: int, gpus_out: int, outside: bool
) -> None:
    nodes = node("n1", "a", gpus_out), node("n2", "a", gpus_out), node("n3", "b", gpus_in), node("n4", "b", gpus_in)
    reading = await ask(world(*EIGHT, nodes=nodes), ratios(4, 5, 6, 7))
    assert reading.fields["starts_outside"] is outside


async def test_slow_replicas_are_measured_against_the_median() -> None:
    reading = await ask(world(*EIGHT, nodes=ZONES), ratios(0, 1), slow_above=1.5)
    assert reading.fields["summary"] == "2 of 8 replicas are slow; both run on node n1"


async def test_pods_that_cannot_be_listed_leave_it_unknown() -> None:
    seen = replace(world(*EIGHT, nodes=ZONES), unreadable={"pods": "forbidden"})
    assert (await ask(seen, ratios(0, 1))).unknown == "pods: forbidden"


async def test_without_samples_nothing_is_known() -> None:
    assert not (await ask(world(*EIGHT, nodes=ZONES), {})).is_known


async def test_a_window_that_is_no_duration_judges_none() -> None:
    reading = await ask(world(*EIGHT, nodes=ZONES), ratios(0, 1), thrash_above=0.1, over="soon")
    assert reading.unknown.startswith("'soon' is not a duration")


async def test_a_playbook_has_to_say_what_is_bad() -> None:
    reading = await ask(world(*EIGHT, nodes=ZONES), ratios(0, 1), over="5m")
    assert reading.unknown == "the playbook has to give either thrash_above or slow_above"
