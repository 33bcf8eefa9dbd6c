"""Probes that need nothing but the cluster's objects: rotation, drain mode, capacity, and what was rolled out lately.

A part that could not be read is absent and has its reason; it is never false and never zero.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from bot.domain.changes.drain import drain_mode
from bot.domain.changes.interference import OURS
from bot.domain.changes.plan import Difference
from bot.domain.changes.template_differences import template_differences
from bot.domain.cluster.capacity import capacity_of
from bot.domain.cluster.kept_revisions import RolledOut, came_before, rolled_out
from bot.domain.cluster.objects import CALL_ANNOTATION, annotations_of, condition, dig, is_going_away, seconds_of
from bot.domain.cluster.owner import autoscaler_of, owner_of
from bot.domain.cluster.rollout import TEMPLATE, replica_sets_of, revision_of
from bot.domain.cluster.rotation import pods_of_canary, pods_of_workload, rotation_of
from bot.domain.cluster.snapshot import Obj, World
from bot.domain.cluster.workload import KINDS, NUMBERED
from bot.domain.signals.signal import Reading, unknown
from bot.flow.ports import Probe, Question

SOURCE = "Kubernetes"
ROTATION = ("pods", "replica_sets", "endpoint_slices")
"""What rotation is read from."""
BEFORE_SECONDS, AFTER_SECONDS = 2 * 3600.0, 600.0
"""A deploy shows late, through caches and traffic ramps; one long after the beginning cannot be the cause."""
REUSED_ANNOTATION = "deployment.kubernetes.io/revision-history"
_CAN_MATTER = re.compile(
    r"/spec/(?:initContainers|volumes|nodeSelector|affinity|tolerations|runtimeClassName|hostIPC)\b"
    r"|/containers(?:$|/\d+(?:$|/(?:image|command|args|env|envFrom|resources|volumeMounts)\b))"
)

Part = float | bool | str


def answer(
    question: Question,
    parts: Mapping[str, Part | None],
    *,
    missing: Mapping[str, str] | None = None,
    detail: str = "",
    source: str = SOURCE,
) -> Reading:
    """A probe's reading; a part that is None is unknown, for the reason that `missing` gives."""
    reasons = {name: (missing or {}).get(name, "not readable") for name, value in parts.items() if value is None}
    if len(reasons) == len(parts):
        why = "; ".join(dict.fromkeys(reasons.values()))
        return unknown(question.name, why, at=question.at, source=source)
    return Reading(
        name=question.name,
        fields={name: value for name, value in parts.items() if value is not None},
        unknown_parts=reasons,
        at=question.at,
        source=source,
        query=question.spec.probe,
        detail=detail,
    )


def unreadable(question: Question, world: World, *sources: str) -> Reading | None:
    """The unknown reading when one of these parts of the world could not be read."""
    reasons = [f"{source}: {world.unreadable[source]}" for source in sources if source in world.unreadable]
    return unknown(question.name, "; ".join(reasons), at=question.at, source=SOURCE) if reasons else None


def pods_asked_for(question: Question, world: World) -> tuple[Obj, ...]:
    """The pods that the probe is about: the workload's, our canary's, or the picked one."""
    of = question.spec.of
    if of == "canary":
        return pods_of_canary(world)
    if of.startswith("picked."):
        name = question.context.picked.get(of.removeprefix("picked."))
        return tuple(pod for pod in world.pods if dig(pod, "metadata", "name") == name)
    return pods_of_workload(world)


def staying(pods: Sequence[Obj]) -> Sequence[Obj]:
    """Without those on their way out, which say what was; where all of them leave, they are what there is."""
    return [pod for pod in pods if not is_going_away(pod)] or pods


async def rotation(question: Question) -> Reading:
    world = await question.world()
    found = rotation_of(world)
    if found is None:
        reasons = "; ".join(f"{source}: {why}" for source, why in world.unreadable.items() if source in ROTATION)
        return unknown(question.name, reasons or "the workload is not there", at=question.at, source=SOURCE)
    parts = {"in_rotation": len(found.in_rotation), "ready": len(found.ready), "wanted": found.wanted}
    out = sorted(set(found.ready) - set(found.in_rotation))
    detail = f"ready but out of rotation: {', '.join(out)}" if out else ""
    return answer(question, {name: float(count) for name, count in parts.items()}, detail=detail)


async def drain(question: Question) -> Reading:
    world = await question.world()
    if failed := unreadable(question, world, "services", "pods"):
        return failed
    if world.workload is None:
        return unknown(question.name, "the workload is not there", at=question.at, source=SOURCE)
    found = drain_mode(world)
    return answer(question, {"mode": found.mode, "detail": found.text}, detail=found.text)


