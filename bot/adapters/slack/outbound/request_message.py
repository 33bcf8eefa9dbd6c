"""Renders a request: what would be done, why, the risks, the undo, who may decide, and the deadline.

An open request has buttons. They carry the whole digest, so a press is bound to the plan that was shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from bot.adapters.slack import limits
from bot.adapters.slack.escape import (
    code,
    code_block,
    flags_as_code,
    line,
    mention,
    of_id,
    prose,
)
from bot.adapters.slack.limits import Block
from bot.adapters.slack.outbound.blocks import actions, button, confirm, context, menu, section, select
from bot.adapters.slack.outbound.deciders import (
    approvals_so_far,
    approvers,
    has_glass,
    mentions,
    people_of,
    teams_without_people,
    who_approved,
)
from bot.adapters.slack.outbound.news_lines import news_lines
from bot.adapters.slack.outbound.pull_request_line import pull_request
from bot.adapters.slack.outbound.words import (
    OUTCOMES,
    RESULTS,
    RISK_LEVELS,
    capitalized,
    date_in_utc,
    moment,
    stage_of,
    time_beside,
    time_of_day,
    value,
)
from bot.adapters.slack.press_value import (
    APPROVE,
    APPROVE_WITH_REASON,
    BREAK_GLASS,
    CARRY_OUT,
    CHOOSE,
    DETAILS,
    DO_ELSE,
    EDIT,
    MENU,
    MORE,
    MORE_TIME,
    REFUSE,
    ButtonValue,
)
from bot.domain.approvals.announced import covering, is_pre_approved
from bot.domain.approvals.edits import editable_values
from bot.domain.approvals.grant import (
    INSTEAD,
    Request,
    still_missing,
)
from bot.domain.changes.circumstances import has_no_streams, may_cut_streams, streams_in
from bot.domain.changes.plan import DIFFERENCES, DRAIN, Call, Circumstance, Difference, Plan, Step
from bot.domain.incidents.run import News, Run
from bot.domain.kernel.durations import lasting
from bot.domain.playbooks import text_sizes

Blocks = tuple[Block, ...]
ROLLOUT_COST = "Each replica restarts then; undoing that is another rolling restart."
MAX_STEPS, MAX_EDITS, MAX_NOTES, MAX_WARNINGS = 5, 3, 2, 4
TEXT_CHARACTERS = 2_000
MAX_DIFFERENCES_IN_TEXT = 10
"""Differences that the notification spells out."""
COMMIT_CHARACTERS = 2_800
SIDE_CHARACTERS = 100
"""How much of either side of a difference is shown."""


def resume_command(run: Run) -> str:
    """What lifts the halt of a halted run."""
    return f"/incident resume {'all' if run.is_halted_with_all else line(run.incident_id, 40)}"


def request_title(run: Run, request: Request) -> str:
    """What the plan does, with its cluster if there are several."""
    return f"{request.plan.title} in {run.target.cluster}" if run.target.among_several else request.plan.title


def request_text(run: Run, request: Request) -> str:
    """The request as plain text, for notifications, screen readers, and when Slack refuses the blocks."""
    plan = request.plan
    what = "Would propose" if request.advice else "Request"
    asked = f"{what} {request.request_id} ({plan.risk} risk): {request_title(run, request)}"
    if request.status not in ("open", "advised"):
        return line(f"{asked}: {_status_text(request)}", TEXT_CHARACTERS)
    edits = [difference(each) for call in plan.calls for each in call.differences]
    warnings = [each.text for each in plan.circumstances if each.grade == "warning"]
    parts = [
        asked,
        f"Nothing is changed: {request.advice.text}" if request.advice else "",
        "; ".join(edits[:MAX_DIFFERENCES_IN_TEXT])
        + (f" and {len(edits) - MAX_DIFFERENCES_IN_TEXT} more" if len(edits) > MAX_DIFFERENCES_IN_TEXT else ""),
        f"Impact: {_after_a_colon(felt)}" if (felt := _impact_text(request)) else "",
        f"Warning: {'; '.join(warnings)}" if warnings else "",
        f"Undo: {_undo_text(request)}",
        f"Expires at {date_in_utc(request.expires_at)}" if request.expires_at else "",
    ]
    return line(". ".join(filter(None, parts)), TEXT_CHARACTERS)


def _status_text(request: Request) -> str:
    """Its status in words. Nobody approved what was only announced."""
    if request.status != "granted" or not (reason := request.policy.announced):
        return request.status_text
    if other := covering(reason):
        return f"approved with {other}"
    return "pre-approved by policy" if is_pre_approved(reason) else "announced, no approval needed"


def request_blocks(
    run: Run, request: Request, *, mentions: Sequence[str] = (), news: Sequence[News] = (), decides: str = ""
) -> Blocks:
    """What would be done and why, its cost for users, its undo, and the ways to decide.

    `decides`: the question of its recommendation, which stands above it while it is open.
    """
    asked = line(capitalized(decides), 400) if request.status in ("open", "advised") else ""
    heading = [asked, f"*{line(_heading(run, request), 400)}*"]
    body: list[Block] = [*section(news_lines(news)), *section(heading)]
    # What was announced was not weighed by anybody before: people read it while it is under way.
    announced = request.policy.announced and not covering(request.policy.announced) and not request.outcome
    is_weighed = request.status in ("open", "advised") or bool(announced)
    if is_weighed:
        body += section([prose(request.why, text_sizes.TEXT, people=people_of(run))])
    body += section(_steps(run, request))
    if is_weighed:
        body += section([*_impact(request), f"*Undo:* {flags_as_code(line(_after_a_colon(_undo_text(request)), 300))}"])
        body += context(_notes(request))
    body += section(_to_commit(request))
    return limits.fitted(body, [*_who_decides(run, request, mentions), *_decide_or_decided(run, request)])


EDITED = "What is said above of the effect was computed for the recommended values."


def held_back(run: Run) -> str:
    """What is approved and was held back by a halt: a resume sends it at once."""
    request = run.requests.get(run.change.request_id) if run.change is not None else None
    is_approved = request is not None and bool(request.decided_by)
    return f"What was approved goes on: {line(called(run, request), 200)}." if request and is_approved else ""


def called(run: Run, request: Request) -> str:
    """What people call the request, with its cluster if there are several."""
    return f"{request.called} in {run.target.cluster}" if run.target.among_several else request.called


def _heading(run: Run, request: Request) -> str:
    title = called(run, request)
    if request.advice:
        return f"Would propose: {title}"
    is_recommended = request.option and not request.edited_by and not _was_chosen(run, request)
    return f"Recommended: {title[:1].lower()}{title[1:]}" if is_recommended else title


def _was_chosen(run: Run, request: Request) -> bool:
    """Whether a person chose this option in place of the request before it."""
    before = [each for each in run.requests.values() if each.asked_at < request.asked_at]
    return bool(before) and before[-1].decision_reason == f"{request.option}{INSTEAD}"


# --- what it costs ---------------------------------------------------------------------------------------------------


def _impact(request: Request) -> list[str]:
    """What users feel of it, then what is dangerous or not known. Streams that may be cut are never left out."""
    drain = next((each for each in request.plan.circumstances if each.name == DRAIN), None)
    warnings = [each for each in request.plan.circumstances if each.grade == "warning" and each is not drain]
    impact = _impact_text(request)
    sign = _danger_sign(drain) if drain is not None else ""
    first = [f"{sign}*{impact_word(request)}:* {line(_after_a_colon(impact), text_sizes.EXPECTED)}"] if impact else []
    return [*first, *(f"⚠️ {line(each.text, 400)}" for each in warnings[:MAX_WARNINGS])]


def impact_word(request: Request) -> str:
    """The heading of the impact. The same approval may allow later changes too, and their impact differs."""
    return "Impact of the first step" if request.covers else "Impact"


def _impact_text(request: Request) -> str:
    drains = [each for each in request.plan.circumstances if each.name == DRAIN]
    # "none" is not the word beside streams that may be cut.
    none, _, rest = request.plan.expected.partition(": ")
    is_none = none == "none" and any(streams_in(each) and not has_no_streams(each) for each in drains)
    expected = rest if is_none else request.plan.expected
    return "; ".join(filter(None, (expected, *map(streams_in, drains))))


def _after_a_colon(text: str) -> str:
    """`none, pods keep running`: it follows a colon already."""
    return text.replace("none: ", "none, ", 1) if text.startswith("none: ") else text


def _danger_sign(drain: Circumstance) -> str:
    """Streams that are cut for certain, and those that may be, are never shown as harmless."""
    if has_no_streams(drain):
        return ""
    return "⚠️ " if drain.grade == "warning" else "🟡 " if may_cut_streams(drain) else ""


def _notes(request: Request) -> list[str]:
    """What else is to be weighed, in small print; the rest is in the details."""
    # Of a few edits, each is in its step already.
    shown = DIFFERENCES if all(len(call.differences) <= MAX_EDITS for call in request.plan.calls) else ""
    notes = [each.text for each in request.plan.circumstances if each.grade == "note" and each.name != shown]
    return [f"• {line(each, 160)}" for each in notes[:MAX_NOTES]]


def _undo_text(request: Request) -> str:
    if request.plan.undo_text:
        return request.plan.undo_text
    reasons = dict.fromkeys(call.no_undo for call in request.plan.calls if call.no_undo)
    return "; ".join(reasons) or "each call is recorded with its inverse"


def _to_commit(request: Request) -> list[str]:
    """The text for the owner of what changes, unless it was not applied.

    While people decide, it is in the details: on a phone it would be all that fits above the buttons.
    """
    is_applied = request.status == "granted" and request.outcome == "done"
    may_be_applied = request.status == "advised" or (request.status == "granted" and not request.outcome)
    if not request.plan.commit or not (is_applied or may_be_applied):
        return []
    return text_to_commit(request.plan, is_applied=is_applied)


def text_to_commit(plan: Plan, *, is_applied: bool) -> list[str]:
    heading = "*To commit*" if is_applied else "*To commit after it is applied*"
    return [heading, code_block(plan.commit.split("\n"), COMMIT_CHARACTERS)]


# --- the steps -------------------------------------------------------------------------------------------------------


def _steps(run: Run, request: Request) -> list[str]:
    """What this approval lets the bot do; once it is granted, only how far it has come."""
    steps = [*request.plan.steps]
    if request.status == "granted":
        at_step = _step_under_way(run, request)
        if at_step is None or at_step >= len(steps):
            return []
        at = f" (step {at_step + 1} of {len(steps)})" if len(steps) > 1 else ""
        if run.is_halted:
            lapses = "" if at_step else ", or asks again if the approval has lapsed by then"
            return [f"⛔ Halted: `{resume_command(run)}` continues{at}{lapses}"]
        progress = run.change.progress if run.change is not None else ""
        return [f"🔧 {flags_as_code(line(progress or _under_way(steps[at_step]), 400))}{at}"]
    if request.status not in ("open", "advised"):
        return []
    title = request_title(run, request)
    shown = [f"{place}. {_step(step, title)}" for place, step in enumerate(steps[:MAX_STEPS], start=1)]
    shown += [f"… and {len(steps) - MAX_STEPS} more steps, in the details"] if len(steps) > MAX_STEPS else []
    return shown + covered(request)


def covered(request: Request) -> list[str]:
    """What one approval also allows later, in one line; nothing if it is this change alone."""
    later = dict.fromkeys(line(each.title, 160) for each in request.covers)
    cost = f" {ROLLOUT_COST}" if _rolls_out(request) else ""
    return [f"*Then, with the same approval:* {'; '.join(later)}.{cost}"] if later else []


def _rolls_out(request: Request) -> bool:
    return any(each.verb == "promote" for each in request.covers)


def _under_way(step: Step) -> str:
    return step.title if isinstance(step, Call) else f"Waiting until {_as_clause(step.title)}"


def _step(step: Step, title: str) -> str:
    """One step with its differences; one that its title names with the new value alone is shown there."""
    if not isinstance(step, Call):
        return f"Wait up to {lasting(step.within_seconds)} until {line(_as_clause(step.title), 300)}"
    edits = [difference(each) for each in step.differences if each.text and each.path]
    if len(edits) > MAX_EDITS:
        return flags_as_code(line(step.title, 300))
    called = line(step.title, 300)
    named = {after: each for each in edits if (after := _set_to(each)) and after in called}
    new = [each for each in edits if each not in title and each not in named.values() and not _says(step.title, each)]
    shown = ", ".join(code(_without_its_object(step.title, each), SIDE_CHARACTERS) for each in new)
    return _with_differences(called, named) + (f": {shown}" if shown else "")


def _set_to(edit: str) -> str:
    """`--max-num-seqs 7` of `--max-num-seqs 64 → 7`, escaped; empty for a difference that is not a flag's."""
    name, _, after = edit.partition(" → ")
    return line(f"{name.partition(' ')[0]} {after}") if name.startswith("--") and after else ""


