"""run_job over a real socket: created once, judged by its own end, read from its log, deleted by its undo."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from bot.adapters.kubernetes.pod_logs import KubernetesPodLogs
from bot.domain.changes.context import PlanContext
from bot.domain.changes.plan import LedgerEntry, Plan, Wait
from bot.domain.changes.planning import plan_change
from bot.domain.changes.progress import progress
from bot.domain.cluster.snapshot import Obj
from bot.domain.signals.signal import Reading
from bot.flow.handlers.job_result import JobResult
from bot.sandbox.fleet.bench import Answer, report
from tests import builders
from tests.adapters.kubernetes.lab import CONTEXT, TARGET, Lab

CRON_JOBS = "/apis/batch/v1/namespaces/serving/cronjobs"
JOBS = "/apis/batch/v1/namespaces/serving/jobs"
JOB = f"{JOBS}/eval-inc-42-1"
LINE = '{"score": 0.71, "baseline": 0.73, "eval": "gsm8k"}'


def template(log: str = f"loading\n{LINE}", **fields: Any) -> Obj:
    notes = {"sandbox/log": log, **{f"sandbox/{name}": value for name, value in fields.pop("sandbox", {}).items()}}
    pod = {"restartPolicy": "Never", "containers": [{"name": "eval", "image": "eval:1"}]}
    job = {"template": {"metadata": {"annotations": notes}, "spec": pod}, **fields}
    return {
        "metadata": {"name": "eval"},
        "spec": {"schedule": "0 0 31 2 *", "suspend": True, "jobTemplate": {"spec": job}},
    }


async def planned(lab: Lab, **fields: Any) -> Plan:
    await lab.somebody_creates(CRON_JOBS, template(**fields))
    return await lab.plan("run_job", template="eval", env={"LIMIT": 200.0})


async def result(lab: Lab, plan: Plan) -> Reading:
    run = builders.run(target=TARGET, incident_id=CONTEXT.incident_id)
    return await JobResult(lab.cluster, KubernetesPodLogs(lab.reader))(run, plan.calls[0].target, at=1.0)


def ended(plan: Plan) -> Wait:
    wait = plan.steps[1]
    assert isinstance(wait, Wait)
    return wait


async def test_a_job_runs_to_its_end_and_its_last_line_is_the_result(lab: Lab) -> None:
    plan = await planned(lab)
    await lab.carry_out(plan)
    reading = await result(lab, plan)
    assert reading.fields == {
        "score": 0.71, "baseline": 0.73, "eval": "gsm8k", "line": LINE, "tail": f"loading\n{LINE}",
    }  # fmt: skip
    found = await lab.get(JOB)
    assert found["metadata"]["annotations"]["incident-bot/call"] == "INC-42/R1/0"
    assert found["spec"]["template"]["spec"]["containers"][0]["env"] == [{"name": "LIMIT", "value": "200"}]
    assert [one["verb"] for one in await lab.mutations()] == ["create"]


@pytest.mark.parametrize(
    "log",
    [
        pytest.param(LINE, id="one-line"),
        pytest.param(f"{LINE}\n", id="ends-with-a-newline"),
        pytest.param(f"2027-01-15T08:00:00.1Z {LINE}", id="timestamp"),
        pytest.param(f"start\nINFO:eval: {LINE}\x1b[0m\ndone", id="logger"),
    ],
)
async def test_the_json_line_is_found_however_the_log_is_written(lab: Lab, log: str) -> None:
    plan = await planned(lab, log=log)
    await lab.carry_out(plan)
    reading = await result(lab, plan)
    assert {part: reading.fields.get(part) for part in ("score", "baseline", "eval")} == json.loads(LINE)


async def test_a_rehearsal_makes_no_job_and_reports_the_objection_of_the_server(lab: Lab) -> None:
    plan = await planned(lab)
    assert await lab.cluster.dry_run(plan.calls[0]) == ""
    assert (await lab.get(JOBS))["items"] == []
    call = plan.calls[0]
    body = call.body | {"spec": call.body["spec"] | {"activeDeadlineSeconds": "soon"}}
    assert await lab.cluster.dry_run(call.model_copy(update={"body": body})) != ""


async def test_the_same_job_is_made_once_also_when_the_first_answer_was_lost(lab: Lab) -> None:
    plan = await planned(lab)
    await lab.fault("POST jobs", "lost_reply")
    first = await lab.send(plan)
    assert first.result == "unclear"
    assert await lab.writer.look(plan.calls[0], call_id="INC-42/R1/0") == "done"
    assert (await lab.send(plan)).detail == "was created by an earlier attempt of this call"
    assert (await lab.send(plan, call_id="INC-42/R9/0")).result == "failed"
    assert len((await lab.get(JOBS))["items"]) == 1


async def test_a_job_whose_attempts_all_fail_says_so_with_its_last_line(lab: Lab) -> None:
    plan = await planned(lab, log="Traceback", backoffLimit=1, sandbox={"exit-code": "1"})
    await lab.send(plan)
    snapshot = await lab.until_seen("the Job has failed", lambda seen: bool(seen.jobs) and has_failed(seen.jobs[0]))
    status = progress(ended(plan), snapshot)
    assert (status.state, "BackoffLimitExceeded" in status.text) == ("failed", True)
    reading = await result(lab, plan)
    assert (reading.fields["tail"], "score" in reading.unknown_parts) == ("Traceback", True)


def has_failed(job: Obj) -> bool:
    return any(one["type"] == "Failed" for one in job["status"].get("conditions") or [])


async def test_the_undo_deletes_the_job_and_its_pods(lab: Lab) -> None:
    plan = await planned(lab)
    await lab.carry_out(plan)
    call = plan.calls[0]
    entry = LedgerEntry(
        call_id="INC-42/R1/0", state="s", verb="run_job", title=call.title, target=call.target, undo=call.undo,
        applied_at=1.0,
    )  # fmt: skip
    undo = await lab.plan("undo", replace_ledger(entry), of="last")
    assert (await lab.send(undo)).result == "done"
    await lab.until_seen("the Job's pods are gone", lambda seen: not any("eval" in name(pod) for pod in seen.all_pods))
    assert (await lab.get(JOBS))["items"] == []


def replace_ledger(entry: LedgerEntry) -> PlanContext:
    return replace(CONTEXT, ledger=(entry,))


def name(pod: Obj) -> str:
    return str(pod["metadata"]["name"])


async def test_without_permission_to_read_templates_it_is_not_known_whether_there_is_one(lab: Lab) -> None:
    await lab.fault("list cronjobs", "403")
    found = plan_change("run_job", {"template": "eval"}, await lab.snapshot(), CONTEXT)
    assert (found.outcome, "cron jobs" in found.reason) == ("unknown", True)


async def test_what_a_load_test_printed_is_read_over_the_api(lab: Lab) -> None:
    answers = [Answer(seconds=2.0, first_token=0.25, tokens=100) for _ in range(19)]
    printed = report([*answers, Answer(1.0, 0.0, 0, "503")], seconds=10.0, input_tokens=1000)
    plan = await planned(lab, log="\n".join(["Starting main benchmark run...", *printed]))
    await lab.carry_out(plan)
    reading = await result(lab, plan)
    assert reading.detail == "19 requests succeeded, 1 failed, 1.9 requests/s, 190 tokens/s, first token p99 0.25 s"
