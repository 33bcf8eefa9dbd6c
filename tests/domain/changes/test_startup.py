"""How long replicas of this workload take to start, from their own status."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.domain.changes.plan import Plan, Wait
from bot.domain.changes.startup import recorded_start_seconds
from bot.domain.changes.steps.rollout_steps import HELD_SECONDS
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from tests.domain.changes.numbered import numbered_world, stateful_set
from tests.domain.changes.snapshots import deployment, grade, planned, pod, snapshot, template, weighed
from tests.domain.changes.test_scale import scaler

pytestmark = pytest.mark.fast


def started(number: int, minutes: int, *, restarts: int = 0, is_ready: bool = True) -> Obj:
    made = pod(number, is_ready=is_ready)
    made["status"] |= {
        "startTime": "2027-01-15T07:00:00Z",
        "conditions": [
            {
                "type": "Ready",
                "status": "True" if is_ready else "False",
                "lastTransitionTime": f"2027-01-15T07:{minutes:02}:00Z",
            }
        ],
        "containerStatuses": [{"name": "vllm", "restartCount": restarts}],
    }
    return made


@pytest.mark.parametrize(
    ("pods", "minutes"),
    [
        pytest.param([started(1, 8)], 8, id="one"),
        pytest.param([started(1, 8), started(2, 9), started(3, 55)], 9, id="one-was-unready-later"),
        pytest.param([started(1, 8), started(2, 40)], 8, id="the-lower-of-two"),
        pytest.param([started(1, 8), started(2, 2, restarts=1)], 8, id="a-restarted-engine-does-not-count"),
        pytest.param([started(1, 8, is_ready=False)], None, id="not-ready"),
        pytest.param([pod(1)], None, id="no-times"),
    ],
)
def test_the_lower_half_of_what_the_replicas_say_counts(pods: list[Obj], minutes: int | None) -> None:
    assert recorded_start_seconds(snapshot(pods=tuple(pods))) == (None if minutes is None else minutes * 60.0)


@pytest.mark.parametrize(
    ("minutes", "seconds"), [pytest.param(8, 16 * 60, id="twice-its-own"), pytest.param(1, 180, id="never-too-short")]
)
def test_a_slow_load_is_given_twice_its_own_time_before_it_is_called_a_failure(minutes: int, seconds: float) -> None:
    seen = replace(snapshot(), pods=tuple(started(number, minutes) for number in (1, 2, 3, 4)))
    wait = planned("scale", {"by": 1}, seen).steps[-1]
    assert isinstance(wait, Wait)
    assert wait.within_seconds == seconds + 120


# --- what the workload says about its own start -----------------------------------------------------------------------

EDIT = {"edits": [{"flag": "--max-num-seqs", "value": 32.0}]}
START = 16 * 60.0
"""Twice the recorded start of eight minutes."""


def seen_with(pod_template: Obj | None = None, *, settles: int = 0) -> ClusterSnapshot:
    pods = tuple(started(number, 8) for number in (1, 2, 3, 4))
    return snapshot(workload=deployment(pod_template, minReadySeconds=settles), pods=pods)


def within(plan: Plan, condition: str) -> float:
    return next(step.within_seconds for step in plan.steps if isinstance(step, Wait) and step.condition == condition)


def test_a_scale_waits_until_a_replica_has_been_ready_for_min_ready_seconds() -> None:
    plan = planned("scale", {"by": 1}, seen_with(settles=300))
    assert within(plan, "scaled") == START + 300 + 120
    assert grade(plan, "start") == "note"
    assert weighed(plan, "start") == "a new replica counts once it has been Ready for 300 s (minReadySeconds)"


def test_each_replica_of_a_rollout_is_given_its_min_ready_seconds_and_its_grace_period() -> None:
    plain, slow = (within(planned("set_flags", EDIT, seen_with(settles=settles)), "rolled_out") for settles in (0, 300))
    assert plain == 4 * (START + 60 + 120)
    assert slow == plain + 4 * 300


def test_a_scale_in_has_no_replica_to_wait_for() -> None:
    plan = planned("scale", {"by": -1}, seen_with(settles=300))
    assert not [each for each in plan.circumstances if each.name == "start"]


def test_what_only_has_to_be_ready_waits_no_longer() -> None:
    replace_one = ("replace_replica", {"replica": "llm-2"})
    plain, slow = (planned(*replace_one, seen_with(settles=settles)) for settles in (0, 300))
    assert within(plain, "replaced") == within(slow, "replaced")
    assert not [each for each in slow.circumstances if each.name == "start"]


def test_more_than_an_hour_is_not_waited_for_and_the_request_says_so() -> None:
    plan = planned("scale", {"by": 1}, seen_with(settles=7200))
    assert within(plan, "scaled") == START + 3600 + 120
    assert grade(plan, "start") == "warning"
    assert weighed(plan, "start") == (
        "a new replica counts once it has been Ready for 7200 s (minReadySeconds), but the wait allows for 3600 s of it"
        " only: it ends as failed before that"
    )


def test_a_held_rollout_that_was_abandoned_is_not_waited_for() -> None:
    plan = planned("scale", {"by": 1}, seen_with(settles=HELD_SECONDS))
    assert within(plan, "scaled") == START + 120


def with_probe(**probe: int) -> Obj:
    return template(startupProbe={"httpGet": {"path": "/health", "port": 8000}, **probe})


@pytest.mark.parametrize(
    ("probe", "seconds"),
    [
        pytest.param({"failureThreshold": 240, "periodSeconds": 10}, 2400, id="longer-than-the-default"),
        pytest.param({"failureThreshold": 180, "periodSeconds": 10, "initialDelaySeconds": 60}, 1860, id="delayed"),
        pytest.param({"failureThreshold": 60, "periodSeconds": 10}, 1200, id="shorter-than-the-default"),
        pytest.param({}, 1200, id="its-own-defaults"),
        pytest.param({"failureThreshold": 1000, "periodSeconds": 30}, 3600, id="never-more-than-an-hour"),
    ],
)
def test_without_a_recorded_start_the_startup_probe_says_how_long_one_may_take(
    probe: dict[str, int], seconds: float
) -> None:
    plan = planned("scale", {"by": 1}, snapshot(workload=deployment(with_probe(**probe))))
    assert within(plan, "scaled") == seconds + 120


def test_a_probe_that_allows_more_than_an_hour_is_reported() -> None:
    plan = planned("scale", {"by": 1}, snapshot(workload=deployment(with_probe(failureThreshold=1000))))
    assert grade(plan, "start") == "warning"
    assert weighed(plan, "start") == (
        "its startup probe lets an engine start for 10000 s, but the wait allows for 3600 s of it only: it ends as"
        " failed before that"
    )


def test_a_recorded_start_counts_more_than_what_a_probe_allows() -> None:
    slow = with_probe(failureThreshold=1000)
    plan = planned("scale", {"by": 1}, seen_with(slow))
    assert within(plan, "scaled") == START + 120
    assert not [each for each in plan.circumstances if each.name == "start"]


# --- replicas that start or end one after the other -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "starts"),
    [pytest.param("OrderedReady", 3, id="one-after-the-other"), pytest.param("Parallel", 1, id="together")],
)
def test_replicas_that_start_one_after_the_other_are_each_given_their_time(policy: str, starts: int) -> None:
    workload = stateful_set(podManagementPolicy=policy, minReadySeconds=300)
    plan = planned("scale", {"by": 3}, numbered_world(workload))
    assert within(plan, "scaled") == starts * (1200 + 300) + 120
    owned = scaler()
    owned["spec"]["scaleTargetRef"]["kind"] = "StatefulSet"
    grown = planned("scale", {"by": 3}, numbered_world(workload, autoscalers=(owned,)))
    assert within(grown, "grown") == starts * (1200 + 300) + 120


def patient(seconds: int) -> Obj:
    made = template()
    made["spec"]["terminationGracePeriodSeconds"] = seconds
    return made


def test_a_replica_that_is_scaled_away_is_given_its_grace_period() -> None:
    plan = planned("scale", {"by": -1}, snapshot(workload=deployment(patient(1800))))
    assert within(plan, "scaled") == 1200 + 1800 + 120
    ordered = planned("scale", {"by": -2}, numbered_world(stateful_set(patient(1800))))
    assert within(ordered, "scaled") == 1200 + 2 * 1800 + 120


def test_a_negative_grace_period_takes_no_time_from_a_wait() -> None:
    """The kubelet takes it as one second."""
    plan = planned("scale", {"by": -1}, snapshot(workload=deployment(patient(-100_000))))
    assert within(plan, "scaled") == 1200 + 1 + 120


def test_a_numbered_replica_is_given_its_grace_period_before_its_successor_starts() -> None:
    plan = planned("set_flags", EDIT, numbered_world(stateful_set(patient(1800))))
    assert within(plan, "rolled_out") == 3 * (1200 + 1800 + 120)