def _says(title: str, edit: str) -> bool:
    """Whether the title says the value of a difference such as `one more replica: llm-canary`."""
    return not edit.startswith("--") and edit.rpartition(": ")[2] in title


def _with_differences(called: str, named: Mapping[str, str]) -> str:
    """The escaped title of a step, with the old value of each flag beside the new one."""
    parts = re.split(f"({'|'.join(map(re.escape, named))})", called) if named else [called]
    return "".join(code(named[part], SIDE_CHARACTERS) if part in named else flags_as_code(part) for part in parts)


def _without_its_object(title: str, edit: str) -> str:
    """The difference without the name of its object where the title says it."""
    name, _, rest = edit.partition(": ")
    return rest if rest and name in title else edit


def _as_clause(title: str) -> str:
    """The title of a wait, in the middle of a sentence."""
    word, _, rest = title.partition(" ")
    return f"{word.lower()} {rest}" if word in ("The", "All", "At", "An", "No") else title


def _step_under_way(run: Run, request: Request) -> int | None:
    """The step under way; one past the last when all are done; None when it is not known."""
    if request.outcome == "done":
        return len(request.plan.steps)
    is_under_way = run.change is not None and run.change.request_id == request.request_id
    return run.change.step if run.change is not None and is_under_way else None


def difference(each: Difference) -> str:
    if each.text:
        return each.text
    return f"{each.path}: {value(each.before)[:SIDE_CHARACTERS]} → {value(each.after)[:SIDE_CHARACTERS]}"


