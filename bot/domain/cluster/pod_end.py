"""Whether a container ended because its pod was told to end. The exit code does not say it.

When vLLM's engine process dies, the API server beside it ends in good order, with exit code 0. So what counts is
whether anything asked the pod to go: a deletion (also by a rollout, a scale-down or a drain), an eviction, or the
shutdown of its node.
"""

from __future__ import annotations

from bot.domain.cluster.objects import condition, dig, seconds_of
from bot.domain.cluster.snapshot import Obj


def was_told_to_end(pod: Obj, ended: Obj) -> bool:
    """`ended`: the `terminated` state of one of the pod's containers."""
    if dig(pod, "status", "phase") == "Failed" and dig(pod, "status", "reason"):
        # The kubelet ended the pod as a whole: evicted, preempted, shut down, or over its deadline.
        return True
    if (dig(pod, "spec", "restartPolicy") or "Always") != "Always" and ended.get("exitCode") == 0:
        # It has done its work.
        return True
    finished = seconds_of(ended.get("finishedAt"))
    asked = [at for at in (_deletion_asked_at(pod), _disrupted_at(pod)) if at is not None]
    # What ended before the pod was asked to go ended by itself.
    return bool(asked) and (finished is None or finished >= min(asked))


def _deletion_asked_at(pod: Obj) -> float | None:
    """`deletionTimestamp` is when the grace period is over."""
    over = seconds_of(dig(pod, "metadata", "deletionTimestamp"))
    return None if over is None else over - float(dig(pod, "metadata", "deletionGracePeriodSeconds") or 0)


def _disrupted_at(pod: Obj) -> float | None:
    target = condition(pod, "DisruptionTarget")
    return seconds_of(target.get("lastTransitionTime")) if target.get("status") == "True" else None
