"""The log of a pod's engine container, present or previous; bounded, as it came, for pure code to judge."""

from __future__ import annotations

from bot.adapters.kubernetes.paths import path_of
from bot.adapters.kubernetes.reader import KubernetesReader
from bot.domain.change.flags_in_spec import engine_container
from bot.domain.errors import ClusterError

MOST_BYTES = 1024 * 1024


class KubernetesPodLogs:
    def __init__(self, reader: KubernetesReader) -> None:
        self._reader = reader

    async def read(
        self, namespace: str, pod: str, *, previous: bool = False, tail_lines: int | None = None
    ) -> str | None:
        """The first MiB, or the last lines; None when there is no such log. Raise `ClusterError` on no answer."""
        found = await self._reader.find("Pod", namespace, pod)
        engine = engine_container(found) if found else None
        if engine is None:
            return None
        query = {"container": str(engine[1]["name"]), "limitBytes": str(MOST_BYTES)}
        if previous:
            query["previous"] = "true"
        if tail_lines is not None:
            query["tailLines"] = str(tail_lines)
        answer = await self._reader.read_text(path_of("Pod", namespace, pod, "log"), query)
        # 400: no previous container, or it is still waiting to start. 404: the pod went away meanwhile.
        if answer.status in (400, 404):
            return None
        if not answer.is_ok:
            raise ClusterError(answer.message)
        return answer.body if isinstance(answer.body, str) else str(answer.body)
