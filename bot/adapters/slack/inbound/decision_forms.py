"""The forms behind the buttons of a request or question: reasons, edited values, and answers with fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from bot.adapters.slack.escape import line, mention
from bot.adapters.slack.inbound import forms
from bot.adapters.slack.inbound.forms import Modal
from bot.adapters.slack.outbound.blocks import context, section
from bot.adapters.slack.outbound.messages import CLOSE_IT, closes_it
from bot.adapters.slack.outbound.request_message import approve_label, called, consequence, covered, impact_word
from bot.adapters.slack.press_value import APPROVE_WITH_REASON, BREAK_GLASS, DO_ELSE, REFUSE, ButtonValue
from bot.domain.approvals.edits import EditableValue
from bot.domain.approvals.grant import Request
from bot.domain.changes.catalogue import VERBS
from bot.domain.incidents.machine.questions import TAKEN_AND_CLOSED
from bot.domain.incidents.run import Run
from bot.domain.kernel.form import Answer, Form, FormField
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.language import ChangeState, DivertState, EndState, RecommendState

REASON = "reason"
REASON_CHARACTERS = 500
VALUE_CHARACTERS = 40
EDIT_FORM, ANSWER_FORM, CLOSE_FORM = "edit", "answer", "close"


@dataclass(frozen=True)
class ReasonForm:
    """A form with one field, opened by the button of the same id. `action` is the press that the reason belongs to."""

    callback_id: str
    action: Literal["approve", "refuse", "break_glass", "carried_out"]
    title: str
    submit: str
    label: str
    hint: str = "It is recorded on the timeline and shown with the request."
    is_optional: bool = False


REFUSE_FORM = ReasonForm(REFUSE, "refuse", "Refuse this request", "Refuse", "Reason", is_optional=True)
APPROVE_FORM = ReasonForm(APPROVE_WITH_REASON, "approve", "Approve", "Approve", "Reason")
GLASS_FORM = ReasonForm(
    BREAK_GLASS,
    "break_glass",
    "Break the glass",
    "Approve alone",
    "Why can this not wait for the others?",
    hint="For this change only. Every team that was asked sees it, with your name.",
)
ELSE_FORM = ReasonForm(DO_ELSE, "carried_out", "Do something else", "Record", "What are you doing?")
REASON_FORMS = (REFUSE_FORM, APPROVE_FORM, GLASS_FORM, ELSE_FORM)


def reason_form(
    form: ReasonForm,
    run: Run | None,
    value: ButtonValue,
    kept: Mapping[str, str],
    playbook: CompiledPlaybook | None = None,
) -> Modal:
    """What is decided, and its impact and undo or what a refusal leads to, above the field for the reason."""
    request = run.requests.get(value.about) if run is not None else None
    title, submit, about = form.title, form.submit, [f"*{value.incident_id}*"]
    if run is not None and request is not None:
        about = [f"*{value.incident_id}: {line(called(run, request), 300)}*"]
        if form.action in ("approve", "break_glass"):
            impact, undo = consequence(request)
            word = impact_word(request)
            about += [f"*{word}:* {line(impact, 500)}", f"*Undo:* {line(undo, 300)}"]
            about += covered(request)
        if form.action == "refuse" and playbook is not None:
            about.append(
                f"If you refuse, this is not done, and the bot {line(_after_refusal(run, request, playbook), 300)}."
            )
            has_others = any(not each.why_not for each in request.alternatives)
            about += ["For another option, use *Other options…* on its message."] if has_others else []
        if form.action == "approve":
            title = submit = approve_label(request)
    field = FormField(label=form.label, why=form.hint, max_length=REASON_CHARACTERS, optional=form.is_optional)
    return Modal(form.callback_id, title, submit, [*section(about), *forms.inputs({REASON: field})], kept)


def _after_refusal(run: Run, request: Request, playbook: CompiledPlaybook) -> str:
    """What the bot does next, by the exit that the playbook has for a refusal."""
    states = playbook.playbook.states
    asked = None if run.is_undoing else states.get(request.state)
    to = asked.refused if isinstance(asked, ChangeState) else ""
    match states.get(to):
        case ChangeState() as following:
            does = "cleans up" if VERBS[following.change].cleans_up else "proposes"
            return f"{does}: {playbook.called(to)}"
        case RecommendState():
            return "proposes another option, if one is possible, or asks what to do"
        case EndState():
            return "closes the incident"
        case DivertState(divert="people"):
            return "asks who takes over"
        case None:
            return "asks what to do next"
        case _:
            return f"goes on with: {playbook.called(to).removesuffix('?')}"


def closes_the_incident(run: Run, about: str, choice: str) -> bool:
    """Whether this choice of a question, or other option of a request, ends the incident."""
    if (question := run.questions.get(about)) is not None:
        return question.notes.get(choice) == TAKEN_AND_CLOSED
    request = run.requests.get(about)
    options = request.alternatives if request is not None else ()
    return any(each.key == choice and each.effect == TAKEN_AND_CLOSED for each in options)


def close_form(run: Run, click_kept: Mapping[str, str], user: str) -> Modal:
    """Asks before a choice from a menu closes the incident: there a slip of the hand is easy."""
    leads = f"{mention(run.lead)} leads now; then you do." if run.lead and run.lead != user else "You lead it then."
    lines = [f"*{line(run.incident_id, 40)}: {line(run.called, 200)}*", closes_it(run), leads]
    return Modal(CLOSE_FORM, CLOSE_IT, "Close it", section(lines), click_kept)


def edit_form(value: ButtonValue, values: Sequence[EditableValue], kept: Mapping[str, str]) -> Modal:
    """One field for each number, with its range."""
    note = "This approves nothing: the bot plans the new values, and asks again."
    form = {str(place): _value_field(each) for place, each in enumerate(values)}
    filled = {str(place): each.now for place, each in enumerate(values)}
    blocks = [*forms.inputs(form, filled=filled), *context([note])]
    return Modal(EDIT_FORM, f"Edit {value.incident_id}", "Update plan", blocks, kept)


def _value_field(value: EditableValue) -> FormField:
    why = f"{value.range_text[:1].upper()}{value.range_text[1:]}. Proposed: {value.now}."
    return FormField(label=value.name, why=why, max_length=VALUE_CHARACTERS)


def written_values(fields: Mapping[str, Answer], values: Sequence[EditableValue]) -> dict[str, str]:
    """The answers of `edit_form`, by the values' names."""
    return {each.name: str(fields.get(str(place), "")) for place, each in enumerate(values)}


def answer_form(value: ButtonValue, form: Form, kept: Mapping[str, str]) -> Modal:
    return Modal(ANSWER_FORM, f"Answer for {value.incident_id}", "Answer", forms.inputs(form), kept)