async def capacity(question: Question) -> Reading:
    world = await question.world()
    if world.workload is None:
        return unknown(question.name, "the workload is not there", at=question.at, source=SOURCE)
    found = capacity_of(world)
    if isinstance(found, str):
        return unknown(question.name, found, at=question.at, source=SOURCE)
    detail = ", ".join(f"{node}: {count} free" for node, count in sorted(found.free.items()))
    parts = {"free_gpus": float(found.free_total), "replicas_that_fit": float(found.replicas_that_fit)}
    said = "; ".join(part for part in (detail or "no schedulable node", found.said) if part)
    return answer(question, parts, detail=said)


async def owner(question: Question) -> Reading:
    """Who keeps the workload and its replica count, so that an edit would be reverted."""
    world = await question.world()
    if world.workload is None:
        return unknown(question.name, "the workload is not there", at=question.at, source=SOURCE)
    found, scaler = owner_of(world.workload), autoscaler_of(world)
    missing = {"autoscaler": world.unreadable.get("autoscalers") or world.unreadable.get("scaled_objects") or ""}
    parts: dict[str, Part | None] = {
        "managed": found is not None,
        "tool": found.tool if found else "",
        "name": found.text if found else "",
        "how": found.how if found else "",
        "autoscaler": scaler.text if scaler else None if missing["autoscaler"] else "",
    }
    said = [found.text if found else "applied by hand", scaler.text if scaler else ""]
    return answer(question, parts, missing=missing, detail="; ".join(part for part in said if part))


# --- recent rollout ---------------------------------------------------------------------------------------------------


async def recent_rollout(question: Question) -> Reading:
    """What was rolled out shortly before the incident began, by whom, and whether it can have caused it."""
    world = await question.world()
    kind = question.context.target.kind
    if failed := unreadable(question, world, "revisions" if kind in NUMBERED else "replica_sets"):
        return failed
    if world.workload is None or kind not in (*KINDS, "Unknown"):
        return unknown(question.name, "it keeps no revisions to look at", at=question.at, source=SOURCE)
    opened, began = question.context.opened_at, question.context.began_at
    if kind in NUMBERED:
        every = rolled_out(world, incident_id=question.context.incident_id, opened_at=opened)
    else:
        every = _of_deployment(world, question)
    if kind in NUMBERED and (not every or every[0].at is None):
        reason = "when its present revision was rolled out is not known" if every else "its controller kept no revision"
        return unknown(question.name, reason, at=question.at, source=SOURCE)
    recent = [one for one in every if one.at is not None and began - BEFORE_SECONDS <= one.at <= began + AFTER_SECONDS]
    # Our own fix is never the suspect: with a deploy before it, the deploy is. What was taken back is none either.
    over = {id(one): said for one in recent if (said := _is_over(one, every, recent))}
    suspect = next((one for one in recent if one.by_bot is not True and id(one) not in over), None)
    chosen = suspect or (recent[0] if recent else None)
    written = _written_config_maps(world, began)
    if chosen is None:
        parts: dict[str, Part | None] = {"happened": False, "matters": False, "by_bot": False, "summary": written}
        detail = "no rollout from 2 h before the incident began to 10 m after"
        return answer(question, parts | _revisions(every[0] if every else None), missing=_MISSING, detail=detail)
    return _told(question, chosen, written, over=over.get(id(chosen), ""))


def _is_over(rollout: RolledOut, every: Sequence[RolledOut], recent: Sequence[RolledOut]) -> str:
    """How this rollout and another one cancel out, in words; empty while what it changed is in effect."""
    place = next(index for index, one in enumerate(every) if one is rollout)
    if any(_takes_back(later, rollout) for later in every[:place]):
        return "rolled back since"
    earlier = [one for one in every[place + 1 :] if any(one is each for each in recent)]
    if any(_takes_back(rollout, one) and not _left_of(one.before, rollout.after) for one in earlier):
        return "takes an earlier rollout back"
    return ""


def _takes_back(later: RolledOut, rollout: RolledOut) -> bool:
    """Whether nothing that `rollout` changed, and that can matter, was left after `later`."""
    changed = _left_of(rollout.before, rollout.after)
    return bool(changed) and not changed & _left_of(rollout.before, later.after)


def _left_of(before: Sequence[Obj] | None, after: Sequence[Obj]) -> set[str]:
    """What differs between them and can matter: each by its name and what it was before."""
    pairs = zip(before or (), after, strict=False)
    differences = [change for old, new in pairs for change in template_differences(old, new)]
    return {f"{one.path} {one.text.rpartition(' → ')[0]}" for one in differences if _can_matter(one)}


def _can_matter(change: Difference) -> bool:
    return bool(_CAN_MATTER.search(change.path.removeprefix(TEMPLATE)))


