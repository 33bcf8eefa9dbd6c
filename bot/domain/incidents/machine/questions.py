"""Questions to people: those that a playbook defines, and the built-in ones for outcomes that it leaves open."""

from __future__ import annotations

from collections.abc import Iterable

from bot.domain.approvals.contacts import Contact
from bot.domain.changes.catalogue import VERBS
from bot.domain.incidents.effect import ReadSeries
from bot.domain.incidents.machine import calling, residual
from bot.domain.incidents.machine.conclusion import ending_at
from bot.domain.incidents.machine.draft import Draft
from bot.domain.incidents.machine.ledger import held_of, with_earlier_undo
from bot.domain.incidents.run import Question, Run
from bot.domain.kernel.durations import lasting
from bot.domain.playbooks.edges import edges_of
from bot.domain.playbooks.language import (
    AskState,
    ChangeState,
    Choice,
    DivertState,
    EndState,
    RecommendState,
    WatchState,
)
from bot.domain.playbooks.text_sizes import LABEL
from bot.domain.signals.signal import Reading, in_words, unit_beside
from bot.domain.signals.window import STALE_SECONDS, clock

GO_ON = "go_on"
KEEP = "keep"
"""The choice offered only by the question about residual changes."""
STAY = "stay"
"""The choice of that question not to close the incident, where a person wanted to."""
TAKEN_AND_CLOSED = "The incident closes here, and its alerts are yours."
FIRING = 4
"""How many alerts a question names."""
TRIED = 4


def draw_for_the_first(draft: Draft) -> None:
    """Show the path to the question before its first occurrence."""
    if not any(post.kind in ("question", "request") for post in draft.run.posts):
        draft.want(ReadSeries(effect_id="series/first"))


def ask(draft: Draft, question: Question, *, expires_seconds: float | None = None, team: Contact | None = None) -> None:
    """Ask people a question; the run waits for the answer. It mentions this team, else who is on call."""
    if expires_seconds is not None:
        question = question.model_copy(update={"expires_at": draft.at + expires_seconds})
    waits_seconds = draft.rules.parks_after_seconds if expires_seconds is None else expires_seconds
    ends = "unanswered" if expires_seconds is None else "expiry"
    draft.set_deadline(f"{question.slot}:{ends}", draft.at + waits_seconds)
    draft.set_deadline(f"{question.slot}:half", draft.at + waits_seconds / 2)
    draft.keep_question(question)
    draft.set(question=question.question_id)
    draw_for_the_first(draft)
    draft.post("question", question.slot, question.question_id, calling.mentioned(draft, team))
    draft.record(
        "question" if question.built_in else "asked",
        question.text,
        data={"id": question.question_id, "choices": question.choices},
    )


def ask_written(draft: Draft, state: AskState) -> None:
    choices = {key: choice.label for key, choice in state.choices.items()}
    question = Question(
        question_id=f"Q{draft.number()}",
        state=draft.run.visit.state,
        visit=draft.run.visit.number,
        text=draft.text("ask"),
        why=draft.text("why"),
        choices=choices,
        notes={key: note for key, choice in state.choices.items() if (note := _note(draft, state, choice))},
        styles={key: choice.style for key, choice in state.choices.items() if choice.style},
        forms={key: choice.form for key, choice in state.choices.items() if choice.form},
        by=draft.approvals.one_of(state.by) if state.by else None,
        not_by=draft.run.findings.answered_by.get(state.not_by, ""),
        evidence=(*evidence(draft, draft.playbook.needs(draft.run.visit.state)), *_tried(draft)),
        asked_at=draft.at,
    )
    # Where the settings name nobody for the team, approvers answer, and who is on call is mentioned.
    is_configured = state.by and draft.rules.contacts.team(state.by, draft.run.target) is not None
    team = calling.called(draft, state.by) if is_configured else None
    expires = draft.playbook.seconds(state.expires) if state.expires else None
    ask(draft, question, expires_seconds=expires, team=team)


def _note(draft: Draft, state: AskState, choice: Choice) -> str:
    own = choice.note or leads_to(draft, choice.to, by=state.by)
    return with_earlier_undo(own, draft.run, draft.playbook.playbook.states.get(choice.to))


def _tried(draft: Draft) -> tuple[str, ...]:
    """Returns the last changes that people decided about, oldest first, to choose again without scrolling."""
    decided = [request for request in draft.run.requests.values() if request.status not in ("open", "superseded")]
    tried = (f"{one.request_id} {one.plan.title}: {one.outcome or one.status_text}" for one in decided[-TRIED:])
    return tuple(f"tried: {line}" for line in tried)


