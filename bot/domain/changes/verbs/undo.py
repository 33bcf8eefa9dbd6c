"""undo: the recorded inverse of applied calls, newest first, and only where the cluster still is as the bot left it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bot.domain.changes.calls import TAKES_BACK, Wording, patch_call
from bot.domain.changes.circumstances import drain_circumstance, others_carry_on
from bot.domain.changes.context import PlanContext, Situation, require_readable
from bot.domain.changes.drain import drain_mode
from bot.domain.changes.plan import Call, Circumstance, Difference, LedgerEntry, Plan, Step, Wait, change_of
from bot.domain.changes.steps.autoscaler_steps import scale_in_note, without_scale_in
from bot.domain.changes.steps.canary_steps import gone
from bot.domain.changes.steps.node_steps import PODS_STAY
from bot.domain.changes.steps.replica_steps import emptied_steps, in_rotation, refuse_if_last
from bot.domain.changes.steps.rolling import (
    emptied_first,
    expected_downtime,
    no_surge,
    refuse_if_not_rolled_out,
    replaced_by,
    rolled_out,
    rollout_circumstances,
)
from bot.domain.changes.steps.rollout_steps import STRATEGY, TemplateChange, ended_in_the_way, rollout_steps
from bot.domain.changes.verb import (
    DELETE,
    EVICT,
    FLOORS_OF_AUTOSCALERS,
    PATCH_CONFIG_MAP,
    PATCH_POD,
    Access,
    Argument,
    ChangeKind,
    Stub,
    Verb,
)
from bot.domain.changes.verbs.scale import drained_first, fewer_serve, scaled, victims_of
from bot.domain.cluster.additions import is_kept, without_ours
from bot.domain.cluster.json_patch import (
    ABSENT,
    Broken,
    FieldEdit,
    applied,
    broken_tests,
    difference_in_words,
    edit_of,
    is_in_force,
    overlap,
    value_at,
)
from bot.domain.cluster.locate import SOURCES, object_of
from bot.domain.cluster.objects import (
    INCIDENT_ANNOTATION,
    ROTATION_ANNOTATION,
    ObjectRef,
    annotations_of,
    dig,
    is_cordoned,
    is_going_away,
    uid_of,
)
from bot.domain.cluster.owner import AUTOSCALERS
from bot.domain.cluster.rollout import TEMPLATE, replicas_of, strategy_of
from bot.domain.cluster.rotation import pods_of_canary
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import KINDS, pod_templates
from bot.domain.kernel.errors import impossible, not_needed

OF_AUTOSCALER = "autoscaler"
NO_CHANGE = frozenset({"undo", "probe_request", "run_job"})
_LETS_GO = "Let the rollout of {} that somebody else began go on"
MAX_NAMED = 2
"""Calls in a title, edits of one, and changes that stay."""


@dataclass(frozen=True)
class _Inverse:
    """One inverse call, and its object before and after it."""

    call: Call
    before: Obj
    after: Obj
    lets_go: bool = False
    """It only ends the bot's hold of a rollout that somebody else's template has overtaken."""

    @property
    def is_template_patch(self) -> bool:
        return self.call.method == "patch" and self.call.target.kind in KINDS and not self.call.subresource


def plan_undo(situation: Situation) -> Plan:
    snapshot, context = situation.snapshot, situation.context
    entries = _wanted_entries(context.ledger, situation.arguments)
    require_readable(snapshot, "pods", "replica_sets", "canary")
    # An unreadable object is not gone: leaving its inverse out would suggest that none is needed.
    for call in (call for entry in entries for call in entry.undo):
        require_readable(snapshot, *filter(None, [SOURCES.get(call.target.kind)]))
    replay = _Replay(snapshot, context)
    found = [replay.take(entry, call) for entry in entries for call in entry.undo]
    inverses = [inverse for inverse in found if inverse is not None]
    if not inverses:
        raise not_needed("everything is as it was before")
    if snapshot.workload is not None and any(inverse.is_template_patch for inverse in inverses):
        refuse_if_not_rolled_out(snapshot.workload)
    steps, circumstances = _steps(snapshot, context, inverses)
    circumstances = (*circumstances, *_stay_note(context.ledger, entries))
    return Plan(
        verb=VERB.name,
        disrupts="nothing",
        title=_title(inverses),
        choices={"of": [entry.call_id for entry in entries]},
        steps=steps,
        circumstances=circumstances,
        risk=VERB.risk,
        expected=_expected(snapshot, inverses),
        undo_text="none: the playbook proposes the change again where it is needed",
    )


def _title(inverses: Sequence[_Inverse]) -> str:
    """What will happen. Calls that only moved a held rollout along are not named."""
    if let_go := next((each for each in inverses if each.lets_go), None):
        return _LETS_GO.format(let_go.call.target.name)
    named = [each.call for each in inverses if not each.is_template_patch or _edits(each.call)]
    descriptions = list(dict.fromkeys(map(_in_words, named or [inverses[-1].call])))
    more = f"; and {len(descriptions) - MAX_NAMED} more" if len(descriptions) > MAX_NAMED else ""
    return "; ".join(descriptions[:MAX_NAMED]) + more


def _in_words(call: Call) -> str:
    edits = _edits(call)
    return f"{call.title}: {_in_short(edits)}" if edits else call.title


def _in_short(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - MAX_NAMED} more" if len(texts) > MAX_NAMED else ""
    return ", ".join(texts[:MAX_NAMED]) + more


def _edits(call: Call) -> list[str]:
    """What it changes in the template, in words: `--max-num-seqs 6 → 64`."""
    on_template = (each.text for each in call.differences if each.path.startswith(f"{TEMPLATE}/"))
    return [text for text in on_template if " → " in text]


def _expected(snapshot: ClusterSnapshot, inverses: Sequence[_Inverse]) -> str:
    if let_go := next((each for each in inverses if each.lets_go), None):
        fewer = strategy_of(let_go.after).max_unavailable
        return f"the rollout that somebody else began goes on; at most {fewer} of the replicas may be missing meanwhile"
    if any(inverse.is_template_patch for inverse in inverses):
        return expected_downtime(snapshot, _last_templates(inverses)[0])
    nodes = [each for each in inverses if each.call.target.kind == "Node"]
    if opened := [each.call.target.name for each in nodes if not is_cordoned(each.after)]:
        return f"new pods can start on {', '.join(opened)} again, whatever is wrong there"
    if nodes:
        return PODS_STAY
    scaled_in = [each for each in inverses if each.call.subresource == "scale"]
    fewer = sum(replicas_of(each.before) - replicas_of(each.after) for each in scaled_in)
    if fewer <= 0:
        return "none"
    left = replicas_of(scaled_in[-1].after)
    return fewer_serve(fewer, victims_of(snapshot, left), left=left)


def _wanted_entries(ledger: Sequence[LedgerEntry], arguments: Mapping[str, Any]) -> list[LedgerEntry]:
    """Returns the entries to undo, newest first."""
    of = arguments.get("of", "last")
    held = [entry for entry in reversed(ledger) if not entry.undone_by]
    can = [entry for entry in held if entry.undo]
    if of in ("last", "all"):
        wanted = can if of == "all" else last_change(ledger)
    elif of == OF_AUTOSCALER:
        wanted = [entry for entry in can if entry.target.kind in AUTOSCALERS]
        if not wanted:
            raise not_needed("the bot raised no bounds of an autoscaler")
    else:
        ids = [of] if isinstance(of, str) else list(of)
        strangers = [call_id for call_id in ids if call_id not in {entry.call_id for entry in ledger}]
        if strangers:
            raise impossible(f"no call {', '.join(map(str, strangers))} was applied in this incident")
        wanted = [entry for entry in held if entry.call_id in ids]
        _refuse_without_undo(wanted)
    if not wanted:
        raise not_needed("nothing is left to take back")
    return wanted


def last_change(ledger: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    """Returns the calls of the last change that can be undone, newest first; none if there is no such change.

    With them the floor that a stopped undo of it still holds.
    """
    can = [entry for entry in reversed(ledger) if entry.undo and not entry.undone_by]
    changes = {change_of(can[0].call_id)} if can else set()
    if can and can[0].verb == VERB.name:
        taken_back = {change_of(entry.call_id) for entry in ledger if change_of(entry.undone_by) in changes}
        untouched = [change_of(entry.call_id) for entry in can if entry.verb != VERB.name]
        changes |= taken_back or set(untouched[:1])
    return [entry for entry in can if change_of(entry.call_id) in changes]


def staying(ledger: Sequence[LedgerEntry], undone: Sequence[LedgerEntry]) -> str:
    """Returns what was done after these calls and has no undo, such as the replacement of a replica; empty if nothing.

    A request to a replica and a Job that has ended change nothing, and what only took an earlier change back is no
    change itself.
    """
    has_undo = {change_of(entry.call_id) for entry in ledger if entry.undo or entry.undone_by}
    took_back = {entry.undone_by for entry in ledger}
    since = max((at for at, entry in enumerate(ledger) if entry in undone), default=len(ledger))
    later = [entry for entry in ledger[since + 1 :] if change_of(entry.call_id) not in has_undo]
    changed = [entry for entry in later if entry.verb not in NO_CHANGE and entry.call_id not in took_back]
    return _in_short([entry.title for entry in changed])


def _stay_note(ledger: Sequence[LedgerEntry], undone: Sequence[LedgerEntry]) -> tuple[Circumstance, ...]:
    if not (remaining := staying(ledger, undone)):
        return ()
    return (Circumstance(name="stays", grade="note", text=f"what was done since has no undo and stays: {remaining}"),)


def _refuse_without_undo(wanted: Sequence[LedgerEntry]) -> None:
    stuck = [f"{entry.title}: {entry.no_undo or 'no inverse was recorded'}" for entry in wanted if not entry.undo]
    if stuck:
        raise impossible("; ".join(stuck))


class _Replay:
    """The cluster as it would be while the inverses are applied one after the other."""

    def __init__(self, snapshot: ClusterSnapshot, context: PlanContext) -> None:
        self._world, self._context = snapshot, context
        self._objects: dict[str, Obj] = {}
        self._moved: set[str] = set()
        """Paths of a held rollout that others have written since."""

    def take(self, entry: LedgerEntry, call: Call) -> _Inverse | None:
        """Returns the inverse as it can be sent, None if nothing is left to do; raise if the object has changed."""
        obj = self._find(call.target)
        if obj is None or is_going_away(obj):
            return None
        named = {"restores": True, "undoes": entry.call_id}
        if call.method == "delete":
            if annotations_of(obj).get(INCIDENT_ANNOTATION) != self._context.incident_id:
                raise impossible(f"{call.target} does not carry this incident's id: it is not ours to remove")
            # Its uid was unknown when the inverse was recorded; it is the precondition of the delete.
            target = call.target.model_copy(update={"uid": uid_of(obj)})
            return _Inverse(call.model_copy(update={**named, "target": target}), obj, {})
        if uid_of(obj) != call.target.uid:
            raise impossible(f"{call.target} was deleted and made again by somebody else")
        call = _beside_additions(call, obj)
        broken = broken_tests(call.body, obj)
        if broken and is_in_force(call.body, obj):
            return None
        lets_go = False
        if entry.holds:
            self._moved |= {each.path for each in broken}
            call, lets_go = _rest_of_hold(call, self._moved)
            if all(op["op"] == "test" for op in call.body):
                if lets_go:
                    raise _moved_on(call, broken)
                return None
        elif broken:
            raise _moved_on(call, broken)
        self._objects[uid_of(obj)] = after = applied(call.body, obj)
        return _Inverse(call.model_copy(update=named), obj, after, lets_go)

    def _find(self, target: ObjectRef) -> Obj | None:
        found = object_of(target, self._world)
        return self._objects.get(uid_of(found), found) if found else None


def _beside_additions(call: Call, obj: Obj) -> Call:
    """Returns an inverse that leaves alone what others added to what it takes back."""
    written = {op["path"]: op["value"] for op in call.body if op["op"] == "test"}
    body: list[Obj] = []
    for op in call.body:
        path, before = op["path"], op.get("value", ABSENT)
        present, left = value_at(obj, path), written.get(path, ABSENT)
        if op["op"] == "test" or present == left or not is_kept(path, present, left, before):
            body.append(op)
            continue
        body = [other for other in body if other["path"] != path]
        body += FieldEdit(path, present, without_ours(present, left, before)).operations()
    return call if body == call.body else call.model_copy(update={"body": body})


def _rest_of_hold(call: Call, moved: Collection[str]) -> tuple[Call, bool]:
    """Returns what is left of the inverse of a call that holds a rollout, and whether others changed its template.

    They may have changed settings of the rollout too: those stay as they are.
    """
    is_overtaken = any(path.startswith(TEMPLATE) for path in moved)
    theirs = {*moved, TEMPLATE} if is_overtaken else moved
    left = [op for op in call.body if not any(overlap(op["path"], path) for path in theirs)]
    return call.model_copy(update={"body": left}), is_overtaken


def _moved_on(call: Call, broken: Sequence[Broken]) -> Exception:
    differences = "; ".join(difference_in_words(each.path, each.present, each.expected) for each in broken)
    return impossible(
        f"the object changed since: {call.target}: {differences}", "put back by hand what is still wanted"
    )


def _steps(
    snapshot: ClusterSnapshot, context: PlanContext, inverses: Sequence[_Inverse]
) -> tuple[tuple[Step, ...], tuple[Circumstance, ...]]:
    """No autoscaler takes replicas away during a rollout: its bounds go back afterwards, or its floor is held."""
    if not any(inverse.is_template_patch for inverse in inverses):
        return _with_waits(snapshot, context, inverses)
    if any(inverse.lets_go for inverse in inverses):
        return _let_go(snapshot, context, inverses)
    bounds = [inverse for inverse in inverses if inverse.call.target.kind in AUTOSCALERS]
    others = [inverse for inverse in inverses if inverse not in bounds]
    steps, circumstances = _as_one_rollout(snapshot, context, others) or _with_waits(snapshot, context, others)
    if bounds:
        return (*steps, *(inverse.call for inverse in bounds)), circumstances
    held = without_scale_in(_with_fewest_replicas(snapshot, others), steps)
    # The floor is held for the undo alone: it is no change that people could be asked about.
    steps = tuple(step.model_copy(update={"restores": True}) if isinstance(step, Call) else step for step in held)
    return steps, (*circumstances, *scale_in_note(snapshot))


def _let_go(
    snapshot: ClusterSnapshot, context: PlanContext, inverses: Sequence[_Inverse]
) -> tuple[tuple[Step, ...], tuple[Circumstance, ...]]:
    """One call for all calls of a held rollout; the rollout then goes on as its own strategy says, undrained."""
    rolling = [inverse for inverse in inverses if inverse.is_template_patch]
    others, weighed = _with_waits(snapshot, context, [inverse for inverse in inverses if inverse not in rolling])
    before, ends, templates = rolling[0].before, rolling[-1], _last_templates(inverses)
    line = Difference(path=STRATEGY, text="rollout settings as they were before")
    wording = Wording(title=_LETS_GO.format(ends.call.target.name), undo_title="", differences=(line,))
    call = patch_call(before, ends.call.target.kind, _merged_edits(rolling), wording)
    call = call.model_copy(update={"restores": True, "undoes": ends.call.undoes, "undo": (), "no_undo": TAKES_BACK})
    leaving = drain_circumstance(snapshot, drain_mode(snapshot), replaced_by(snapshot, templates[0]))
    return (call, rolled_out(ends.after, templates, context), *others), (leaving, *weighed)


def _with_fewest_replicas(snapshot: ClusterSnapshot, inverses: Sequence[_Inverse]) -> ClusterSnapshot:
    """Returns the cluster with as few replicas as the undo comes to: a higher floor would add them again."""
    workload = snapshot.workload
    left = [replicas_of(inverse.after) for inverse in inverses if inverse.call.subresource == "scale"]
    if workload is None or not left or min(left) >= replicas_of(workload):
        return snapshot
    return replace(snapshot, workload={**workload, "spec": {**workload["spec"], "replicas": min(left)}})


def _with_waits(
    snapshot: ClusterSnapshot, context: PlanContext, inverses: Sequence[_Inverse]
) -> tuple[tuple[Step, ...], tuple[Circumstance, ...]]:
    steps: list[Step] = []
    circumstances: dict[str, Circumstance] = {}
    for number, inverse in enumerate(inverses):
        # Two edits of one template make one rollout, which is awaited once.
        rolls_again = any(later.is_template_patch for later in inverses[number + 1 :])
        if inverse.is_template_patch and rolls_again:
            steps.append(inverse.call)
            continue
        before, after, weighed = _steps_around(snapshot, context, inverse)
        # With the pods that a scale-in ends, what was recorded about them ends too.
        ends = tuple(uid for step in after if isinstance(step, Wait) for uid in step.parameters.get("ends", ()))
        steps += [*before, inverse.call.model_copy(update={"ends": ends}), *after]
        circumstances.update({c.name: c for c in weighed})
    return tuple(steps), tuple(circumstances.values())


def _last_templates(inverses: Sequence[_Inverse]) -> list[Obj]:
    """Returns the workload's templates once everything is undone."""
    return _templates([inverse for inverse in inverses if inverse.is_template_patch][-1])


