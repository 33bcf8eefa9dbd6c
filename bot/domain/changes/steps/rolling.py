"""Shared by all rolling updates of the workload: when one may start, its circumstances, and how to wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bot.domain.changes.circumstances import (
    drain_circumstance,
    emptied_circumstance,
    in_place_circumstance,
    rolling_budget_note,
    room_for,
    serving_canary,
    streams_of,
    why_no_room,
)
from bot.domain.changes.context import MARGIN_SECONDS, PlanContext
from bot.domain.changes.differences import changed
from bot.domain.changes.drain import drain_mode
from bot.domain.changes.images import image_notes
from bot.domain.changes.plan import ROOM, Circumstance, Difference, Wait
from bot.domain.cluster.capacity import capacity_for
from bot.domain.cluster.disruption import budget_for
from bot.domain.cluster.json_patch import ABSENT, FieldEdit
from bot.domain.cluster.objects import (
    controller_of,
    dig,
    grace_seconds,
    is_going_away,
    is_ready,
    labels_of,
    name_of,
    ref_of,
    uid_of,
)
from bot.domain.cluster.pod_state import first_held
from bot.domain.cluster.refused_pods import not_created, refused_replicas
from bot.domain.cluster.rollout import (
    capacity_keeping_edits,
    digest_of,
    replica_sets_of,
    replicas_of,
    revisions_of,
    rollout_state,
    same_template,
    strategy_of,
)
from bot.domain.cluster.rotation import in_order_of_leaving, pods_of_workload, ready_replicas, replicas_present
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import (
    KINDS,
    NUMBERED,
    REVISION_HASH_LABEL,
    is_ordered,
    kind_of,
    pod_templates,
    serves,
    template_of,
)
from bot.domain.kernel.errors import impossible

AT_A_TIME = 0.25
"""Share of the replicas that are drained and replaced together, where capacity allows; at least one."""
MAX_EMPTIED = 20
"""Draining more pods one after the other outlasts an incident; above it streams are cut, and the plan says so."""


def workload_of(snapshot: ClusterSnapshot) -> Obj:
    """Returns the workload if the bot can change its kind."""
    if snapshot.workload is None:
        raise impossible("the workload does not exist any more")
    kind = kind_of(snapshot.workload)
    if kind not in KINDS:
        raise impossible(f"the bot does not change a {kind}", f"it changes: {', '.join(KINDS)}")
    return snapshot.workload


def only_for(snapshot: ClusterSnapshot, kinds: Sequence[str], why: str) -> Obj:
    """Returns the workload if it is one of these kinds; `why` names what the others lack."""
    workload = workload_of(snapshot)
    if kind_of(workload) not in kinds:
        raise impossible(f"not for a {kind_of(workload)}: {why}")
    return workload


def refuse_if_not_rollable(workload: Obj) -> None:
    """Raise if a template edit would not be rolled out, or would end all replicas that serve at once."""
    refuse_if_not_rolled_out(workload)
    if is_recreated(workload) and any(dig(workload, "status", key) for key in ("readyReplicas", "availableReplicas")):
        raise impossible(
            f"{kind_of(workload)} {name_of(workload)} is recreated, not rolled: every replica would be down at once",
            "its strategy has to be RollingUpdate",
        )


def refuse_if_not_rolled_out(workload: Obj) -> None:
    """Raise if its controller would not roll out a template edit."""
    kind, named = kind_of(workload), f"{kind_of(workload)} {name_of(workload)}"
    if dig(workload, "spec", "paused"):
        raise impossible(f"{named} is paused", "resume it first")
    if kind == "StatefulSet" and dig(workload, "spec", "updateStrategy", "type") == "OnDelete":
        raise impossible(
            f"{named} is updated OnDelete: an edit would restart nothing",
            "edit its template by hand, then replace its replicas one by one",
        )
    if kind in NUMBERED and (first := partition_of(workload)) > 0:
        raise impossible(f"{named} is partitioned: replicas below {first} would keep the old template", "set it to 0")


def is_recreated(workload: Obj) -> bool:
    """Whether every replica ends before the first of the new template starts."""
    return kind_of(workload) == "Deployment" and strategy_of(workload).kind != "RollingUpdate"


def partition_of(workload: Obj) -> int:
    rolling = ("updateStrategy", "rollingUpdate")
    if kind_of(workload) == "LeaderWorkerSet":
        rolling = ("rolloutStrategy", "rollingUpdateConfiguration")
    return int(dig(workload, "spec", *rolling, "partition") or 0)


def refuse_if_rolling(snapshot: ClusterSnapshot) -> None:
    workload = workload_of(snapshot)
    state = rollout_state(workload)
    if not state.is_over and not lacks_only_room(snapshot, workload):
        status = f"{state.updated} of {state.wanted} updated, {state.available} available"
        if refused := not_created(workload, snapshot):
            status += f"; {refused}"
        if held := first_held(pods_of_workload(snapshot)):
            status += f"; {held}"
        if not state.is_observed:
            status = f"the {kind_of(workload)} controller has not seen its last change yet"
        raise impossible(f"a rollout of {name_of(workload)} is not finished ({status})", "wait for it or roll it back")


def lacks_only_room(snapshot: ClusterSnapshot, workload: Obj) -> bool:
    """Whether each replica runs the template, and those that are missing wait for room that nobody releases now.

    They have no node, or a quota refuses them. A rollout in place leaves them behind, and its controller does not
    report its end before they have room. The controllers of numbered replicas replace none while one is refused.
    """
    pods = [pod for pod in pods_of_workload(snapshot) if serves(pod)]
    waiting = [pod for pod in pods if not has_node(pod)]
    state = rollout_state(workload)
    refused = 0 if kind_of(workload) in NUMBERED else refused_replicas(workload, snapshot)
    there = state.wanted - refused
    is_replaced = state.is_observed and state.updated == state.total == there
    if not is_replaced or not (waiting or there < state.wanted):
        return False
    if not state.has_ended and state.available + len(waiting) != there:
        return False
    rest = replace(snapshot, all_pods=tuple(pod for pod in snapshot.all_pods if pod not in waiting))
    is_room_coming = any(map(is_going_away, pods)) or not why_no_room(rest, template_of(workload))
    return not is_room_coming


def strategy_difference(edit: FieldEdit) -> Difference:
    field = edit.path.rsplit("/", 1)[-1]
    return changed(f"rollout {field}", edit.path, None if edit.before is ABSENT else edit.before, edit.after)


def strategy_edits(snapshot: ClusterSnapshot, template: Obj) -> list[FieldEdit]:
    """Returns the lasting edits of the strategy: none if it is Recreate, or in place, which puts its own back."""
    workload = workload_of(snapshot)
    return [] if is_recreated(workload) or no_surge(snapshot, template) else capacity_keeping_edits(workload)


def no_surge(snapshot: ClusterSnapshot, template: Obj) -> str:
    """Returns why a rollout to `template` has to go in place: a replica ends before its successor starts.

    Empty if a surge pod fits, if that is not known, if a pod that ends anyway makes room for one, or if the only
    replica serves and would be down. Numbered replicas always go in place, and recreated ones end all at once.
    """
    workload = workload_of(snapshot)
    replicas = replicas_of(workload)
    if kind_of(workload) in NUMBERED or is_recreated(workload) or (replicas < 2 and ready_replicas(snapshot)):
        return ""
    alive = _alive(snapshot)
    staying = alive - len(replaced_by(snapshot, template))
    if alive > replicas or staying >= replicas:
        return ""
    return why_no_room(snapshot, template)


def _alive(snapshot: ClusterSnapshot) -> int:
    return sum(not is_going_away(pod) for pod in pods_of_workload(snapshot))


def without_node(snapshot: ClusterSnapshot) -> int:
    """Returns how many replicas have no node: where no more pods fit, their successors have none either."""
    placed = sum(has_node(pod) for pod in pods_of_workload(snapshot))
    return max(0, replicas_of(workload_of(snapshot)) - placed)


def has_node(pod: Obj) -> bool:
    return bool(dig(pod, "spec", "nodeName"))


def unavailable_in_place(snapshot: ClusterSnapshot) -> int:
    """Returns the maxUnavailable of a rollout in place: with less, new pods that no node takes would stop it."""
    return min(replicas_of(workload_of(snapshot)), 1 + without_node(snapshot))


def _serving_in_place(snapshot: ClusterSnapshot, template: Obj) -> int:
    """Returns how many replicas serve at least, during a rollout in place whose new replicas start."""
    ready = ready_replicas(snapshot)
    staying = ready - sum(map(is_ready, replaced_by(snapshot, template)))
    return max(staying, min(ready, replicas_of(workload_of(snapshot)) - unavailable_in_place(snapshot)))


def emptied_first(snapshot: ClusterSnapshot, template: Obj) -> list[Obj]:
    """Returns the pods that a rollout to `template` takes out of rotation and drains before each ends, in this order.

    None if the engine drains itself, if no label can do it, if no pod has a node, if one after the other would take
    too long, or if the controller decides when the next replica ends, which only a Deployment can be kept from.
    """
    workload = workload_of(snapshot)
    if kind_of(workload) != "Deployment" or is_recreated(workload) or drain_mode(snapshot).mode != "label":
        return []
    leaving = replaced_by(snapshot, template)
    if len(leaving) > MAX_EMPTIED or not any(map(has_node, leaving)):
        return []
    return in_order_of_leaving(leaving, snapshot)


def at_a_time(snapshot: ClusterSnapshot, template: Obj) -> int:
    """Returns how many replicas a rollout with a surge replaces together, at most: where they are drained first, a
    quarter, and only one if it is not known how many new ones fit, or if the rollout is turned round; else as many as
    its strategy allows.
    """
    workload, room = workload_of(snapshot), capacity_for(snapshot, template)
    replicas, emptied = replicas_of(workload), emptied_first(snapshot, template)
    if is_turned_round(snapshot, emptied):
        return 1
    is_drained = bool(emptied)
    most = int(replicas * AT_A_TIME) if is_drained else min(replicas, strategy_of(workload).max_surge)
    fits = (1 if is_drained else most) if isinstance(room, str) else room.replicas_that_fit
    return max(1, min(most, fits))


def is_turned_round(snapshot: ClusterSnapshot, emptied: Sequence[Obj]) -> bool:
    """Whether a rollout goes back halfway: its surge pod is there, and other replicas run the template already."""
    return bool(emptied) and _alive(snapshot) > replicas_of(workload_of(snapshot)) > len(emptied)


def _pace(snapshot: ClusterSnapshot, template: Obj) -> str:
    count = at_a_time(snapshot, template)
    return "one by one" if count == 1 else f"up to {count} at a time"


def replaced_by(snapshot: ClusterSnapshot, template: Obj) -> list[Obj]:
    """Returns the pods that a rollout to `template` ends: those of another template; if numbered, all that serve."""
    if kind_of(snapshot.workload) in NUMBERED:
        return list(replicas_present(snapshot))
    kept = {uid_of(rs) for rs in replica_sets_of(snapshot) if same_template(dig(rs, "spec", "template"), template)}
    old = [pod for pod in pods_of_workload(snapshot) if (controller_of(pod) or {}).get("uid") not in kept]
    return [pod for pod in old if not is_going_away(pod)]


def in_the_way(snapshot: ClusterSnapshot, template: Obj) -> list[Obj]:
    """Returns the pods that a rollout to `template` has to end, because their controller waits until they are Ready.

    A StatefulSet's controller replaces none while one of its pods is not Ready, whatever that pod runs, unless its
    pods are managed in parallel ("forced rollback" in the Kubernetes documentation).
    """
    workload = workload_of(snapshot)
    # Before the controller has seen the present template, its pods may be starting.
    if not is_ordered(workload) or not rollout_state(workload).is_observed:
        return []
    kept = {each.name for each in revisions_of(snapshot) if same_template(each.template, template)}
    unready = [pod for pod in pods_of_workload(snapshot) if not is_ready(pod) and not is_going_away(pod)]
    return [pod for pod in unready if labels_of(pod).get(REVISION_HASH_LABEL) not in kept]


def runs_already(snapshot: ClusterSnapshot, template: Obj) -> bool:
    """Whether enough replicas serve with `template` that a rollout to it starts none: it reverts a stuck one."""
    leaving = {uid_of(pod) for pod in replaced_by(snapshot, template)}
    staying = [pod for pod in replicas_present(snapshot) if uid_of(pod) not in leaving and is_ready(pod)]
    return len(staying) >= max(1, replicas_of(workload_of(snapshot)))


def rollout_circumstances(snapshot: ClusterSnapshot, templates: Sequence[Obj]) -> tuple[Circumstance, ...]:
    """Circumstances of any rolling update to these templates that preserves as much capacity as possible."""
    workload = workload_of(snapshot)
    images = image_notes(snapshot, [each.template for each in pod_templates(workload)], templates)
    if kind_of(workload) in NUMBERED:
        return (*_numbered_circumstances(snapshot, workload, templates[0]), *images)
    if is_recreated(workload):
        return (*_recreated_circumstances(snapshot, workload, templates[0]), *images)
    in_place = no_surge(snapshot, templates[0])
    strategy = replace(strategy_of(workload), max_unavailable=unavailable_in_place(snapshot) if in_place else 0)
    return (
        _surge_room(snapshot, templates[0]),
        rolling_budget_note(snapshot, strategy),
        _rollout_drain(snapshot, templates[0]),
        *images,
    )


def _surge_room(snapshot: ClusterSnapshot, template: Obj) -> Circumstance:
    if why := no_surge(snapshot, template):
        if replaced_by(snapshot, template):
            return in_place_circumstance(snapshot, why, _serving_in_place(snapshot, template))
        text = f"no room for one more pod ({why}), and no replica has to end"
        return Circumstance(name=ROOM, grade="warning", text=text)
    if runs_already(snapshot, template):
        return Circumstance(name=ROOM, grade="fine", text="no room is needed: nothing has to start")
    # A stuck rollout is reverted by ending its new pods, which needs no capacity.
    return room_for(snapshot, template, 1, "surge pod", is_needed=rollout_state(workload_of(snapshot)).is_over)


def _recreated_circumstances(snapshot: ClusterSnapshot, workload: Obj, template: Obj) -> tuple[Circumstance, ...]:
    replicas, ready = replicas_of(workload), ready_replicas(snapshot)
    room = "no room is needed: every replica ends before the first new one starts"
    text = f"Recreate ends all {replicas} replicas before the first new one starts; {ready} serve now"
    return (
        Circumstance(name=ROOM, grade="fine", text=room),
        Circumstance(name="capacity", grade="warning", text=text),
        rolling_budget_note(snapshot, replace(strategy_of(workload), max_unavailable=replicas)),
        drain_circumstance(snapshot, drain_mode(snapshot), replaced_by(snapshot, template)),
    )


def _numbered_circumstances(snapshot: ClusterSnapshot, workload: Obj, template: Obj) -> tuple[Circumstance, ...]:
    strategy, replicas = strategy_of(workload), replicas_of(workload)
    room = "no room is needed: each replica ends before its successor starts"
    evicted = in_the_way(snapshot, template)
    text = (
        f"a {kind_of(workload)} ends a replica before its successor starts:"
        f" {strategy.max_unavailable} of {replicas} is down at a time"
    )
    return (
        Circumstance(name=ROOM, grade="fine", text=room),
        Circumstance(name="capacity", grade="warning", text=text),
        _budget_of_evicted(snapshot, evicted) if evicted else rolling_budget_note(snapshot, strategy),
        drain_circumstance(snapshot, drain_mode(snapshot), replicas_present(snapshot)),
    )


def _budget_of_evicted(snapshot: ClusterSnapshot, evicted: Sequence[Obj]) -> Circumstance:
    budgets = [budget_for(pod, snapshot) for pod in evicted]
    refused = next((budget.text for budget in budgets if budget.verdict != "allowed"), "")
    if not refused:
        return Circumstance(name="disruption_budget", grade="fine", text=budgets[0].text)
    text = f"{refused}; if that stays so, somebody has to delete {', '.join(map(name_of, evicted))}"
    return Circumstance(name="disruption_budget", grade="warning", text=text)


def _rollout_drain(snapshot: ClusterSnapshot, template: Obj) -> Circumstance:
    if emptied := emptied_first(snapshot, template):
        return emptied_circumstance(snapshot, emptied, _pace(snapshot, template))
    return drain_circumstance(snapshot, drain_mode(snapshot), replaced_by(snapshot, template))


def rolled_out(workload: Obj, templates: Sequence[Obj], context: PlanContext, *, without_node: int = 0) -> Wait:
    """Replicas are replaced one after the other; each may need its whole start-up and drain time.

    `without_node`: so many new replicas may stay Pending.
    """
    replicas = replicas_of(workload)
    which = f"{replicas - without_node} of {replicas}" if without_node else f"All {replicas}"
    return Wait(
        condition="rolled_out",
        about=ref_of(workload, kind_of(workload)),
        parameters={"template": digest_of(templates), "replicas": replicas} | pending_allowed(without_node),
        within_seconds=max(1, replicas) * (context.available_seconds + grace_seconds(templates[0]) + MARGIN_SECONDS),
        title=f"{which} replicas of {name_of(workload)} run it and are Ready",
    )


def pending_allowed(without_node: int) -> dict[str, int]:
    """The parameter of a wait that lets so many new replicas stay Pending."""
    return {"without_node": without_node} if without_node else {}


def expected_downtime(snapshot: ClusterSnapshot, template: Obj) -> str:
    """Starts with `none` only if no request is cut and no capacity is lost."""
    workload = workload_of(snapshot)
    replicas, ready = replicas_of(workload), ready_replicas(snapshot)
    if replicas == 0:
        return f"none: {name_of(workload)} is scaled to 0 replicas, and nothing starts"
    none = "" if _cuts_requests(snapshot, template) else "none: "
    if kind_of(workload) in NUMBERED:
        evicted = _evicted(in_the_way(snapshot, template))
        if replicas == 1:
            return f"all of it, until the only replica has started again{evicted}"
        staying = max(0, min(replicas, ready) - strategy_of(workload).max_unavailable)
        return f"{none}{staying} of {replicas} replicas stay in rotation{evicted}"
    if runs_already(snapshot, template):
        names = ", ".join(name_of(pod) for pod in replaced_by(snapshot, template)) or "nothing"
        return f"{none}only {names} ends; the {replicas} replicas that serve run this template already"
    if no_surge(snapshot, template) and not replaced_by(snapshot, template):
        return "none: no replica has to end"
    if ready == 0:
        return f"{none}no replica serves now, until one has started again"
    if is_recreated(workload):
        return "all of it, until a replica has started again"
    if no_surge(snapshot, template):
        return _lost_in_place(snapshot, template, none)
    staying_ones = f"{replicas} replicas" if ready >= replicas else f"the {ready} of {replicas} replicas that serve"
    return f"{none}{staying_ones} stay in rotation while they are replaced, {_pace(snapshot, template)}"


def _evicted(pods: Sequence[Obj]) -> str:
    are = "is" if len(pods) == 1 else "are"
    return f"; {', '.join(map(name_of, pods))}, which {are} not Ready, {are} evicted" if pods else ""


def _lost_in_place(snapshot: ClusterSnapshot, template: Obj, none: str) -> str:
    replicas, stay = replicas_of(workload_of(snapshot)), _serving_in_place(snapshot, template)
    if stay == 0:
        return "all of it, until a replica has started again"
    if stay + len(serving_canary(snapshot)) >= replicas:
        return f"{none}{stay} of {replicas} replicas and the canary serve while the replicas are replaced one by one"
    lost, already = replicas - stay, replicas - ready_replicas(snapshot)
    text = (
        f"{stay} of {replicas} replicas serve until {replicas - without_node(snapshot)} have started, one after the"
        f" other: {100 * lost / replicas:.0f}% of the capacity is missing"
    )
    return text + (f", {100 * already / replicas:.0f}% already now" if already else "")


def _cuts_requests(snapshot: ClusterSnapshot, template: Obj) -> bool:
    return not emptied_first(snapshot, template) and streams_of(snapshot, replaced_by(snapshot, template)) != 0
