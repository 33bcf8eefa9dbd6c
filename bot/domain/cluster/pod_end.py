"""Whether a container ended because its pod was asked to end. The exit code does not show it.

When vLLM's engine process dies, the API server beside it exits cleanly, with exit code 0. So the test is whether
anything asked the pod to end: a deletion (also by a rollout, a scale-down or a drain), an eviction, or the shutdown of
its node.
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
        # It has completed.
        return True
    finished = seconds_of(ended.get("finishedAt"))
    asked = [at for at in (_deletion_asked_at(pod), _disrupted_at(pod)) if at is not None]
    # A container that ended before the pod was asked to end did so by itself.
    return bool(asked) and (finished is None or finished >= min(asked))


def _deletion_asked_at(pod: Obj) -> float | None:
    """`deletionTimestamp` is the end of the grace period."""
    over = seconds_of(dig(pod, "metadata", "deletionTimestamp"))
    return None if over is None else over - float(dig(pod, "metadata", "deletionGracePeriodSeconds") or 0)


def _disrupted_at(pod: Obj) -> float | None:
    target = condition(pod, "DisruptionTarget")
    return seconds_of(target.get("lastTransitionTime")) if target.get("status") == "True" else None