# --- who decides -----------------------------------------------------------------------------------------------------


def _who_decides(run: Run, request: Request, also: Sequence[str]) -> list[Block]:
    """Who decides, until when, and related notes; left out once it is decided."""
    edited = f"📝 Its values were edited by {mention(request.edited_by)}. {EDITED}" if request.edited_by else ""
    if request.status == "advised" and run.advised == request:
        people = " ".join(map(of_id, also))
        return section([f"📣 {people}" if people else "", edited])
    if request.status != "open":
        return section([edited])
    again = _asked_before(run, request.asked_before) if request.asked_before else ""
    asked = {who for demand in request.policy.demands for who in mentions(demand)}
    others = [who for who in map(of_id, also) if who not in asked]
    lines = [f"📣 {' '.join(others)}" if others else "", edited, again]
    if request.alerts_resolved_at is not None and run.alerts_resolved_at is not None:  # else one fires again
        at = time_of_day(request.alerts_resolved_at)
        lines.append(f"All alerts resolved at {at}: approve it only if it is still needed.")
    teams = teams_without_people(request.policy)
    of_target = f" · approvers of {line(request.policy.approvers_of, 80)}" if request.policy.approvers_of else ""
    needs = f"{RISK_LEVELS[request.plan.risk]} risk · {approvers(request.policy)}{of_target} · {_time_left(request)}"
    instead = f"No team is set for {' and '.join(teams)}: the approvers decide." if teams else ""
    if run.is_halted:
        late = "and is asked for again if that comes late"
        lines.append(f"⛔ Halted: what is approved now begins only after `{resume_command(run)}`, {late}.")
    return [*section([*lines, *approvals_so_far(request)]), *context([needs, instead])]