def _templates(inverse: _Inverse) -> list[Obj]:
    return [each.template for each in pod_templates({**inverse.after, "kind": inverse.call.target.kind})]


def _as_one_rollout(
    snapshot: ClusterSnapshot, context: PlanContext, inverses: Sequence[_Inverse]
) -> tuple[tuple[Step, ...], tuple[Circumstance, ...]] | None:
    """Undoes all template edits as one rollout that drains each replica or goes in place; None if neither is needed."""
    rolling = [inverse for inverse in inverses if inverse.is_template_patch]
    if rolling:
        require_readable(snapshot, "services", "endpoint_slices")
    if not rolling:
        return None
    templates = _last_templates(inverses)
    if not (emptied_first(snapshot, templates[0]) or no_surge(snapshot, templates[0])):
        return None
    lines = tuple(line for inverse in rolling for line in inverse.call.differences)
    wording = Wording(title=rolling[-1].call.title, undo_title="none: an undo is not undone", differences=lines)
    change = TemplateChange(_merged_edits(rolling), templates, wording)
    others, weighed = _with_waits(snapshot, context, [inverse for inverse in inverses if inverse not in rolling])
    undoes = rolling[-1].call.undoes
    rolled = tuple(
        step.model_copy(update={"restores": True, "undoes": undoes, "undo": ()}) if isinstance(step, Call) else step
        for step in rollout_steps(snapshot, change, context)
    )
    return (*others, *rolled), (*weighed, *rollout_circumstances(snapshot, templates))


