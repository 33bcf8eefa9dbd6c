"""Whether a container was asked to stop: the pod decides, not the exit code."""

from typing import Any

import pytest

from bot.domain.cluster.pod_end import was_asked_to_end

pytestmark = pytest.mark.fast

KILLED = {"exitCode": 137, "reason": "Error", "finishedAt": "2026-11-20T12:00:00Z"}


@pytest.mark.parametrize(
    ("reason", "is_asked"), [("Evicted", True), ("Preempting", True), ("Terminated", True), (None, False)]
)
def test_what_the_kubelet_ended_as_a_whole_pod_was_asked_to_end(reason: str | None, is_asked: bool) -> None:
    status: dict[str, Any] = {"phase": "Failed"} | ({"reason": reason} if reason else {})
    assert was_asked_to_end({"spec": {"restartPolicy": "Never"}, "status": status}, KILLED) is is_asked


def test_a_deletion_that_was_asked_for_later_did_not_end_the_container() -> None:
    leaving = {"metadata": {"deletionTimestamp": "2026-11-20T12:00:31Z", "deletionGracePeriodSeconds": 30}}
    assert was_asked_to_end(leaving, KILLED) is False
    assert was_asked_to_end(leaving, KILLED | {"finishedAt": "2026-11-20T12:00:01Z"}) is True
    assert was_asked_to_end(leaving, {"exitCode": 0}) is True, "without a time, the deletion is what is known"


def test_a_container_that_ended_in_a_pod_that_nobody_touched_was_not_asked_to() -> None:
    assert was_asked_to_end({}, KILLED | {"exitCode": 0, "reason": "Completed"}) is False
