"""Renders a request: what would be done, why, the risks, the undo, who may decide, and the deadline.

An open request has buttons. They carry the whole digest, so a press is bound to the plan that was shown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from bot.adapters.slack import limits
from bot.adapters.slack.escape import (
    channel_mention,
    code,
    code_block,
    group_mention,
    line,
    mention,
    of_id,
    prose,
    runbook_step,
)
from bot.adapters.slack.limits import Block
from bot.adapters.slack.outbound.blocks import actions, button, context, header, section
from bot.adapters.slack.outbound.words import GRADES, OUTCOMES, RISKS, ago, moment, span, value
from bot.adapters.slack.press_value import (
    APPROVE,
    APPROVE_WITH_REASON,
    BREAK_GLASS,
    CARRY_OUT,
    CHOOSE,
    DO_ELSE,
    EDIT,
    MORE_TIME,
    REFUSE,
    ButtonValue,
)
from bot.domain.approvals.edits import editable_values
from bot.domain.approvals.grant import APPROVERS, Demand, JudgedPress, Policy, Request, silent_teams, still_missing
from bot.domain.changes.plan import Call, Difference
from bot.domain.incidents.run import Run
from bot.domain.playbooks import text_sizes

WORST_FIRST = ("warning", "note", "fine")
TEXT = 2_000
IN_WORDS = 10
"""Differences that the notification spells out."""
COMMIT_CHARACTERS = 2_800
SIDE = 80
"""How much of either side of a difference is shown."""


def people_of(run: Run) -> frozenset[str]:
    """Everyone who takes part in the run: the only people that a text of the run may mention."""
    people = {run.lead, run.halted_by, *(note.user for note in run.notes)}
    people |= {question.answered_by for question in run.questions.values()}
    for request in run.requests.values():
        people |= {request.decided_by, request.edited_by, request.extended_by}
        people |= {*(judged.press.user for judged in request.presses), *(each.user for each in request.carried_out)}
    return frozenset(people - {""})


def request_title(run: Run, request: Request) -> str:
    """What the plan does, with its cluster if there are several."""
    return f"{request.plan.title} in {run.target.cluster}" if run.target.among_several else request.plan.title


def request_text(run: Run, request: Request) -> str:
    """The request as plain text, for notifications, screen readers, and when Slack refuses the blocks."""
    plan = request.plan
    what = "Would propose" if request.advice else "Request"
    asked = f"{what} {request.request_id} ({plan.risk} risk): {request_title(run, request)}"
    if request.status not in ("open", "advised"):
        return line(f"{asked}: {request.status}", TEXT)
    edits = [_difference(each) for call in plan.calls for each in call.differences]
    weighed = [each.text for each in plan.circumstances if each.grade != "fine"]
    parts = [
        asked,
        f"Nothing is changed: {request.advice.text}" if request.advice else "",
        "; ".join(edits[:IN_WORDS]) + (f" and {len(edits) - IN_WORDS} more" if len(edits) > IN_WORDS else ""),
        f"To weigh: {'; '.join(weighed)}" if weighed else "",
        f"Expected: {_expected(request)}" if plan.expected else "",
        f"Undo: {_undo_text(request)}",
        f"Expires at {datetime.fromtimestamp(request.expires_at, UTC):%H:%M} UTC" if request.expires_at else "",
    ]
    return line(". ".join(filter(None, parts)), TEXT)


def request_blocks(run: Run, request: Request, *, head: str = "", mentions: Sequence[str] = ()) -> tuple[Block, ...]:
    plan = request.plan
    title = request_title(run, request)
    title = f"Would propose: {title}" if request.advice else title
    body: list[Block] = [header(f"{request.request_id} · {title}")]
    targets = ", ".join(dict.fromkeys(code(call.target, 160) for call in plan.calls[:5]))
    body += section(
        [
            prose(request.why, text_sizes.TEXT, people=people_of(run)),
            f"*Runbook* {runbook_step(request.runbook)}" if request.runbook else "",
            f"*Target* {targets}" if targets else "",
        ]
    )
    body += section(_steps(run, request))
    body += _circumstances(request)
    body += section(
        [
            f"*Expected* {line(_expected(request), text_sizes.EXPECTED)}" if plan.expected else "",
            f"*Undo* {line(_undo_text(request), 600)}",
        ]
    )
    if plan.commit:
        body += section(["*To commit*", code_block(plan.commit.split("\n"), COMMIT_CHARACTERS)])
    if request.covers and request.status in ("open", "granted"):
        later = [f"• {line(each.title, 160)} ({RISKS[each.risk]} risk)" for each in request.covers]
        body += section(["*Approving it also approves*", *later])
    if request.status in ("open", "advised"):
        body += section(_alternatives(request))
        body += context(_grounds(request))
    foot = [*_weigh(run, request, mentions), *_decide_or_decided(run, request)]
    marks = [f"plan {code(request.digest[:12])}"] + ([f"timeline {code(head[:16])}"] if head else [])
    return limits.fitted(body, [*foot, *context([" · ".join(marks)])])


def _circumstances(request: Request) -> list[Block]:
    """The circumstances: warnings and notes first and large, fine ones small."""
    every = sorted(request.plan.circumstances, key=lambda each: WORST_FIRST.index(each.grade))[:20]
    lines = [(each.grade == "fine", f"{GRADES[each.grade]} {line(each.text, 400)}") for each in every]
    return [
        *section([text for is_fine, text in lines if not is_fine]),
        *context([text for is_fine, text in lines if is_fine]),
    ]


def _alternatives(request: Request) -> list[str]:
    """The other options, each with its effect or with the reason why it is not possible."""
    if not request.alternatives:
        return []
    lines = [
        f"• {line(each.label, 120)} — _not possible: {line(each.why_not, text_sizes.WHY_NOT)}_"
        if each.why_not
        else f"• *{line(each.label, 120)}*" + (f": {line(each.effect, text_sizes.EFFECT)}" if each.effect else "")
        for each in request.alternatives
    ]
    return ["*Instead of this*", *lines]


def _grounds(request: Request) -> list[str]:
    """The evidence, and the condition that is checked again."""
    checked = "Reason" if request.advice else "Checked again right before the first call"
    still = f"{checked}: {code(request.still, 300)}" if request.still else ""
    return [*(f"• {line(each, 300)}" for each in request.evidence[:20]), still]


def _expected(request: Request) -> str:
    """The expected effect. A plan's `none` means no interruption, which readers of `Expected` would misread."""
    expected = request.plan.expected
    return f"no interruption{expected.removeprefix('none')}" if re.match(r"none\b", expected) else expected


