"""Sends a call as a server-side dry run: the API server checks everything and stores nothing."""

from __future__ import annotations

from typing import Any

from bot.adapters.kubernetes.client import KubernetesClient, NoAnswerError
from bot.adapters.kubernetes.credentials import NotSentError
from bot.adapters.kubernetes.reader import KubernetesReader
from bot.adapters.kubernetes.requests import TWO_BUDGETS, http_request, misfit
from bot.domain.changes.plan import Call
from bot.domain.kernel.errors import ClusterError

CALL_ID = "dry-run"
DRY_RUN = "All"


class DryRun:
    def __init__(self, client: KubernetesClient, reader: KubernetesReader) -> None:
        self._client, self._reader = client, reader

    async def dry_run(self, call: Call) -> str:
        """The server's reason against the call, or empty if it accepts it. Raises `ClusterError` without an answer.

        A budget that allows no eviction just now (429) is not a reason against it: the call is retried until it does.
        """
        present = None
        if call.method == "patch" and call.subresource == "":
            present = await self._reader.find(call.target.kind, call.target.namespace, call.target.name)
            if reason := misfit(call, present):
                return reason
        request = http_request(call, call_id=CALL_ID, present=present)
        try:
            answer = await self._client.request(
                request.method,
                request.path,
                query={**request.query, "dryRun": DRY_RUN},
                body=_without_effect(call, request.body),
            )
        except (NotSentError, NoAnswerError) as error:
            raise ClusterError(str(error)) from error
        if not answer.is_of_server:
            raise ClusterError(answer.message)
        if answer.is_ok or answer.status == 429:
            return ""
        if answer.status >= 500 and TWO_BUDGETS not in answer.message:
            raise ClusterError(answer.message)
        return answer.message


def _without_effect(call: Call, body: Any) -> Any:
    """A DELETE with a body ignores its query: without this, its dry run would delete. Evictions accept either."""
    if call.method == "delete":
        return {**body, "dryRun": [DRY_RUN]}
    if call.method == "evict":
        return {**body, "deleteOptions": {**body["deleteOptions"], "dryRun": [DRY_RUN]}}
    return body
