"""The logs of pods, bounded and unprocessed: an engine's, present or previous; the end of a Job's."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from bot.adapters.kubernetes.paths import path_of
from bot.adapters.kubernetes.reader import KubernetesReader
from bot.domain.cluster.objects import annotations_of, dig
from bot.domain.flags.flags_in_spec import engine_container
from bot.domain.kernel.errors import ClusterError, CutLogError

MAX_BYTES = 1024 * 1024
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


class KubernetesPodLogs:
    def __init__(self, reader: KubernetesReader) -> None:
        self._reader = reader

    async def read(
        self,
        namespace: str,
        pod: str,
        *,
        previous: bool = False,
        tail_lines: int | None = None,
        since: float | None = None,
    ) -> str | None:
        """The first MiB, or all from the second `since` on, or the last lines; None if there is no such log.

        Raises `CutLogError` if these are larger than a MiB, and `ClusterError` without an answer.
        """
        found = await self._reader.find("Pod", namespace, pod)
        engine = engine_container(found) if found else None
        if engine is None:
            return None
        query = {"container": str(engine[1]["name"])}
        if previous:
            query["previous"] = "true"
        if tail_lines is not None:
            query["tailLines"] = str(tail_lines)
        if since is not None:
            query["sinceTime"] = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return await self._text(namespace, pod, query)

    async def last_lines(self, namespace: str, pod: str, *, lines: int) -> str | None:
        """Of kubectl's default container, a tenth of them if they are larger than a MiB; None if there is no log.

        Raises `CutLogError` if that tenth is too, and `ClusterError` without an answer.
        """
        found = await self._reader.find("Pod", namespace, pod)
        names = [str(one["name"]) for one in dig(found, "spec", "containers") or []]
        if found is None or not names:
            return None
        container = annotations_of(found).get(DEFAULT_CONTAINER, names[0])
        try:
            return await self._text(namespace, pod, {"container": container, "tailLines": str(lines)})
        except CutLogError:
            return await self._text(namespace, pod, {"container": container, "tailLines": str(lines // 10)})

    async def _text(self, namespace: str, pod: str, asked: Mapping[str, str]) -> str | None:
        query = {**asked, "limitBytes": str(MAX_BYTES)}
        answer = await self._reader.read_text(path_of("Pod", namespace, pod, "log"), query)
        # 400: no previous container, or it is still waiting to start. 404: the pod has gone since.
        if answer.status in (400, 404) and answer.is_of_server:
            return None
        if not answer.is_ok:
            raise ClusterError(answer.message)
        log = answer.body if isinstance(answer.body, str) else str(answer.body)
        # A kubelet goes to the first line that is asked for, and stops after the limit.
        if asked.keys() & {"tailLines", "sinceTime"} and len(log.encode()) >= MAX_BYTES:
            what = f"last {asked['tailLines']} lines" if "tailLines" in asked else f"lines since {asked['sinceTime']}"
            raise CutLogError(f"its {what} are larger than {MAX_BYTES >> 20} MiB", log)
        return log
