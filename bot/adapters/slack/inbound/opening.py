"""`/incident open`: which playbook and workload first, then the playbook's own form. Only who may steer opens.

Both forms stay open, as they were filled, until the incident is stored.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog
from slack_bolt.async_app import AsyncAck

from bot.adapters.slack.escape import code, line
from bot.adapters.slack.inbound import forms
from bot.adapters.slack.inbound.command import Command, TeachError
from bot.adapters.slack.outbound.messages import Message
from bot.adapters.slack.services import Services
from bot.domain.kernel.errors import ClusterError, MessengerError, OpeningError, StorageUnavailableError
from bot.domain.kernel.form import Answer, Form, FormField
from bot.domain.kernel.target import Target
from bot.domain.playbooks.language import Playbook
from bot.flow.open_by_hand import Opening as Wanted

log = structlog.get_logger(__name__)
Json = dict[str, Any]

CHOOSING = "open"
FILLING = "open:form"
PLAYBOOK, WORKLOAD = "playbook", "workload"
TITLE = "Open an incident"
SUBMIT = "Open"
ANSWER_SECONDS = 2.0
WORKLOAD_NAME = re.compile(r"([a-z0-9][a-z0-9-]{0,62})/([a-z0-9][a-z0-9.-]{0,252})")
NOT_STORED = "The bot's storage did not answer, so nothing was opened. Please send it again; twice is harmless."


class Opening:
    """The command and its two forms. What is sent in twice opens once."""

    def __init__(self, services: Services) -> None:
        self._services, self._playbooks = services, services.playbooks

    async def begin(self, command: Command) -> Message | forms.Modal:
        by_hand = self._by_hand()
        if not by_hand:
            raise TeachError("No playbook is opened by hand: none of them says `opens: by_hand`.")
        name, _, rest = command.rest.partition(" ")
        if name and name not in by_hand:
            known = ", ".join(code(each, 80) for each in by_hand)
            raise TeachError(f"{code(name, 80)} is no playbook that is opened by hand. Those are: {known}.")
        if rest.strip() and not WORKLOAD_NAME.fullmatch(rest.strip()):
            raise TeachError(f"{code(rest, 120)} is no workload: write `/incident open {name} NAMESPACE/NAME`.")
        filled = {PLAYBOOK: name or next(iter(by_hand)), WORKLOAD: rest.strip()}
        blocks = forms.inputs(_first_form(by_hand), filled=filled)
        return forms.Modal(CHOOSING, TITLE, "Next" if _any_form(by_hand) else SUBMIT, blocks, command.place)

    async def chosen(self, ack: AsyncAck, body: Json, view: Json) -> None:
        """Playbook and workload are known: ask the playbook's own form, or open where it has none."""
        await self._answered(ack, body, view, self._chosen)

    async def filled(self, ack: AsyncAck, body: Json, view: Json) -> None:
        await self._answered(ack, body, view, self._filled)

    async def _answered(
        self, ack: AsyncAck, body: Json, view: Json, work: Callable[[Json, Json], Awaitable[tuple[Json, str]]]
    ) -> None:
        told = ""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer, told = await work(body, view)
        except OpeningError as wrong:
            answer = _refused(wrong.fields or {"": str(wrong)}, view)
        except TeachError as teach:
            answer = _refused({"": str(teach)}, view)
        except ClusterError as error:
            answer = _refused({WORKLOAD: f"The cluster did not answer ({error}). Please send it again."}, view)
        except (StorageUnavailableError, TimeoutError):
            answer = _refused({"": NOT_STORED}, view)
        await ack(**answer)
        if told:
            await self._tell(body["user"]["id"], forms.kept_in(view), told)

    async def _chosen(self, body: Json, view: Json) -> tuple[Json, str]:
        await self._must_steer(body["user"]["id"])
        given = forms.given(view)
        name = str(given[PLAYBOOK])
        target = await self._target(str(given[WORKLOAD]))
        playbook = self._by_hand().get(name)
        if playbook is None:
            raise OpeningError(f"'{name}' is not opened by hand any more", {PLAYBOOK: "not opened by hand any more"})
        kept = forms.kept_in(view) | {PLAYBOOK: name, WORKLOAD: target.key}
        if playbook.form:
            form = forms.Modal(FILLING, TITLE, SUBMIT, forms.inputs(playbook.form), kept, close="Back")
            return {"response_action": "push", "view": form.view}, ""
        return await self._open(body, view, kept, {})

    async def _filled(self, body: Json, view: Json) -> tuple[Json, str]:
        await self._must_steer(body["user"]["id"])
        return await self._open(body, view, forms.kept_in(view), forms.given(view))

    async def _open(
        self, body: Json, view: Json, kept: Mapping[str, str], fields: Mapping[str, Answer]
    ) -> tuple[Json, str]:
        user = body["user"]
        wanted = Wanted(
            submission_id=view["id"],
            playbook=kept[PLAYBOOK],
            target=Target.of_key(kept[WORKLOAD]),
            user=user["id"],
            user_name=str(user.get("name") or user.get("username", "")),
            fields=fields,
        )
        opened = await self._playbooks.open(wanted)
        log.info("incident.opened_by_hand", incident=opened.incident_id, user=user["id"], is_new=opened.is_new)
        about = f"{opened.incident_id} about {wanted.target}"
        text = f"{about} is open." if opened.is_new else f"{about} was open already; nothing new was opened."
        return {"response_action": "clear"}, text

    async def _target(self, typed: str) -> Target:
        name = WORKLOAD_NAME.fullmatch(typed.strip())
        if name is None:
            raise OpeningError("no workload", {WORKLOAD: "Write the namespace and the name: serving/llm"})
        found = await self._playbooks.workload(name[1], name[2])
        if found is None:
            raise OpeningError("no workload", {WORKLOAD: f"The cluster has no workload {typed.strip()}"})
        return found

    def _by_hand(self) -> dict[str, Playbook]:
        library = self._playbooks.library.playbooks
        return {name: library[name].playbook for name in sorted(library) if library[name].playbook.opens}

    async def _must_steer(self, user: str) -> None:
        authority = await self._services.people.may_steer(user, at=self._services.clock.now())
        if not authority.allowed:
            raise TeachError(f"Not done: {line(authority.reason, 500)}.")

    async def _tell(self, user: str, place: Mapping[str, str], text: str) -> None:
        try:
            await self._services.messenger.tell(user, place["channel"], text, response_url=place["response_url"])
        except MessengerError as refused:
            log.warning("slack.tell_failed", user=user, reason=refused.reason)


def _refused(wrong: Mapping[str, str], view: Json) -> Json:
    return {"response_action": "errors", "errors": forms.errors(wrong, forms.given(view))}


def _first_form(by_hand: Mapping[str, Playbook]) -> Form:
    titles = {name: playbook.title for name, playbook in by_hand.items()}
    where = "Its namespace and name, as in serving/llm."
    return {
        PLAYBOOK: FormField(label="Which playbook?", kind="choice", options=titles),
        WORKLOAD: FormField(label="Which workload?", max_length=320, why=where),
    }


def _any_form(by_hand: Mapping[str, Playbook]) -> bool:
    return any(playbook.form for playbook in by_hand.values())
