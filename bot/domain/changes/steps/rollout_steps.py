"""The steps of every rolling update. If the engine does not drain itself, each old pod is drained before it ends.

A held rollout: the new pods do not count as available (minReadySeconds), so the Deployment controller ends no old pod
unprompted. Each step of maxUnavailable lets it end exactly the drained ones, which their deletion costs mark: up to a
quarter of the replicas at a time where so many new ones fit. If the bot stops in between, for a minute or forever,
nothing else ends.

Where not one new pod fits, a rollout goes in place: surge 0, one replica at a time ends before its successor starts,
and the last call puts the strategy back. Replicas that no node takes are replaced with the first: they stay Pending.

A StatefulSet's pods that are not Ready are evicted: its controller would wait for them for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bot.domain.changes.calls import Wording, patch_call
from bot.domain.changes.context import MARGIN_SECONDS, PlanContext
from bot.domain.changes.plan import Call, Difference, Step, Wait
from bot.domain.changes.steps.replica_steps import emptied_steps, evict_call, victim_call
from bot.domain.changes.steps.rolling import (
    at_a_time,
    emptied_first,
    has_node,
    in_the_way,
    is_turned_round,
    no_surge,
    pending_allowed,
    rolled_out,
    unavailable_in_place,
    without_node,
    workload_of,
)
from bot.domain.cluster.json_patch import ABSENT, FieldEdit, applied, edit_of, value_at
from bot.domain.cluster.objects import ObjectRef, grace_seconds, is_going_away, name_of, ref_of, uid_of
from bot.domain.cluster.rollout import digest_of, replicas_of, template_digest
from bot.domain.cluster.rotation import is_in_rotation, pods_of_workload
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import kind_of

HELD_SECONDS = 30 * 86400
"""Longer than any rollout. If the bot never returns, the rollout continues by itself after this time."""
MIN_READY, DEADLINE, STRATEGY = "/spec/minReadySeconds", "/spec/progressDeadlineSeconds", "/spec/strategy"
MAX_UNAVAILABLE = "/spec/strategy/rollingUpdate/maxUnavailable"
ORDINARY: dict[str, Any] = {
    MIN_READY: ABSENT,
    DEADLINE: 600,
    STRATEGY: {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
}
"""Settings for releasing a held rollout that was abandoned: its original ones are no longer known."""


@dataclass(frozen=True)
class TemplateChange:
    """An edit of the workload's pod template, with the rollout settings that it ends with."""

    edits: Sequence[FieldEdit]
    templates: Sequence[Obj]
    """Templates after the edit; the serving pods' template comes first."""
    wording: Wording
    guards: Sequence[Obj] = ()

    @property
    def template(self) -> Obj:
        return self.templates[0]


def rollout_steps(snapshot: ClusterSnapshot, change: TemplateChange, context: PlanContext) -> tuple[Step, ...]:
    workload = workload_of(snapshot)
    leaving = emptied_first(snapshot, change.template)
    if leaving:
        return _Held(snapshot, context, change, leaving).steps()
    if no_surge(snapshot, change.template):
        return _in_place(snapshot, change, context)
    call = patch_call(workload, kind_of(workload), change.edits, change.wording, guards=change.guards)
    return (
        call,
        *ended_in_the_way(snapshot, call.target, change.templates),
        rolled_out(workload, change.templates, context),
    )


def ended_in_the_way(snapshot: ClusterSnapshot, target: ObjectRef, templates: Sequence[Obj]) -> tuple[Step, ...]:
    """Evicts the pods that the controller would wait for, once their successors are of the new template."""
    pods = in_the_way(snapshot, templates[0])
    if not pods:
        return ()
    seen = Wait(
        condition="observed",
        about=target,
        parameters={"template": digest_of(templates)},
        within_seconds=MARGIN_SECONDS,
        title=f"The controller of {target.name} has seen it",
    )
    # They do not fail because of their node.
    return seen, *(evict_call(pod).model_copy(update={"node": ""}) for pod in pods)


