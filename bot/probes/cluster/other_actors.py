"""The `other_actors` probe."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bot.domain.cluster.objects import FIELD_MANAGER, created_at, dig, seconds_of, writers_of
from bot.domain.cluster.owner import aims_at, autoscaler_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.durations import lasting
from bot.domain.signals.probe_spec import Parameter
from bot.domain.signals.signal import Reading
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import NOT_THERE, answer, no_answer, seconds_asked_for
from bot.probes.declaration import Probe

LATELY = "15m"
CREATED_WITHIN_SECONDS = 2.0
"""A creator fills in its object within a moment; that does not count as a change to a running workload."""


@dataclass(frozen=True)
class OtherActors:
    acted: bool
    who: str


@dataclass(frozen=True)
class _Hand:
    who: str
    at: float


async def other_actors(request: ProbeRequest) -> Reading:
    """Which actors besides us wrote the workload's spec or scaled it lately: a person, a sync, an autoscaler."""
    snapshot = await request.snapshot()
    workload = snapshot.workload
    if workload is None:
        return no_answer(request, NOT_THERE)
    span = seconds_asked_for(request, "over", LATELY)
    if isinstance(span, str):
        return no_answer(request, span)
    if not writers_of(workload):
        return no_answer(request, "the API server does not say who wrote it")
    hands = [*_writers(workload), *_autoscaler(snapshot)]
    acted = sorted((hand for hand in hands if request.at - hand.at <= span), key=lambda hand: -hand.at)
    if not acted:
        return answer(request, OtherActors(acted=False, who=""), detail=f"nobody else in the last {lasting(span)}")
    detail = ", ".join(f"{hand.who} {lasting(max(0.0, request.at - hand.at))} ago" for hand in acted)
    return answer(request, OtherActors(acted=True, who=acted[0].who), detail=detail)


def _writers(workload: Obj) -> Iterable[_Hand]:
    created = created_at(workload) or 0.0
    for one in writers_of(workload):
        if one.at is None or one.subresource == "status" or one.manager in (FIELD_MANAGER, "kube-controller-manager"):
            continue
        if one.at - created > CREATED_WITHIN_SECONDS:
            yield _Hand(one.manager or "somebody without a name", one.at)


def _autoscaler(snapshot: ClusterSnapshot) -> Iterable[_Hand]:
    """KEDA scales through a HorizontalPodAutoscaler that it makes."""
    scaler = autoscaler_of(snapshot)
    for one in snapshot.autoscalers if scaler else ():
        at = seconds_of(dig(one, "status", "lastScaleTime"))
        if at is not None and aims_at(one, snapshot.workload or {}):
            yield _Hand(scaler.text if scaler else "", at)


PROBE = Probe(
    name="other_actors",
    label="Changes by others",
    help="Whether somebody else changed the workload lately, and who.",
    answer=OtherActors,
    read=lambda sources: other_actors,
    parameters={
        "over": Parameter("How much time counts as lately.", "duration"),
    },
)