def _asked_before(run: Run, name: str) -> str:
    earlier = run.requests.get(name)
    became = "" if earlier is None else f", and {_became(earlier)}"
    when = "within the last half hour" if earlier is None else "a moment ago"
    by = f" by {mention(earlier.decided_by)}" if earlier is not None and earlier.status == "refused" else ""
    where = f" in {line(name.partition('/')[0], 40)}" if "/" in name else ""
    return f"🔁 Exactly this was asked for{where} {when}{became}{by}: approving it needs a new reason."


def _became(earlier: Request) -> str:
    if earlier.outcome == "done":
        return "was applied"
    return "nobody decided" if earlier.status == "expired" else f"was {earlier.status_text}"


def _time_left(request: Request) -> str:
    if request.expires_at is None:
        return f"expires {lasting(request.policy.expires_seconds)} after it is posted"
    longer = f" ({mention(request.extended_by)} asked for more time)" if request.extended_by else ""
    return f"by {time_beside(request.expires_at, request.asked_at)}{longer}"


def _decide_or_decided(run: Run, request: Request) -> list[Block]:
    if request.status == "advised":
        return _only_advised(run, request)
    if request.status != "open":
        details = menu(_more(run, request), MORE)
        return [
            *section([_decision(run, request)]),
            *pull_request(run, request.slot),
            *(actions([details]) if details else []),
        ]
    # The request's own digest: a press approves exactly what was shown.
    packed = ButtonValue(run.incident_id, request.request_id, digest=request.digest).packed()
    if packed is None:
        return section(["This request cannot be put on a button; use `/incident show`."])
    label = approve_label(request)
    if request.needs_reason:
        approve = button(f"{label}…", APPROVE_WITH_REASON, packed, style="primary")
    else:
        approve = button(label, APPROVE, packed, style="primary", confirm=_confirm(run, request, label))
    elements: list[Block | None] = [approve, button("Refuse…", REFUSE, packed, style="danger")]
    if has_glass(request):
        elements.append(button("Break the glass…", BREAK_GLASS, packed, style="danger"))
    elements += [_other_options(run, request), menu(_more(run, request), MORE)]
    return actions([each for each in elements if each])


