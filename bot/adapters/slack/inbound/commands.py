"""Handles `/incident …`: runs one command, or replies with what would work.

Only the person who sent it sees the reply. `SLASH_COMMANDS` lists who may use which command.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import cast, get_args

import structlog

from bot.adapters.slack.escape import code, line, mention, mentioned, whisper
from bot.adapters.slack.inbound.afterwards import Afterwards
from bot.adapters.slack.inbound.boundary import (
    MAYBE_SENT,
    MAYBE_SENT_ONCE,
    WARNING,
    NotDoneError,
    announce_in_time,
    permitted,
)
from bot.adapters.slack.inbound.command import Answer, Command, reply
from bot.adapters.slack.inbound.command_table import ENTRIES_SHOWN, NOTHING, SLASH_COMMANDS, Group, works_when_closed
from bot.adapters.slack.inbound.naming import LISTED, Naming, no_such, usage
from bot.adapters.slack.inbound.opening import Opening
from bot.adapters.slack.inbound.operator_commands import OperatorCommands
from bot.adapters.slack.inbound.playbook_commands import PlaybookCommands
from bot.adapters.slack.inbound.silencing import Silencing
from bot.adapters.slack.inbound.window_commands import WindowCommands
from bot.adapters.slack.outbound.card import GOES_ON, card, sign_of, standing
from bot.adapters.slack.outbound.message import Message
from bot.adapters.slack.outbound.request_message import held_back
from bot.adapters.slack.outbound.window_line import global_halt_line, window_line
from bot.adapters.slack.outbound.words import moment
from bot.adapters.slack.services import Services
from bot.domain.incidents.effect import ExportFormat
from bot.domain.incidents.event import Commanded, CommandName
from bot.domain.incidents.machine.residual import residual_changes
from bot.domain.incidents.run import Run, Severity
from bot.domain.kernel.timeline import Chained, Entry
from bot.domain.reports.statistics import covered_days, in_words, statistics
from bot.flow.ports.storage import HaltWord, OpenPage
from bot.flow.receive_input import RECENT

log = structlog.get_logger(__name__)

MAX_DAYS = 365
URGENCY: Sequence[Severity] = get_args(Severity)
ALL = "all"
OF_THE_BOT = frozenset({"read", "planned", "wait", "call", "slack", "ignored", "baseline", "chart"})
"""Entries about the bot's own work; people first look for what was found, decided and changed."""
OTHER_WORDS = {
    "close": "resolve", "end": "resolve", "done": "resolve", "stop": "halt", "pause": "halt", "continue": "resume",
    "start": "resume", "ack": "lead", "take": "lead", "assign": "handover", "revert": "undo", "mute": "silence",
    "history": "timeline", "log": "timeline",
}  # fmt: skip
"""What people type who know other bots, and the command here."""


