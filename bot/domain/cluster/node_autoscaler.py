"""Whether the cluster adds nodes for Pending pods, and how its node autoscaler answered for one of them.

Cluster Autoscaler writes the events TriggeredScaleUp and NotTriggerScaleUp about the pod (kubernetes/autoscaler,
processors/status/eventing_scale_up_processor.go), and its own state into a ConfigMap. Karpenter writes Nominated and
FailedScheduling (kubernetes-sigs/karpenter, scheduling/events.go), and labels its nodes with their pool.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from bot.domain.cluster.objects import annotations_of, dig, labels_of, name_of, namespace_of, seconds_of, uid_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import NUMBERED, PODS_OF, kind_of

STATUS_NAMESPACE, STATUS_NAME = "kube-system", "cluster-autoscaler-status"
UPDATED_ANNOTATION = "cluster-autoscaler.kubernetes.io/last-updated"
POOL_LABEL = "karpenter.sh/nodepool"
ADDING_SECONDS = 900.0
"""Both autoscalers give up on a node that has not come by then: --max-node-provision-time of Cluster Autoscaler, and
the time that Karpenter gives a node to register."""
ANSWER_SECONDS = 120.0
"""They look at Pending pods every ten seconds, or later if they are busy. Without an answer until then, none comes."""
REFUSED_SECONDS = 600.0
"""For how long a refusal counts for the workload's next pod. Cluster Autoscaler backs off for 5 to 30 minutes."""
STALE_SECONDS = 600.0
"""Cluster Autoscaler updates its status every ten seconds."""
REQUESTED, REFUSED = ("TriggeredScaleUp", "Nominated"), ("NotTriggerScaleUp", "FailedScheduling")
KARPENTER_REFUSES = "Failed to schedule pod"
"""Other schedulers write FailedScheduling too; this is how Karpenter's message begins."""
USUAL_WAIT = "8 to 12 minutes"


@dataclass(frozen=True)
class ScaleUpAnswer:
    """The newest event of a node autoscaler about one pod."""

    state: Literal["coming", "refused", "late"]
    text: str


@dataclass(frozen=True)
class Growth:
    """Whether a Pending pod of the workload would get another node."""

    by: str = ""
    """The node autoscaler; empty if the cluster shows none."""
    refused: str = ""
    """Why it added no node for the workload's last Pending pod."""
    unknown: str = ""
    """Why it is not known whether there is one."""

    @property
    def is_possible(self) -> bool | None:
        """Returns None if it is not known."""
        if self.by:
            return not self.refused
        return None if self.unknown else False

    @property
    def text(self) -> str:
        if self.refused:
            return f"{self.by} adds no node: {self.refused}"
        if self.by:
            return f"{self.by} may add a node"
        return f"whether a node can be added is not known: {self.unknown}" if self.unknown else ""


def growth_of(snapshot: ClusterSnapshot) -> Growth:
    by = _autoscaler(snapshot)
    if not by:
        unread = snapshot.unreadable.get("autoscaler_status") or snapshot.unreadable.get("scale_up_events") or ""
        return Growth(unknown=unread)
    about = [event for event in _answers(snapshot) if _is_about_workload(event, snapshot)]
    newest = max(about, key=_at, default=None)
    is_refused = newest is not None and newest.get("reason") in REFUSED and snapshot.at - _at(newest) < REFUSED_SECONDS
    return Growth(by, refused=_message(newest) if is_refused and newest else "")


def _is_about_workload(event: Obj, snapshot: ClusterSnapshot) -> bool:
    """Whether it is about a pod of the workload or of its canary, also one that is gone.

    The pods of `llm-embed` begin with `llm-` too.
    """
    about, workload = event.get("involvedObject") or {}, snapshot.workload or {}
    if about.get("uid") in {uid_of(pod) for pod in snapshot.pods}:
        return True
    worker = "(-[0-9]+)?" if kind_of(workload) in NUMBERED else ""
    pattern = re.escape(name_of(workload)) + PODS_OF[kind_of(workload)] + worker
    return about.get("namespace") == namespace_of(workload) and bool(re.fullmatch(pattern, str(about.get("name"))))


def _autoscaler(snapshot: ClusterSnapshot) -> str:
    if any(POOL_LABEL in labels_of(node) for node in snapshot.nodes):
        return "Karpenter"
    updated = annotations_of(snapshot.autoscaler_status or {}).get(UPDATED_ANNOTATION, "")
    # `2026-11-23 09:00:00.12 +0000 UTC`, as Go prints it.
    at = seconds_of(f"{updated[:10]}T{updated[11:19]}Z") if len(updated) >= len("2026-11-23 09:00:00") else None
    if at is not None and snapshot.at - at < STALE_SECONDS:
        return "Cluster Autoscaler"
    requested = [event for event in _answers(snapshot) if event.get("reason") in REQUESTED]
    return "a node autoscaler" if requested else ""


def scale_up_answer(pod: Obj, snapshot: ClusterSnapshot) -> ScaleUpAnswer | None:
    """Returns the last answer of the node autoscaler about a pod that cannot be scheduled; None without one."""
    about = [event for event in _answers(snapshot) if dig(event, "involvedObject", "uid") == uid_of(pod)]
    newest = max(about, key=_at, default=None)
    if newest is None:
        return None
    if newest.get("reason") in REFUSED:
        return ScaleUpAnswer("refused", f"no node is added: {_message(newest)}")
    asked = _first_at(newest)
    minutes = max(0.0, snapshot.at - asked) / 60
    if snapshot.at - asked >= ADDING_SECONDS:
        return ScaleUpAnswer("late", f"a node was requested {minutes:.0f} minutes ago and has not come")
    again = _asked_before(about, snapshot.at)
    text = f"a node is being added, requested {minutes:.0f} minutes ago{again}: {_message(newest)}"
    return ScaleUpAnswer("coming", text)


def _asked_before(about: Iterable[Obj], at: float) -> str:
    """Says how often a node was requested before: without capacity, Karpenter asks for another one again and again."""
    refused_at = max((_at(event) for event in about if event.get("reason") in REFUSED), default=0.0)
    asked = [event for event in about if event.get("reason") in REQUESTED and _at(event) > refused_at]
    if len(asked) < 2:
        return ""
    first = max(0.0, at - min(map(_first_at, asked))) / 60
    return f" ({len(asked)} requests, the first {first:.0f} minutes ago)"


def _answers(snapshot: ClusterSnapshot) -> Iterable[Obj]:
    for event in snapshot.scale_up_events:
        reason = event.get("reason")
        if reason == "FailedScheduling" and not _message(event).startswith(KARPENTER_REFUSES):
            continue
        if reason in (*REQUESTED, *REFUSED):
            yield event


def _message(event: Obj) -> str:
    return str(event.get("message") or event.get("reason"))


def _at(event: Obj) -> float:
    last = event.get("lastTimestamp") or dig(event, "series", "lastObservedTime") or event.get("eventTime")
    return seconds_of(last) or 0.0


def _first_at(event: Obj) -> float:
    return seconds_of(event.get("firstTimestamp") or event.get("eventTime")) or _at(event)
