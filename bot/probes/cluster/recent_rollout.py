"""The `recent_rollout` probe."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bot.domain.changes.interference import OURS
from bot.domain.changes.plan import Difference
from bot.domain.changes.template_differences import template_differences
from bot.domain.cluster.kept_revisions import RolledOut, came_before, rolled_out
from bot.domain.cluster.objects import dig, seconds_of
from bot.domain.cluster.rollout import TEMPLATE, replica_sets_of, revision_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import KINDS, NUMBERED
from bot.domain.signals.signal import Reading
from bot.flow.ports import ProbeRequest
from bot.probes.answers import answer, no_answer, unreadable
from bot.probes.declaration import Probe
from bot.probes.revisions import is_ours, rolled_out_at

BEFORE_SECONDS, AFTER_SECONDS = 2 * 3600.0, 600.0
"""A bad rollout shows late, because of caches and traffic ramps; one long after the beginning cannot be the cause."""
_CAN_MATTER = re.compile(
    r"/spec/(?:initContainers|volumes|nodeSelector|affinity|tolerations|runtimeClassName|hostIPC)\b"
    r"|/containers(?:$|/\d+(?:$|/(?:image|command|args|env|envFrom|resources|volumeMounts)\b))"
)


@dataclass(frozen=True)
class RecentRollout:
    happened: bool
    matters: bool | None
    by_bot: bool | None
    revision: float | None
    previous_revision: float | None
    summary: str


async def recent_rollout(request: ProbeRequest) -> Reading:
    """What was rolled out shortly before the incident began, by whom, and whether it can be the cause."""
    snapshot = await request.snapshot()
    kind = request.context.target.kind
    if failed := unreadable(request, snapshot, "revisions" if kind in NUMBERED else "replica_sets"):
        return failed
    if snapshot.workload is None or kind not in (*KINDS, "Unknown"):
        return no_answer(request, "its controller keeps no revisions")
    opened, began = request.context.opened_at, request.context.began_at
    if kind in NUMBERED:
        every = rolled_out(snapshot, incident_id=request.context.incident_id, opened_at=opened)
    else:
        every = _of_deployment(snapshot, request)
    if kind in NUMBERED and (not every or every[0].at is None):
        reason = "the rollout time of its current revision is not known" if every else "its controller kept no revision"
        return no_answer(request, reason)
    recent = [one for one in every if one.at is not None and began - BEFORE_SECONDS <= one.at <= began + AFTER_SECONDS]
    # Our own fix is never the suspect: if it follows a deploy, the deploy is. A reverted rollout is not a suspect
    # either.
    over = {id(one): said for one in recent if (said := _is_over(one, every, recent))}
    suspect = next((one for one in recent if one.by_bot is not True and id(one) not in over), None)
    chosen = suspect or (recent[0] if recent else None)
    written = _written_config_maps(snapshot, began)
    if chosen is None:
        newest = every[0] if every else None
        parts = RecentRollout(
            happened=False,
            matters=False,
            by_bot=False,
            revision=_number(newest.revision if newest else None),
            previous_revision=_number(newest.previous if newest else None),
            summary=written,
        )
        detail = "no rollout from 2 h before the incident began to 10 m after"
        return answer(request, parts, missing=_MISSING, detail=detail)
    return _reading(request, chosen, written, over=over.get(id(chosen), ""))


def _is_over(rollout: RolledOut, every: Sequence[RolledOut], recent: Sequence[RolledOut]) -> str:
    """How this rollout and another one cancel out, in words; empty while its changes are in effect."""
    place = next(index for index, one in enumerate(every) if one is rollout)
    if any(_takes_back(later, rollout) for later in every[:place]):
        return "rolled back since"
    earlier = [one for one in every[place + 1 :] if any(one is each for each in recent)]
    if any(_takes_back(rollout, one) and not _left_of(one.before, rollout.after) for one in earlier):
        return "takes an earlier rollout back"
    return ""


def _takes_back(later: RolledOut, rollout: RolledOut) -> bool:
    """Whether `later` reverted every relevant change of `rollout`."""
    changed = _left_of(rollout.before, rollout.after)
    return bool(changed) and not changed & _left_of(rollout.before, later.after)


def _left_of(before: Sequence[Obj] | None, after: Sequence[Obj]) -> set[str]:
    """The relevant differences between them: each by its name and its previous value."""
    pairs = zip(before or (), after, strict=False)
    differences = [change for old, new in pairs for change in template_differences(old, new)]
    return {f"{one.path} {one.text.rpartition(' → ')[0]}" for one in differences if _can_matter(one)}


def _can_matter(change: Difference) -> bool:
    return bool(_CAN_MATTER.search(change.path.removeprefix(TEMPLATE)))


def _written_config_maps(snapshot: ClusterSnapshot, began: float) -> str:
    """Flags that changed outside the template, which has no revisions of them: no rollback reverts them."""
    found = []
    for name, config_map in sorted(snapshot.config_maps.items()):
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


def _of_deployment(snapshot: ClusterSnapshot, request: ProbeRequest) -> list[RolledOut]:
    """Newest first."""
    found = replica_sets_of(snapshot)
    rollouts = []
    for index, replica_set in enumerate(found):
        before = came_before(replica_set, found, lambda each: revision_of(each) or 0)
        rollouts.append(
            RolledOut(
                after=(dig(replica_set, "spec", "template") or {},),
                before=None if before is None else (dig(before, "spec", "template") or {},),
                revision=revision_of(replica_set),
                previous=None if before is None else revision_of(before),
                at=rolled_out_at(replica_set, snapshot, is_current=index == 0),
                by_bot=is_ours(replica_set, before, request),
            )
        )
    return rollouts


_LOST = "the revision before it is not kept"
_MISSING = {
    "revision": "the ReplicaSet carries no revision",
    "previous_revision": "there is no earlier revision",
    "matters": "what it changed, or whether the bot made it, is not known",
    "by_bot": "a later call of the bot may have left the stamp",
}


def _number(revision: int | None) -> float | None:
    return None if revision is None else float(revision)


def _reading(request: ProbeRequest, rollout: RolledOut, written: str, *, over: str) -> Reading:
    """`over`: how it and another rollout cancel out, in words."""
    differences = _differences(rollout)
    can_matter = any(map(_can_matter, differences))
    # A rollout of unknown origin is neither a cause nor ruled out; one by our own call is ruled out.
    in_doubt = rollout.is_lost or (can_matter and rollout.by_bot is None)
    assert rollout.at is not None
    when = _when(request.context.began_at, rollout.at)
    nothing = _LOST if rollout.is_lost else "first revision" if rollout.before is None else "no difference"
    changed = "; ".join(change.text for change in differences) or nothing
    parts = RecentRollout(
        happened=True,
        matters=False if rollout.by_bot or over else None if in_doubt else can_matter,
        by_bot=rollout.by_bot,
        revision=_number(rollout.revision),
        previous_revision=_number(rollout.previous),
        summary="; ".join(filter(None, (changed, written)))[:600],
    )
    who = " by the bot" if rollout.by_bot else ""
    detail = f"rolled out{who} {when}{f' ({over})' if over else ''}: {changed}"[:900]
    return answer(request, parts, missing=_MISSING, detail=detail)


def _differences(rollout: RolledOut) -> tuple[Difference, ...]:
    """Compares all templates of a replica, as far as there were as many before."""
    pairs = zip(rollout.before or (), rollout.after, strict=False)
    return tuple(change for old, new in pairs for change in template_differences(old, new))


PROBE = Probe(
    name="recent_rollout",
    help="Whether the workload was rolled out lately, what differs, and whether the bot did it.",
    answer=RecentRollout,
    read=lambda sources: recent_rollout,
)
