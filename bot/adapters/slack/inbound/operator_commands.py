"""Commands for operators: lead, status, skip and reopen. Only operators may use them.

A longer text is given with the command, or in a form that the command opens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import structlog

from bot.adapters.slack.escape import code, line, mention
from bot.adapters.slack.inbound import forms
from bot.adapters.slack.inbound.afterwards import Afterwards
from bot.adapters.slack.inbound.boundary import (
    WARNING,
    NotDoneError,
    Submission,
    announce_in_time,
    notify,
    permitted,
)
from bot.adapters.slack.inbound.command import INCIDENT_ID, Answer, Command, closed, reply
from bot.adapters.slack.inbound.naming import Naming
from bot.adapters.slack.outbound.blocks import section
from bot.adapters.slack.outbound.deciders import people_of
from bot.adapters.slack.outbound.matter_line import matter_line
from bot.adapters.slack.outbound.message import Message
from bot.adapters.slack.services import IncidentService, Services
from bot.domain.incidents.event import Commanded
from bot.domain.incidents.handover import open_matters
from bot.domain.incidents.machine.operator_actions import exits_to_skip
from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import MessengerError, StorageUnavailableError
from bot.domain.kernel.form import Form, FormField, problems
from bot.flow.ports.storage import OpenPage

log = structlog.get_logger(__name__)

STATUS_FORM, SKIP_FORM = "status", "skip"
INCIDENT, VISIT = "incident", "visit"
ANNOUNCED_CHARACTERS = 2_500
"""Less than a message holds: a mention grows while it is escaped."""
PERSON = re.compile(r"<@([UW][A-Z0-9]+)>")
NEXT = {"15": "in 15 minutes", "30": "in 30 minutes", "60": "in an hour", "120": "in two hours"}
ASSUMED_OUTCOMES = {
    "otherwise": "nothing else held",
    "held": "the check had passed",
    "not_held": "the check had not passed in time",
    "unknown": "it could not be read",
    "expired": "nobody decided in time",
    "refused": "it was refused",
    "impossible": "it was impossible",
    "failed": "it failed",
    "unclear": "it is not clear whether it was done",
    "beyond": "it took too long",
    "taken": "somebody took it",
    "done": "it was done",
    "not_needed": "it was not needed",
    "none_possible": "nothing was possible",
}
"""The outcomes of a state in words; anything else is a condition of the playbook."""
ENDED_EARLY = "the check had ended early, by what it looks out for"
STATUS: Form = {
    "text": FormField(label="What is the status?", max_length=1_000, why="For everyone waiting on this incident."),
    "next": FormField(label="When is the next update?", kind="choice", options=NEXT, why="You will be reminded."),
}


class OperatorCommands:
    def __init__(self, services: Services, naming: Naming) -> None:
        self._services, self._incidents, self._naming = services, services.incidents, naming
        self._afterwards = Afterwards()

    async def lead(self, command: Command) -> Message:
        run, rest = await self._naming.run_and_text(command)
        named = PERSON.fullmatch(rest)
        if rest and rest.lower() != "me" and named is None:
            raise NotDoneError(
                f"{code(rest, 80)} is not an @mention of a person: `/incident lead {run.incident_id} @PERSON`, "
                "or omit the name to lead yourself."
            )
        who = named[1] if named else command.user
        await self._check_member(who, "lead", command)
        await self._store(event_of(command, "lead", text=who), run)
        return reply(f"{mention(who)} leads {line(run.incident_id, 40)}.")

    async def handover(self, command: Command) -> Message:
        """Hand over the named incident, else every open one; the next lead gets the same summary.

        Of all, the newest are handed over before the answer, and the others, however many there are, after it.
        """
        first, _, rest = command.rest.partition(" ")
        is_one = INCIDENT_ID.fullmatch(first) is not None or first.isdigit()
        if is_one:
            run, rest = await self._naming.run_and_text(command)
            page = OpenPage(1, [run])
        else:
            page, rest = await self._incidents.open_page(), command.rest
        if not page.count:
            raise NotDoneError("No incident is open: there is nothing to hand over.")
        named = re.match(rf"{PERSON.pattern}\s*", rest)
        if not named and (rest.startswith("@") or (rest and " " not in rest)):
            # One word is more likely a name than a note, and without a person everything goes to the team on call.
            raise NotDoneError(
                f"{code(rest.split()[0], 80)} is not an @mention of a person: `/incident handover @PERSON NOTE`."
            )
        member, note = (named[1], rest[named.end() :]) if named else ("", rest)
        await self._check_member(member, "take over", command)
        given, others = _Handover(command, member, note), await self._others(page)
        for run in page.runs:
            await self._store(given.event(run.incident_id), run)
        now = self._services.clock.now()
        summaries = [_summary(run, now) for run in page.runs]
        if not is_one:
            self._afterwards.begin(self._hand_over_others(given, others, summaries), "handover")
        more = [f"… and {len(others)} more: each thread has its part."] if others else []
        return reply(given.headline(len(summaries) + len(others), is_done=not others), *chain(*summaries), *more)

    async def _others(self, page: OpenPage) -> Sequence[str]:
        """The open incidents that are not on the page."""
        if page.count <= len(page.runs):
            return ()
        shown = {run.incident_id for run in page.runs}
        return [each for each in await self._incidents.open_incidents() if each not in shown]

    async def _hand_over_others(
        self, given: _Handover, others: Sequence[str], summaries: Sequence[Sequence[str]]
    ) -> None:
        """Hand over the incidents that are not in `summaries`, then announce all of them in the channel.

        The user who handed over reads what failed.
        """
        many, left, failed = len(summaries) + len(others), len(others), []
        try:
            for incident_id in others:
                await self._incidents.command(given.event(incident_id), incident_id)
                left -= 1
        except StorageUnavailableError as error:
            log.error("handover.not_finished", left=left, reason=str(error))
            failed.append(
                f"{WARNING} {left} of {many} open incidents were not handed over: the bot's storage did not answer. "
                "Please send it again; the others then get the note twice."
            )
        announcement = _announced(given.headline(many, left=left), summaries, many - left)
        try:
            await announce_in_time(self._services.messenger, announcement)
        except MessengerError as error:
            reason = line(error.reason, 200)
            failed.append(f"{WARNING} Slack refused the summary in the channel ({reason}); each thread has its part.")
        if failed:
            command = given.command
            place = command.user, command.channel, "\n".join(failed), command.response_url
            await notify(self._services.messenger, *place)

    async def _check_member(self, who: str, to_do: str, command: Command) -> None:
        """Guests, bots and deactivated accounts cannot be named. The sender was checked before."""
        if who and who != command.user:
            asked = self._services.people.takes_part(who, at=self._services.clock.now())
            await permitted(asked, f"{mention(who)} cannot {to_do}")

    async def status(self, command: Command) -> Answer:
        run, text = await self._naming.run_and_text(command)
        if not text:
            kept = command.place | {INCIDENT: run.incident_id}
            blocks = forms.inputs(STATUS, filled={"next": "30"})
            return forms.Modal(STATUS_FORM, f"Status of {run.incident_id}", "Post it", blocks, kept)
        await self._store(event_of(command, "status", text=text), run)
        return reply(f"The status of {line(run.incident_id, 40)} is in its thread.")

    async def skip(self, command: Command) -> Answer:
        run, rest = await self._naming.run_and_text(command)
        exits = await self._exits(run)
        to, _, why = rest.partition(" ")
        if not to:
            kept = command.place | {INCIDENT: run.incident_id, VISIT: str(run.visit.number)}
            blocks = [*section(_explained(run, exits)), *forms.inputs(_skip_form(exits))]
            return forms.Modal(SKIP_FORM, f"Skip in {run.incident_id}", "Skip", blocks, kept)
        if to not in exits:
            known = ", ".join(code(each, 60) for each in exits)
            raise NotDoneError(f"{code(run.visit.state, 60)} cannot skip to {code(to, 60)}; it can skip to {known}.")
        if not why.strip():
            raise NotDoneError(f"Skipping needs a reason: `/incident skip {run.incident_id} {to} why`")
        await self._store(event_of(command, "skip", to=to, text=why.strip()), run)
        return reply(f"Skipping {code(run.visit.state, 60)} in {line(run.incident_id, 40)}; next is {code(to, 60)}.")

    async def reopen(self, command: Command) -> Message:
        incident, _, why = command.rest.partition(" ")
        if not INCIDENT_ID.fullmatch(incident) or not why.strip():
            raise NotDoneError("Name the incident and the reason: `/incident reopen INC-7 it came back`.")
        run = await self._incidents.load(incident.upper())
        if run is None:
            raise NotDoneError(f"There is no incident {code(incident.upper(), 60)} (any more).")
        if run.is_open:
            raise NotDoneError(f"{line(run.incident_id, 40)} is already open.")
        if not await self._incidents.reopen(event_of(command, "reopen", text=why.strip()), run):
            raise NotDoneError(f"{code(run.target, 120)} has a newer incident than {run.incident_id}: use that one.")
        return reply(f"{line(run.incident_id, 40)} is open again, at the start of its playbook.")

    # --- what comes back from the forms ------------------------------------------------------------------------------

    async def submitted(self, sent: Submission) -> None:
        await permitted(self._services.people.may_operate(sent.user, at=self._services.clock.now()))
        run = await self._incidents.load(sent.kept[INCIDENT])
        if run is None:
            raise NotDoneError("This incident is no longer known.")
        if not run.is_open:
            raise NotDoneError(closed(run, sent.form))
        is_status = sent.form == STATUS_FORM
        exits = {} if is_status else await self._exits(run)
        is_over = sent.kept.get(VISIT, str(run.visit.number)) != str(run.visit.number)
        if not is_status and (is_over or sent.fields.get("to") not in exits):
            raise NotDoneError(fields={"to": "This wait is over, and another one is under way. Open the form again."})
        if wrong := problems(STATUS if is_status else _skip_form(exits), sent.fields):
            raise NotDoneError(fields=wrong)
        text = str(sent.fields["text"])
        if is_status:
            event = event_of(sent.command, "status", text=text, seconds=float(sent.fields["next"]) * 60)
        else:
            event = event_of(sent.command, "skip", to=str(sent.fields["to"]), text=text, visit=run.visit.number)
        await self._store(event, run)

    async def _exits(self, run: Run) -> dict[str, Exit]:
        playbook = await self._services.playbooks.playbook_of(run)
        written = exits_to_skip(run, playbook)
        exits = {to: Exit(playbook.playbook.states[to].title, outcome) for to, outcome in written.items()}
        if not exits:
            waits = "it waits for no signal. Answer what it asks, if anything" if run.is_open else "it is closed"
            raise NotDoneError(f"Nothing can be skipped in {line(run.incident_id, 40)}: {waits}.")
        return exits

    async def _store(self, event: Commanded, run: Run) -> None:
        await store(self._incidents, event, run.incident_id)


async def store(incidents: IncidentService, event: Commanded, incident_id: str) -> None:
    """Raise `NotDoneError` when there is no such incident."""
    if not await incidents.command(event, incident_id):
        raise NotDoneError(f"There is no incident {code(incident_id, 60)} any more.")


def event_of(command: Command, verb: str, **more: Any) -> Commanded:
    about = {"event_id": command.command_id, "command": verb, "user": command.user, "user_name": command.user_name}
    return Commanded.model_validate(about | more)


@dataclass(frozen=True)
class _Handover:
    """What a person hands over; without `to`, to the team on call."""

    command: Command
    to: str
    note: str

    def event(self, incident_id: str) -> Commanded:
        event = event_of(self.command, "handover", to=self.to, text=self.note)
        return event.model_copy(update={"event_id": f"{event.event_id}/{incident_id}"})

    def headline(self, many: int, *, left: int = 0, is_done: bool = True) -> str:
        count = f"{many - left} of {many}" if left else f"{many}"
        what = f"{count} open incident is" if many == 1 else f"{count} open incidents are"
        receiver = mention(self.to) if self.to else "the team on call"
        return f"{what}{'' if is_done else ' being'} handed over to {receiver}."


def _announced(head: str, summaries: Sequence[Sequence[str]], many: int) -> str:
    """As much of the summary as one message holds; it says how many of the incidents it leaves out."""
    sizes = accumulate(sum(map(len, each)) for each in summaries)
    shown = sum(size <= ANNOUNCED_CHARACTERS for size in sizes)
    more = [f"… and {many - shown} more: each thread has its part."] if many > shown else []
    return "\n".join((head, *chain(*summaries[:shown]), *more))


def _summary(run: Run, now: float) -> list[str]:
    head = f"• *{line(run.incident_id, 40)}* {line(run.called, 150)} · {code(run.target, 120)}"
    people = people_of(run)
    return [head, *(f"      {matter_line(each, people, now)}" for each in open_matters(run))]


@dataclass(frozen=True)
class Exit:
    """One exit that a person may skip to: the state's title, and the outcome that the skip assumes."""

    title: str
    outcome: str


def _explained(run: Run, exits: Mapping[str, Exit]) -> list[str]:
    """The outcome that each exit assumes; skipping does not produce it."""
    lines = [
        f"• {line(_called(to, exits), 150)}: as if {ASSUMED_OUTCOMES.get(each.outcome, ENDED_EARLY)}"
        for to, each in exits.items()
    ]
    return ["What comes next, and the outcome that each assumes:", *lines]


def _called(to: str, exits: Mapping[str, Exit]) -> str:
    """The title of a state; its name where it has none, and beside the title where another state has the same."""
    title, name = exits[to].title, to.replace("_", " ")
    is_alone = sum(each.title == title for each in exits.values()) == 1
    return name if not title else title if is_alone else f"{title} ({name})"


def _skip_form(exits: Mapping[str, Exit]) -> Form:
    options = {to: _called(to, exits) for to in exits}
    return {
        "to": FormField(label="Continue with", kind="choice", options=options),
        "text": FormField(label="Why?", max_length=500, why="It goes on the timeline with your name."),
    }
