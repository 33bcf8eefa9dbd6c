"""The only code that changes a cluster: one call of an approved plan, stamped, with a precondition: it wins once.

A request that certainly did not arrive has failed. A request that may have arrived is unclear, and is checked before
anything is sent again.
"""

from __future__ import annotations

from bot.adapters.kubernetes.client import DEADLINE_SECONDS, Answer, KubernetesClient, NoAnswerError
from bot.adapters.kubernetes.credentials import NotSentError
from bot.adapters.kubernetes.reader import KubernetesReader
from bot.adapters.kubernetes.requests import http_request, misfit, outcome, rests_on_absence, seen_in
from bot.domain.approvals.grant import Approved
from bot.domain.changes.plan import Call
from bot.domain.cluster.snapshot import Obj
from bot.domain.kernel.errors import ApprovalError, ClusterError
from bot.flow.ports.cluster import EarlierAttempt, Sent

ANNOTATION_RACES = 3
"""How often a patch is sent after losing the race for a field that was absent; a loss changes nothing."""

CONFLICTS = (409, 422)
NOT_SENT_RETRY_SECONDS = 5.0


class KubernetesWriter:
    def __init__(
        self, client: KubernetesClient, reader: KubernetesReader, *, deadline_seconds: float = DEADLINE_SECONDS
    ) -> None:
        self._client, self._reader, self._deadline = client, reader, deadline_seconds

    async def send(self, approved: Approved, call: Call, *, call_id: str) -> Sent:
        """Raises `ApprovalError` if the call is not in the approved plan."""
        if call not in approved.plan.calls:
            raise ApprovalError(f"not a call of the approved plan: {call.title}")
        if not call.target.uid and call.method != "create":
            return Sent("failed", f"{call.target} has no uid: without it the call could hit another object")
        if call.method == "patch":
            return await self._patched(call, call_id)
        answer = await self._exchange(call, call_id, None)
        if isinstance(answer, Sent):
            return answer
        if answer.status == 409 and call.method == "create":
            return await self._created_before(call, call_id, answer.message)
        return outcome(call, answer)

    async def _patched(self, call: Call, call_id: str) -> Sent:
        """Reads the object first: if the patch no longer fits, returns why, and sends nothing."""
        sent = Sent("failed", "not sent")
        for _ in range(ANNOTATION_RACES):
            try:
                present = await self._present(call)
            except ClusterError as error:
                return _not_sent(f"nothing was sent: {error}")
            if reason := misfit(call, present):
                return Sent("failed", reason)
            answer = await self._exchange(call, call_id, present)
            if isinstance(answer, Sent):
                return answer
            sent = outcome(call, answer)
            if not (answer.status in CONFLICTS and rests_on_absence(call, present or {})):
                return sent
        return sent

    async def _exchange(self, call: Call, call_id: str, present: Obj | None) -> Answer | Sent:
        """The server's answer, or the meaning of a missing answer."""
        request = http_request(call, call_id=call_id, present=present)
        try:
            return await self._client.request(
                request.method, request.path, query=request.query, body=request.body, deadline_seconds=self._deadline
            )
        except NotSentError as error:
            return _not_sent(str(error))
        except NoAnswerError as error:
            return Sent("unclear", str(error))

    async def _created_before(self, call: Call, call_id: str, message: str) -> Sent:
        try:
            seen = seen_in(call, await self._present(call), call_id=call_id)
        except ClusterError as error:
            return Sent("unclear", f"there is one already, and whose it is cannot be read: {error}")
        if seen == "done":
            return Sent("done", "was created by an earlier attempt of this call")
        return Sent("failed", f"there is one already, made by somebody else: {message}")

    async def look(self, call: Call, *, call_id: str) -> EarlierAttempt:
        """The result of an earlier attempt, read from the object; `unclear` also if it cannot be read."""
        try:
            return seen_in(call, await self._present(call), call_id=call_id)
        except ClusterError:
            return "unclear"

    async def _present(self, call: Call) -> Obj | None:
        target = call.target
        # The effect of a granted call must be known: this is asked even of a server that has been silent.
        return await self._reader.find(target.kind, target.namespace, target.name, insists=True)


def _not_sent(why: str) -> Sent:
    """Nothing was done, so the same call may be sent once the API server can be reached."""
    return Sent("failed", why, retry_after_seconds=NOT_SENT_RETRY_SECONDS)
