"""A recommendation: the first possible option becomes a request with its plan; the others are offered beside it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from bot.domain.approvals.grant import Alternative
from bot.domain.incidents.machine import entering, questions
from bot.domain.incidents.machine.draft import Draft
from bot.domain.incidents.machine.ledger import with_earlier_undo
from bot.domain.incidents.named_values import ScopeValues
from bot.domain.incidents.run import News, Run
from bot.domain.playbooks.expressions.expression import Unknown
from bot.domain.playbooks.expressions.template import NOT_KNOWN
from bot.domain.playbooks.language import ChangeState, Option, RecommendState, State, question_without_options

NOT_NOW = "not possible now"
NOTHING_YET = "Changes nothing yet."
NOTHING_TO_UNDO = "the bot has changed nothing that could be taken back"

MOST_REASONS = 4
"""How many options that are not possible a message explains."""


def recommend(draft: Draft, state: RecommendState) -> None:
    """Propose the first option that is possible and was not tried; without one, leave by `none_possible`."""
    name = draft.run.visit.state
    options = _options(draft, name, state)
    left = [
        each.key
        for each in options
        if not each.why_not and state.options[each.key].is_change
        and _may_be_recommended(draft, state, state.options[each.key], each.label)
    ]  # fmt: skip
    draft.learn(options=draft.run.findings.options | {name: options})
    if not left:
        _explain_why_none(draft, options, state)
        because = f"no option is left: {_what_became(options, state)}"
        draft.looked(because)
        return entering.go(draft, "none_possible", because=because)
    because = f"recommended of {len(options)} options: {_label(options, left[0])}"
    return entering.go(draft, f"option:{left[0]}", because=because)


def _explain_why_none(draft: Draft, options: tuple[Alternative, ...], state: RecommendState) -> None:
    """Where people are asked what is left, or get another recommendation, say why it is none of these changes.

    A playbook's own question has its own words.
    """
    is_asked = state.none_possible == question_without_options(draft.run.visit.state)
    if not is_asked and not isinstance(draft.playbook.playbook.states.get(state.none_possible), RecommendState):
        return
    why = [f"{each.label}: {each.why_not}" for each in options if each.why_not and state.options[each.key].is_change]
    if why:
        more = f"; and {len(why) - MOST_REASONS} more on the timeline" if len(why) > MOST_REASONS else ""
        title = draft.playbook.called(draft.run.visit.state)
        news = News(title=title, result="none_possible", text="; ".join(why[:MOST_REASONS]) + more, at=draft.at)
        draft.set(news=(*draft.run.news, news))


def _what_became(options: tuple[Alternative, ...], state: RecommendState) -> str:
    """Why each option is not recommended."""
    tried = {key for key, option in state.options.items() if option.is_change}
    return "; ".join(
        f"{each.label}: {each.why_not or ('tried' if each.key in tried else 'for people')}" for each in options
    )


def _label(options: tuple[Alternative, ...], key: str) -> str:
    return next(each.label for each in options if each.key == key)


def _options(draft: Draft, name: str, state: RecommendState) -> tuple[Alternative, ...]:
    found = []
    for key, verdict in draft.playbook.options(name, ScopeValues(draft.run, draft.run.visit.readings)).items():
        why_not = ""
        if isinstance(verdict, Unknown) and not _was_not_answered(verdict):
            why_not = draft.playbook.in_words(verdict)
        elif verdict is not True:
            why_not = draft.text(f"{key}.why_not") or NOT_NOW
        elif not draft.run.held and _is_undo(draft, state.options[key]):
            why_not = NOTHING_TO_UNDO
        label = draft.text(f"{key}.label")
        effect = draft.text(f"{key}.effect")
        if not effect and not state.options[key].is_change:
            effect = questions.leads_to(draft, state.options[key].to) or NOTHING_YET
        if why_not:
            # A value that would not be used may be missing.
            label = label.replace(NOT_KNOWN, "…")
        else:
            effect = with_earlier_undo(effect, draft.run, draft.playbook.playbook.states.get(state.options[key].to))
        found.append(Alternative(key=key, label=label, effect=effect, why_not=why_not))
    return tuple(found)


def _was_not_answered(verdict: Unknown) -> bool:
    """Whether only people's answers are missing: what they did not choose is not possible, rather than not known."""
    return bool(verdict.missing) and all(name.startswith(("answers.", "forms.")) for name in verdict.missing)


def _is_undo(draft: Draft, option: Option) -> bool:
    to = draft.playbook.playbook.states.get(option.to)
    return isinstance(to, ChangeState) and to.change == "undo"


def _may_be_recommended(draft: Draft, state: RecommendState, option: Option, label: str) -> bool:
    """Even what may repeat is not recommended if it cannot be planned, was just refused, or had these values before."""
    if option.to in draft.run.findings.impossible:
        return False
    if not option.repeat:
        return not _was_tried(draft, option.to)
    return not (_was_just_refused(draft, state, option.to) or _was_on_a_canary(draft, option, label))


def _was_on_a_canary(draft: Draft, option: Option, label: str) -> bool:
    """Whether a canary of this incident had the same values, if the label names any: another one shows nothing new."""
    requests = (each for each in draft.run.requests.values() if each.state == option.to and each.outcome == "done")
    return "${" in option.label and any(each.plan.verb == "canary" and each.option == label for each in requests)


def _was_just_refused(draft: Draft, state: RecommendState, change: str) -> bool:
    """Whether its last request was refused or expired, and the run has only been in this recommendation since then."""
    requests = [each for each in draft.run.requests.values() if each.state == change]
    if not requests or requests[-1].status not in ("refused", "expired"):
        return False
    here = {draft.run.visit.state, *(option.to for option in state.options.values() if option.is_change)}
    since = itertools.takewhile(lambda name: name in here, reversed(draft.run.findings.path))
    return change in since


def _was_tried(draft: Draft, state: str) -> bool:
    """Whether the option was entered and was neither withdrawn nor replaced by another one."""
    if state not in draft.run.findings.path:
        return False
    requests = [each for each in draft.run.requests.values() if each.state == state]
    return not requests or any(each.status not in ("superseded", "withdrawn") for each in requests)


def alternatives(run: Run, state: ChangeState, states: Mapping[str, State]) -> tuple[Alternative, ...]:
    """Returns the other options of the recommendation that this change belongs to, without those of the same plan."""
    options = run.findings.options.get(state.option_of, ())
    leads_to = {key: states[to] for key, to in state.alternatives.items()}
    return tuple(each for each in options if each.key in leads_to and not _is_the_same(leads_to[each.key], state))


def _is_the_same(other: State, state: ChangeState) -> bool:
    return isinstance(other, ChangeState) and (other.change, other.with_) == (state.change, state.with_)