def _undo_text(request: Request) -> str:
    if request.plan.undo_text:
        return request.plan.undo_text
    reasons = dict.fromkeys(call.no_undo for call in request.plan.calls if call.no_undo)
    return "; ".join(reasons) or "every call is recorded with its inverse"


# --- the steps -------------------------------------------------------------------------------------------------------


def _steps(run: Run, request: Request) -> list[str]:
    """Every step with its differences, and progress marks once it is granted."""
    come_to = _come_to(run, request)
    texts: list[str] = []
    for place, step in enumerate(request.plan.steps):
        mark = _mark(place, come_to)
        if isinstance(step, Call):
            texts.append(f"{mark} {line(step.title, 400)}")
            texts += [code_block(map(_difference, step.differences), limits.SECTION)] if step.differences else []
        else:
            texts.append(f"{mark} Wait: {line(step.title, 400)} _(at most {span(step.within_seconds)})_")
    if run.change is not None and run.change.request_id == request.request_id and run.change.progress:
        texts.append(f"🔧 *Now:* {line(run.change.progress, 400)}")
    return texts


def _come_to(run: Run, request: Request) -> int | None:
    """The step under way; one past the last when all are done; None before the grant or when it is not known."""
    if request.status != "granted":
        return None
    if request.outcome == "done":
        return len(request.plan.steps)
    is_under_way = run.change is not None and run.change.request_id == request.request_id
    return run.change.step if run.change is not None and is_under_way else None


def _mark(place: int, come_to: int | None) -> str:
    if come_to is None:
        return f"{place + 1}."
    return "✅" if place < come_to else "▶️" if place == come_to else "⚪"


def _difference(each: Difference) -> str:
    if each.text:
        return each.text
    return f"{each.path}: {value(each.before)[:SIDE]} → {value(each.after)[:SIDE]}"


# --- who decides -----------------------------------------------------------------------------------------------------