def _written_config_maps(world: World, began: float) -> str:
    """Flags that changed beside the template, which keeps no revision of them: told, since no rollback undoes them."""
    found = []
    for name, config_map in sorted(world.config_maps.items()):
        created = seconds_of(dig(config_map, "metadata", "creationTimestamp")) or 0.0
        for entry in dig(config_map, "metadata", "managedFields") or []:
            at, who = seconds_of(entry.get("time")), str(entry.get("manager", ""))
            is_new = at is not None and at > created and began - BEFORE_SECONDS <= at <= began + AFTER_SECONDS
            if at is not None and is_new and who != OURS:
                found.append(f"ConfigMap {name} was written by {who or 'somebody'} {_when(began, at)}")
    return "; ".join(dict.fromkeys(found))[:600]


def _when(began: float, at: float) -> str:
    minutes = (began - at) / 60
    return f"{abs(minutes):.0f} min {'before' if minutes >= 0 else 'after'} the incident began"


def _of_deployment(world: World, question: Question) -> list[RolledOut]:
    """Newest first."""
    found = replica_sets_of(world)
    rollouts = []
    for index, replica_set in enumerate(found):
        before = came_before(replica_set, found, lambda each: revision_of(each) or 0)
        rollouts.append(
            RolledOut(
                after=(dig(replica_set, "spec", "template") or {},),
                before=None if before is None else (dig(before, "spec", "template") or {},),
                revision=revision_of(replica_set),
                previous=None if before is None else revision_of(before),
                at=rolled_out_at(replica_set, world, is_current=index == 0),
                by_bot=is_ours(replica_set, before, question),
            )
        )
    return rollouts


def rolled_out_at(replica_set: Obj, world: World, *, is_current: bool) -> float | None:
    created = seconds_of(dig(replica_set, "metadata", "creationTimestamp"))
    if REUSED_ANNOTATION not in annotations_of(replica_set):
        return created
    # A rollback takes an old ReplicaSet again; only the Deployment knows when.
    assert world.workload is not None
    progress = condition(world.workload, "Progressing")
    return seconds_of(progress.get("lastUpdateTime")) if is_current else None


def is_ours(replica_set: Obj, before: Obj | None, question: Question) -> bool:
    """Whether one of our calls made this revision: its stamp is new with it.

    The controller copies the Deployment's annotations to the current ReplicaSet at any time, so a later call of this
    incident may have stamped a revision that was there before the incident.
    """
    stamp = annotations_of(replica_set).get(CALL_ANNOTATION)
    if not stamp or (before is not None and annotations_of(before).get(CALL_ANNOTATION) == stamp):
        return False
    created = seconds_of(dig(replica_set, "metadata", "creationTimestamp")) or 0.0
    was_there = created < question.context.opened_at and REUSED_ANNOTATION not in annotations_of(replica_set)
    return not (was_there and stamp.startswith(f"{question.context.incident_id}/"))


_LOST = "the revision before it is not kept"
_MISSING = {
    "revision": "the ReplicaSet carries no revision",
    "previous_revision": "there is no earlier revision",
    "matters": "what it changed, or whether the bot made it, is not known",
    "by_bot": "a later call of the bot may have left the stamp",
}


def _revisions(rollout: RolledOut | None) -> dict[str, Part | None]:
    numbers = (None, None) if rollout is None else (rollout.revision, rollout.previous)
    named = zip(("revision", "previous_revision"), numbers, strict=True)
    return {name: None if number is None else float(number) for name, number in named}


def _told(question: Question, rollout: RolledOut, written: str, *, over: str) -> Reading:
    """`over`: how it and another rollout cancel out, in words."""
    differences = _differences(rollout)
    can_matter = any(map(_can_matter, differences))
    # What nobody knows is neither a cause nor none; what our own call rolled out is none.
    in_doubt = rollout.is_lost or (can_matter and rollout.by_bot is None)
    assert rollout.at is not None
    when = _when(question.context.began_at, rollout.at)
    nothing = _LOST if rollout.is_lost else "first revision" if rollout.before is None else "no difference"
    changed = "; ".join(change.text for change in differences) or nothing
    parts: dict[str, Part | None] = {
        "happened": True,
        "matters": False if rollout.by_bot or over else None if in_doubt else can_matter,
        "by_bot": rollout.by_bot,
        "summary": "; ".join(filter(None, (changed, written)))[:600],
    }
    who = " by the bot" if rollout.by_bot else ""
    detail = f"rolled out{who} {when}{f' ({over})' if over else ''}: {changed}"[:900]
    return answer(question, parts | _revisions(rollout), missing=_MISSING, detail=detail)


def _differences(rollout: RolledOut) -> tuple[Difference, ...]:
    """Over all templates of a replica, as far as there were as many before."""
    pairs = zip(rollout.before or (), rollout.after, strict=False)
    return tuple(change for old, new in pairs for change in template_differences(old, new))


WORLD_PROBES: dict[str, Probe] = {
    "rotation": rotation,
    "drain_mode": drain,
    "capacity": capacity,
    "owner": owner,
    "recent_rollout": recent_rollout,
}
