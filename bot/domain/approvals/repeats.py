"""A request for exactly what was just refused, left to expire or applied: it needs a new reason.

That it was another incident's changes nothing: it is the same call on the same object, and the same people are asked.
Otherwise a loop in a playbook, or somebody's patience, would ask until people approve without reading.
"""

from __future__ import annotations

from collections.abc import Iterable

from bot.domain.approvals.grant import Request
from bot.domain.changes.plan import Plan

REMEMBERED_SECONDS = 1800.0


def asked_before(plan: Plan, earlier: Iterable[Request], *, at: float) -> str:
    """The newest of one incident's requests that ended so within half an hour; empty when none did."""
    same = [request for request in earlier if request.digest == plan.digest]
    return next((each.request_id for each in reversed(same) if _is_fresh(each, plan, at)), "")


def _is_fresh(request: Request, plan: Plan, at: float) -> bool:
    ended_at = _ended_at(request, plan)
    return ended_at is not None and at - ended_at < REMEMBERED_SECONDS


def _ended_at(request: Request, plan: Plan) -> float | None:
    """When people said no, said nothing, or had it done; None for any other end."""
    if request.status == "refused":
        return request.decided_at
    if request.status == "expired" and request.decided_at is None:
        # A grant that lapsed was decided; that the bot was slow is no reason to doubt it.
        return request.expires_at
    if request.outcome == "done" and not all(call.restores for call in plan.calls):
        # Putting back the same thing twice, as in a loop over replicas, is as harmless as it was.
        return request.ended_at
    return None
