"""From a plan to a request: what it says to people, who must approve it, and what else the approval covers."""

from __future__ import annotations

from typing import Any

from bot.domain.approvals.announced import cleans_up
from bot.domain.approvals.grant import Covered, Policy, Request
from bot.domain.approvals.kinds import kind_of
from bot.domain.approvals.repeats import asked_before
from bot.domain.changes.catalogue import VERBS
from bot.domain.changes.plan import FLAG_TABLE, Circumstance, Plan, Risk, highest, raised
from bot.domain.flags.flag_history import release_of, was_read
from bot.domain.incidents.machine import calling, questions, recommending, severity, waits
from bot.domain.incidents.machine.draft import Draft
from bot.domain.incidents.named_values import ScopeValues, units_of
from bot.domain.incidents.run import ActiveChange
from bot.domain.playbooks.covering import covered_by
from bot.domain.playbooks.language import ChangeState
from bot.domain.signals.specs import ProbeSignal

WHY_UNDO = "This takes back what the incident changed, and the trouble may come back."


def ask_for(draft: Draft, change: ActiveChange, plan: Plan, *, asked_elsewhere: str = "") -> Request:
    """Request approval of a plan, announce it where no approval is needed, or only advise it.

    `asked_elsewhere`: the request of another incident that asked for the same; empty if none did.
    The request's expiry starts when it is posted.
    """
    request = draft.keep_request(_request(draft, change, plan, asked_elsewhere))
    begins = {"request_id": request.request_id, "begun": False, "step": 0, "progress": ""}
    draft.set(change=change.model_copy(update=begins))
    announced = request.policy.announced
    if not announced or not cleans_up(request.plan, draft.run.ledger):
        questions.draw_for_the_first(draft)
        mentions = {} if announced else calling.mentioned(draft)
        data: dict[str, object] = {"head": draft.run.timeline.hash, **mentions}
        if decides := _decides(draft, change):
            data["decides"] = decides
        draft.post("request", request.slot, request.request_id, data)
    if not announced:
        waits.expect_post(draft, request)
    _record(draft, request)
    return request


def _decides(draft: Draft, change: ActiveChange) -> str:
    """Returns the question that this change is an answer to, with what was read for it; empty for other changes."""
    asked = draft.recommended_by(change.state)
    if not asked or change.undo_of:
        return ""
    values = ScopeValues(draft.run, draft.run.findings.results.get(asked, {}))
    return draft.playbook.text(asked, "recommend", values, units_of(draft.run.latest))


def _record(draft: Draft, request: Request) -> None:
    plan, announced = request.plan, request.policy.announced
    how = f" — announced, not approved: {announced}" if announced else ""
    how = f" — only advised: {request.advice.text}" if request.advice else how
    data: dict[str, Any] = {"request": request.request_id, "digest": plan.digest, "plan": plan.model_dump(mode="json")}
    if request.status != "open":
        data["waits"] = False
    if announced:
        data["announced"] = announced
    draft.record("request", f"{request.request_id} ({plan.risk} risk): {plan.title}{how}", data=data)


def _request(draft: Draft, change: ActiveChange, plan: Plan, asked_elsewhere: str) -> Request:
    state = draft.playbook.state(change.state)
    written = state if isinstance(state, ChangeState) and not change.undo_of else None
    note = _untested_version(draft) if written and not VERBS[written.change].restores else ""
    is_unknown = bool(note) and _is_unknown_there(draft, plan)
    kind, risk, policy, covers = _policy(draft, plan, written, is_unknown=is_unknown)
    shown = draft.playbook.evidence(change.state) if written else ()
    plan = _with_notes(plan, _version_notes(note, is_unknown=is_unknown), _not_known(draft, shown))
    repeats = asked_before(plan, draft.run.requests.values(), at=draft.at) or asked_elsewhere
    expected = draft.text("expected") if written else ""
    plan = plan.model_copy(update={"risk": risk, "expected": expected or plan.expected})
    advice = draft.run.only_advice
    # What a person entered is approved as it is shown, as the form says.
    if not repeats and advice is None and not change.edited_by:
        policy = _announced(draft, plan, policy, kind, change.state)
    request = Request(
        request_id=f"R{draft.number()}",
        state=change.state,
        visit=draft.run.visit.number,
        plan=plan,
        digest=plan.digest,
        kind=kind,
        policy=policy,
        evidence=questions.evidence(draft, shown),
        asked_at=draft.at,
        edited_by=change.edited_by,
        covers=() if policy.announced else covers,
        asked_before=repeats,
        advice=advice,
        status="advised" if advice else "open",
        **_words_of(draft, change, written),
    )
    if not policy.announced:
        return request
    granted = {"status": "granted", "decided_at": draft.at, "decision_reason": policy.announced}
    return request.model_copy(update=granted)


