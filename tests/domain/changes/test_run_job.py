"""run_job: a Job from a CronJob, its end, and the result in its log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.domain.changes.context import PlanContext
from bot.domain.changes.interference import interference
from bot.domain.changes.plan import LedgerEntry, Plan, Wait
from bot.domain.changes.progress import progress
from bot.domain.cluster.benchmark import PARTS as BENCHMARK
from bot.domain.cluster.job import job_reading
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from tests.domain.changes.snapshots import CONTEXT, NOW, STAMP, declined, grade, owner, planned, pod, snapshot, weighed

pytestmark = pytest.mark.fast
EVAL = {"template": "eval-gsm8k"}


def cron_job(name: str = "eval-gsm8k", *, suspend: bool = True, **spec: Any) -> Obj:
    env = [{"name": "TASK", "value": "gsm8k"}, {"name": "TARGET_URL", "value": "http://llm"}]
    container = {"name": "eval", "image": "eval:1", "env": env}
    job = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}, **spec}
    template = {"metadata": {"labels": {"team": "quality"}}, "spec": job}
    return {
        "metadata": {"name": name, "namespace": "serving", "uid": f"{name}-uid"},
        "spec": {"schedule": "0 0 31 2 *", "suspend": suspend, "jobTemplate": template},
    }


def job(name: str = "eval-gsm8k-inc-42-1", **status: Any) -> Obj:
    return {
        "metadata": {
            "name": name,
            "namespace": "serving",
            "uid": f"{name}-uid",
            "labels": {"incident-bot/job": "inc-42"},
            "annotations": {"incident-bot/incident": "INC-42"},
        },
        "status": status,
    }


def ended(kind: str, **more: str) -> Obj:
    return job(conditions=[{"type": kind, "status": "True", **more}])


def job_pod(phase: str, **status: Any) -> Obj:
    made = pod(9)
    made["metadata"]["ownerReferences"] = owner("Job", "eval-gsm8k-inc-42-1", "eval-gsm8k-inc-42-1-uid")
    made["status"] = {"phase": phase, **status}
    return made


def seen(**parts: Any) -> ClusterSnapshot:
    return replace(snapshot(), cron_jobs=(cron_job(),), **parts)


def entry_of(plan: Plan) -> LedgerEntry:
    call = plan.calls[0]
    return LedgerEntry(
        call_id="INC-42/R1/0", state="s", verb="run_job", title=call.title, target=call.target, undo=call.undo,
        applied_at=NOW,
    )  # fmt: skip


def test_the_job_is_the_templates_under_a_name_of_the_incidents_own() -> None:
    plan = planned("run_job", EVAL, seen())
    (call,) = plan.calls
    assert (call.method, call.target.kind, call.target.name) == ("create", "Job", "eval-gsm8k-inc-42-1")
    assert call.body["metadata"]["labels"] == {
        "team": "quality",
        "incident-bot/job": "inc-42",
        "app.kubernetes.io/managed-by": "incident-bot",
    }
    assert call.body["metadata"]["annotations"]["incident-bot/incident"] == "INC-42"
    assert "ownerReferences" not in call.body["metadata"]
    (container,) = call.body["spec"]["template"]["spec"]["containers"]
    assert {"name": "TASK", "value": "gsm8k"} in container["env"]
    assert plan.risk == "low"


def test_variables_replace_those_of_the_template_and_a_replica_is_named_by_its_address() -> None:
    plan = planned("run_job", EVAL | {"replica": "llm-2", "env": {"LIMIT": 200.0, "FAST": True}}, seen())
    (container,) = plan.calls[0].body["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [
        # First, because Kubernetes fills `$(TARGET_URL)` in the ones after it only.
        {"name": "LIMIT", "value": "200"},
        {"name": "FAST", "value": "true"},
        {"name": "TARGET_URL", "value": "http://127.1.1.2:8000"},
        {"name": "TARGET_POD", "value": "llm-2"},
        {"name": "TARGET_WORKLOAD", "value": "llm"},
        {"name": "TASK", "value": "gsm8k"},
    ]
    assert grade(plan, "rotation") == "warning"
    assert plan.expected == "people whose requests llm-2 serves may wait longer while the Job runs"


def test_a_secret_variable_reaches_the_job_and_is_shown_to_nobody() -> None:
    call = planned("run_job", EVAL | {"env": {"HF_TOKEN": "hf_abcdefgh"}}, seen()).calls[0]
    assert "hf_abcdefgh" in str(call.body)
    assert "hf_abcdefgh" not in str(call.differences)


@pytest.mark.parametrize(
    ("spec", "deadline", "kept"),
    [
        pytest.param({}, 1800, 86400, id="none-of-its-own"),
        pytest.param({"activeDeadlineSeconds": 600, "ttlSecondsAfterFinished": 7200}, 600, 7200, id="stricter"),
        pytest.param({"activeDeadlineSeconds": 9000, "ttlSecondsAfterFinished": 0}, 1800, 3600, id="too-lax"),
    ],
)
def test_a_job_ends_by_the_time_the_bot_stops_waiting_and_is_kept_until_its_log_is_read(
    spec: dict[str, Any], deadline: int, kept: int
) -> None:
    template = replace(seen(), cron_jobs=(cron_job(**spec),))
    plan = planned("run_job", EVAL | {"within_minutes": 30.0}, template)
    body = plan.calls[0].body["spec"]
    assert (body["activeDeadlineSeconds"], body["ttlSecondsAfterFinished"]) == (deadline, kept)
    wait = plan.steps[1]
    assert isinstance(wait, Wait)
    assert wait.within_seconds > deadline


def test_a_name_is_fixed_until_it_was_used() -> None:
    first = planned("run_job", EVAL, seen())
    assert planned("run_job", EVAL, seen(), replace(CONTEXT, now=CONTEXT.now + 60)).digest == first.digest
    again = planned("run_job", EVAL, seen(), PlanContext(incident_id="INC-42", ledger=(entry_of(first),)))
    assert again.calls[0].target.name == "eval-gsm8k-inc-42-2"


def test_a_template_that_runs_by_itself_is_reported() -> None:
    plan = planned("run_job", EVAL, replace(seen(), cron_jobs=(cron_job(suspend=False),)))
    assert "own schedule" in weighed(plan, "schedule")


@pytest.mark.parametrize(
    ("arguments", "parts", "outcome", "reason"),
    [
        pytest.param({}, {}, "impossible", "no Job is configured for this", id="none"),
        pytest.param({"template": "other"}, {}, "impossible", "there is no CronJob other in serving", id="missing"),
        pytest.param(EVAL, {"jobs": (job(active=1),)}, "impossible", "still runs", id="one-is-running"),
        pytest.param(EVAL | {"replica": "llm-9"}, {}, "impossible", "does not exist any more", id="replica-gone"),
        pytest.param(EVAL | {"replica": "canary"}, {}, "impossible", "there is no canary", id="no-canary"),
        pytest.param(EVAL | {"env": "A=1"}, {}, "impossible", "'env' is a mapping", id="env"),
        pytest.param(EVAL | {"within_minutes": 0}, {}, "impossible", "within_minutes is a number", id="no-time"),
        pytest.param(EVAL, {"unreadable": {"cron_jobs": "403"}}, "unknown", "cron jobs: 403", id="unreadable"),
    ],
)
def test_a_job_that_cannot_be_started_says_why(
    arguments: dict[str, Any], parts: dict[str, Any], outcome: str, reason: str
) -> None:
    result = declined("run_job", arguments, seen(**parts))
    assert (result.outcome, reason in result.reason) == (outcome, True), result.reason


def test_a_job_that_ended_is_in_nobodys_way() -> None:
    assert planned("run_job", EVAL, seen(jobs=(ended("Complete"),)))


def test_a_job_that_needs_an_accelerator_is_not_started_where_none_is_free() -> None:
    template = cron_job()
    container = template["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {"nvidia.com/gpu": "64"}}
    result = declined("run_job", EVAL, replace(seen(), cron_jobs=(template,)))
    assert "the Job cannot be scheduled" in result.reason


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "no node",
    "lastTransitionTime": "2027-01-15T07:00:00Z",
}


@pytest.mark.parametrize(
    ("jobs", "pods", "state", "text"),
    [
        pytest.param((), (), "failed", "was deleted before its end was seen", id="gone"),
        pytest.param((job(),), (), "pending", "has no pod yet", id="just-made"),
        pytest.param((job(active=1, failed=2),), (), "pending", "is running, 2 failed attempts", id="trying-again"),
        pytest.param((ended("Complete"),), (), "done", "is complete", id="complete"),
        pytest.param(
            (ended("Failed", reason="BackoffLimitExceeded", message="too often"),), (), "failed",
            "failed: BackoffLimitExceeded: too often", id="failed",
        ),
        pytest.param(
            (job(active=1),), (job_pod("Pending", conditions=[UNSCHEDULABLE]),),
            "failed", "cannot be scheduled: no node", id="no-room",
        ),
        pytest.param(
            (job(active=1, failed=1),),
            (job_pod("Failed", containerStatuses=[{"state": {"terminated": {"exitCode": 2}}, "restartCount": 5}]),),
            "pending", "is running", id="a-failed-attempt-is-the-jobs-business",
        ),
    ],
)  # fmt: skip
def test_the_end_of_a_job_is_what_the_job_says(
    jobs: tuple[Obj, ...], pods: tuple[Obj, ...], state: str, text: str
) -> None:
    wait = planned("run_job", EVAL, seen()).steps[1]
    assert isinstance(wait, Wait)
    found = progress(wait, seen(jobs=jobs, all_pods=pods))
    assert (found.state, text in found.text) == (state, True), found.text


def test_jobs_that_cannot_be_listed_are_waited_for() -> None:
    wait = planned("run_job", EVAL, seen()).steps[1]
    assert isinstance(wait, Wait)
    assert progress(wait, seen(unreadable={"jobs": "403"})).state == "pending"


def test_the_undo_deletes_this_job_and_no_other() -> None:
    entry = entry_of(planned("run_job", EVAL, seen()))
    context = PlanContext(incident_id="INC-42", ledger=(entry,))
    plan = planned("undo", {"of": "last"}, seen(jobs=(job(active=1),)), context)
    (call,) = plan.calls
    assert (call.method, call.target.uid) == ("delete", "eval-gsm8k-inc-42-1-uid")
    assert call.body == {"propagationPolicy": "Background"}
    assert plan.steps == (call,)
    foreign = job(active=1)
    foreign["metadata"]["annotations"] = {}
    assert "not ours" in declined("undo", {"of": "last"}, seen(jobs=(foreign,)), context).reason
    assert declined("undo", {"of": "last"}, seen(unreadable={"jobs": "403"}), context).outcome == "unknown"


def test_a_job_whose_time_is_over_is_no_interference() -> None:
    entry = entry_of(planned("run_job", EVAL, seen()))
    assert interference((entry,), seen()) == ()
    assert interference((entry,), seen(jobs=(job(active=1),))) == ()


LINE = '{"score": 0.71, "baseline": 0.73, "eval": "gsm8k"}'


@pytest.mark.parametrize(
    ("log", "fields", "missing"),
    [
        pytest.param(
            f"start\n{LINE}\n", {"score": 0.71, "baseline": 0.73, "eval": "gsm8k", "line": LINE}, {}, id="whole"
        ),
        pytest.param(
            f'{{"score": 0.1}}\n{LINE}\nbye\n',
            {"score": 0.71, "baseline": 0.73, "eval": "gsm8k", "line": "bye"},
            {},
            id="the-last-one-counts-whatever-follows",
        ),
        pytest.param(
            '{"score": "high", "baseline": true}',
            {"line": '{"score": "high", "baseline": true}'},
            {"score": "is not a number", "baseline": "is not a number", "eval": "has no 'eval'"},
            id="other-types",
        ),
        pytest.param(
            '{"score": NaN}',
            {"line": '{"score": NaN}'},
            {"score": "not a number", "baseline": "no 'baseline'", "eval": "no 'eval'"},
            id="not-a-number",
        ),
        pytest.param(
            "Traceback\n{}\n",
            {"line": "{}"},
            dict.fromkeys(("score", "baseline", "eval"), "no JSON line"),
            id="none",
        ),
        pytest.param(
            f"2027-01-15T08:00:00Z stdout F {LINE}",
            {"score": 0.71, "baseline": 0.73, "eval": "gsm8k", "line": f"2027-01-15T08:00:00Z stdout F {LINE}"},
            {},
            id="after-a-timestamp",
        ),
        pytest.param(
            f"{{'config': {{}}}} {LINE} (done)",
            {"score": 0.71, "baseline": 0.73, "eval": "gsm8k", "line": f"{{'config': {{}}}} {LINE} (done)"},
            {},
            id="between-other-words",
        ),
        pytest.param(
            f"{LINE}\n" + '{"a":' * 100_000,
            {"score": 0.71, "baseline": 0.73, "eval": "gsm8k", "line": '{"a":' * 60},
            {},
            id="a-line-nested-without-end",
        ),
    ],
)
def test_the_result_is_the_last_json_line_and_what_it_lacks_is_unknown(
    log: str, fields: dict[str, Any], missing: dict[str, str]
) -> None:
    reading = job_reading(log, at=NOW)
    assert {part: value for part, value in reading.fields.items() if part != "tail"} == fields
    unknown = {part: why for part, why in reading.unknown_parts.items() if part not in BENCHMARK}
    assert unknown.keys() == missing.keys()
    assert all(why in unknown[part] for part, why in missing.items()), unknown
    assert all("no result of a benchmark" in reading.unknown_parts[part] for part in BENCHMARK)


@pytest.mark.parametrize("log", [None, "", "\n \n"])
def test_without_a_log_there_is_no_result(log: str | None) -> None:
    assert job_reading(log, at=NOW).unknown == "the Job's pod left no log"


def test_a_jobs_last_lines_hide_their_secrets() -> None:
    reading = job_reading("a\nb\nc\n--password=hunter2\nTraceback\n", at=NOW)
    assert "hunter2" not in str(reading.fields)
    assert str(reading.fields["tail"]).splitlines()[0] == "b"
    assert str(reading.fields["tail"]).splitlines()[-1] == "Traceback"


def test_a_job_whose_pod_is_refused_fails_with_that_reason() -> None:
    wait = planned("run_job", EVAL, seen()).steps[1]
    assert isinstance(wait, Wait)
    present = job(active=0)
    message = "Error creating: pods is forbidden: exceeded quota: team"
    event = {
        "metadata": {"namespace": "serving"},
        "involvedObject": {"kind": "Job", "uid": present["metadata"]["uid"]},
        "message": message,
        "firstTimestamp": STAMP,
        "lastTimestamp": STAMP,
    }
    later = replace(seen(jobs=(present,), failed_creates=(event,)), at=NOW + 60)
    found = progress(wait, later)
    assert (found.state, found.text) == ("failed", f"a pod cannot be created: {message}")