class Commands:
    def __init__(self, services: Services) -> None:
        self._naming = naming = Naming(services.incidents)
        self._incidents, self._people, self._clock = services.incidents, services.people, services.clock
        self._want_card, self._show_again = services.want_card, services.show_again
        self._services, self._afterwards = services, Afterwards()
        playbooks, operators = PlaybookCommands(services, naming), OperatorCommands(services, naming)
        self._windows, windows = services.windows, WindowCommands(services)
        self._handlers: dict[str, Callable[[Command], Awaitable[Answer]]] = {
            NOTHING: self._now,
            "help": self._help,
            "list": self._list,
            "show": self._show,
            "timeline": self._timeline,
            "export": self._export,
            "note": self._note,
            "followup": self._followup,
            "halt": self._halt,
            "resume": self._resume,
            "reset": self._reset,
            "undo": self._undo,
            "resolve": self._resolve,
            "divert": self._divert,
            "lead": operators.lead,
            "status": operators.status,
            "handover": operators.handover,
            "skip": operators.skip,
            "silence": Silencing(services, naming).begin,
            "maintenance": windows.maintenance,
            "freeze": windows.freeze,
            "reopen": operators.reopen,
            "settings": playbooks.settings,
            "open": Opening(services).begin,
            "playbooks": playbooks.list,
            "graph": playbooks.graph,
            "unmatched": self._unmatched,
            "stats": self._stats,
        }

    async def answer(self, command: Command) -> Answer:
        """Run the command. Raise `StorageUnavailableError` when the storage does not answer."""
        if command.name not in SLASH_COMMANDS:
            return reply(_unknown_word(command.name))
        try:
            await self._must_be_allowed(command)
            answer = await self._handlers[command.name](command)
        except NotDoneError as error:
            answer = reply(f"{WARNING} {error}")
        log.info("command.answered", word=command.name, user=command.user)
        return answer

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _now(self, command: Command) -> Message:
        """What waits for people, those that this person leads first, and things to do next."""
        page = await self._incidents.open_page()
        waiting = [run for run in page.runs if _waits(run)]
        waiting.sort(key=lambda run: (run.lead != command.user, URGENCY.index(run.severity)))
        lines = [
            f"• {sign_of(run)} *{line(run.incident_id, 40)}* {code(run.target, 120)}"
            f"{' · you lead' if run.lead == command.user else ''}\n      {standing(run)}"
            for run in waiting[:LISTED]
        ]
        may_operate = (await self._people.may_halt(command.user, at=self._clock.now())).allowed
        steps = (f"• `{usage}` – {does}" for usage, does in _next_steps(waiting or page.runs, may_operate=may_operate))
        return reply(_how_many_wait(len(waiting), page), *lines, "*What you can do*", *steps)

    async def _help(self, command: Command) -> Message:
        if command.rest:
            word = command.rest.lower().removeprefix("/incident ").strip()
            return reply(*_explained(word)) if word in SLASH_COMMANDS else reply(_unknown_word(word))
        usual = [f"• `{usage(word)}` – {about.does}" for word, about in SLASH_COMMANDS.items() if about.in_a_hurry]
        named = [(code(word), about.group) for word, about in SLASH_COMMANDS.items() if word != NOTHING]
        lines = [f"*{group}*: {' · '.join(word for word, its in named if its == group)}" for group in get_args(Group)]
        more = "`/incident help COMMAND` explains one. `INC` may be left out while only one incident is open."
        return reply("*In a hurry*", *usual, "*All commands*", *lines, more)

    async def _list(self, command: Command) -> Message:
        del command
        page = await self._incidents.open_page()
        windows = [window_line(each) for each in await self._windows.open()]
        if not page.count:
            return reply("No incident is open.", *windows, await self._switch())
        # The most urgent first, then the newest.
        shown = sorted(page.runs, key=lambda run: URGENCY.index(run.severity))[:LISTED]
        await self._show_again([run.incident_id for run in shown])
        lines = [
            f"• {sign_of(run)} *{line(run.incident_id, 40)}* {line(run.called, 150)} · {code(run.target, 120)}\n"
            f"      {standing(run)}"
            for run in shown
        ]
        rest = page.count - len(shown)
        more = [f"… and {rest} more: `/incident show INC-7` shows one by its ID."] if rest else []
        head = "*1 open incident*" if page.count == 1 else f"*{page.count} open incidents*"
        return reply(head, *lines, *more, *windows, await self._switch())

    async def _switch(self) -> str:
        """Who pulled the kill switch, or how to pull it."""
        if halt := await self._incidents.global_halt():
            return global_halt_line(halt)
        return "`/incident halt all WHY` stops all changes by the bot at once."

    async def _show(self, command: Command) -> Message:
        run = await self._naming.run_only(command)
        await self._want_card(run.incident_id)
        return card(run, links={})

    async def _timeline(self, command: Command) -> Message:
        run = await self._naming.run_only(command)
        whole = await self._incidents.timeline(run.incident_id)
        shown = [each for each in whole if not _is_of_the_bot(each.entry)][-ENTRIES_SHOWN:]
        left = len(whole) - len(shown)
        more = [f"… {left} more, with every reading: `/incident export {line(run.incident_id, 40)}`"] if left else []
        return reply(f"*Timeline of {line(run.incident_id, 40)}*", *more, *map(_entry, shown))

    async def _export(self, command: Command) -> Message:
        run, rest = await self._naming.run_and_text(command)
        wanted = rest.lower() or "md"
        if wanted not in get_args(ExportFormat):
            raise NotDoneError(
                f"{code(rest, 60)} is not a format. Try `/incident export {run.incident_id} md`, `json` or `html`."
            )
        await self._incidents.export(run.incident_id, cast(ExportFormat, wanted), command.user)
        return reply(f"The timeline of {line(run.incident_id, 40)} will be uploaded to its thread ({wanted}).")

    async def _unmatched(self, command: Command) -> Message:
        del command
        alerts = await self._incidents.unmatched()
        if not alerts:
            return reply("Every alert opened or joined an incident.")
        # One noisy alert must not hide the others.
        counted = Counter((alert.name, why) for alert, why in alerts)
        lines = [
            f"• {code(name, 80)} {f'({times} times) ' if times > 1 else ''}{line(why, 300)}"
            for (name, why), times in list(counted.items())[:LISTED]
        ]
        head = f"*Alerts that opened no incident* (of the newest {len(alerts)}, newest first)"
        return reply(head, *lines, "`/incident playbooks` shows which alerts open each playbook.")

    async def _stats(self, command: Command) -> Message:
        is_number = command.rest.isascii() and command.rest.isdigit() and len(command.rest) <= len(str(MAX_DAYS))
        days = int(command.rest) if is_number else 7 if not command.rest else 0
        if not 1 <= days <= MAX_DAYS:
            raise NotDoneError(f"{code(command.rest, 60)} is not a number of days from 1 to {MAX_DAYS}.")
        now, runs = self._clock.now(), await self._incidents.recent_runs()
        start = now - days * 86_400
        head, *lines = (line(each, 400) for each in in_words(statistics(runs, start, now + 1)))
        return reply(f"*{covered_days(days, runs, start, read=RECENT)}* {head}", *lines)

    # --- operators ---------------------------------------------------------------------------------------------------

    async def _note(self, command: Command) -> Message:
        incident_id, text = await self._naming.id_and_text(command)
        if not text:
            raise NotDoneError(f"A note needs text: `/incident note {incident_id} what you saw`")
        return await self._store(
            command, incident_id, "note", text, f"Noted on the timeline of {line(incident_id, 40)}."
        )

    async def _followup(self, command: Command) -> Message:
        incident_id, text = await self._naming.id_and_text(command)
        if not text:
            raise NotDoneError(f"Write what is to be done: `/incident followup {incident_id} raise the limit in git`")
        done = f"The report of {line(incident_id, 40)} will list it as a follow-up."
        return await self._store(command, incident_id, "followup", text, done)

    async def _halt(self, command: Command) -> Message:
        """Halts whatever text follows; that text is the reason."""
        first, _, why = command.rest.partition(" ")
        if first.lower() == ALL:
            await self._incidents.halt_all(command.user, why.strip())
            self._announce(global_halt_line(HaltWord(command.user, why.strip())), mentioned(why))
            return reply("⛔ *Everything is halted*: no change is sent until `/incident resume all`.")
        run, why = await self._naming.run_and_text(command)
        name = line(run.incident_id, 40)
        done = f"⛔ *{name} is halted*: no change is sent until `/incident resume {name}`."
        if run.is_applying:
            done += f" {GOES_ON}"
        return await self._store(command, run.incident_id, "halt", why, done)

    async def _resume(self, command: Command) -> Message:
        if command.rest.lower() == ALL:
            was_halted = await self._incidents.global_halt() is not None
            await self._incidents.resume_all(command.user)
            if was_halted:
                self._announce(f"▶ The global halt is lifted by {mention(command.user)}: changes are sent again.")
            result = "▶ *The global halt is lifted.*" if was_halted else "There was no global halt."
            return reply(f"{result} An incident that was halted by itself stays halted: `/incident resume INC`.")
        run = await self._naming.run_only(command)
        if halt := await self._incidents.global_halt():
            raise NotDoneError(
                f"Not done: {mention(halt.by)} halted everything, and `/incident resume all` lifts the halt."
            )
        name = line(run.incident_id, 40)
        # Stored all the same: a halt of a moment ago may not be in the run yet.
        done = (
            f"▶ *{name} is resumed.*{f' {held}' if (held := held_back(run)) else ''}"
            if run.is_halted
            else f"{name} was not halted."
        )
        return await self._store(command, run.incident_id, "resume", "", done)

    def _announce(self, text: str, mentions: Collection[str] = ()) -> None:
        """Tells the channel of all incidents; the command is done already, so nobody waits for it."""
        self._afterwards.begin(announce_in_time(self._services.messenger, text, mentions), "announce")

    async def _reset(self, command: Command) -> Message:
        run = await self._naming.run_only(command)
        done = f"The circuit breakers of the workload of {line(run.incident_id, 40)} and of nodes were reset."
        return await self._store(command, run.incident_id, "reset", "", done)

    async def _undo(self, command: Command) -> Message:
        run = await self._naming.run_only(command)
        if not run.held:
            raise NotDoneError(f"No change by the bot in {line(run.incident_id, 40)} is left to undo.")
        name = line(run.incident_id, 40)
        if run.is_applying and run.halt is None:
            raise NotDoneError(f"A change is being applied right now: `/incident halt {name}` first, then undo.")
        if run.is_undoing and run.open_request is not None:
            raise NotDoneError(f"An undo waits for approval already, in the thread of {name}.")
        done = (
            f"The undo of {line(run.held[-1].title, 200)} is being planned. "
            f"If it needs an approval, the request follows in the thread of {name}."
        )
        return await self._store(command, run.incident_id, "undo", "", done)

    async def _divert(self, command: Command) -> Message:
        run, playbook = await self._naming.run_and_text(command)
        name, known = line(run.incident_id, 40), ", ".join(code(each, 60) for each in run.offers)
        if not known:
            raise NotDoneError(f"No alert of {name} matches another playbook.")
        if not playbook:
            raise NotDoneError(f"Name the playbook: `/incident divert {name} PLAYBOOK`. Offered: {known}.")
        if playbook not in run.offers:
            raise NotDoneError(f"No alert of {name} matches {code(playbook, 60)}. Offered: {known}.")
        return await self._store(
            command, run.incident_id, "divert", playbook, f"{name} switches to {code(playbook, 60)}."
        )

    async def _resolve(self, command: Command) -> Message:
        run, why = await self._naming.run_and_text(command)
        name = line(run.incident_id, 40)
        if run.is_applying and not (run.change is not None and run.change.halted):
            stops = "" if run.halt is not None else f", or stop its next step: `/incident halt {name}`"
            raise NotDoneError(
                f"Not closed: a change of {name} is being applied. Repeat the command once its outcome is in the "
                f"thread{stops}."
            )
        done = f"{name} is being closed by hand."
        if residual_changes(run):
            done = f"{name} closes once somebody answers the question in its thread about what the bot changed."
        return await self._store(command, run.incident_id, "resolve", why, done)

    async def _store(self, command: Command, incident_id: str, name: CommandName, text: str, done: str) -> Message:
        event = Commanded(
            event_id=command.command_id, command=name, user=command.user, user_name=command.user_name, text=text
        )
        if not await self._incidents.command(event, incident_id):
            raise NotDoneError(no_such(incident_id, (await self._incidents.open_page()).runs))
        return reply(done)

    async def _must_be_allowed(self, command: Command) -> None:
        people, at = self._people, self._clock.now()
        match SLASH_COMMANDS[command.name].who:
            case "anybody":
                return
            case "members":
                asked = people.takes_part(command.user, at=at)
            case "operators":
                asked = people.may_operate(command.user, at=at)
            case "halters":
                asked = people.may_halt(command.user, at=at)
        await permitted(asked)


