"""The `recent_rollout` probe: what was rolled out before the trouble, and whether it can be the cause.

An alert starts late, by the window and the `for` of its rule, and a deploy between the first bad sample and the alert
is not the cause. So the trouble begins with the first bad sample, where the history has one.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from bot.domain.changes.plan import Difference
from bot.domain.changes.template_differences import template_differences
from bot.domain.cluster.kept_revisions import RolledOut, came_before, rolled_out
from bot.domain.cluster.objects import FIELD_MANAGER, condition, created_at, dig, seconds_of, writers_of
from bot.domain.cluster.rollout import TEMPLATE, replica_sets_of, revision_of
from bot.domain.cluster.rotation import pods_of_workload
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import KINDS, NUMBERED
from bot.domain.flags.flags_in_spec import engine_statuses
from bot.domain.kernel.errors import BotError
from bot.domain.signals.probe_spec import Parameter
from bot.domain.signals.sampling import metrics_of, read_window
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Reading
from bot.domain.signals.specs import RatioSignal
from bot.domain.signals.window import NEEDED_SECONDS, Window
from bot.flow.ports.readings import History, ProbeRequest
from bot.probes.answers import answer, no_answer, number_asked_for, unreadable
from bot.probes.declaration import Probe
from bot.probes.revisions import is_ours, rolled_out_at

BEFORE_SECONDS, AFTER_SECONDS = 2 * 3600.0, 600.0
"""A bad rollout shows late, because of caches and traffic ramps; one long after the beginning cannot be the cause."""
THRASH = RatioSignal(ratio=("num_preemptions", "request_success"), across="max")
WINDOW_SECONDS, STEP_SECONDS = 120.0, 30.0
"""Windows as short as this show a thrash within seconds, and one preemption does not chain them."""
GAP_SECONDS = 300.0
"""Bad samples before a longer time without readable samples are not the same trouble."""
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
    earlier: bool
    """Whether an earlier revision is kept, so that it can be rolled back at all."""
    summary: str
    config_map: str
    """The ConfigMap that was written before, and that replicas have read since; empty if there is none."""


@dataclass(frozen=True)
class _Written:
    """A ConfigMap that somebody wrote: no revision has its old text."""

    name: str
    text: str
    served_at: float | None
    """When the first replica that read it was Ready; None if no replica has started since."""


@dataclass(frozen=True)
class _Begin:
    """When the trouble began: at its first bad sample, else with the alert."""

    at: float
    words: str = "the incident began"
    unread: str = ""
    """Why the samples do not say when it began."""

    def when(self, at: float) -> str:
        minutes = (self.at - at) / 60
        amount = f"{abs(minutes):.0f} min" if abs(minutes) >= 1 else "less than a minute"
        return f"{amount} {'before' if minutes >= 0 else 'after'} {self.words}"


class ReadRecentRollout:
    def __init__(self, history: History) -> None:
        self._history = history

    async def __call__(self, request: ProbeRequest) -> Reading:
        """What was rolled out shortly before the incident began, by whom, and whether it can be the cause."""
        snapshot = await request.snapshot()
        kind = request.context.target.kind
        if failed := unreadable(request, snapshot, "revisions" if kind in NUMBERED else "replica_sets"):
            return failed
        if snapshot.workload is None or kind not in (*KINDS, "Unknown"):
            return no_answer(request, "its controller keeps no revisions")
        begin = await self._begin(request)
        reading = _judged(request, snapshot, begin)
        if not begin.unread or not reading.is_known:
            return reading
        detail = f"{reading.detail}; the first bad sample is not known: {begin.unread}"
        return reading.model_copy(update={"detail": detail})

    async def _begin(self, request: ProbeRequest) -> _Begin:
        alert, above = request.context.began_at, number_asked_for(request, "thrash_above")
        if above is None:
            return _Begin(alert)
        try:
            scrapes = await self._history.between(
                request.context, metrics_of(THRASH), alert - BEFORE_SECONDS - WINDOW_SECONDS, alert
            )
        except BotError as error:
            return _Begin(alert, unread=str(error))
        # Not on the loop that serves Slack: a thrash of two hours has hundreds of windows.
        first = await asyncio.to_thread(first_bad, scrapes, alert, above)
        return _Begin(alert) if first is None else _Begin(first, "the first bad sample")


def first_bad(scrapes: Sequence[Scrape], until: float, above: float) -> float | None:
    """When the trouble that goes on until then was first seen in the samples; None if it was not."""
    ordered = sorted(scrapes, key=lambda scrape: scrape.at)
    times = [scrape.at for scrape in ordered]
    first, end, readable = None, until, until
    while until - end <= BEFORE_SECONDS and readable - end <= GAP_SECONDS:
        window = Window(end - WINDOW_SECONDS, end, NEEDED_SECONDS)
        part = ordered[bisect_left(times, window.start) : bisect_right(times, window.end)]
        ratio = read_window("thrash", THRASH, part, window=window, picked={})
        if ratio.is_number:
            readable = end
            if float(ratio.value or 0) <= above:  # type: ignore[arg-type]
                break
            first = end
        end -= STEP_SECONDS
    return first


def _judged(request: ProbeRequest, snapshot: ClusterSnapshot, begin: _Begin) -> Reading:
    kind, opened, began = request.context.target.kind, request.context.opened_at, begin.at
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
    over = {id(one): text for one in recent if (text := _is_over(one, every, recent))}
    suspect = next((one for one in recent if one.by_bot is not True and id(one) not in over), None)
    chosen = suspect or (recent[0] if recent else None)
    writes = _written_config_maps(snapshot, begin)
    written = "; ".join(dict.fromkeys(one.text for one in writes))[:600]
    config_map = next((one.name for one in writes if one.served_at is not None and one.served_at <= began), "")
    if chosen is None:
        newest = every[0] if every else None
        parts = RecentRollout(
            happened=bool(config_map),
            matters=bool(config_map),
            by_bot=False,
            revision=_number(newest.revision if newest else None),
            previous_revision=_number(newest.previous if newest else None),
            earlier=newest is not None and newest.before is not None,
            summary=written,
            config_map=config_map,
        )
        hours, minutes = BEFORE_SECONDS / 3600, AFTER_SECONDS / 60
        detail = f"no rollout from {hours:g} h before {begin.words} to {minutes:g} min after"
        if config_map:
            detail = f"{written}, and replicas have read it since"
        return answer(request, parts, missing=_MISSING, detail=detail)
    ruled_out = over.get(id(chosen), "") or _too_late(snapshot, chosen, begin)
    return _reading(request, chosen, begin, written, config_map, over=ruled_out)


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


def _too_late(snapshot: ClusterSnapshot, rollout: RolledOut, begin: _Begin) -> str:
    """Why it cannot be the cause, if its first new replica served only after the trouble began; else empty.

    While none is Ready it may still be the cause: the rollout may have taken capacity away.
    """
    served_at = _served_since(snapshot, rollout.at or 0.0)
    if served_at is None or served_at <= begin.at:
        return ""
    return f"its first replica was Ready {begin.when(served_at)}"


def _served_since(snapshot: ClusterSnapshot, at: float) -> float | None:
    """When the first replica that started since then was Ready; None if none was."""
    started = [pod for pod in pods_of_workload(snapshot) if (_started_at(pod) or 0.0) >= at]
    return min((ready for pod in started if (ready := _ready_at(pod, at)) is not None), default=None)


def _started_at(pod: Obj) -> float | None:
    """When its engine started, so when it last read its flags."""
    running = [seconds_of(dig(status, "state", "running", "startedAt")) for status in engine_statuses(pod)]
    known = [at for at in running if at is not None]
    return max(known) if known else created_at(pod)


def _ready_at(pod: Obj, since: float) -> float | None:
    """No later than it was first Ready since then: where a container restarted, only starts are known."""
    ready = condition(pod, "Ready")
    if ready.get("status") != "True":
        return None
    # A sidecar that restarts also makes its pod Ready again.
    restarted = any(one.get("restartCount") for one in dig(pod, "status", "containerStatuses") or [])
    return _first_start(pod, since) if restarted else seconds_of(ready.get("lastTransitionTime"))


def _first_start(pod: Obj, since: float) -> float | None:
    """The first start of its engine since then; after several crashes, no later than that."""
    engine = engine_statuses(pod)
    starts = [_started_at(pod), *(seconds_of(dig(one, "lastState", "terminated", "startedAt")) for one in engine)]
    if any((one.get("restartCount") or 0) > 1 for one in engine):
        starts.append(created_at(pod))
    return min((start for start in starts if start is not None and start >= since), default=None)


def _written_config_maps(snapshot: ClusterSnapshot, begin: _Begin) -> list[_Written]:
    """Flags that changed outside the template, which has no revisions of them: no rollback reverts them."""
    found: list[_Written] = []
    began = begin.at
    for name, config_map in sorted(snapshot.config_maps.items()):
        created = created_at(config_map) or 0.0
        for one in writers_of(config_map):
            at, who = one.at, one.manager
            is_new = at is not None and at > created and began - BEFORE_SECONDS <= at <= began + AFTER_SECONDS
            if at is not None and is_new and who != FIELD_MANAGER:
                text = f"ConfigMap {name} was written by {who or 'somebody'} {begin.when(at)}"
                found.append(_Written(name, text, _served_since(snapshot, at)))
    return found


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


def _reading(
    request: ProbeRequest, rollout: RolledOut, begin: _Begin, written: str, config_map: str, *, over: str
) -> Reading:
    """`over`: why it is not the cause, in words: it and another rollout cancel out, or it served too late."""
    differences = _differences(rollout)
    can_matter = any(map(_can_matter, differences))
    # A rollout of unknown origin is neither a cause nor ruled out; one by our own call is ruled out.
    in_doubt = rollout.is_lost or (can_matter and rollout.by_bot is None)
    assert rollout.at is not None
    when = begin.when(rollout.at)
    nothing = _LOST if rollout.is_lost else "first revision" if rollout.before is None else "no difference"
    changed = "; ".join(change.text for change in differences) or nothing
    parts = RecentRollout(
        happened=True,
        matters=True if config_map else False if rollout.by_bot or over else None if in_doubt else can_matter,
        by_bot=False if config_map else rollout.by_bot,
        revision=_number(rollout.revision),
        previous_revision=_number(rollout.previous),
        earlier=rollout.before is not None,
        summary="; ".join(filter(None, (changed, written)))[:600],
        config_map=config_map,
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
    label="Last rollout",
    help="Whether the workload was rolled out lately, what differs, and whether the bot did it.",
    answer=RecentRollout,
    parameters={
        "thrash_above": Parameter(
            "Preemptions per finished request above which a sample is bad; the first one is the beginning.", "number"
        ),
    },
    read=lambda sources: ReadRecentRollout(sources.history),
)
