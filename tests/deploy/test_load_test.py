"""The example of a canary's load test: the bot finds it, starts a Job from it, and reads what either tool leaves."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from bot.adapters.yaml_playbooks import load_playbook
from bot.domain.cluster.job import job_reading
from bot.domain.cluster.snapshot import Obj
from bot.domain.playbooks.packaged import packaged_playbooks
from bot.sandbox.fleet.bench import runs_bench
from bot.sandbox.fleet.pod_spec import read_pod
from tests.deploy.files import DEPLOY
from tests.domain.changes.snapshots import planned, snapshot

pytestmark = pytest.mark.fast
TEXT = (DEPLOY / "canary-load-test.cronjob.yaml").read_text(encoding="utf-8")
INCLUDING = [path.stem for path in packaged_playbooks().glob("*.yaml") if "include: roll_out\n" in path.read_text()]


def job() -> Obj:
    cron_job = yaml.safe_load(TEXT)
    cron_job["metadata"]["namespace"] = "serving"
    arguments = {"template": cron_job["metadata"]["name"], "replica": "llm-2", "within_minutes": 15.0}
    body: Obj = planned("run_job", arguments, replace(snapshot(), cron_jobs=(cron_job,))).calls[0].body
    return body


@pytest.mark.parametrize("playbook", INCLUDING)
def test_every_rollout_of_a_canary_looks_for_it_by_its_name(playbook: str) -> None:
    settings = load_playbook(packaged_playbooks() / f"{playbook}.yaml").settings
    assert settings["load_test_job"] == yaml.safe_load(TEXT)["metadata"]["name"]


def test_it_never_runs_by_itself() -> None:
    assert yaml.safe_load(TEXT)["spec"]["suspend"] is True


def test_its_job_asks_the_replica_once_and_ends_in_time() -> None:
    spec = job()["spec"]
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (0, 600, 86400)
    pod: dict[str, Any] = {
        "metadata": {"namespace": "serving", "name": "bench", "uid": "1"},
        "spec": {**spec["template"]["spec"], "nodeName": "node-1"},
    }
    read = read_pod(pod)
    assert runs_bench(read.argv)
    assert "--base-url=http://127.1.1.2:8000" in read.argv
    assert read.gpus == 0


def distribution(mean: float, p99: float) -> dict[str, Any]:
    return {
        "successful": {"mean": mean, "percentiles": {"p99": p99}},
        "errored": {"mean": 0, "percentiles": {"p99": 0}},
    }


def test_the_line_made_of_guidellms_report_is_read(tmp_path: Path) -> None:
    metrics = {
        "request_totals": {"successful": 297, "errored": 1, "incomplete": 2, "total": 300},
        "requests_per_second": distribution(1.5, 3.0),
        "output_tokens_per_second": distribution(300.5, 500.0),
        "time_to_first_token_ms": distribution(120.0, 430.0),
        "audio": None,
    }
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"benchmarks": [{"metrics": {}}, {"metrics": metrics}]}))
    commented = "\n".join(line.removeprefix("#") for line in TEXT.splitlines() if line.startswith("#"))
    found = re.search(r"<<'END'\n(.*?)\n\s+END", commented, re.DOTALL)
    assert found is not None
    script = textwrap.dedent(found[1]).replace("/tmp/report.json", str(report))
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    reading = job_reading(printed, at=1.0)
    assert {part: reading.fields[part] for part in ("completed", "failed", "ttft_p99", "requests_per_second")} == {
        "completed": 297.0, "failed": 1.0, "ttft_p99": 0.43, "requests_per_second": 1.5,
    }  # fmt: skip
    assert reading.fields["tokens_per_second"] == 300.5
