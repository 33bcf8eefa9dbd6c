"""Names people in messages: who takes part in a run, who may approve a request, who has, and who is missing."""

from __future__ import annotations

from bot.adapters.slack.escape import channel_mention, group_mention, line, mention
from bot.domain.approvals.grant import APPROVERS, Demand, JudgedPress, Policy, Request, silent_teams, still_missing
from bot.domain.incidents.run import Run


def people_of(run: Run) -> frozenset[str]:
    """Everyone who takes part in the run: the only people that a text of the run may mention."""
    people = {run.lead, *(note.user for note in run.notes)} | ({run.halt.by} if run.halt is not None else set())
    people |= {question.answered_by for question in run.questions.values()}
    for request in run.requests.values():
        people |= {request.decided_by, request.edited_by, request.extended_by}
        people |= {*(judged.press.user for judged in request.presses), *(each.user for each in request.carried_out)}
    return frozenset(people - {""})


def approvals_so_far(request: Request) -> list[str]:
    """Who has approved, which teams are missing, and the way to proceed without a silent team."""
    lines = []
    if (request.presses or request.half_passed) and (teams := missing_teams(request)):
        lines.append(f"*Still missing* {teams}")
    if request.presses:
        users = ", ".join(dict.fromkeys(map(_approval, request.presses[:10])))
        lines.append(f"{len(request.presses)} of {request.policy.needed} approvals: {users}")
    leads = request.policy.break_glass
    if leads is not None and has_glass(request):
        who = ", ".join(mentions(leads))
        lines.append(f"🔨 Half of the time has passed: one of {line(leads.team, 40)} ({who}) may break the glass.")
    return lines


def has_glass(request: Request) -> bool:
    """Whether breaking the glass helps: if only its own team is silent, that team can approve instead."""
    leads = request.policy.break_glass
    silent = {demand.team for demand in silent_teams(request.policy, request.presses)}
    return request.half_passed and leads is not None and bool(silent - {leads.team})


def _approval(judged: JudgedPress) -> str:
    teams = [line(team, 40) for team in judged.authority.teams if team != APPROVERS]
    return mention(judged.press.user) + (f" ({', '.join(teams)})" if teams else "")


def approvers(policy: Policy) -> str:
    """`needs an approval from @serving-oncall`; `needs 2 approvals from …`; with teams `platform (@platform) and …`."""
    if not any(map(mentions, policy.demands)):
        return "nobody may approve this: no approvers are set"
    return f"needs {' and '.join(map(_approvals_from, policy.demands))}"


def _approvals_from(demand: Demand) -> str:
    who = ", ".join(mentions(demand)) or "nobody: none are set"
    many = "an approval" if demand.needed == 1 else f"{demand.needed} approvals"
    return f"{many} from {who}" if _is_of_approvers(demand) else f"{many} from {demand.team} ({who})"


def _is_of_approvers(demand: Demand) -> bool:
    """Whether the approvers decide it: always, or because no team is set for it."""
    return demand.team == APPROVERS or all(source.falls_back for source in (demand, *demand.or_of))


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


def teams_without_people(policy: Policy) -> list[str]:
    sources = [source for demand in policy.demands for source in (demand, *demand.or_of)]
    return list(dict.fromkeys(source.team for source in sources if source.falls_back))


def missing_teams(request: Request) -> str:
    """`platform, 2 of serving`, while a request that asks for certain teams waits; else empty."""
    if all(map(_is_of_approvers, request.policy.demands)):
        return ""
    missing = still_missing(request.policy, request.presses)
    return ", ".join(f"{each.needed} of {each.team}" if each.needed > 1 else each.team for each in missing)


def who_approved(request: Request) -> str:
    return ", ".join(dict.fromkeys(mention(judged.press.user) for judged in request.presses[:10]))
