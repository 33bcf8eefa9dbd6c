"""run_job: create a Job from a CronJob of the workload's namespace, as `kubectl create job --from` does.

It belongs to the incident, not to the CronJob, whose history limits would delete it. It ends by itself: the bot waits
for its own deadline. A finished Job is kept for a while, so that its log can be read.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Literal

from bot.domain.changes.calls import TAKES_BACK, delete_call
from bot.domain.changes.circumstances import room_for
from bot.domain.changes.context import MARGIN_SECONDS, PlanContext, Situation, require_readable
from bot.domain.changes.plan import Call, Circumstance, Difference, Plan, Wait
from bot.domain.changes.verb import REPLICA, WITHIN_MINUTES, Access, Argument, ChangeKind, Verb, everywhere
from bot.domain.changes.verbs.probe_request import canary_asked_for, replica_asked_for, within_seconds
from bot.domain.cluster.capacity import accelerators_of
from bot.domain.cluster.job import PARTS, RESULT, job_template
from bot.domain.cluster.objects import (
    INCIDENT_ANNOTATION,
    JOB_LABEL,
    ObjectRef,
    annotations_of,
    condition,
    dig,
    is_going_away,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)
from bot.domain.cluster.rotation import is_in_rotation
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.flags.engine_port import engine_port
from bot.domain.kernel.errors import impossible
from bot.domain.kernel.redaction import shown_value

DEFAULT_MINUTES = 60.0
MAX_MINUTES = 24 * 60.0
HOUR, DAY = 3600, 24 * 3600
MANUAL_ANNOTATION = "cronjob.kubernetes.io/instantiate"
URL_VARIABLE = "TARGET_URL"
POD_VARIABLE = "TARGET_POD"
WORKLOAD_VARIABLE = "TARGET_WORKLOAD"
MAX_NAME_LENGTH = 57
"""Leaves room for the pod's suffix within the 63 characters of a host name."""


def plan_run_job(situation: Situation) -> Plan:
    snapshot, context = situation.snapshot, situation.context
    require_readable(snapshot, "cron_jobs", "jobs")
    template = _template(situation)
    _refuse_second(snapshot, template)
    seconds = within_seconds(situation, default_minutes=DEFAULT_MINUTES, most_minutes=MAX_MINUTES)
    replica = replica_asked_for(situation) if situation.arguments.get("replica") else None
    variables = _variables(situation.arguments.get("env") or {}) | _about(replica, snapshot)
    body = _job(template, context, seconds, variables)
    call = _create(body, template, variables)
    ended = Wait(
        condition="job_ended",
        about=call.target,
        within_seconds=seconds + MARGIN_SECONDS,
        title=f"The Job {call.target.name} has ended",
        gives=RESULT,
        closes=True,
    )
    return Plan(
        verb=VERB.name,
        disrupts="nothing",
        title=f"Run {name_of(template)} as a Job" + (f" against {name_of(replica)}" if replica is not None else ""),
        choices={"template": name_of(template), "replica": uid_of(replica) if replica is not None else ""}
        | canary_asked_for(situation),
        steps=(call, ended),
        circumstances=_circumstances(snapshot, template, body, replica),
        risk=VERB.risk,
        expected=_expected(snapshot, replica),
        undo_text=f"the Job is deleted; it ends by itself after {seconds / 60:.0f} minutes",
    )


def _expected(snapshot: ClusterSnapshot, replica: Obj | None) -> str:
    if replica is not None and is_in_rotation(replica, snapshot):
        return f"people whose requests {name_of(replica)} serves may wait longer while the Job runs"
    return "none: nothing that runs is touched"


def _template(situation: Situation) -> Obj:
    name = str(situation.arguments.get("template") or "")
    if not name:
        raise impossible("no Job is configured for this", "name its CronJob in the settings of the playbook")
    found = job_template(situation.snapshot, name)
    if isinstance(found, str):
        raise impossible(found, "create it, suspended, with the Job as its template")
    return found


def _refuse_second(snapshot: ClusterSnapshot, template: Obj) -> None:
    """Raise if one already runs: two at once would judge each other's load."""
    for job in snapshot.jobs:
        is_over = any(condition(job, kind).get("status") == "True" for kind in ("Complete", "Failed"))
        if labels_of(job).get(JOB_LABEL) and not is_over and not is_going_away(job):
            raise impossible(f"the Job {name_of(job)} of this incident still runs", "wait for it, or take it back")


