"""A request for exactly what was just refused, left to expire or applied: it needs a new reason.

It makes no difference if that was another incident: it is the same call on the same object, for the same approvers.
Otherwise a loop in a playbook, or a persistent person, would ask until people approve without reading.
"""

from __future__ import annotations

from collections.abc import Iterable

from bot.domain.approvals.grant import Request
from bot.domain.changes.plan import Plan

REMEMBERED_SECONDS = 1800.0


def asked_before(plan: Plan, earlier: Iterable[Request], *, at: float) -> str:
    """Returns the newest request of one incident that ended so within half an hour; empty if none did."""
    same = [request for request in earlier if request.digest == plan.digest]
    return next((each.request_id for each in reversed(same) if _is_fresh(each, plan, at)), "")


def _is_fresh(request: Request, plan: Plan, at: float) -> bool:
    ended_at = _ended_at(request, plan)
    return ended_at is not None and at - ended_at < REMEMBERED_SECONDS


def _ended_at(request: Request, plan: Plan) -> float | None:
    """Returns when people refused it, let it expire, or had it applied; None for any other end."""
    if request.status == "refused":
        return request.decided_at
    if request.status == "expired" and request.decided_at is None:
        # A grant that lapsed was a decision; a slow bot is no reason to doubt it.
        return request.expires_at
    if request.outcome == "done" and not all(call.restores for call in plan.calls):
        # Repeating an undo, as in a loop over replicas, is as harmless as the first one.
        return request.ended_at
    return None
