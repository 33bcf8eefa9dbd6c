"""The buttons of requests and questions, and the forms behind them. Opening a form decides nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import structlog

from bot.adapters.slack.inbound import forms
from bot.adapters.slack.inbound.boundary import Click, NotDoneError, Submission
from bot.adapters.slack.inbound.decision_forms import (
    REASON,
    ReasonForm,
    answer_form,
    close_form,
    closes_the_incident,
    edit_form,
    reason_form,
    written_values,
)
from bot.adapters.slack.outbound.details import UnitOf, details
from bot.adapters.slack.press_value import ButtonValue
from bot.adapters.slack.services import IncidentService, PlaybookService
from bot.domain.approvals.edits import EditableValue, editable_values, values_of
from bot.domain.approvals.grant import Press, Request
from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import ApprovalError, PlaybookError
from bot.domain.kernel.form import Form, answers, problems
from bot.domain.playbooks.compiled import CompiledPlaybook

log = structlog.get_logger(__name__)

Action = Literal["approve", "refuse", "choose", "edit", "more_time", "break_glass", "carried_out"]
NOT_READ = "The bot's storage did not answer, so the request could not be read. Nothing was decided; please try again."
OLD_BUTTON = "This button is from an older message; use the newest message in the thread."


class Presses:
    def __init__(self, incidents: IncidentService, playbooks: PlaybookService) -> None:
        self._incidents, self._playbooks = incidents, playbooks

    def storing(self, action: Action) -> Callable[[Click], Awaitable[None]]:
        """The handler of a button that decides at once."""

        async def pressed(click: Click) -> None:
            await self._store(action, click)

        return pressed

    def opening(self, form: ReasonForm) -> Callable[[Click], Awaitable[forms.Modal]]:
        """The handler of a button that opens this form."""

        async def pressed(click: Click) -> forms.Modal:
            value = value_of(click)
            run = await self._incidents.load(value.incident_id)
            playbook = await self._playbook(run) if form.action == "refuse" else None
            return reason_form(form, run, value, click.kept, playbook)

        return pressed

    def submitting(self, form: ReasonForm) -> Callable[[Submission], Awaitable[None]]:
        """The handler of a form that asks for a reason."""

        async def submitted(sent: Submission) -> None:
            reason = str(sent.fields[REASON])
            value_of(sent.click)
            if not form.is_optional and not reason.strip():
                raise NotDoneError("A reason is required.")
            await self._store(form.action, sent.click, reason=reason)

        return submitted

    async def open_edit(self, click: Click) -> forms.Modal:
        """The numbers of the request as it is now; a decided request has none."""
        value = value_of(click)
        return edit_form(value, editable_values((await self._open_request(value)).plan), click.kept)

    async def edit(self, sent: Submission) -> None:
        """The submitted values, checked before they are stored."""
        request = await self._open_request(value_of(sent.click))
        offered = editable_values(request.plan)
        texts = written_values(sent.fields, offered)
        if errors := _range_errors(offered, texts):
            raise NotDoneError(fields=errors)
        written = json.dumps(texts, sort_keys=True)
        try:
            values_of(request.plan, written)
        except ApprovalError as unchanged:
            raise NotDoneError(str(unchanged)) from unchanged
        await self._store("edit", sent.click, value=written)

    async def open_answer(self, click: Click) -> forms.Modal:
        """The form of a choice that has fields."""
        value = value_of(click)
        return answer_form(value, await self._form_of(value), click.kept)

    async def answer(self, sent: Submission) -> None:
        form = await self._form_of(value_of(sent.click))
        if wrong := problems(form, sent.fields):
            raise NotDoneError(fields=wrong)
        await self._store("choose", sent.click, fields=answers(form, sent.fields))

    async def choose_from_menu(self, click: Click) -> forms.Modal | None:
        """A choice of a menu: a form where it has one, else the decision itself."""
        value = value_of(click)
        run = await self._incidents.load(value.incident_id)
        question = run.questions.get(value.about) if run else None
        if question is not None and question.forms.get(value.choice):
            return await self.open_answer(click)
        if run is not None and run.is_open and closes_the_incident(run, value.about, value.choice):
            return close_form(run, click.kept, click.user)
        await self._store("choose", click)
        return None

    async def close(self, sent: Submission) -> None:
        """A person means the choice that closes the incident."""
        value_of(sent.click)
        await self._store("choose", sent.click)

    async def more(self, click: Click) -> forms.Modal | None:
        """The menu of a message: its details, or what is seldom needed."""
        value = value_of(click)
        match value.choice:
            case "details":
                return await self._details(click, value)
            case "edit":
                return await self.open_edit(click)
            case "more_time":
                await self._store("more_time", click)
                return None
            case _:
                raise NotDoneError(OLD_BUTTON)

    async def _details(self, click: Click, value: ButtonValue) -> forms.Modal:
        run = await self._incidents.load(value.incident_id)
        playbook = await self._playbook(run)
        units: UnitOf = playbook.unit_of_part if playbook is not None else lambda _: ""
        blocks = details(run, value.about, units) if run is not None else ()
        if not blocks:
            raise NotDoneError(f"{value.about} of {value.incident_id} does not exist (any more).")
        return forms.Modal("details", f"{value.incident_id} details", "", blocks, click.kept, "Close")

    async def _playbook(self, run: Run | None) -> CompiledPlaybook | None:
        """None if it is gone: the details and the forms are of use without it too."""
        try:
            return await self._playbooks.playbook_of(run) if run is not None else None
        except PlaybookError:
            return None

    async def _open_request(self, value: ButtonValue) -> Request:
        """The request as it is stored. Raise `NotDoneError` when it cannot be edited."""
        run = await self._incidents.load(value.incident_id)
        request = run.requests.get(value.about) if run is not None else None
        if request is None:
            raise NotDoneError(f"{value.about} of {value.incident_id} does not exist (any more).")
        if request.status != "open" or request.digest != value.digest:
            raise NotDoneError(f"{value.about} {request.became}; it can no longer be edited.")
        if not editable_values(request.plan):
            raise NotDoneError(f"Nothing in {value.about} can be edited.")
        return request

    async def _form_of(self, value: ButtonValue) -> Form:
        """The fields of a choice. Raise `NotDoneError` when it has none now."""
        run = await self._incidents.load(value.incident_id)
        question = run.questions.get(value.about) if run else None
        if question is None or not question.forms.get(value.choice):
            raise NotDoneError(OLD_BUTTON)
        if question.status != "open":
            raise NotDoneError(f"Question {value.about} was already {question.status}; nothing was changed.")
        return question.forms[value.choice]

    async def _store(self, action: Action, click: Click, **more: Any) -> None:
        value = value_of(click)
        press = _press(action, value, click, more)
        if not await self._incidents.press(press, value.incident_id):
            raise NotDoneError(f"{value.incident_id} does not exist (any more). Nothing was decided.")
        log.info("press.stored", incident=value.incident_id, press=press.press_id, action=action, user=press.user)


async def old_button(click: Click) -> str:
    """For a button that this version of the bot does not know."""
    del click
    return OLD_BUTTON


def value_of(click: Click) -> ButtonValue:
    value = ButtonValue.unpacked(click.value)
    if value is None:
        raise NotDoneError(OLD_BUTTON)
    return value


def _range_errors(offered: Sequence[EditableValue], texts: Mapping[str, str]) -> dict[str, str]:
    errors: dict[str, str] = {}
    for place, each in enumerate(offered):
        try:
            each.read(texts[each.name])
        except ApprovalError as wrong:
            errors[str(place)] = str(wrong)
    return errors


def _press(action: Action, value: ButtonValue, click: Click, more: Mapping[str, Any]) -> Press:
    # Slack sometimes delivers one click twice: the same place, time and content are the same press. A form that stayed
    # open, because the answer was late, may be sent again with other content.
    written = json.dumps(more, sort_keys=True) if more else ""
    seed = f"{click.channel}/{click.message_ts}/{click.action_ts}/{click.user}{written}"
    about = {"action": action, "about": value.about, "digest": value.digest, "value": value.choice}
    who = {"user": click.user, "user_name": click.user_name}
    where = {"channel": click.channel, "message_ts": click.message_ts, "response_url": click.response_url}
    press_id = hashlib.sha256(seed.encode()).hexdigest()[:24]
    return Press.model_validate({"press_id": press_id, **about, **who, **where, **more})