def _in_place(snapshot: ClusterSnapshot, change: TemplateChange, context: PlanContext) -> tuple[Step, ...]:
    """Kubernetes replaces one after the other; the strategy that the workload ends with follows afterwards."""
    workload, pending = workload_of(snapshot), without_node(snapshot)
    wanted = applied([op for edit in change.edits for op in edit.operations()], workload)
    others = [edit for edit in change.edits if not edit.path.startswith(STRATEGY)]
    strategy = edit_of(workload, STRATEGY, without_surge(unavailable_in_place(snapshot)))
    begin = [*others, *([strategy] if strategy.before != strategy.after else [])]
    wording = replace(change.wording, differences=(*change.wording.differences, _in_place_line(pending)))
    call = patch_call(workload, "Deployment", begin, wording, guards=change.guards)
    so_far = applied(call.body, workload)
    back = edit_of(so_far, STRATEGY, value_at(wanted, STRATEGY))
    line = Difference(path=STRATEGY, text="rollout strategy as it was before")
    wording = Wording(f"Put the rollout strategy of {name_of(workload)} back", "Roll out in place again", (line,))
    seen = rolled_out(workload, change.templates, context, without_node=pending)
    if back.before == back.after:
        return call, seen
    # Until its strategy is back, each later rollout of the workload would cost capacity: that must not be forgotten.
    last = patch_call(so_far, "Deployment", [back], wording).model_copy(update={"holds": False})
    held = call.model_copy(update={"holds": True})
    return held, seen, last


def _in_place_line(pending: int) -> Difference:
    also = f"; the {pending} without a node end with the first" if pending else ""
    text = f"in place: no surge, one replica at a time ends before its successor starts{also}"
    return Difference(path=STRATEGY, text=text)


def without_surge(unavailable: int) -> dict[str, Any]:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": unavailable}}