def after_no_answer(command: Command) -> str:
    """The reply to a command of which nobody knows whether it was carried out."""
    return (
        MAYBE_SENT_ONCE if command.name in SLASH_COMMANDS and SLASH_COMMANDS[command.name].counts_twice else MAYBE_SENT
    )


def _how_many_wait(waiting: int, page: OpenPage) -> str:
    if not page.count:
        return "*No incident is open.*"
    opened = "1 incident is open" if page.count == 1 else f"{page.count} incidents are open"
    seen = f"of the newest {len(page.runs)}, " if page.count > len(page.runs) else ""
    waits = f"{waiting} {'waits' if waiting == 1 else 'wait'} for people" if waiting else "nothing waits for people"
    return f"*{opened}; {seen}{waits}.*"


def _waits(run: Run) -> bool:
    """Whether it waits for people. A change that they halted half-way waits for them too."""
    return bool(run.open_question or run.open_request or run.advised) or run.is_halted_half_way


def _next_steps(waiting: Sequence[Run], *, may_operate: bool) -> list[tuple[str, str]]:
    name = waiting[0].incident_id if waiting else "INC-7"
    resume = [f"resume {name}"] if waiting and waiting[0].is_halted_half_way else []
    words = (*resume, f"show {name}", f"lead {name}", f"status {name} TEXT", "list", "halt all WHY", "help")
    of_members = (f"show {name}", f"note {name} TEXT", "list", "help")
    usable = words if may_operate else of_members
    return [(f"/incident {each}", SLASH_COMMANDS[each.partition(" ")[0]].does) for each in usable]