def _weigh(run: Run, request: Request, also: Sequence[str]) -> list[Block]:
    """Who decides, until when, and related notes; left out once it is decided."""
    edited = f"📝 Its values were edited by {mention(request.edited_by)}." if request.edited_by else ""
    if request.status == "advised" and run.advised == request:
        people = " ".join(map(of_id, also))
        return section([f"*Risk* {RISKS[request.plan.risk]}", f"📣 {people}" if people else "", edited])
    if request.status != "open":
        return section([edited])
    again = _asked_before(run, request.asked_before) if request.asked_before else ""
    needs = f"*Risk* {RISKS[request.plan.risk]} · *Needs* {approvers(request.policy)}"
    asked = {who for demand in request.policy.demands for who in mentions(demand)}
    others = [who for who in map(of_id, also) if who not in asked]
    lines = [needs, f"📣 {' '.join(others)}" if others else "", edited, again, _time_left(request)]
    if request.alerts_resolved_at is not None:
        at = moment(request.alerts_resolved_at)
        lines.append(
            f"All alerts resolved at {at}: only a press after that counts. Approve again if it is still needed."
        )
    if teams := stand_ins(request.policy):
        names = " and ".join(f"*{team}*" for team in teams)
        them = "it" if len(teams) == 1 else "them"
        lines.append(f"⚠️ Nobody is set for {names}: the approvers decide for {them}.")
    return section([*lines, *_so_far(request)])


def _asked_before(run: Run, name: str) -> str:
    earlier = run.requests.get(name)
    became = "" if earlier is None else f", and was {'applied' if earlier.outcome == 'done' else earlier.status}"
    when = "within the last half hour" if earlier is None else "a moment ago"
    by = f" by {mention(earlier.decided_by)}" if earlier is not None and earlier.status == "refused" else ""
    return f"🔁 {line(name, 40)} asked for exactly this {when}{became}{by}: approving it needs a new reason."


def _so_far(request: Request) -> list[str]:
    """Who has approved, which teams are missing, and the way to proceed without a silent team."""
    lines = []
    if teams := missing_teams(request):
        lines.append(f"*Still missing* {teams}")
    if request.presses:
        users = ", ".join(dict.fromkeys(map(_approval, request.presses[:10])))
        lines.append(f"{len(request.presses)} of {request.policy.needed} approvals: {users}")
    leads = request.policy.break_glass
    if leads is not None and _has_glass(request):
        who = ", ".join(mentions(leads))
        lines.append(f"🔨 Half of the time has passed: one of {line(leads.team, 40)} ({who}) may break the glass.")
    return lines


def _has_glass(request: Request) -> bool:
    """Whether breaking the glass helps: if only its own team is silent, that team can approve instead."""
    leads = request.policy.break_glass
    silent = {demand.team for demand in silent_teams(request.policy, request.presses)}
    return request.half_passed and leads is not None and bool(silent - {leads.team})


def _approval(judged: JudgedPress) -> str:
    teams = [line(team, 40) for team in judged.authority.teams if team != APPROVERS]
    return mention(judged.press.user) + (f" ({', '.join(teams)})" if teams else "")


def approvers(policy: Policy) -> str:
    """`1 of @serving-oncall`; `1 of platform (@platform) and 1 of serving (@serving-oncall)`."""
    if not any(map(mentions, policy.demands)):
        return "nobody may approve this: no approvers are set"
    return " and ".join(map(_so_many, policy.demands))


def _so_many(demand: Demand) -> str:
    who = ", ".join(mentions(demand)) or "nobody: none are set"
    return f"{demand.needed} of {who}" if demand.team == APPROVERS else f"{demand.needed} of {demand.team} ({who})"


def mentions(demand: Demand) -> list[str]:
    """Everyone named for a team. A channel is named, not pinged."""
    found: list[str] = []
    for source in demand.sources:
        found += map(mention, source.users[:10])
        found += [group_mention(source.user_group)] if source.user_group else []
        found += [f"members of {channel_mention(source.channel)}"] if source.channel else []
    return list(dict.fromkeys(found))


def pinged(request: Request, *, everybody: bool) -> str:
    """The people a reminder mentions: missing teams and their escalation, or every team that was asked."""
    policy = request.policy
    demands = policy.demands if everybody else still_missing(policy, request.presses)
    above = (policy.escalate_to,) if policy.escalate_to and not everybody else ()
    return ", ".join(dict.fromkeys(who for each in (*demands, *above) for who in mentions(each)))


def stand_ins(policy: Policy) -> list[str]:
    sources = [source for demand in policy.demands for source in (demand, *demand.or_of)]
    return list(dict.fromkeys(source.team for source in sources if source.falls_back))


def missing_teams(request: Request) -> str:
    """`1 of platform, 1 of serving`, while a request that asks for certain teams waits; else empty."""
    if all(demand.team == APPROVERS for demand in request.policy.demands):
        return ""
    missing = still_missing(request.policy, request.presses)
    return ", ".join(f"{demand.needed} of {demand.team}" for demand in missing)