def ask_to_take_over(draft: Draft, state: DivertState) -> None:
    question = Question(
        question_id=f"Q{draft.number()}",
        state=draft.run.visit.state,
        visit=draft.run.visit.number,
        text=f"This needs people{f' ({state.to_group})' if state.to_group else ''}: {state.why}",
        why=calling.call(draft, state.to_group, state.why) if state.to_group else "",
        choices={"taken": "I will take it"},
        notes={"taken": TAKEN_AND_CLOSED} if _ends_when_taken(draft, state) else {},
        styles={"taken": "primary"},
        evidence=evidence(draft, tuple(draft.run.visit.readings)),
        asked_at=draft.at,
    )
    team = calling.called(draft, state.to_group) if state.to_group else None
    expires = draft.playbook.seconds(state.expires) if state.expires else None
    ask(draft, question, expires_seconds=expires, team=team)


def leads_to(draft: Draft, to: str, *, by: str = "") -> str:
    """What it means to choose this state, as its kind says it; empty where the next reading or question decides.

    `by`: the team that is asked; another team does not have the incident by its answer.
    """
    state = draft.playbook.playbook.states.get(to)
    match state:
        case ChangeState() if VERBS[state.change].cleans_up:
            # It is announced, unless something warns of it or the settings ask for an approval.
            return f"Cleans up: {draft.playbook.called(to)}."
        case ChangeState():
            # Where it is not needed, another change may follow, so its title may not be what is proposed.
            may_be_another = isinstance(draft.playbook.playbook.states.get(state.not_needed), ChangeState)
            return "Proposes a change." if may_be_another else f"Proposes a change: {draft.playbook.called(to)}."
        case RecommendState():
            return "Proposes a change, if one is possible."
        case WatchState():
            return f"Changes nothing; watches for up to {lasting(draft.playbook.seconds(state.within))}."
        case EndState() if not draft.run.frames and not draft.run.to_do:
            return f"Ends the incident: {draft.run.end_called(ending_at(draft.run, state))}."
        case DivertState(divert="people", to_group=group) if group:
            return f"Calls {group}; changes nothing."
        case DivertState(divert="people"):
            return TAKEN_AND_CLOSED if not by and _ends_when_taken(draft, state) else ""
        case DivertState() if state.divert in draft.bundle.playbooks:
            return f"Changes nothing; goes on with “{draft.bundle.playbooks[state.divert].playbook.title}”."
        case _:
            return ""


def _ends_when_taken(draft: Draft, state: DivertState) -> bool:
    """Whether the incident is over once a person has taken it: then this question is its last message but one."""
    return isinstance(draft.playbook.playbook.states.get(state.taken or ""), EndState) and not draft.run.frames


def ask_what_next(draft: Draft, why: str, *, unread: tuple[str, ...] = (), undo_refused: bool = False) -> None:
    """Ask the built-in question for an outcome that the playbook leaves open.

    `unread`: earlier states that did not read what is needed here; only reading them again can help.
    `undo_refused`: the change stays as it is, so none of the state's exits has come about.
    """
    state = draft.playbook.state(draft.run.visit.state)
    is_at_end = isinstance(state, EndState)
    again = "Go on" if undo_refused else "Try again"
    choices = (
        {} if is_at_end or unread else {"again": _label(f"{again}: {draft.playbook.called(draft.run.visit.state)}")}
    )
    choices |= {f"goto:{name}": _label(f"Read again: {draft.playbook.called(name)}") for name in unread}
    # That a watch held is for its samples to say; a person who knows better may skip it, with a reason.
    claims = ("held",) if isinstance(state, WatchState) else ()
    edges = () if undo_refused else edges_of(state)
    exits = [*dict.fromkeys(edge.to for edge in edges if edge.outcome not in claims)][:4]
    choices |= {f"goto:{name}": _label(f"Continue: {draft.playbook.called(name)}") for name in exits}
    asked = why if why.endswith("?") else f"{why.removesuffix('.')}. What now?"
    _ask_built_in(draft, asked, choices | _choices_to_leave(draft))


def _label(text: str) -> str:
    return text if len(text) <= LABEL else f"{text[: LABEL - 1].rstrip()}…"


def _choices_to_leave(draft: Draft) -> dict[str, str]:
    """Returns the choices that lead away from this path of the playbook."""
    # The undo is named: it is not always the change that was last discussed.
    undo = {"undo": _label(f"Undo “{draft.run.held[-1].title}”")} if draft.run.held else {}
    offers = {f"divert:{offer.playbook}": f"Switch to '{offer.title}'" for offer in draft.run.offers.values()}
    return undo | offers | {"hand_over": "Hand over to me", "close": "Close the incident"}


