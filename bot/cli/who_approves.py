"""Who can approve what: the policy that each change of each playbook would come to, as `doctor` explains it.

The kind of a change is known only from its plan, so each kind that it may turn out to be is listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from bot.domain.approval import APPROVERS, Demand, Policy
from bot.domain.approval_rules import ApprovalRules
from bot.domain.approval_table import CONTRACT, KINDS_OF_VERBS, OR, QUALITY, kind_of_edits
from bot.domain.change.plan import Risk
from bot.domain.change.risks import TEAMS
from bot.domain.finding import Finding, fine
from bot.domain.playbook.compiled import CompiledPlaybook
from bot.domain.playbook.language import ChangeState

ABOUT = "approvals"


def who_approves(playbooks: Iterable[CompiledPlaybook], rules: ApprovalRules) -> list[Finding]:
    """One line for each policy of a playbook, with the states that it is for."""
    return [fine(ABOUT, line) for playbook in playbooks for line in _lines(playbook, rules)]


def teams_asked(rules: ApprovalRules) -> set[str]:
    """Every team that some kind of change, the escalation or the glass counts on."""
    asked = {name for asked in rules.kinds.values() for share in asked.shares for name in share.team.split(OR)}
    asked |= {team for teams in TEAMS.values() for team in teams} | {rules.escalate_to, rules.break_glass}
    return asked - {"", APPROVERS}


def _lines(playbook: CompiledPlaybook, rules: ApprovalRules) -> Iterator[str]:
    states: dict[tuple[str, str], list[str]] = {}
    for name, state in playbook.playbook.states.items():
        if not isinstance(state, ChangeState):
            continue
        for kind in kinds_of(state):
            said = _explained(kind, state, playbook, rules)
            states.setdefault((kind, said), []).append(name)
    for (kind, said), names in states.items():
        yield f"{playbook.name}: {', '.join(names)}: {kind}: {said}"


def kinds_of(state: ChangeState) -> tuple[str, ...]:
    """What the change may turn out to be, as far as the playbook says."""
    kinds = KINDS_OF_VERBS.get(state.change, (state.change,))
    if state.change == "scale" and state.with_.get("by") == 1:
        return ("scale",)
    if "edits" not in state.with_:
        return kinds
    touched = kind_of_edits(_edited(state.with_["edits"]))
    if touched and state.with_.get("rotation") != "out":
        return (touched,)
    return tuple(kind for kind in kinds if kind not in (CONTRACT, QUALITY))


def _edited(edits: Any) -> set[str]:
    listed = edits if isinstance(edits, list | tuple) else ()
    return {str(edit.get("flag") or edit.get("env") or "") for edit in listed if isinstance(edit, dict)}


def _explained(kind: str, state: ChangeState, playbook: CompiledPlaybook, rules: ApprovalRules) -> str:
    risk = rules.risk_of(kind, state.change, state.risk or "low")
    teams = TEAMS["drain_others"] if kind == "drain_node" else TEAMS.get(kind, ())
    policy = rules.policy(risk, (*teams, *state.approvers), kind=kind, critical=True)
    seconds = policy.expires_seconds
    if state.expires:
        seconds = min(seconds, playbook.seconds(state.expires))
    return f"{explained(policy, risk)}; {seconds / 60:g} min"


def explained(policy: Policy, risk: Risk) -> str:
    """`high risk: 1 of serving (S0SERVING) and 1 of lead (U0LEA), not the asker alone; …`."""
    parts = [f"{risk} risk: {' and '.join(map(_demand, policy.demands))}"]
    if policy.single_operator:
        parts.append("one person may meet all of it")
    elif not policy.own_work_counts:
        parts.append("not whoever asked for or edited it alone")
    if policy.escalate_to:
        parts.append(f"at half time {policy.escalate_to.team} is asked too")
    if policy.break_glass:
        parts.append(f"when critical, 1 of {policy.break_glass.team} may then break the glass")
    return "; ".join(parts)


def _demand(demand: Demand) -> str:
    named = [name for source in demand.sources for name in (*source.users, source.user_group, source.channel) if name]
    by = ", ".join(dict.fromkeys(named)) or "nobody"
    instead = ": the approvers stand in" if demand.stands_in else ""
    return (
        f"{demand.needed} of {by}" if demand.team == APPROVERS else f"{demand.needed} of {demand.team} ({by}{instead})"
    )
