"""The canary, an extra replica with edited flags, as several verbs use it."""

from __future__ import annotations

from bot.domain.changes.context import MARGIN_SECONDS, PlanContext, Situation
from bot.domain.changes.plan import Wait
from bot.domain.cluster.objects import INCIDENT_ANNOTATION, ObjectRef, annotations_of, is_going_away, name_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.errors import impossible

EDITS_ANNOTATION = "incident-bot/edits"
"""Annotation on the canary: the edits that it was started with. `promote` reads them."""


def rotation_wanted(situation: Situation, *, default: str = "") -> str:
    wanted = str(situation.arguments.get("rotation") or default)
    if wanted not in ("in", "out"):
        raise impossible(f"rotation is 'in' or 'out', not {wanted!r}")
    return wanted


def own_canary(snapshot: ClusterSnapshot, context: PlanContext) -> Obj:
    canary = snapshot.canary
    if canary is None:
        raise impossible("there is no canary", "start one with canary")
    if is_going_away(canary):
        raise impossible(f"the canary {name_of(canary)} is going away")
    if annotations_of(canary).get(INCIDENT_ANNOTATION) != context.incident_id:
        raise impossible(f"{name_of(canary)} does not carry this incident's id: it is not ours")
    return canary


def gone(target: ObjectRef, context: PlanContext) -> Wait:
    return Wait(
        condition="gone",
        about=target,
        within_seconds=context.drain_seconds + MARGIN_SECONDS,
        title="The canary and its pods are gone",
    )