def ask_after_undo(draft: Draft, recommended_by: Iterable[str]) -> None:
    """Ask what follows the undo of changes that these states recommended.

    What would come next here may rest on what was undone: only the choice itself is offered again.
    """
    why = "The undo is done. What next?"
    choices = {f"goto:{name}": _label(f"Recommend again: {draft.playbook.called(name)}") for name in recommended_by}
    if not choices:
        ask_what_next(draft, why)
        return
    _ask_built_in(draft, why, choices | _choices_to_leave(draft))


def ask_about_residual_changes(draft: Draft, *, because: str = "") -> None:
    """Ask about residual changes and their undo. A held rollout is named by the call that holds it.

    `because`: a sentence about who closes the incident, and why.
    """
    left, still = residual.residual_changes(draft.run), residual.still_rollouts(draft.run)
    titles = [entry.title for entry in left if entry.verb in residual.LEFTOVER_VERBS]
    titles += [f"a rollout of {entry.target} half-way (last: {entry.title})" for entry in still]
    choices = {"undo": "Take it back"} if any(entry.undo for entry in left) else {}
    kept = {KEEP: "Keep it: I own it from here"}
    # A node was taken out of use for a fault that a closed incident does not end.
    is_of_nodes = residual.is_only_of_nodes(left)
    choices = kept | choices if is_of_nodes else choices | kept
    asked = "Keep it, or take it back?" if "undo" in choices else "The bot cannot take it back. Do you keep it?"
    if is_of_nodes and "undo" in choices:
        asked = "Keep it, or take it back, so that pods start there again?"
    fires = f" Still firing: {', '.join(draft.run.firing[:FIRING])}." if draft.run.firing else ""
    if because and not isinstance(draft.playbook.state(draft.run.visit.state), EndState):
        choices[STAY] = "Do not close it"
    there = f"Still in place: {', '.join(titles)}."
    _ask_built_in(draft, f"{because}{there}{fires} {asked} Then the incident closes.", choices)


def asks_what_stays(question: Question) -> bool:
    """Whether it is the question about residual changes. A playbook may also name one of its choices `keep`."""
    return question.built_in and KEEP in question.choices


def ask_whether_to_go_on(draft: Draft, why: str, meanwhile: str) -> None:
    """Ask whether to continue a change that stopped between two steps; the same grant still covers it."""
    choices = {GO_ON: "Continue the change"}
    if draft.run.change is not None and held_of(draft.run, draft.run.change.request_id):
        choices["undo"] = "Take it back"
    choices |= {"hand_over": "Leave it as it is: hand over to me"}
    _ask_built_in(draft, f"{why}.{' ' if meanwhile else ''}{meanwhile}", choices)


def _ask_built_in(draft: Draft, text: str, choices: dict[str, str]) -> None:
    question = Question(
        question_id=f"Q{draft.number()}",
        state=draft.run.visit.state,
        visit=draft.run.visit.number,
        built_in=True,
        text=text,
        choices=choices,
        styles={"close": "danger"},
        evidence=evidence(draft, tuple(draft.run.visit.readings)),
        asked_at=draft.at,
    )
    ask(draft, question)


def is_taken(run: Run, question: Question) -> bool:
    """Whether a person has the incident by the answer before: nobody else is called because that person waits."""
    before = [each for each in run.questions.values() if each.question_id != question.question_id]
    return question.built_in and bool(before) and before[-1].built_in and before[-1].answer == "hand_over"


def evidence(draft: Draft, names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns one plain line per reading; unknown ones include the reason."""
    return tuple(line for name in names if (line := _evidence_line(draft, name)))


def _evidence_line(draft: Draft, name: str) -> str:
    reading = draft.run.visit.readings.get(name) or draft.run.latest.get(name)
    if reading is None:
        return ""
    is_old = 0 < reading.at < draft.at - STALE_SECONDS
    return f"{reading.called}: {_evidence_of(draft, reading)}" + (
        f" (at {clock(reading.at, draft.at)} UTC)" if is_old else ""
    )


def _evidence_of(draft: Draft, reading: Reading) -> str:
    if not reading.is_known:
        return f"unknown ({reading.unknown})"
    if reading.sentence:
        return reading.sentence
    if reading.fields:
        parts = [(name, value) for name, value in reading.fields.items() if value != ""]
        unit_of = draft.playbook.unit_of_part
        return ", ".join(f"{n.replace('_', ' ')} {in_words(v, unit_of(f'{reading.name}.{n}'))}" for n, v in parts)
    return in_words(reading.value, unit_beside(reading.called, reading.unit))
