"""A pod's own page through the API server's pod proxy, for a bot that cannot reach the pod network.

It needs `get` on `pods/proxy`, and each page goes through the API server: prefer the pods' addresses if they can be
reached.
"""

from __future__ import annotations

from bot.adapters.kubernetes.client import KubernetesClient, NoAnswerError
from bot.adapters.kubernetes.credentials import NotSentError
from bot.adapters.kubernetes.paths import path_of
from bot.domain.kernel.errors import ClusterError, SourceError
from bot.flow.ports.readings import MAX_PAGE_BYTES, PodPage

DEADLINE_SECONDS = 5.0


class ProxyPages:
    """The `PodPages` port."""

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client

    async def read(self, page: PodPage) -> str:
        try:
            pod = path_of("Pod", page.namespace, page.pod)
            path = f"{pod}:{page.port}/proxy{page.path}"
            answer = await self._client.request(
                "GET", path, deadline_seconds=DEADLINE_SECONDS, max_bytes=MAX_PAGE_BYTES, passed_on=True
            )
        except (NotSentError, NoAnswerError, ClusterError) as error:
            raise SourceError(f"{page.path} through the API server: {error}") from error
        if not answer.is_ok:
            raise SourceError(f"{page.path} through the API server: HTTP {answer.message}")
        if not isinstance(answer.body, str):
            raise SourceError(f"{page.path} through the API server is not text")
        return answer.body
