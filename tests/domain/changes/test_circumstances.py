"""The circumstances of a change, word for word: a worse grade later means that it is asked for again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.domain.changes.circumstances import (
    binding_note,
    budget_circumstance,
    drain_circumstance,
    has_no_streams,
    last_room,
    may_cut_streams,
    no_autoscaler,
    others_carry_on,
    ownership_of,
    rolling_budget_note,
    room_for,
    room_for_replicas,
    streams_in,
)
from bot.domain.changes.drain import DrainMode
from bot.domain.changes.plan import Circumstance
from bot.domain.cluster.disruption import Budget
from bot.domain.cluster.rollout import strategy_of
from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.flags.mitigations import Move
from bot.domain.kernel.errors import NoPlanError
from bot.domain.signals.scrape import ReplicaLoad
from tests.domain.changes.snapshots import budget, deployment, node, pod, snapshot, template

pytestmark = pytest.mark.fast


def graded(circumstance: Circumstance | None) -> tuple[str, str, str] | None:
    return (circumstance.name, circumstance.grade, circumstance.text) if circumstance else None


def with_load(**running: float | None) -> ClusterSnapshot:
    loads = {name.replace("_", "-"): ReplicaLoad(value, value) for name, value in running.items()}
    return snapshot(load=loads)


def test_what_nobody_reverts_is_fine() -> None:
    expected = ("owner", "fine", "applied by hand: nobody reverts it")
    assert graded(ownership_of(snapshot(), deployment(), {}).circumstance) == expected


def test_a_manager_that_nobody_knows_is_a_warning() -> None:
    obj = deployment()
    obj["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "paas"
    text = "its label says that paas manages it: nothing shows whether paas would revert the edit"
    assert graded(ownership_of(snapshot(), obj, {}).circumstance) == ("owner", "warning", text)


@pytest.mark.parametrize(
    ("unreadable", "grade", "text"),
    [
        ({}, "fine", "no autoscaler owns the replica count"),
        (
            {"autoscalers": "403", "scaled_objects": "timed out"},
            "warning",
            "whether an autoscaler owns the replica count could not be read: 403; timed out",
        ),
        (
            {"scaled_objects": "403"},
            "warning",
            "whether an autoscaler owns the replica count could not be read: 403",
        ),
    ],
)
def test_an_autoscaler_that_could_not_be_looked_for_is_a_warning(
    unreadable: dict[str, str], grade: str, text: str
) -> None:
    assert graded(no_autoscaler(snapshot(unreadable=unreadable))) == ("autoscaler", grade, text)


# --- room -------------------------------------------------------------------------------------------------------------


def test_room_names_the_nodes_that_have_it() -> None:
    seen = snapshot(nodes=(node(3), node(2, gpus=1), node(1)))
    text = "room for 5 more (free: gpu-node-1 2, gpu-node-3 3)"
    assert graded(room_for_replicas(seen, 5, "new replicas")) == ("room", "fine", text)


def test_room_that_is_not_known_is_a_warning() -> None:
    found = room_for_replicas(snapshot(unreadable={"nodes": "403"}), 1, "new replica")
    assert (found.grade, found.text.partition(": ")[0]) == ("warning", "room for the new replica is not known")


def test_without_room_the_reason_counts_what_is_free() -> None:
    with pytest.raises(NoPlanError) as refused:
        room_for_replicas(snapshot(nodes=(node(1), node(2, gpus=1))), 3, "new replicas")
    assert refused.value.reason == (
        "the new replicas cannot be scheduled: 2 free accelerators on schedulable nodes, room for 2, 3 needed"
    )
    assert refused.value.hint == "free a GPU or add a node"


def test_room_that_is_only_wished_for_is_a_warning() -> None:
    seen = snapshot(nodes=(node(1, gpus=1),), all_pods=())
    found = room_for(seen, template(), 2, "surge", is_needed=False)
    text = "no room for the surge now: 1 free accelerators on schedulable nodes, room for 1"
    assert graded(found) == ("room", "warning", text)


def without_accelerators() -> ClusterSnapshot:
    return snapshot(workload=deployment(template(resources={})))


@pytest.mark.parametrize(
    ("seen", "more", "text"),
    [
        pytest.param(snapshot(), 1, None, id="more-is-free"),
        pytest.param(without_accelerators(), 99, None, id="asks-for-none"),
        pytest.param(
            snapshot(nodes=(node(1, gpus=3),)),
            1,
            "it takes the last room that there is: no surge or canary fits afterwards, so platform decides too",
            id="the-last",
        ),
        pytest.param(
            snapshot(unreadable={"nodes": "403"}),
            1,
            "whether it takes the last free accelerator, or a node has to be added, is not known: platform decides too",
            id="not-known",
        ),
    ],
)
def test_who_takes_the_last_room_needs_platform(seen: ClusterSnapshot, more: int, text: str | None) -> None:
    assert graded(last_room(seen, more)) == (None if text is None else ("last_room", "warning", text))


# --- those who are served ---------------------------------------------------------------------------------------------

DRAINS = DrainMode("native", "it waits 20 s", seconds=20)
CUTS = DrainMode("none", "it has no preStop")


@pytest.mark.parametrize(
    ("seen", "drain", "pods", "grade", "text"),
    [
        pytest.param(
            with_load(llm_1=3, llm_2=4),
            DRAINS,
            (pod(1), pod(2)),
            "fine",
            "14 streams are open (7 of them queued) on 2 pods; any that needs longer than 20 s is cut: "
            "native drain, it waits 20 s",
            id="drains",
        ),
        pytest.param(
            with_load(llm_1=3, llm_2=None),
            DRAINS,
            (pod(1), pod(2)),
            "fine",
            "there is an unknown number of streams on 2 pods; any that needs longer than 20 s is cut: "
            "native drain, it waits 20 s",
            id="one-does-not-say",
        ),
        pytest.param(
            with_load(llm_1=3),
            CUTS,
            (pod(1),),
            "warning",
            "cuts ~6 streams (3 of them queued) on 1 pod: it has no preStop",
            id="cuts",
        ),
        pytest.param(
            with_load(llm_1=0),
            DRAINS,
            (pod(1),),
            "fine",
            "0 streams are open on 1 pod: native drain, it waits 20 s",
            id="idle",
        ),
        pytest.param(
            with_load(llm_1=0),
            CUTS,
            (pod(1),),
            "warning",
            "0 streams are open on 1 pod: it has no preStop",
            id="cuts-none",
        ),
        pytest.param(
            snapshot(),
            CUTS,
            (pod(1),),
            "warning",
            "cuts an unknown number of streams on 1 pod: it has no preStop",
            id="cuts-unknown",
        ),
    ],
)
def test_ending_pods_says_what_becomes_of_their_requests(
    seen: ClusterSnapshot, drain: DrainMode, pods: tuple[Any, ...], grade: str, text: str
) -> None:
    assert graded(drain_circumstance(seen, drain, pods)) == ("drain", grade, text)


@pytest.mark.parametrize(
    ("seen", "drain", "is_idle", "may_cut"),
    [
        pytest.param(with_load(llm_1=3), DRAINS, False, True, id="drains"),
        pytest.param(with_load(llm_1=None), DRAINS, False, True, id="one-does-not-say"),
        pytest.param(with_load(llm_1=0), DRAINS, True, False, id="idle"),
        pytest.param(with_load(llm_1=0), CUTS, True, False, id="cuts-none"),
        pytest.param(with_load(llm_1=3), CUTS, False, False, id="cuts-for-certain"),
    ],
)
def test_what_becomes_of_the_streams_is_read_from_the_circumstance(
    seen: ClusterSnapshot, drain: DrainMode, is_idle: bool, may_cut: bool
) -> None:
    found = drain_circumstance(seen, drain, (pod(1),))
    assert (has_no_streams(found), may_cut_streams(found)) == (is_idle, may_cut)
    assert "it waits 20 s" not in streams_in(found)


def test_an_empty_replica_has_nobody_to_cut() -> None:
    found = drain_circumstance(with_load(llm_1=3), CUTS, (pod(1),), is_empty=True)
    assert graded(found) == ("drain", "fine", "nothing runs there any more")


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        pytest.param(snapshot(), "3 of 4 replicas stay; how busy they are is not known", id="not-known"),
        pytest.param(
            with_load(llm_1=3, llm_2=4, llm_3=5, llm_4=None),
            "3 of 4 replicas stay; 8 requests wait on them now",
            id="those-that-say-and-not-the-one-that-leaves",
        ),
    ],
)
def test_those_who_stay_are_counted_with_what_waits_on_them(seen: ClusterSnapshot, text: str) -> None:
    assert graded(others_carry_on(seen, pod(2))) == ("others", "note", text)


# --- budgets and caps -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "grade", "text"),
    [
        ("allowed", "fine", "the budget says so"),
        ("not_now", "warning", "the budget says so: it will be tried again"),
        ("unknown", "warning", "the budget says so"),
    ],
)
def test_a_budget_is_weighed(verdict: Any, grade: str, text: str) -> None:
    assert graded(budget_circumstance(Budget(verdict, "the budget says so"))) == ("disruption_budget", grade, text)


def test_a_budget_that_never_lets_it_happen_is_for_its_owner() -> None:
    with pytest.raises(NoPlanError) as refused:
        budget_circumstance(Budget("never", "it asks for all"))
    expected = ("it asks for all", "the budget's owner has to widen it; the bot never edits one")
    assert (refused.value.reason, refused.value.hint) == expected


@pytest.mark.parametrize(
    ("pdbs", "names"), [((), "none"), ((budget(),), "llm"), ((budget(), budget(name="all")), "llm, all")]
)
def test_a_rolling_update_asks_no_budget_and_says_so(pdbs: tuple[Any, ...], names: str) -> None:
    seen = snapshot(pdbs=pdbs)
    text = f"rolling updates do not ask disruption budgets ({names}); at most 0 replicas less"
    assert graded(rolling_budget_note(seen, strategy_of(deployment()))) == ("disruption_budget", "fine", text)


AT_ONCE = "the busiest replica runs 5 requests at once now"


@pytest.mark.parametrize(
    ("moves", "text"),
    [
        pytest.param((Move("--max-num-seqs", 256, 4),), "the limit is below what runs", id="below"),
        pytest.param((Move("--max-num-active-seqs", None, 4),), "the limit is below what runs", id="first-limit"),
        pytest.param((Move("--max-num-seqs", 256, 5),), "the limit may change nothing", id="as-many"),
        pytest.param((Move("--max-num-seqs", 256, 6),), "the limit may change nothing", id="above"),
        pytest.param((Move("--max-num-seqs", 5, 6),), "the present limit of 5 is reached", id="raised"),
        pytest.param((Move("--max-num-seqs", "5", 7),), "the present limit of 5 is reached", id="raised-from-text"),
        pytest.param((Move("--max-num-seqs", "256", "4"),), "the limit is below what runs", id="texts"),
        pytest.param((Move("--max-num-seqs", 6, 7),), "the limit may change nothing", id="raised-without-need"),
        pytest.param((Move("--seed", 0, 1), Move("--max-num-seqs", 256, 4)), "the limit is below what runs", id="2nd"),
        pytest.param((Move("--seed", 0, 1),), None, id="no-cap"),
        pytest.param((Move("--max-num-seqs", 4, None),), None, id="not-known-after"),
        pytest.param((Move("--max-num-seqs", 256, "$(N)"),), None, id="not-known"),
    ],
)
def test_a_cap_says_whether_it_binds_now(moves: tuple[Move, ...], text: str | None) -> None:
    found = tuple(map(graded, binding_note(with_load(llm_1=3, llm_2=5, llm_3=None), moves)))
    assert found == (() if text is None else (("binds", "note", f"{text}: {AT_ONCE}"),))


def test_there_is_no_note_on_a_cap_while_nobody_knows_what_runs() -> None:
    assert (
        binding_note(replace(snapshot(), load={"llm-1": ReplicaLoad(None, None)}), (Move("--max-num-seqs", 256, 4),))
        == ()
    )