class _Held:
    """One held rollout, planned from first to last call."""

    def __init__(
        self, snapshot: ClusterSnapshot, context: PlanContext, change: TemplateChange, leaving: list[Obj]
    ) -> None:
        self._world, self._context, self._change = snapshot, context, change
        self._workload = workload_of(snapshot)
        replicas = replicas_of(self._workload)
        self._kept = max(0, replicas - len(leaving))
        """Pods that already run the template when a rollout is reversed; they also stop counting as available."""
        self._is_turned_round = is_turned_round(snapshot, leaving)
        self._is_in_place = bool(no_surge(snapshot, change.template))
        self._pending = [pod for pod in leaving if self._is_in_place and not has_node(pod)]
        """Pods that end with the first drained one; no node takes their successors."""
        self._leaving = [pod for pod in leaving if pod not in self._pending]
        self._missing = max(0, replicas - len(self._alive())) if self._is_in_place else 0
        """Replicas without a pod: where no more pods fit, they stay without one."""
        size = 1 if self._is_in_place else at_a_time(snapshot, change.template)
        self._batches = [leaving[at : at + size] for at in range(0, len(leaving), size)]
        self._surge = size
        self._so_far = self._workload
        """The Deployment after the calls planned so far."""

    def _alive(self) -> list[Obj]:
        return [pod for pod in pods_of_workload(self._world) if not is_going_away(pod)]

    def steps(self) -> tuple[Step, ...]:
        return self._in_place() if self._is_in_place else self._with_surge()

    def _in_place(self) -> tuple[Step, ...]:
        """Each old pod is drained and ends, then its successor starts where it was."""
        steps: list[Step] = []
        for gone, pod in enumerate(self._leaving, start=1):
            steps += self._emptied(pod)
            steps.append(self._begin(pod) if gone == 1 else self._release(gone, [pod]))
            steps += [self._released(gone, pod), self._surge_ready(gone)]
        pending = len(self._pending) + self._missing
        seen = rolled_out(self._workload, self._change.templates, self._context, without_node=pending)
        return (*steps, self._finish(), seen)

    def _with_surge(self) -> tuple[Step, ...]:
        # With one pod too many, the controller may end one as soon as the template changes: that one is drained before,
        # which costs no capacity.
        early = self._emptied(self._leaving[0]) if self._is_turned_round else []
        steps: list[Step] = [*early, self._begin()]
        gone = 0
        for number, batch in enumerate(self._batches):
            gone += len(batch)
            steps.append(self._surge_ready(gone))
            if number > 0 or not early:
                steps += self._emptied(*batch)
            if gone < len(self._leaving):
                steps += [self._release(gone, batch), *(self._released(gone, pod) for pod in batch)]
        # The last replicas have the longest wait; the ones before them were awaited batch by batch.
        seen = rolled_out(self._workload, self._change.templates, self._context)
        return (*steps, self._finish(self._batches[-1]), seen)

    def _emptied(self, *pods: Obj) -> list[Step]:
        marks = [victim_call(self._world, pod, self._context, out=True) for pod in pods]
        serving = [pod for pod in pods if is_in_rotation(pod, self._world)]
        return [*marks, *(step for pod in serving for step in emptied_steps(pod, self._context))]

    def _begin(self, first: Obj | None = None) -> Call:
        """Apply the new template, held: the first new pod is created and no old one ends.

        In place no new pod fits, and `first`, which is drained, ends.
        """
        templates = [edit for edit in self._change.edits if edit.path.startswith("/spec/template")]
        strategy = {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": self._surge, "maxUnavailable": 0},
        }
        if first is not None:
            strategy = without_surge(self._kept + len(self._pending) + 1)
        held = {MIN_READY: HELD_SECONDS, DEADLINE: HELD_SECONDS + 1, STRATEGY: strategy}
        settings = [edit_of(self._workload, path, value) for path, value in held.items()]
        line = Difference(path=MIN_READY, text="rollout held: no old replica ends before it is empty")
        lines = (
            *self._change.wording.differences,
            line,
            *([_in_place_line(len(self._pending))] if first is not None else []),
        )
        wording = replace(self._change.wording, differences=lines)
        begun = self._call([*templates, *settings], wording, guards=self._change.guards)
        ends = () if first is None else (*map(uid_of, self._pending), uid_of(first))
        return begun.model_copy(update={"holds": True, "ends": ends})

    def _release(self, gone: int, batch: Sequence[Obj]) -> Call:
        wanted, names = self._kept + len(self._pending) + gone, _names(batch)
        ends = "ends, its successor is" if len(batch) == 1 else "end, their successors are"
        wording = Wording(
            title=f"Let {names} end, {_empty(batch)}",
            undo_title="Hold the rollout here",
            differences=(Difference(path=MAX_UNAVAILABLE, text=f"{names} {ends} made"),),
        )
        return self._call([edit_of(self._so_far, MAX_UNAVAILABLE, wanted)], wording).model_copy(
            update={"ends": tuple(map(uid_of, batch)), "holds": True}
        )

    def _finish(self, batch: Sequence[Obj] = ()) -> Call:
        """Apply the final settings; that lets the last old pods end, if any are left."""
        wanted = applied([op for edit in self._change.edits for op in edit.operations()], self._workload)
        edits = [edit_of(self._so_far, path, self._ordinary(wanted, path)) for path in (STRATEGY, DEADLINE, MIN_READY)]
        wording = Wording(
            title=f"Let {_names(batch)} end, {_empty(batch)}, and the rollout go" if batch else "Let the rollout go",
            undo_title="Hold the rollout again",
            differences=(Difference(path=MIN_READY, text="rollout settings as they were before"),),
        )
        return self._call(edits, wording).model_copy(update={"ends": tuple(map(uid_of, batch)), "holds": False})

    def _ordinary(self, wanted: Obj, path: str) -> Any:
        """Returns the final value of a setting; the default if the present one is from an abandoned held rollout."""
        was_held = value_at(wanted, MIN_READY) == HELD_SECONDS
        return ORDINARY[path] if was_held else value_at(wanted, path)

    def _call(self, edits: Sequence[FieldEdit], wording: Wording, *, guards: Sequence[Obj] = ()) -> Call:
        real = [edit for edit in edits if edit.before != edit.after]
        call = patch_call(self._so_far, "Deployment", real, wording, guards=guards)
        self._so_far = applied(call.body, self._so_far)
        return call

    def _surge_ready(self, gone: int) -> Wait:
        ready = self._kept - self._missing + gone
        return Wait(
            condition="surge_ready",
            about=ref_of(self._workload, "Deployment"),
            parameters={"template": template_digest(self._change.template), "ready": ready}
            | pending_allowed(len(self._pending) + self._missing),
            within_seconds=self._context.startup_seconds + MARGIN_SECONDS,
            title=f"{ready} new replica{'s are' if ready > 1 else ' is'} Ready",
        )

    def _released(self, gone: int, pod: Obj) -> Wait:
        return Wait(
            condition="released",
            about=ref_of(pod, "Pod"),
            parameters={"uid": uid_of(pod), "stay": [uid_of(one) for one in self._leaving[gone:]]},
            within_seconds=grace_seconds(pod) + MARGIN_SECONDS,
            title=f"{name_of(pod)} is gone, and no other",
        )


def _names(pods: Sequence[Obj]) -> str:
    return " and ".join(filter(None, [", ".join(map(name_of, pods[:-1])), name_of(pods[-1])]))


def _empty(pods: Sequence[Obj]) -> str:
    return "which is empty" if len(pods) == 1 else "which are empty"
