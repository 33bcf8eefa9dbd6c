"""What the bad replicas have in common that the good ones do not."""

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.cluster.in_common import JudgedReplica, in_common, judged_replicas, shared_value
from bot.domain.cluster.objects import ZONE_LABEL
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj

pytestmark = pytest.mark.fast

PLACES = ("x", "y", "z")
values = st.lists(st.sampled_from((*PLACES, None)), max_size=3)


@pytest.mark.parametrize(
    ("bad", "good", "unread", "shared"),
    [
        pytest.param(["x", "x"], ["y", "z"], [], "x", id="all-bad-ones-and-no-good-one"),
        pytest.param(["x", "x"], ["x", "y"], [], "", id="a-good-one-too"),
        pytest.param(["x", "y"], ["z", "z"], [], "", id="not-all-bad-ones"),
        pytest.param(["x"], ["y", "y"], [], "", id="one-bad-replica-says-nothing"),
        pytest.param(["x", "x"], [], [], "", id="all-bad-says-nothing"),
        pytest.param(["x", "x"], ["y"], ["x"], None, id="unread-there-may-be-good"),
        pytest.param(["x", "x"], ["y"], ["y"], None, id="unread-elsewhere-may-be-bad"),
        pytest.param(["x", "y"], ["y"], ["x"], "", id="unread-changes-nothing-where-bad-ones-differ"),
        pytest.param(["x", "x"], ["x"], ["x"], "", id="unread-changes-nothing-beside-a-good-one"),
        pytest.param(["x", None], ["y"], [], None, id="a-bad-one-in-an-unknown-place"),
        pytest.param(["x", "x"], [None], [], None, id="a-good-one-in-an-unknown-place"),
        pytest.param([None, None], ["y"], [], None, id="no-bad-one-in-a-known-place"),
    ],
)
def test_only_what_sets_all_bad_ones_apart_is_shared(
    bad: list[str | None], good: list[str | None], unread: list[str | None], shared: str | None
) -> None:
    assert shared_value(bad, good, unread) == shared


def completions(
    bad: list[str | None], good: list[str | None], unread: list[str | None]
) -> Iterator[tuple[list[str], list[str]]]:
    """Everything that the replicas may be, if all were known."""
    every = [*bad, *good, *unread]
    for places in product(*[[one] if one else (*PLACES, "elsewhere") for one in every]):
        for verdicts in product([True, False], repeat=len(unread)):
            judged = [*[True] * len(bad), *[False] * len(good), *verdicts]
            yield (
                [place for place, is_bad in zip(places, judged, strict=True) if is_bad],
                [place for place, is_bad in zip(places, judged, strict=True) if not is_bad],
            )


@given(values, values, st.lists(st.sampled_from((*PLACES, None)), max_size=2))
def test_an_answer_does_not_depend_on_what_is_unknown(
    bad: list[str | None], good: list[str | None], unread: list[str | None]
) -> None:
    shared = shared_value(bad, good, unread)
    if shared is not None:
        assert {shared_value(*known) for known in completions(bad, good, unread)} == {shared}


def fleet(bad: str, good: str, unread: str = "") -> list[JudgedReplica]:
    """One replica per letter, which is its node; zone and revision are the same everywhere."""
    return [
        JudgedReplica(f"llm-{number}", verdict, node, "a", "1")
        for number, (node, verdict) in enumerate(
            [*((one, True) for one in bad), *((one, False) for one in good), *((one, None) for one in unread)]
        )
    ]


@pytest.mark.parametrize(
    ("replicas", "text"),
    [
        (fleet("xxx", "yyzzz"), "3 of 8 replicas thrash; all three run on node x"),
        (fleet("xx", "yy"), "2 of 4 replicas thrash; both run on node x"),
        (fleet("x", "yyy"), "1 of 4 replicas thrashes"),
        (fleet("xy", ""), "2 of 2 replicas thrash"),
        (fleet("xy", "xy"), "2 of 4 replicas thrash; they share no node, zone or revision that the others do not have"),
        (
            fleet("xx", "yy", "y"),
            "2 of 4 replicas thrash (1 more could not be read); whether they share a node is not known",
        ),
        (
            [
                JudgedReplica("a", True, "x", "b", "2"),
                JudgedReplica("b", True, "y", "b", "2"),
                JudgedReplica("c", False, "z", "a", "1"),
            ],
            "2 of 3 replicas thrash; both run in zone b and are of revision 2",
        ),
    ],
)
def test_one_line_says_how_many_are_bad_and_what_they_share(replicas: list[JudgedReplica], text: str) -> None:
    assert in_common(replicas).summary("thrashes", "thrash") == text


def test_replicas_that_were_not_read_are_neither_bad_nor_good() -> None:
    found = in_common(fleet("xx", "yy", "yz"))
    assert (found.bad, found.judged, found.unread) == (2, 4, 2)
    assert found.node is None


def group_pod(number: int, worker: int, node: str) -> Obj:
    prefix = "leaderworkerset.sigs.k8s.io"
    return {
        "metadata": {
            "name": f"llm-{number}" + (f"-{worker}" if worker else ""),
            "labels": {
                f"{prefix}/name": "llm",
                f"{prefix}/group-index": str(number),
                f"{prefix}/worker-index": str(worker),
                f"{prefix}/template-revision-hash": "abc",
                "controller-revision-hash": f"of-its-own-set-{number}",
            },
        },
        "spec": {"nodeName": node},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def test_a_group_that_spans_nodes_is_on_none_of_them() -> None:
    workload = {
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "llm"},
        "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 2}},
    }
    nodes = tuple({"metadata": {"name": name, "labels": {ZONE_LABEL: "a"}}} for name in ("n1", "n2"))
    pods = group_pod(0, 0, "n1"), group_pod(0, 1, "n2"), group_pod(1, 0, "n1"), group_pod(1, 1, "n1")
    found = judged_replicas(ClusterSnapshot(at=0.0, workload=workload, pods=pods, nodes=nodes), {"llm-0": True})
    assert found == [
        JudgedReplica("llm-0", True, None, "a", "abc"),
        JudgedReplica("llm-1", None, "n1", "a", "abc"),
    ]
