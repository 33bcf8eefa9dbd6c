"""What every rolling update of the workload shares: when it may start, what weighs on it, how it is awaited."""

from __future__ import annotations

from dataclasses import replace

from bot.domain.change.circumstances import drain_circumstance, rolling_budget_note, room_for, streams_of
from bot.domain.change.context import MARGIN_SECONDS, PlanContext, impossible
from bot.domain.change.differences import changed
from bot.domain.change.drain import drain_mode
from bot.domain.change.json_patch import ABSENT, FieldEdit
from bot.domain.change.objects import controller_of, dig, is_going_away, name_of, ref_of, uid_of
from bot.domain.change.plan import Circumstance, Difference, Wait
from bot.domain.change.rollout import (
    replica_sets_of,
    replicas_of,
    rollout_state,
    same_template,
    strategy_of,
    template_digest,
)
from bot.domain.change.rotation import in_order_of_leaving, pods_of_workload
from bot.domain.change.world import Obj, World

MOST_EMPTIED = 20
"""More than these, emptied one after the other, take longer than an incident; then streams are cut, and it is said."""


def deployment_of(world: World) -> Obj:
    if world.workload is None:
        raise impossible("the workload does not exist any more")
    kind = world.workload.get("kind", "Deployment")
    if kind != "Deployment":
        raise impossible(f"only Deployments can be changed by the bot, not a {kind}")
    return world.workload


def refuse_if_not_rollable(workload: Obj) -> None:
    """Raise when a template edit would not become a rolling update."""
    if dig(workload, "spec", "paused"):
        raise impossible(f"Deployment {name_of(workload)} is paused", "resume it first")
    if strategy_of(workload).kind != "RollingUpdate":
        raise impossible(
            f"Deployment {name_of(workload)} is recreated, not rolled: every replica would be down at once",
            "its strategy has to be RollingUpdate",
        )


def refuse_if_rolling(workload: Obj) -> None:
    state = rollout_state(workload)
    if not state.is_complete:
        said = f"{state.updated} of {state.wanted} updated, {state.available} available"
        raise impossible(f"a rollout of {name_of(workload)} is not finished ({said})", "wait for it or roll it back")


def strategy_difference(edit: FieldEdit) -> Difference:
    field = edit.path.rsplit("/", 1)[-1]
    return changed(f"rollout {field}", edit.path, None if edit.before is ABSENT else edit.before, edit.after)


def emptied_first(world: World, template: Obj) -> list[Obj]:
    """The pods that a rollout to `template` takes out of rotation and empties before each ends, in this order.

    None where the engine empties itself, where no label can do it, or where one after the other would take for ever.
    """
    if drain_mode(world).mode != "label":
        return []
    kept = {uid_of(rs) for rs in replica_sets_of(world) if same_template(dig(rs, "spec", "template"), template)}
    old = [pod for pod in pods_of_workload(world) if (controller_of(pod) or {}).get("uid") not in kept]
    leaving = [pod for pod in old if not is_going_away(pod)]
    if len(leaving) > MOST_EMPTIED:
        return []
    return in_order_of_leaving(leaving, world.endpoint_slices)


def rollout_circumstances(world: World, template: Obj) -> tuple[Circumstance, ...]:
    """What weighs on any rolling update to `template`, as it runs with capacity kept."""
    workload = deployment_of(world)
    strategy = replace(strategy_of(workload), max_unavailable=0)
    # A rollout that is stuck half-way is taken back by ending its new pods: that needs no room.
    is_needed = rollout_state(workload).is_complete
    return (
        room_for(world, template, 1, "surge pod", is_needed=is_needed),
        rolling_budget_note(world, strategy),
        _rollout_drain(world, template),
    )


def _rollout_drain(world: World, template: Obj) -> Circumstance:
    pods, drain = pods_of_workload(world), drain_mode(world)
    if not emptied_first(world, template):
        return drain_circumstance(world, drain, pods)
    streams = streams_of(world, pods)
    now = "an unknown number of streams run" if streams is None else f"{streams:.0f} streams run"
    text = f"each replica leaves rotation and runs empty before it ends, one by one; {now} on {len(pods)} pods"
    return Circumstance(name="drain", grade="fine", text=text)


def rolled_out(workload: Obj, template: Obj, context: PlanContext) -> Wait:
    """Replicas are replaced one after the other; each may need its whole start-up and drain."""
    replicas = max(1, replicas_of(workload))
    return Wait(
        condition="rolled_out",
        about=ref_of(workload, "Deployment"),
        parameters={"template": template_digest(template)},
        within_seconds=replicas * (context.startup_seconds + MARGIN_SECONDS),
        title=f"All {replicas} replicas of {name_of(workload)} run it and are Ready",
    )


def expected_downtime(world: World, template: Obj) -> str:
    replicas, drain = replicas_of(deployment_of(world)), drain_mode(world)
    kept = f"none: {replicas} replicas stay in rotation while they are replaced one by one"
    cuts = drain.cuts_streams and not emptied_first(world, template)
    return f"{kept}; running streams are cut" if cuts else kept
