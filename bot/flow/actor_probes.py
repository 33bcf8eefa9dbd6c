"""Probes about hands on the workload: a rollout under way, who else wrote lately, our canary, a version kept warm.

What the API server does not say is unknown: an object without its field owners was not left alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bot.domain.changes.interference import OURS
from bot.domain.changes.steps.canary_steps import EDITS_ANNOTATION
from bot.domain.cluster.objects import annotations_of, dig, is_ready, labels_of, name_of, seconds_of, uid_of
from bot.domain.cluster.owner import autoscaler_of
from bot.domain.cluster.rollout import replica_sets_of, rollout_state
from bot.domain.cluster.rotation import is_in_rotation, pods_of_canary
from bot.domain.cluster.snapshot import Obj, World
from bot.domain.cluster.workload import template_of
from bot.domain.flags.flags_in_spec import FlagsInSpec, flags_of_template
from bot.domain.signals.sampling import span_of
from bot.domain.signals.signal import Reading, unknown
from bot.domain.signals.window import short
from bot.flow.ports import Probe, Question
from bot.flow.probes import SOURCE, Part, answer, unreadable

LATELY = "15m"
CREATED_WITHIN_SECONDS = 2.0
"""Who creates an object and fills it in does so within a moment; that is no hand on what runs."""


# --- rollout ----------------------------------------------------------------------------------------------------------


async def rollout_progress(question: Question) -> Reading:
    world = await question.world()
    if failed := unreadable(question, world, "workload"):
        return failed
    if world.workload is None:
        return answer(question, {"exists": False, "running": False}, detail="the workload is not there")
    state = rollout_state(world.workload)
    detail = f"{state.updated} of {state.wanted} updated, {state.available} available"
    # Too few that are all new is a scale-out or a crash, not a rollout that an edit would overtake.
    is_running = not state.is_observed or state.updated < state.total
    return answer(question, {"exists": True, "running": is_running}, detail=detail)


# --- other actors -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Hand:
    who: str
    at: float


async def other_actors(question: Question) -> Reading:
    """Who besides us wrote the workload's spec or scaled it lately: a person, a sync, an autoscaler."""
    world = await question.world()
    workload = world.workload
    if workload is None:
        return unknown(question.name, "the workload is not there", at=question.at, source=SOURCE)
    try:
        span = span_of(str(question.spec.parameters.get("over", LATELY)), question.context.settings)
    except ValueError as error:
        return unknown(question.name, str(error), at=question.at, source=SOURCE)
    if not dig(workload, "metadata", "managedFields"):
        return unknown(question.name, "the API server does not say who wrote it", at=question.at, source=SOURCE)
    hands = [*_writers(workload), *_autoscaler(world)]
    acted = sorted((hand for hand in hands if question.at - hand.at <= span), key=lambda hand: -hand.at)
    if not acted:
        return answer(question, {"acted": False, "who": ""}, detail=f"nobody else in the last {short(span)}")
    said = ", ".join(f"{hand.who} {short(max(0.0, question.at - hand.at))} ago" for hand in acted)
    return answer(question, {"acted": True, "who": acted[0].who}, detail=said)


def _writers(workload: Obj) -> Iterable[_Hand]:
    created = seconds_of(dig(workload, "metadata", "creationTimestamp")) or 0.0
    for entry in dig(workload, "metadata", "managedFields") or []:
        at, manager = seconds_of(entry.get("time")), str(entry.get("manager", ""))
        if at is None or entry.get("subresource") == "status" or manager in (OURS, "kube-controller-manager"):
            continue
        if at - created > CREATED_WITHIN_SECONDS:
            yield _Hand(manager or "somebody without a name", at)


def _autoscaler(world: World) -> Iterable[_Hand]:
    scaler = autoscaler_of(world)
    for one in (scaler.obj,) if scaler else ():
        at = seconds_of(dig(one, "status", "lastScaleTime") or "")
        if at is not None:
            yield _Hand(scaler.text if scaler else "", at)


# --- our canary -------------------------------------------------------------------------------------------------------