def _merged_edits(rolling: Sequence[_Inverse]) -> list[FieldEdit]:
    """Returns all edits of these inverses as if they were one."""
    paths = dict.fromkeys(op["path"] for inverse in rolling for op in inverse.call.body if op["op"] != "test")
    outer = [path for path in paths if not any(path.startswith(other + "/") for other in paths)]
    edits = [edit_of(rolling[0].before, path, value_at(rolling[-1].after, path)) for path in outer]
    return [edit for edit in edits if edit.before != edit.after]


StepsAround = tuple[list[Step], list[Step], tuple[Circumstance, ...]]


def _steps_around(snapshot: ClusterSnapshot, context: PlanContext, inverse: _Inverse) -> StepsAround:
    """Returns what to do before an inverse call and what to wait for after it."""
    call = inverse.call
    if call.target.kind == "Job":
        # Its pods serve no users: they end within their own grace period.
        return [], [], ()
    if call.method == "delete":
        drain = drain_mode(snapshot, dig(inverse.before, "spec", "template"))
        return [], [gone(call.target, context)], (drain_circumstance(snapshot, drain, pods_of_canary(snapshot)),)
    if call.target.kind == "Node":
        return [], [], ()
    if call.target.kind == "Pod":
        return _steps_around_label(snapshot, context, inverse)
    if call.target.kind == "ConfigMap":
        return [], [], ()
    if call.subresource == "scale":
        return _steps_around_scale(snapshot, context, inverse)
    if call.target.kind not in KINDS:
        # An autoscaler's minimum: whether fewer replicas are enough is its own decision.
        return [], [], ()
    templates = _templates(inverse)
    ended = [
        step.model_copy(update={"restores": True}) if isinstance(step, Call) else step
        for step in ended_in_the_way(snapshot, call.target, templates)
    ]
    waits = [*ended, rolled_out(inverse.after, templates, context)]
    return [], waits, rollout_circumstances(snapshot, templates)