def _confirm(run: Run, request: Request, label: str) -> Block | None:
    """The consequence and the undo, before a change that users may feel."""
    if request.plan.disrupts == "nothing" or request.plan.risk == "low":
        return None
    impact, undo = consequence(request)
    text = f"{impact_word(request)}: {impact[:200]}. Undo: {undo[:100]}."
    return confirm(f"{request_title(run, request)}?", text, yes=label, no="Cancel", style="primary")


def consequence(request: Request) -> tuple[str, str]:
    """What users feel of it, and how it is taken back."""
    return _after_a_colon(_impact_text(request) or "none expected"), _after_a_colon(_undo_text(request))


def approve_label(request: Request) -> str:
    """What the approval allows. A title of a form has 24 characters."""
    return f"Approve {stage_of(request.plan.verb).lower()}{' + rollout' * _rolls_out(request)}"


def _other_options(run: Run, request: Request) -> Block | None:
    possible = [each for each in request.alternatives if not each.why_not]
    options = [
        (each.label, each.effect, ButtonValue(run.incident_id, request.request_id, request.digest, each.key))
        for each in possible
    ]
    return select("Other options…", f"{CHOOSE}{MENU}", options)


def _more(run: Run, request: Request) -> list[tuple[str, ButtonValue]]:
    """What is seldom needed, in the menu of the message."""

    def at(word: str) -> ButtonValue:
        return ButtonValue(run.incident_id, request.request_id, request.digest, word)

    found = [("Details", at(DETAILS))]
    if request.status == "open" and editable_values(request.plan):
        found.append(("Edit values…", at(EDIT)))
    if request.status == "open" and request.expires_at is not None and not request.extended_by:
        found.append(("More time", at(MORE_TIME)))
    return found


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
    more = menu(_more(run, request), MORE)
    if run.advised != request or packed is None:
        return [*section(lines), *(actions([more]) if more else [])]
    lines.append("Say what you do, for the timeline. The bot goes on watching whether it recovers.")
    buttons = [button("I do this", CARRY_OUT, packed), button("I do something else…", DO_ELSE, packed)]
    return [*section(lines), *actions([*buttons, *([more] if more else [])])]