async def canary_edits(question: Question) -> Reading:
    """Whether our canary is there and Ready, and whether the workload's own template has what the canary was given."""
    world = await question.world()
    if failed := unreadable(question, world, "canary", "pods"):
        return failed
    if world.canary is None:
        parts: dict[str, Part | None] = {"canary": False, "ready": False, "live": None}
        return answer(question, parts, missing={"live": "there is no canary to compare with"})
    ready = any(is_ready(pod) for pod in pods_of_canary(world))
    live = None if world.workload is None else _is_live(world, world.workload, world.canary)
    missing = {"live": "the canary does not say what it was started with"}
    return answer(question, {"canary": True, "ready": ready, "live": live}, missing=missing)


def _is_live(world: World, workload: Obj, canary: Obj) -> bool | None:
    try:
        edits = json.loads(annotations_of(canary)[EDITS_ANNOTATION])
    except (KeyError, ValueError):
        return None
    template = template_of(workload)
    flags = flags_of_template(template, config_maps=world.config_maps)
    return rollout_state(workload).is_complete and all(_has(template, flags, edit) for edit in edits)


def _has(template: Obj, flags: FlagsInSpec, edit: Mapping[str, Any]) -> bool:
    container = dig(template, "spec", "containers", flags.container_index) or {}
    if "image" in edit:
        return bool(container.get("image") == edit["image"])
    if "env" in edit:
        found = next((one.get("value") for one in container.get("env") or [] if one.get("name") == edit["env"]), None)
        return found == (None if edit["value"] is None else str(edit["value"]))
    written = flags.last(str(edit["flag"]))
    if edit["value"] is None:
        return written is None
    return written is not None and _same(written.value, edit["value"])


def _same(written: object, wanted: object) -> bool:
    if isinstance(wanted, bool) or isinstance(written, bool):
        return str(written).lower() == str(wanted).lower()
    try:
        return float(str(written)) == float(str(wanted))
    except ValueError:
        return str(written) == str(wanted)


# --- a previous version -----------------------------------------------------------------------------------------------


async def warm_previous(question: Question) -> Reading:
    """How many replicas of an earlier revision, or of another workload behind the same Services, are Ready now."""
    world = await question.world()
    if failed := unreadable(question, world, "pods", "replica_sets", "services", "endpoint_slices"):
        return failed
    if world.workload is None:
        return unknown(question.name, "the workload is not there", at=question.at, source=SOURCE)
    older = {uid_of(one) for one in replica_sets_of(world)[1:]}
    ours = {uid_of(pod) for pod in pods_of_canary(world)}
    warm = [
        pod
        for pod in world.pods
        if uid_of(pod) not in ours and is_ready(pod) and {o["uid"] for o in _owners(pod)} & older
    ]
    strangers = [pod for pod in _strangers(world) if uid_of(pod) not in ours]
    detail = ", ".join(sorted(name_of(pod) for pod in (*warm, *strangers)))
    return answer(question, {"ready": float(len(warm) + len(strangers))}, detail=detail or "none")


def _owners(pod: Obj) -> list[dict[str, Any]]:
    return dig(pod, "metadata", "ownerReferences") or []


def _strangers(world: World) -> list[Obj]:
    """Ready pods of other workloads that the same Services list: a progressive delivery's stable part."""
    known = {uid_of(pod) for pod in world.pods}
    selectors = [dig(service, "spec", "selector") or {} for service in world.services]
    return [
        pod
        for pod in world.all_pods
        if uid_of(pod) not in known
        and dig(pod, "metadata", "namespace") == dig(world.workload or {}, "metadata", "namespace")
        and is_ready(pod)
        and is_in_rotation(pod, world.endpoint_slices)
        and any(selector and selector.items() <= labels_of(pod).items() for selector in selectors)
    ]


ACTOR_PROBES: dict[str, Probe] = {
    "rollout_progress": rollout_progress,
    "other_actors": other_actors,
    "canary_edits": canary_edits,
    "warm_previous": warm_previous,
}
