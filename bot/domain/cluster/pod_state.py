"""Why a starting pod is not Ready, and whether waiting can help: judged by the pod's status, not by time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from bot.domain.cluster.capacity import accelerators_of
from bot.domain.cluster.objects import condition, dig, is_going_away, is_ready, name_of, seconds_of
from bot.domain.cluster.snapshot import Obj

PENDING_SECONDS = 45.0
"""The scheduler responds within seconds; a pod rejected for this long stays Pending."""
FAST_EXIT_SECONDS = 15.0
"""Exit code 2 this soon means that the engine refused its command line."""
HOPELESS_RESTARTS = 2
FORGIVEN_SECONDS = 600.0
"""A container that has run for this long crashes in no loop: the kubelet's back-off begins again."""
NO_IMAGE = ("ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
NO_CONTAINER = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")


@dataclass(frozen=True)
class PodState:
    state: Literal["ready", "starting", "ending", "broken"]
    text: str = ""


def pod_state(pod: Obj, at: float, *, is_room_coming: bool = False, restarts_before: int = 0) -> PodState:
    """`is_room_coming`: accelerators are released or a node is added soon, so missing capacity is not yet a failure.

    `restarts_before`: how often its containers had restarted before the time that is judged.
    """
    if is_going_away(pod):
        return PodState("ending", f"{name_of(pod)} is ending")
    if is_ready(pod):
        return PodState("ready")
    reason = ("" if is_room_coming else _unschedulable(pod, at)) or _broken_container(pod, at, restarts_before)
    return PodState("broken", f"{name_of(pod)}: {reason}") if reason else PodState("starting", waiting_text(pod))


def is_loading(pod: Obj) -> bool:
    """Whether its containers run and it was not Ready since they started, as an engine that loads its model."""
    states = [dig(status, "state", "running") for status in dig(pod, "status", "containerStatuses") or []]
    if not states or None in states or is_ready(pod):
        return False
    began = max(seconds_of(state.get("startedAt")) or 0.0 for state in states)
    not_ready_since = seconds_of(condition(pod, "Ready").get("lastTransitionTime"))
    return not_ready_since is not None and not_ready_since <= began


def restarts_of(pod: Obj) -> int:
    """Returns how often the container with the most restarts has restarted."""
    return max(
        (int(status.get("restartCount") or 0) for status in dig(pod, "status", "containerStatuses") or []), default=0
    )


def first_broken(pods: Iterable[Obj], at: float, *, is_room_coming: bool = False) -> str:
    """Describes the first pod that cannot recover by waiting; empty if there is none."""
    states = (pod_state(pod, at, is_room_coming=is_room_coming) for pod in pods)
    return next((state.text for state in states if state.state == "broken"), "")


def _unschedulable(pod: Obj, at: float) -> str:
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") != "False" or scheduled.get("reason") != "Unschedulable" or room_made_for(pod):
        return ""
    since = seconds_of(scheduled.get("lastTransitionTime") or dig(pod, "metadata", "creationTimestamp"))
    if since is not None and at - since < PENDING_SECONDS:
        return ""
    return f"cannot be scheduled: {scheduled.get('message', 'no node takes it')}"


def _broken_container(pod: Obj, at: float, restarts_before: int) -> str:
    for status in dig(pod, "status", "initContainerStatuses") or []:
        # Its last end is not a failure once it runs again or is done.
        is_waiting = bool(dig(status, "state", "waiting"))
        if reason := _not_started(status) or (_crashes(status, at) if is_waiting else ""):
            return f"init container {status.get('name')}: {reason}"
    for status in dig(pod, "status", "containerStatuses") or []:
        refused = "" if _is_sidecar(pod, status) else _refused_command_line(status)
        if reason := _not_started(status) or refused or _crashes(status, at, restarts_before):
            return reason
    return ""


def _not_started(status: Obj) -> str:
    waiting = dig(status, "state", "waiting") or {}
    why = waiting.get("reason", "")
    if why in NO_IMAGE:
        return f"image {status.get('image', '')} cannot be pulled ({why})"
    return f"{why}: {waiting.get('message', '')}".rstrip(": ") if why in NO_CONTAINER else ""


def _is_sidecar(pod: Obj, status: Obj) -> bool:
    """Whether another container of the pod has the accelerators."""
    containers = dig(pod, "spec", "containers") or []
    engines = [one.get("name") for one in containers if accelerators_of({"spec": {"containers": [one]}})]
    return bool(engines) and status.get("name") not in engines


def _refused_command_line(status: Obj) -> str:
    ended = _last_end(status)
    ran = _ran_seconds(ended)
    if ended.get("exitCode") != 2 or ran is None or ran > FAST_EXIT_SECONDS:
        return ""
    return f"exit code 2 after {ran:.0f} s: the engine refuses its command line"


def _crashes(status: Obj, at: float, restarts_before: int = 0) -> str:
    started = seconds_of(dig(status, "state", "running", "startedAt"))
    if started is not None and at - started >= FORGIVEN_SECONDS:
        return ""
    ended, restarts = _last_end(status), int(status.get("restartCount") or 0) - restarts_before
    cause = f"exit code {ended.get('exitCode')}" + (f", {ended['reason']}" if ended.get("reason") else "")
    return f"crashed {restarts} times ({cause})" if restarts >= HOPELESS_RESTARTS else ""


def _last_end(status: Obj) -> Obj:
    return dig(status, "state", "terminated") or dig(status, "lastState", "terminated") or {}


def _ran_seconds(ended: Obj) -> float | None:
    started, finished = seconds_of(ended.get("startedAt")), seconds_of(ended.get("finishedAt"))
    return None if started is None or finished is None else finished - started


def room_made_for(pod: Obj) -> str:
    """Describes that the scheduler makes room for the pod, as by ending pods of lower priority; else empty."""
    node = dig(pod, "status", "nominatedNodeName")
    return f"{name_of(pod)} waits for the room that the scheduler makes on {node}" if node else ""


def held_by_gates(pod: Obj) -> str:
    """Returns what keeps the scheduler from looking at the pod, such as Kueue's queue; empty if nothing does."""
    gates = ", ".join(str(gate.get("name")) for gate in dig(pod, "spec", "schedulingGates") or [])
    return f"{name_of(pod)} is held by scheduling gate {gates}" if gates else ""


def first_held(pods: Iterable[Obj]) -> str:
    """Describes the first pod that a scheduling gate holds; empty if there is none."""
    return next(filter(None, map(held_by_gates, pods)), "")


def waiting_text(pod: Obj) -> str:
    """Describes what a pod that is not Ready, and not broken, waits for."""
    if held := held_by_gates(pod):
        return held
    if condition(pod, "PodScheduled").get("status") == "False":
        return room_made_for(pod) or f"{name_of(pod)} is not scheduled yet"
    ready = condition(pod, "Ready")
    if ready.get("reason") == "ReadinessGatesNotReady":
        return f"{name_of(pod)} is not Ready although its containers are: {ready.get('message')}"
    return f"{name_of(pod)} is starting"
