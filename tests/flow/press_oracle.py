"""Decides from people's actions alone whether they allowed a change: it shares no code with the machine.

It is more lenient where the machine may know less than we do, and never where somebody's word is missing.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bot.domain.approvals.grant import Press, Request
from bot.domain.changes.plan import Call


@dataclass(frozen=True)
class Done:
    """A press as it was really made: when, by whom with which teams, and on the message itself or on a copy."""

    press: Press
    at: float
    teams: frozenset[str]
    is_original: bool = True


@dataclass
class Memory:
    """What was seen from outside: presses, what each request showed, when its message stood, when alerts resolved."""

    presses: list[Done] = field(default_factory=list)
    shown: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """Request to the digest and the calls that people saw."""
    posted_at: dict[str, float] = field(default_factory=dict)
    resolved_at: list[float] = field(default_factory=list)
    ended_at: dict[str, float] = field(default_factory=dict)
    """When a request was refused, left to expire, or carried out."""
    pre_approved: int = 0
    """How many changes of the incident the settings permit without a press."""
    announced: list[str] = field(default_factory=list)
    """Requests that were announced instead of asked for, in this order."""
    lapsed: set[str] = field(default_factory=set)
    """Announced requests that were planned again before they began."""
    shown_worse: dict[str, bool] = field(default_factory=dict)
    """Whether a request showed a warning."""
    judged: list[str] = field(default_factory=list)
    """Presses by their ids, in the order in which somebody looked up who made them."""

    def saw_ends(self, requests: Mapping[str, Request], at: float) -> None:
        self.lapsed |= {name for name, one in requests.items() if one.policy.announced and one.status != "granted"}
        for name, request in requests.items():
            if request.status == "refused" or request.outcome == "done":
                self.ended_at.setdefault(name, at)
            elif request.status == "expired" and not (request.decided_by or request.policy.announced):
                self.ended_at.setdefault(name, min(at, request.expires_at or at))

    def was_just_asked(self, request: Request, digest: str) -> bool:
        """Whether exactly this was refused, left to expire or carried out in the half hour before it was asked for."""
        same = [name for name, (shown, _) in self.shown.items() if shown == digest and name != request.request_id]
        return any(0 <= request.asked_at - self.ended_at[name] < 1800 for name in same if name in self.ended_at)


def as_seen(call: Call) -> str:
    return json.dumps(call.model_dump(mode="json", include={"method", "target", "body"}), sort_keys=True)


def why_not(request: Request, call: Call, memory: Memory) -> str:
    """What is wrong with sending this call now; empty when people let exactly this happen."""
    digest, calls = memory.shown.get(request.request_id, ("", ()))
    if as_seen(call) not in calls:
        return f"{request.request_id}: this call was never shown"
    begun = [name for name in memory.announced if name not in memory.lapsed]
    if memory.pre_approved and request.request_id in begun[: memory.pre_approved]:
        return f"{request.request_id}: announced with a warning" if memory.shown_worse[request.request_id] else ""
    words = [done for done in memory.presses if _is_valid(done, request, digest, memory)]
    approvals = [done for done in words if done.press.action == "approve"]
    if any(_breaks_glass(done, request, approvals, memory) for done in words):
        return ""
    people = _people(approvals)
    if not _are_enough(request, people):
        return f"{request.request_id}: approved by {sorted(people)} only"
    return ""


def _is_valid(done: Done, request: Request, digest: str, memory: Memory) -> bool:
    is_about_it = done.press.about == request.request_id and done.press.digest == digest and done.is_original
    is_in_time = done.at < _expires_at(request, memory)
    decided_at = request.decided_at or float("inf")
    is_after_the_calm = not any(done.at < at <= decided_at and at > request.asked_at for at in memory.resolved_at)
    needs_reason = request.policy.needs_reason or memory.was_just_asked(request, digest)
    has_its_reason = bool(done.press.reason.strip()) or not needs_reason
    return is_about_it and is_in_time and is_after_the_calm and has_its_reason


def _expires_at(request: Request, memory: Memory) -> float:
    posted_at, span = memory.posted_at.get(request.request_id), request.policy.expires_seconds
    if posted_at is None:
        return float("inf")
    asked_for_more = any(
        done.press.action == "more_time" and done.press.about == request.request_id and done.teams
        for done in memory.presses
        if done.at < posted_at + span
    )
    return posted_at + (2 * span if asked_for_more else span)


def _people(approvals: Iterable[Done]) -> dict[str, frozenset[str]]:
    people: dict[str, frozenset[str]] = {}
    for done in approvals:
        people[done.press.user] = people.get(done.press.user, frozenset()) | done.teams
    return people


def _are_enough(request: Request, people: Mapping[str, frozenset[str]]) -> bool:
    """Try every way of giving each seat a person of its own."""
    policy = request.policy
    seats = [demand.team for demand in policy.demands for _ in range(demand.needed)]
    return any(
        all(team in people[user] for team, user in zip(seats, order, strict=True))
        for order in itertools.permutations(people, len(seats))
    )


def _breaks_glass(done: Done, request: Request, approvals: Sequence[Done], memory: Memory) -> bool:
    leads, posted_at = request.policy.break_glass, memory.posted_at.get(request.request_id)
    if done.press.action != "break_glass" or leads is None or posted_at is None:
        return False
    is_late = done.at >= posted_at + request.policy.expires_seconds / 2
    may = leads.team in done.teams and bool(done.press.reason.strip()) and done.press.user != request.edited_by
    earlier = set(itertools.takewhile(lambda press_id: press_id != done.press.press_id, memory.judged))
    earlier_approvals = [approval for approval in approvals if approval.press.press_id in earlier]
    return is_late and may and _is_a_team_silent(request, earlier_approvals)


def _is_a_team_silent(request: Request, approvals: Sequence[Done]) -> bool:
    """Whether there is no way to give every team somebody of its own."""
    people = _people(approvals)
    teams = [demand.team for demand in request.policy.demands]
    return not any(
        all(team in people[user] for team, user in zip(teams, order, strict=True))
        for order in itertools.permutations(people, len(teams))
    )
