"""Who can approve what: the resulting policy of each change of each playbook, as `doctor --approvals` shows it.

The kind of a change is known only from its plan, so each possible kind is listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from bot.domain.approvals.grant import APPROVERS, Demand, Policy
from bot.domain.approvals.kinds import (
    CONTRACT,
    KINDS,
    OR,
    PULL_REQUEST,
    QUALITY,
    SILENCE,
    VERB_OF_KIND,
    kind_of_edits,
    kinds_of_verb,
)
from bot.domain.approvals.rules import ApprovalRules
from bot.domain.changes.catalogue import VERBS
from bot.domain.changes.plan import Risk
from bot.domain.changes.verbs.scale import LAST_ACCELERATOR_TEAMS
from bot.domain.kernel.finding import Finding, fine
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.language import ChangeState

ABOUT = "approvals"


def in_short(rules: ApprovalRules) -> Finding:
    return fine(ABOUT, f"{_in_general(rules)}; `incident-bot doctor --approvals` lists who approves each change")


def who_approves(playbooks: Iterable[CompiledPlaybook], rules: ApprovalRules) -> list[Finding]:
    """One line for each policy of each kind of change, with the playbooks that propose it."""
    playbooks = tuple(playbooks)
    lines = [_in_general(rules), *_of_targets(rules), *_decided_alone(rules), *_lines(playbooks, rules)]
    return [fine(ABOUT, line) for line in lines]


def _of_targets(rules: ApprovalRules) -> Iterator[str]:
    """The targets that have approvers of their own, and what these approve; elsewhere the other lines hold."""
    for pattern, own in rules.of_targets:
        policies = {kind: own.policy(own.risk_of(kind, VERB_OF_KIND.get(kind, kind)), kind=kind) for kind in KINDS}
        theirs = [kind for kind, policy in policies.items() if policy.approvers_of]
        levels = (own.low, own.medium, own.high)
        people = dict.fromkeys(_people(each) for level in levels for each in level.demands if each.of_target)
        kinds = "no kind of change" if not theirs else "every kind" if len(theirs) == len(KINDS) else ", ".join(theirs)
        yield f"{pattern}: {' or '.join(people)} in place of the approvers, for {kinds}"


def _in_general(rules: ApprovalRules) -> str:
    above, leads = rules.teams.get(rules.escalate_to), rules.teams.get(rules.break_glass)
    asked = f"and {_people(above)} " if above else ""
    glass = f"one of {_people(leads)} may then decide alone, with a reason" if leads else "nobody may break it"
    enough = f"two people approve {', '.join(rules.four_eyes)}" if rules.four_eyes else "one approver is enough"
    once = "; a canary's approval covers its rollout" if rules.plan_once else ""
    before = f"; pre-approved: {', '.join(map(str, rules.pre_approved))}" if rules.pre_approved else ""
    half = f"at half time those who have not approved {asked}are asked again"
    return f"{enough}{once}{before}; {half}; glass (critical incidents): {glass}"


def _decided_alone(rules: ApprovalRules) -> Iterator[str]:
    """What one person decides: where the settings require two, nobody can from Slack."""
    for kind, named in ((SILENCE, "/incident silence"), (PULL_REQUEST, "pull request")):
        policy = rules.of_kind(kind)
        never = "" if policy.needed == 1 else "; needs two people, so never from Slack"
        yield f"{named}: {explained(policy, rules.risk_of(kind, kind))}{never}"


def teams_asked(rules: ApprovalRules) -> set[str]:
    """Every team that a kind of change, the escalation or the glass requires."""
    asked = {name for asked in rules.kinds.values() for share in asked.shares for name in share.team.split(OR)}
    asked |= (
        {team for verb in VERBS.values() for team in verb.teams}
        | {*LAST_ACCELERATOR_TEAMS}
        | {rules.escalate_to, rules.break_glass}
    )
    return asked - {"", APPROVERS}


def _lines(playbooks: Iterable[CompiledPlaybook], rules: ApprovalRules) -> Iterator[str]:
    """Where a playbook has several policies for one kind, its changes are named by their titles too."""
    kinds: dict[str, dict[str, dict[str, list[str]]]] = {}
    for playbook in playbooks:
        changes = ((name, one) for name, one in playbook.playbook.states.items() if isinstance(one, ChangeState))
        for name, state in changes:
            for kind in kinds_of(state):
                text = _explained(kind, state, playbook, rules)
                kinds.setdefault(kind, {}).setdefault(text, {}).setdefault(playbook.name, []).append(
                    playbook.called(name)
                )
    for kind, policies in kinds.items():
        for text, found in policies.items():
            named = [
                f"{name}: {', '.join(f'“{title}”' for title in dict.fromkeys(titles))}"
                if sum(name in each for each in policies.values()) > 1
                else name
                for name, titles in found.items()
            ]
            where = ", ".join(named) if named == list(found) else "; ".join(named)
            yield f"{kind} ({where}): {text}"


def kinds_of(state: ChangeState) -> tuple[str, ...]:
    """The possible kinds of the change, as far as the playbook determines them."""
    kinds = kinds_of_verb(state.change)
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
    edits = [edit for edit in listed if isinstance(edit, dict)]
    return {str(name) for edit in edits for name in edit.get("first_of") or [edit.get("flag") or edit.get("env") or ""]}


def _explained(kind: str, state: ChangeState, playbook: CompiledPlaybook, rules: ApprovalRules) -> str:
    risk = rules.risk_of(kind, state.change, state.risk or "low")
    teams = VERBS[state.change].teams
    policy = rules.policy(risk, (*teams, *state.approvers), kind=kind, verb=state.change, critical=True)
    seconds = policy.expires_seconds
    if state.expires:
        seconds = min(seconds, playbook.seconds(state.expires))
    text = f"{explained(policy, risk)}; {seconds / 60:g} min"
    if state.change == "scale" and not _is_fewer(state.with_.get("by")):
        last = rules.policy(risk, (*LAST_ACCELERATOR_TEAMS, *state.approvers), kind=kind, verb=state.change)
        text += f"; if no accelerator stays free: {' and '.join(map(_demand, last.demands))}"
    return text


def _is_fewer(by: Any) -> bool:
    return isinstance(by, int | float) and by < 0


def explained(policy: Policy, risk: Risk) -> str:
    """`high risk: 1 of serving (S0SERVING) and 1 of lead (U0LEA), with a reason in words; glass`."""
    text = f"{risk} risk: {' and '.join(map(_demand, policy.demands))}"
    if policy.needs_reason:
        text += ", with a reason in words"
    return f"{text}; glass" if policy.break_glass else text


def _demand(demand: Demand) -> str:
    instead = ": the approvers decide instead" if demand.falls_back else ""
    of = _people(demand) if demand.team == APPROVERS else f"{demand.team} ({_people(demand)}{instead})"
    return f"{demand.needed} of {of}"


def _people(demand: Demand) -> str:
    named = [name for source in demand.sources for name in (*source.users, source.user_group, source.channel) if name]
    return ", ".join(dict.fromkeys(named)) or "nobody"
