"""Renders form fields as a modal's inputs, and reads the answers; an error is shown below its field.

Slack checks ranges while people type; handlers check the answers again with `problems`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from bot.adapters.slack import limits
from bot.adapters.slack.limits import Block
from bot.adapters.slack.outbound.blocks import plain_text
from bot.adapters.slack.outbound.words import capitalized
from bot.domain.kernel.form import MAX_MOMENT_LENGTH, Answer, FormField

FIELD = "field:"
"""Before a field's name, in the id of its block."""
ENTRY = "entry"
NOTHING: Mapping[str, Answer] = MappingProxyType({})


@dataclass(frozen=True)
class Modal:
    """A form for one person. `kept` comes back with the answers; without `submit` there is nothing to send.

    As JSON, `kept` must fit into `limits.PRIVATE_METADATA`: else Slack does not open the form.
    """

    callback_id: str
    title: str
    submit: str
    blocks: Sequence[Block]
    kept: Mapping[str, str]
    close: str = "Cancel"

    @property
    def view(self) -> Block:
        submit = {"submit": plain_text(self.submit, limits.MODAL_TITLE)} if self.submit else {}
        return {
            "type": "modal",
            "callback_id": self.callback_id,
            "title": plain_text(self.title, limits.MODAL_TITLE),
            **submit,
            "close": plain_text(self.close, limits.MODAL_TITLE),
            # Characters as they are: as escapes, those of one field could fill what Slack takes.
            "private_metadata": json.dumps(dict(self.kept), separators=(",", ":"), ensure_ascii=False),
            "blocks": list(self.blocks),
        }


def kept_in(view: Mapping[str, Any]) -> dict[str, str]:
    return dict(json.loads(view["private_metadata"]))


def inputs(form: Mapping[str, FormField], *, filled: Mapping[str, Answer] = NOTHING) -> list[Block]:
    """An input for each field, in order; `filled` holds the initial values."""
    blocks = [_input(name, field, filled.get(name, "")) for name, field in form.items()]
    if len(blocks) == 1:
        blocks[0]["element"]["focus_on_load"] = True
    return blocks


def given(view: Mapping[str, Any]) -> dict[str, Answer]:
    """The answers by field; empty where nothing was filled in."""
    values: Mapping[str, Mapping[str, Any]] = view["state"]["values"]
    return {
        block_id.removeprefix(FIELD): _value(elements[ENTRY])
        for block_id, elements in values.items()
        if block_id.startswith(FIELD)
    }


def errors(wrong: Mapping[str, str], shown: Iterable[str]) -> dict[str, str]:
    """`wrong` by field in Slack's format. An error about no shown field goes below the last one."""
    names = list(shown)
    return {f"{FIELD}{name if name in names else names[-1]}": why for name, why in wrong.items()}


def _value(element: Mapping[str, Any]) -> str:
    option = element.get("selected_option")
    return str(option["value"]) if option else str(element.get("value") or "")


def _input(name: str, field: FormField, filled: Answer) -> Block:
    block: Block = {
        "type": "input",
        "block_id": f"{FIELD}{name}"[: limits.BLOCK_ID],
        "optional": field.optional,
        "label": plain_text(f"{field.label} ({field.unit})" if field.unit else field.label, limits.INPUT_LABEL),
        "element": _ELEMENTS[field.kind](field, filled),
    }
    if hint := " ".join(filter(None, (_sentence(field.why), _range(field)))):
        block["hint"] = plain_text(hint, limits.INPUT_LABEL)
    return block


def _sentence(text: str) -> str:
    return capitalized(f"{text}." if text and text[-1] not in ".!?" else text)


def _range(field: FormField) -> str:
    least = f"at least {field.min:,.10g}" if field.min is not None else ""
    most = f"at most {field.max:,.10g}" if field.max is not None else ""
    text = ", ".join(filter(None, (least, most)))
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _text(field: FormField, filled: Answer) -> Block:
    element: Block = {
        "type": "plain_text_input",
        "action_id": ENTRY,
        "multiline": field.max_length > limits.ONE_LINE,
        "max_length": field.max_length,
    }
    return element | ({"initial_value": str(filled)[: field.max_length]} if filled != "" else {})


def _time(field: FormField, filled: Answer) -> Block:
    # Slack's own picker has no seconds to copy from a log, and shows the reader's zone where labels say UTC.
    return _text(field.model_copy(update={"max_length": MAX_MOMENT_LENGTH}), filled)


def _number(field: FormField, filled: Answer) -> Block:
    element: Block = {"type": "number_input", "action_id": ENTRY, "is_decimal_allowed": field.kind == "number"}
    bounds = {"min_value": field.min, "max_value": field.max}
    element |= {name: f"{bound:.12g}" for name, bound in bounds.items() if bound is not None}
    return element | ({"initial_value": f"{filled:.12g}"} if isinstance(filled, float | int) else {})


def _choice(field: FormField, filled: Answer) -> Block:
    options = {key: _option(key, label) for key, label in list(field.options.items())[: limits.OPTIONS]}
    element: Block = {"type": "static_select", "action_id": ENTRY, "options": list(options.values())}
    chosen = options.get(str(filled))
    return element | ({"initial_option": chosen} if chosen else {})


def _option(key: str, label: str) -> Block:
    return {"text": plain_text(label, limits.OPTION_TEXT), "value": key[: limits.OPTION_VALUE]}


_ELEMENTS = {"text": _text, "number": _number, "integer": _number, "choice": _choice, "time": _time}