def _words_of(draft: Draft, change: ActiveChange, written: ChangeState | None) -> dict[str, Any]:
    """Returns what the playbook says about its change; about an undo that a person asked for, it says nothing."""
    if written is None:
        return {"why": WHY_UNDO}
    return {
        "option": draft.option(change.state),
        "why": draft.text("why"),
        "runbook": written.runbook,
        "still": written.still,
        "alternatives": recommending.alternatives(draft.run, written, draft.playbook.playbook.states),
    }


def _with_notes(plan: Plan, *notes: tuple[Circumstance, ...]) -> Plan:
    return plan.model_copy(update={"circumstances": (*plan.circumstances, *(one for group in notes for one in group))})


def _version_notes(note: str, *, is_unknown: bool) -> tuple[Circumstance, ...]:
    if not note:
        return ()
    also = ", whose flags and metrics are not all known: the risk is one level higher" if is_unknown else ""
    return (Circumstance(name="tested_on", grade="note", text=note + also),)


def _policy(
    draft: Draft, plan: Plan, written: ChangeState | None, *, is_unknown: bool
) -> tuple[str, Risk, Policy, tuple[Covered, ...]]:
    """Returns kind, risk, policy and what else the approval covers.

    They follow from the settings; a playbook may only raise the risk, shorten the time and add teams.
    """
    approvals = draft.approvals
    earlier = [request.plan for request in draft.run.requests.values() if request.outcome == "done"]
    kind = kind_of(plan, earlier)
    risk = approvals.risk_of(kind, plan.verb, plan.risk, (written.risk if written else None) or "low")
    risk = raised(risk) if is_unknown else risk
    covers = _covers(draft, draft.run.visit.state, risk) if written else ()
    risk = highest(risk, *(later.risk for later in covers))
    teams = (*plan.approved_by, *(written.approvers if written else ()))
    policy = approvals.policy(risk, teams, kind=kind, verb=plan.verb, critical=draft.run.severity == severity.PAGE)
    if written and written.expires:
        shortest = min(policy.expires_seconds, draft.playbook.seconds(written.expires))
        policy = policy.model_copy(update={"expires_seconds": shortest})
    return kind, risk, policy, covers


def _announced(draft: Draft, plan: Plan, policy: Policy, kind: str, state: str) -> Policy:
    """Returns the policy with the reason why nobody is asked about this plan, if there is one."""
    run = draft.run
    why = draft.approvals.announced(
        plan, kind, plan.risk, state=state, target=run.target, ledger=run.ledger, earlier=run.requests.values(),
        at=draft.at,
    )  # fmt: skip
    return policy.model_copy(update={"announced": why}) if why else policy


def _covers(draft: Draft, name: str, risk: Risk) -> tuple[Covered, ...]:
    """Returns the later changes that the playbook puts under this one's approval, as far as the settings allow."""
    found = []
    for later, state in covered_by(draft.playbook.playbook, name).items():
        needed = highest(VERBS[state.change].risk, state.risk or "low")
        # A rollout is approved on the evidence of its canary, whatever the risk of that one was.
        is_rollout = bool(VERBS[state.change].follows)
        if draft.approvals.plan_once or (not is_rollout and highest(needed, risk) == risk):
            found.append(Covered(state=later, verb=state.change, title=draft.playbook.called(later), risk=needed))
    return tuple(found)


def _untested_version(draft: Draft) -> str:
    """Returns a note if this playbook was not tested on the engine's version; empty if it was, or if unknown."""
    known = draft.playbook.playbook.tested_on
    untested = [version for version in _releases(draft) if version not in known]
    return f"tested on vLLM {', '.join(known)}, and {untested[0]} runs" if known and untested else ""


def _is_unknown_there(draft: Draft, plan: Plan) -> bool:
    """Whether a flag of the plan, or the metrics that it rests on, are not known for the engine's version."""
    flags = [one for one in plan.circumstances if one.name == FLAG_TABLE and one.grade == "warning"]
    return bool(flags) or not all(map(was_read, _releases(draft)))


def _releases(draft: Draft) -> list[str]:
    """Returns the releases that run; empty if one of them is unknown."""
    versions = [str(one.fields["version"]) for one in draft.run.latest.values() if "version" in one.fields]
    try:
        return [release_of(version) for version in versions]
    except ValueError:
        return []


def _not_known(draft: Draft, names: tuple[str, ...]) -> tuple[Circumstance, ...]:
    """Returns a note for each labelled reading among these that is unknown, or has a part that is.

    It is no warning: a fleet without an exporter must get its relief too, as its settings say.
    A probe counts where the playbook itself labels it: most have a part that is seldom known.
    """
    found = []
    for name in names:
        read = draft.run.visit.readings.get(name) or draft.run.latest.get(name)
        spec = draft.playbook.playbook.signals.get(name)
        if (
            read is not None
            and (read.label if not isinstance(spec, ProbeSignal) else spec.label)
            and (why := read.unknown or "; ".join(dict.fromkeys(read.unknown_parts.values())))
        ):
            found.append(Circumstance(name="not_known", grade="note", text=f"{read.label} is not known: {why}"))
    return tuple(found)