def _variables(given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise impossible("'env' is a mapping of names to values", "write: with: {env: {NAME: value}}")
    return {str(name): _text(value) for name, value in given.items()}


def _text(value: Any) -> str:
    """Returns whole numbers without a fraction: expressions yield doubles, and a port is not `8000.0`."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _about(pod: Obj | None, snapshot: ClusterSnapshot) -> dict[str, str]:
    """Returns the variables with the replica and the workload that the Job is about."""
    if pod is None:
        return {}
    address = str(dig(pod, "status", "podIP") or "")
    if not address:
        raise impossible(f"{name_of(pod)} has no address yet", "wait until it is Ready")
    host = f"[{address}]" if ":" in address else address
    return {
        URL_VARIABLE: f"http://{host}:{engine_port(pod)}",
        POD_VARIABLE: name_of(pod),
        WORKLOAD_VARIABLE: name_of(snapshot.workload or {}),
    }


def _job(template: Obj, context: PlanContext, seconds: float, variables: Mapping[str, str]) -> Obj:
    made_from = dig(template, "spec", "jobTemplate") or {}
    spec = copy.deepcopy(made_from.get("spec") or {})
    spec.pop("suspend", None)
    spec["activeDeadlineSeconds"] = min(int(spec.get("activeDeadlineSeconds") or seconds), int(seconds))
    # If it were deleted sooner, its log could be gone before it was read.
    spec["ttlSecondsAfterFinished"] = max(int(spec.get("ttlSecondsAfterFinished", DAY)), HOUR)
    for container in dig(spec, "template", "spec", "containers") or []:
        kept = [entry for entry in container.get("env") or [] if entry.get("name") not in variables]
        # Kubernetes fills a reference from the variables before it only.
        container["env"] = [*({"name": name, "value": value} for name, value in variables.items()), *kept]
    ours = {JOB_LABEL: context.slug, "app.kubernetes.io/managed-by": "incident-bot"}
    notes = {INCIDENT_ANNOTATION: context.incident_id, MANUAL_ANNOTATION: "manual"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": _name(template, context),
            "namespace": namespace_of(template),
            "labels": {**labels_of(made_from), **ours},
            "annotations": {**annotations_of(made_from), **notes},
        },
        "spec": spec,
    }


def _name(template: Obj, context: PlanContext) -> str:
    """Returns a name that is fixed until used: planning again gives the same name, so only one create can succeed."""
    number = 1 + sum(entry.verb == VERB.name and entry.target.kind == "Job" for entry in context.ledger)
    suffix = f"-{context.slug}-{number}"
    return name_of(template)[: MAX_NAME_LENGTH - len(suffix)].rstrip("-.") + suffix


def _create(body: Obj, template: Obj, variables: Mapping[str, str]) -> Call:
    target = ObjectRef(kind="Job", namespace=namespace_of(body), name=name_of(body))
    undo = delete_call(target, title=f"Delete the Job {target.name}", no_undo=TAKES_BACK)
    lines = [Difference(path="", after=target.name, text=f"one Job from {name_of(template)}: {target.name}")]
    for name, value in variables.items():
        shown = shown_value(name, value)  # the body keeps a secret, people see it masked
        lines.append(Difference(path="", after=shown, text=f"{name}={shown}"))
    return Call(
        method="create",
        target=target,
        body=body,
        differences=tuple(lines),
        title=f"Start the Job {target.name}",
        undo=(undo,),
    )


def _circumstances(
    snapshot: ClusterSnapshot, template: Obj, body: Obj, replica: Obj | None
) -> tuple[Circumstance, ...]:
    found = []
    pod_template = dig(body, "spec", "template") or {}
    if accelerators_of(pod_template):
        found.append(room_for(snapshot, pod_template, 1, "Job"))
    if not dig(template, "spec", "suspend"):
        text = f"{name_of(template)} is not suspended: it also runs on its own schedule"
        found.append(Circumstance(name="schedule", grade="note", text=text))
    if replica is not None and "endpoint_slices" in snapshot.unreadable:
        text = f"whether {name_of(replica)} serves people is not known: {snapshot.unreadable['endpoint_slices']}"
        found.append(Circumstance(name="rotation", grade="warning", text=text))
    elif replica is not None and is_in_rotation(replica, snapshot):
        text = f"{name_of(replica)} is in rotation: the Job's requests compete with people's"
        found.append(Circumstance(name="rotation", grade="warning", text=text))
    return tuple(found)


_READING: tuple[Literal["get", "list"], ...] = ("get", "list")
VERB = Verb(
    name="run_job",
    help="Start a Job from a CronJob; the end of its log is the result: a JSON line, or what vllm bench serve prints.",
    stage="Test",
    plan=plan_run_job,
    kinds=(ChangeKind("run_job", "low", minutes=30),),  # no user sees it
    access=everywhere(
        *(Access(verb, kind) for kind in ("CronJob", "Job") for verb in _READING),
        Access("create", "Job"),
        Access("delete", "Job"),
    ),
    arguments=(
        Argument("template", "the CronJob's name"),
        Argument("replica", REPLICA.help, "optional"),
        Argument("env", "variables for the Job, by name", "optional"),
        WITHIN_MINUTES,
    ),
    lasts=False,
    results=PARTS,
)
