"""Reads the result of one of our Jobs from the end of its pod's log. An unreadable result is unknown, with a reason."""

from __future__ import annotations

from bot.domain.cluster.job import LOG_LINES, RESULT, SOURCE, job_reading, pods_of_job
from bot.domain.cluster.objects import ObjectRef, name_of, namespace_of
from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import ClusterError
from bot.domain.signals.signal import Reading, unknown
from bot.flow.ports.readings import JobLogs, Snapshots


class JobResult:
    def __init__(self, cluster: Snapshots, logs: JobLogs) -> None:
        self._cluster, self._logs = cluster, logs

    async def __call__(self, run: Run, about: ObjectRef, *, at: float) -> Reading:
        try:
            snapshot = await self._cluster.snapshot(run.target, incident_id=run.incident_id)
            job = next((job for job in snapshot.jobs if name_of(job) == about.name), None)
            pods = pods_of_job(snapshot, job) if job else ()
            if not pods:
                return unknown(RESULT, f"{about} has no pod whose log could be read", at=at, source=SOURCE)
            # The last attempt decides.
            log = await self._logs.last_lines(namespace_of(pods[-1]), name_of(pods[-1]), lines=LOG_LINES)
        except ClusterError as error:
            return unknown(RESULT, f"the Job's log cannot be read: {error}", at=at, source=SOURCE)
        return job_reading(log, at=at)
