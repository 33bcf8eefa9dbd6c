"""The forms behind the buttons of a request or question: reasons, edited values, and answers with fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from bot.adapters.slack.inbound import forms
from bot.adapters.slack.inbound.forms import Modal
from bot.adapters.slack.outbound.blocks import context
from bot.adapters.slack.press_value import APPROVE_WITH_REASON, BREAK_GLASS, DO_ELSE, REFUSE, ButtonValue
from bot.domain.approvals.edits import EditableValue
from bot.domain.kernel.form import Answer, Form, FormField

REASON = "reason"
REASON_CHARACTERS = 500
VALUE_CHARACTERS = 40
EDIT_FORM, ANSWER_FORM = "edit", "answer"
BACK = "Back"


@dataclass(frozen=True)
class ReasonForm:
    """A form with one field, opened by the button of the same id. `action` is the press that the reason belongs to."""

    callback_id: str
    action: Literal["approve", "refuse", "break_glass", "carried_out"]
    title: str
    submit: str
    label: str
    hint: str = "It goes on the timeline and is shown with the request."
    is_optional: bool = False


REFUSE_FORM = ReasonForm(REFUSE, "refuse", "Refuse", "Refuse", "Why not?", is_optional=True)
APPROVE_FORM = ReasonForm(APPROVE_WITH_REASON, "approve", "Approve", "Approve", "Why now?")
GLASS_FORM = ReasonForm(
    BREAK_GLASS,
    "break_glass",
    "Break the glass for",
    "Approve alone",
    "Why can this not wait for the others?",
    hint="For this change only. Every team that was asked sees it, with your name.",
)
ELSE_FORM = ReasonForm(DO_ELSE, "carried_out", "Instead of", "Record", "What do you do?")
REASON_FORMS = (REFUSE_FORM, APPROVE_FORM, GLASS_FORM, ELSE_FORM)


def reason_form(form: ReasonForm, value: ButtonValue, kept: Mapping[str, str]) -> Modal:
    label = f"{form.label} ({value.incident_id})"
    field = FormField(label=label, why=form.hint, max_length=REASON_CHARACTERS, optional=form.is_optional)
    title = f"{form.title} {value.about}"
    return Modal(form.callback_id, title, form.submit, forms.inputs({REASON: field}), kept, BACK)


def edit_form(value: ButtonValue, values: Sequence[EditableValue], kept: Mapping[str, str]) -> Modal:
    """One field for each number, with its range."""
    note = "This approves nothing. The new values are planned and shown as a separate request."
    form = {str(place): _value_field(each) for place, each in enumerate(values)}
    filled = {str(place): each.now for place, each in enumerate(values)}
    blocks = [*forms.inputs(form, filled=filled), *context([note])]
    return Modal(EDIT_FORM, f"Edit {value.about}", "Plan again", blocks, kept, BACK)


def _value_field(value: EditableValue) -> FormField:
    why = f"{value.range_text}; the request says {value.now}"
    return FormField(label=value.name, why=why, max_length=VALUE_CHARACTERS)


def written_values(fields: Mapping[str, Answer], values: Sequence[EditableValue]) -> dict[str, str]:
    """The answers of `edit_form`, by the values' names."""
    return {each.name: str(fields.get(str(place), "")) for place, each in enumerate(values)}


def answer_form(value: ButtonValue, form: Form, kept: Mapping[str, str]) -> Modal:
    return Modal(ANSWER_FORM, f"Answer {value.about}", "Answer", forms.inputs(form), kept, BACK)
