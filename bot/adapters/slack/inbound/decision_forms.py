"""The forms behind a request's buttons: why not, why alone, and other values. Opening one decides nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.adapters.slack.inbound.forms import Modal
from bot.adapters.slack.limits import INPUT_LABEL, Block
from bot.adapters.slack.outbound.blocks import context, plain_text
from bot.adapters.slack.press_value import ButtonValue
from bot.domain.approvals.edits import EditableValue

Json = dict[str, Any]
REASON = "reason"
REASON_CHARACTERS = 500
VALUE_CHARACTERS = 40


@dataclass(frozen=True)
class ReasonForm:
    """A form with one field: what it is called, and whether the reason may be left out."""

    callback_id: str
    title: str
    submit: str
    label: str
    hint: str
    is_optional: bool


REFUSE_FORM = ReasonForm(
    callback_id="refuse",
    title="Refuse",
    submit="Refuse",
    label="Why not?",
    hint="It goes on the timeline and is shown with the request.",
    is_optional=True,
)
AGAIN_FORM = ReasonForm(
    callback_id="approve_again",
    title="Approve",
    submit="Approve",
    label="What is new since it was asked for last?",
    hint="It goes on the timeline and is shown with the request.",
    is_optional=False,
)
GLASS_FORM = ReasonForm(
    callback_id="break_glass",
    title="Break the glass for",
    submit="Approve alone",
    label="Why can this not wait for the others?",
    hint="For this one change. Every team that was asked reads it, with your name.",
    is_optional=False,
)
EDIT_FORM = "edit"
BACK = "Back"


def reason_form(form: ReasonForm, value: ButtonValue, kept: Mapping[str, str]) -> Modal:
    return Modal(
        form.callback_id,
        title=f"{form.title} {value.about}",
        submit=form.submit,
        kept=kept,
        close=BACK,
        blocks=[
            {
                "type": "input",
                "block_id": REASON,
                "optional": form.is_optional,
                "label": plain_text(f"{form.label} ({value.incident_id})", INPUT_LABEL),
                "hint": plain_text(form.hint, INPUT_LABEL),
                "element": {
                    "type": "plain_text_input",
                    "action_id": REASON,
                    "multiline": True,
                    "max_length": REASON_CHARACTERS,
                    "focus_on_load": True,
                },
            }
        ],
    )


def edit_form(value: ButtonValue, values: Sequence[EditableValue], kept: Mapping[str, str]) -> Modal:
    """One field for each number, with what it may be."""
    said = "Nothing is approved by this. The new values are planned, and shown as a request of their own."
    inputs = [_number_input(place, each) for place, each in enumerate(values)]
    return Modal(
        EDIT_FORM,
        title=f"Edit {value.about}",
        submit="Plan it anew",
        blocks=[*inputs, *context([said])],
        kept=kept,
        close=BACK,
    )


def _number_input(place: int, value: EditableValue) -> Block:
    return {
        "type": "input",
        "block_id": block_of(place),
        "label": plain_text(value.name, INPUT_LABEL),
        "hint": plain_text(f"{value.range_text}; the request says {value.now}", INPUT_LABEL),
        "element": {
            "type": "plain_text_input",
            "action_id": "value",
            "initial_value": value.now[:VALUE_CHARACTERS],
            "max_length": VALUE_CHARACTERS,
        },
    }


def written_values(view: Json, values: Sequence[EditableValue]) -> dict[str, str]:
    """What was written into the fields of `edit_form`, by the values' names."""
    fields = view["state"]["values"]
    return {
        each.name: str(fields.get(block_of(place), {}).get("value", {}).get("value") or "")
        for place, each in enumerate(values)
    }


def block_of(place: int) -> str:
    return f"value:{place}"