def _time_left(request: Request) -> str:
    if request.expires_at is None:
        return f"⌛ Expires {span(request.policy.expires_seconds)} after it is posted; nothing is applied later."
    longer = f" {mention(request.extended_by)} asked for more time." if request.extended_by else ""
    return f"⌛ Expires at {moment(request.expires_at)} ({ago(request.expires_at)}); nothing is applied later.{longer}"


def _decide_or_decided(run: Run, request: Request) -> list[Block]:
    if request.status == "advised":
        return _only_advised(run, request)
    if request.status != "open":
        return section([_decision(request)])
    # The request's own digest: a press approves exactly what was shown.
    packed = ButtonValue(run.incident_id, request.request_id, digest=request.digest).packed()
    if packed is None:
        return section(["This request cannot be put on a button; use `/incident show`."])
    approve = button("Approve", APPROVE, packed, style="primary")
    with_reason = button("Approve…", APPROVE_WITH_REASON, packed, style="primary")
    buttons = [with_reason if request.needs_reason else approve]
    if editable_values(request.plan):
        buttons.append(button("Edit…", EDIT, packed))
    if request.expires_at is not None and not request.extended_by:
        buttons.append(button("More time", MORE_TIME, packed))
    buttons.append(button("Refuse…", REFUSE, packed, style="danger"))
    for place, each in enumerate(each for each in request.alternatives if not each.why_not):
        value_of = ButtonValue(run.incident_id, request.request_id, digest=request.digest, choice=each.key).packed()
        buttons += [button(each.label, f"{CHOOSE}{place}", value_of)] if value_of else []
    if _has_glass(request):
        buttons.append(button("Break the glass…", BREAK_GLASS, packed, style="danger"))
    return actions(buttons)


def _only_advised(run: Run, request: Request) -> list[Block]:
    """Why nothing is changed, what people did, how it ended; while the bot watches, buttons to say what one does."""
    why = line(request.advice.text, 400) if request.advice else ""
    lines = [f"👀 *Nothing is changed by the bot*: {why}."]
    for each in request.carried_out[-5:]:
        what = f"does something else: {line(each.text, 500)}" if each.text else "carries it out"
        lines.append(f"✋ {mention(each.user)} {what} ({moment(each.at)})")
    if request.outcome:
        ended = f" {moment(request.ended_at)}" if request.ended_at is not None else ""
        lines.append(f"✅ Recovered{ended}" if request.outcome == "recovered" else f"⚪ Not recovered until{ended}")
    packed = ButtonValue(run.incident_id, request.request_id, digest=request.digest).packed()
    if run.advised != request or packed is None:
        return section(lines)
    lines.append("Say what you do, for the timeline. The bot goes on watching whether it recovers.")
    buttons = [button("I do this", CARRY_OUT, packed), button("I do something else…", DO_ELSE, packed)]
    return [*section(lines), *actions(buttons)]


def _decision(request: Request) -> str:
    at = f" at {moment(request.decided_at)}" if request.decided_at is not None else ""
    because = f": {line(request.decision_reason, 500)}" if request.decision_reason else ""
    match request.status:
        case "granted":
            users = ", ".join(dict.fromkeys(mention(judged.press.user) for judged in request.presses[:10]))
            result = request.outcome
            ended = f" {OUTCOMES.get(result, '•')} {line(result.replace('_', ' '), 60)}" if result else ""
            if any(judged.press.action == "break_glass" for judged in request.presses):
                return f"🔨 *The glass was broken* by {mention(request.decided_by)}{at}{because}.{ended}"
            if request.policy.announced:
                return f"📣 *Announced*{at}, no approval needed{because}.{ended}"
            why = because if request.needs_reason else ""
            who = users or mention(request.decided_by)
            return f"✅ *Approved* by {who}{at}{why} · {RISKS[request.plan.risk]} risk.{ended}"
        case "refused":
            return f"🚫 *Refused* by {mention(request.decided_by)}{at}{because}"
        case "expired":
            return f"⌛ *Expired*: nobody decided in time; it will not be applied later{because}"
        case "superseded" if request.decided_by:
            return f"📝 *Edited* by {mention(request.decided_by)}{because}. The new plan follows as a separate request."
        case "superseded":
            return f"🔁 *Superseded*{because}. A newer request follows."
        case _:
            return f"⚪ *Withdrawn*{because}"
