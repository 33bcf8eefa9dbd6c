"""Whether a container ended because its pod was asked to end. The exit code does not show it.

When vLLM's engine process dies, the API server beside it exits cleanly, with exit code 0. So the test is whether
anything asked the pod to end: a deletion (also by a rollout, a scale-down or a drain), an eviction, or the shutdown of
its node.

A kubelet also ends a container whose liveness or startup probe failed. Only an event of the pod shows that, and the API
server forgets events within an hour: its absence proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from bot.domain.cluster.objects import condition, dig, last_seen_of, name_of, seconds_of, uid_of
from bot.domain.cluster.snapshot import Obj

_FAILED_PROBE = re.compile(r"Container (\S+) failed (?:liveness|startup) probe")
"""As in `Container vllm failed liveness probe, will be restarted`."""


def was_asked_to_end(pod: Obj, ended: Obj) -> bool:
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


def failed_probe_of(pod: Obj, container: str, ended: Obj, kills: Iterable[Obj]) -> str:
    """What the kubelet wrote as it ended this container for a failed probe; empty without such an event.

    `ended`: the container's `terminated` state.
    """
    began = seconds_of(ended.get("startedAt")) or 0.0
    own = [
        event
        for event in kills
        if _is_about(event, pod)
        and (found := _FAILED_PROBE.search(event.get("message") or ""))
        and found[1] == container
    ]
    latest = max(own, key=last_seen_of, default=None)
    return str(latest["message"]) if latest is not None and last_seen_of(latest) >= began else ""


def _is_about(event: Obj, pod: Obj) -> bool:
    about = event.get("involvedObject") or {}
    return (about.get("uid") or uid_of(pod), about.get("name")) == (uid_of(pod), name_of(pod))


def _deletion_asked_at(pod: Obj) -> float | None:
    """`deletionTimestamp` is the end of the grace period."""
    over = seconds_of(dig(pod, "metadata", "deletionTimestamp"))
    return None if over is None else over - float(dig(pod, "metadata", "deletionGracePeriodSeconds") or 0)


def _disrupted_at(pod: Obj) -> float | None:
    target = condition(pod, "DisruptionTarget")
    return seconds_of(target.get("lastTransitionTime")) if target.get("status") == "True" else None