def _explained(word: str) -> list[str]:
    spec = SLASH_COMMANDS[word]
    people = {
        "anybody": "Everybody may use it.",
        "members": "Members of this workspace may use it, guests and bots may not.",
        "operators": "Operators (by default the approvers) may use it.",
        "halters": "Operators (by default the approvers) may use it, also while Slack does not answer.",
    }
    which = (
        "`INC` may be left out while only one incident is open; `7` stands for `INC-7`."
        if "INC" in spec.arguments
        else ""
    )
    closed_too = "It also works on a closed incident." if works_when_closed(word) and "INC" in spec.arguments else ""
    example = f"For example: `/incident {word} {spec.example}`." if spec.example else ""
    return [f"`{usage(word)}`: {spec.does}.", *filter(None, (example, people[spec.who], which, closed_too))]


def _unknown_word(word: str) -> str:
    close = [OTHER_WORDS[word]] if word in OTHER_WORDS else difflib.get_close_matches(word, SLASH_COMMANDS, n=1)
    hint = f"Did you mean `{usage(close[0])}`?" if close else "See `/incident help`."
    return f"{WARNING} There is no {code('/incident ' + word, 60)}. {hint}"


def _is_of_the_bot(entry: Entry) -> bool:
    """A state that was entered by itself is of the bot; by a press it is not."""
    return entry.kind in OF_THE_BOT or (entry.kind == "entered" and bool(entry.data.keys() & {"by", "clause"}))


def _entry(chained: Chained) -> str:
    entry = chained.entry
    who = f" ({mention(entry.who)})" if entry.who else ""
    return f"`{chained.number}` {moment(entry.at)} {whisper(entry.text, 400)}{who}"
