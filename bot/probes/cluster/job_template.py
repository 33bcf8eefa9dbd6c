"""The `job_template` probe: whether the CronJob exists from which `run_job` would start a Job."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.cluster.job import job_template
from bot.domain.signals.probe_spec import Parameter
from bot.domain.signals.signal import Reading
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import answer, no_answer, text_asked_for, unreadable
from bot.probes.declaration import Probe

NOT_NAMED = "the playbook names no CronJob"


@dataclass(frozen=True)
class JobTemplate:
    found: bool
    name: str
    detail: str
    """Why there is none; empty if there is one."""


async def read_job_template(request: ProbeRequest) -> Reading:
    name = text_asked_for(request, "name")
    if not name:
        return no_answer(request, NOT_NAMED)
    snapshot = await request.snapshot()
    if failed := unreadable(request, snapshot, "cron_jobs"):
        return failed
    found = job_template(snapshot, name)
    why_not = found if isinstance(found, str) else ""
    return answer(request, JobTemplate(found=not why_not, name=name, detail=why_not), detail=why_not or name)


PROBE = Probe(
    name="job_template",
    label="Load test",
    help="Whether the CronJob exists from which run_job would start a Job.",
    answer=JobTemplate,
    read=lambda sources: read_job_template,
    parameters={
        "name": Parameter("The CronJob's name, or the setting that holds it."),
    },
)