def _steps_around_label(snapshot: ClusterSnapshot, context: PlanContext, inverse: _Inverse) -> StepsAround:
    """A pod returns to rotation, or leaves it again, like an isolated one."""
    pod = inverse.before
    if not any(op["path"].startswith("/metadata/labels/") for op in inverse.call.body):
        return [], [], ()
    if ROTATION_ANNOTATION not in annotations_of(inverse.after):
        return [], [in_rotation(pod, context)], ()
    refuse_if_last(snapshot, pod)
    return [], list(emptied_steps(pod, context, ends=False)), (others_carry_on(snapshot, pod),)


def _steps_around_scale(snapshot: ClusterSnapshot, context: PlanContext, inverse: _Inverse) -> StepsAround:
    """Returning to fewer replicas ends chosen, drained ones, like any scale-in."""
    now, wanted = replicas_of(inverse.before), replicas_of(inverse.after)
    after: list[Step] = [scaled(snapshot, wanted, context)]
    if wanted >= now:
        return [], after, ()
    require_readable(snapshot, "endpoint_slices", "services")
    drain, victims = drain_mode(snapshot), victims_of(snapshot, wanted)
    before = drained_first(snapshot, victims, context)
    after = [scaled(snapshot, wanted, context, tuple(uid_of(pod) for pod in victims))]
    return before, after, (drain_circumstance(snapshot, drain, victims, is_empty=drain.mode == "label"),)


VERB = Verb(
    name="undo",
    help="Take back what this run changed.",
    stage="Undo",
    plan=plan_undo,
    kinds=(ChangeKind("undo", "medium", minutes=15),),  # going back must be easier than going on
    access={
        kind: (
            Access("patch", kind),
            Access("patch", kind, "scale"),
            PATCH_CONFIG_MAP,
            PATCH_POD,
            *FLOORS_OF_AUTOSCALERS,
            *{"Deployment": (DELETE,), "StatefulSet": (EVICT,)}.get(kind, ()),
        )
        for kind in KINDS
    },
    arguments=(
        Argument(
            "of",
            "last or all of the run's changes, or those of the autoscaler's bounds",
            "optional",
            known=("last", "all", OF_AUTOSCALER),
        ),
    ),
    restores=True,
    lasts=False,
    stub=Stub(of="last_change", has_undo=False),
)