def _was_edited(request: Request) -> bool:
    """Whether the person who decided edited its values: the approvals so far were not enough."""
    is_broken = any(judged.press.action == "break_glass" for judged in request.presses)
    return bool(request.decided_by) and not is_broken and bool(still_missing(request.policy, request.presses))


def _decision(run: Run, request: Request) -> str:
    at = f" at {time_of_day(request.decided_at)}" if request.decided_at is not None else ""
    because = f": {line(request.decision_reason, 500)}" if request.decision_reason else ""
    match request.status:
        case "granted":
            users = who_approved(request)
            result = request.outcome
            detail = f": {line(request.outcome_text, 600)}" if request.outcome_text else ""
            in_words = RESULTS.get(result, result.replace("_", " "))
            ended = f" {OUTCOMES.get(result, '•')} {capitalized(line(in_words, 60))}{detail}" if result else ""
            if any(judged.press.action == "break_glass" for judged in request.presses):
                return f"🔨 *The glass was broken* by {mention(request.decided_by)}{at}{because}.{ended}"
            if name := covering(request.policy.announced):
                approved = run.requests.get(name)
                by = f"with “{line(approved.called, 160)}”" if approved else "before"
                return f"📣 *Approved* {by}, started{at}.{ended}"
            if request.policy.announced:
                return f"📣 *Announced*{at}, no approval needed{because}.{ended}"
            why = because if request.needs_reason else ""
            who = users or mention(request.decided_by)
            return f"✅ *Approved* by {who}{at}{why}.{ended}"
        case "refused":
            return f"🚫 *Refused* by {mention(request.decided_by)}{at}{because}"
        case "expired":
            few = f"only {who_approved(request)} approved it" if request.presses else "nobody decided"
            return f"⌛ *Expired*: {few} in time, so nothing was changed{because}"
        case "superseded" if request.decided_by and request.decision_reason.endswith(INSTEAD):
            other = line(request.decision_reason.removesuffix(INSTEAD), 200)
            return f"🔁 {mention(request.decided_by)} chose *{other}* instead{at}."
        case "superseded" if request.presses and not _was_edited(request):
            users = who_approved(request)
            return f"🔁 *Not applied*, though {users} approved it{at}{because}. A newer request follows."
        case "superseded" if request.decided_by:
            by = mention(request.decided_by)
            return f"📝 *Edited* by {by}{because}. Planned again with these values: the result is below."
        case "superseded":
            return f"🔁 *Superseded*{because}. A newer request follows."
        case _ if request.presses:
            return f"⚪ *Not applied*, though {who_approved(request)} approved it{at}{because}"
        case _:
            return f"⚪ *Withdrawn*{because}"
