"""The `/incident` commands about playbooks: list, settings and graph. `SLASH_COMMANDS` lists who may use them."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Awaitable, Callable

import structlog

from bot.adapters.slack import limits
from bot.adapters.slack.escape import code, code_block, line, mention
from bot.adapters.slack.inbound.afterwards import Afterwards
from bot.adapters.slack.inbound.boundary import NotDoneError
from bot.adapters.slack.inbound.command import INCIDENT_ID, Command, reply
from bot.adapters.slack.inbound.naming import Naming
from bot.adapters.slack.outbound.blocks import section
from bot.adapters.slack.outbound.message import Message
from bot.adapters.slack.outbound.words import value
from bot.adapters.slack.services import Services
from bot.domain.incidents.event import Commanded
from bot.domain.incidents.run import Run
from bot.domain.kernel.durations import lasting, seconds
from bot.domain.kernel.errors import Fault, MessengerError
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.language import Playbook
from bot.domain.playbooks.picture.graph import mermaid

log = structlog.get_logger()
Draw = Callable[[CompiledPlaybook, str, str], Awaitable[None]]
GRAPH_CHARACTERS = 11_500
"""Limit of escaped mermaid text in one answer; a longer text is left out, since parts of it are of no use."""
BLOCK_CHARACTERS = 2_800


class PlaybookCommands:
    def __init__(self, services: Services, naming: Naming) -> None:
        self._playbooks, self._incidents, self._naming = services.playbooks, services.incidents, naming
        self._draw, self._messenger = services.draw, services.messenger
        self._afterwards = Afterwards()

    async def list(self, command: Command) -> Message:
        del command
        library = self._playbooks.library
        shown = sorted(library.playbooks.values(), key=lambda each: (-each.playbook.priority, each.name))
        lines = [f"• {code(each.name, 80)} {line(each.playbook.title, 150)}\n      {_opens(each)}" for each in shown]
        broken = [_broken(file, faults) for file, faults in library.faults.items()]
        if not lines and not broken:
            return reply("The bot has no playbooks: the playbook folder is empty.")
        return reply(f"*{len(shown)} playbooks*", *lines, *broken, "`/incident graph NAME` draws one.")

    async def settings(self, command: Command) -> Message:
        """The settings of a playbook; for an incident, those it began with, even if the files have changed."""
        library = self._playbooks.library.playbooks
        if command.rest in library:
            compiled = library[command.rest]
        elif command.rest and not INCIDENT_ID.fullmatch(command.rest):
            raise NotDoneError(_no_such(command.rest, tuple(library)))
        else:
            run, _ = await self._naming.run_and_text(command)
            compiled = await self._playbooks.playbook_of(run)
        lines = [_setting(name, compiled) for name in compiled.playbook.settings]
        about = line(compiled.playbook.title, 150)
        return reply(f"*Settings of {about}*", *(lines or ["It has none."]))

    async def graph(self, command: Command) -> Message:
        """Draws an incident's path into its thread, or a playbook into this channel. The asker also gets the text."""
        library = self._playbooks.library.playbooks
        if command.rest in library:
            return self._playbook(command, library[command.rest])
        if command.rest and not INCIDENT_ID.fullmatch(command.rest):
            raise NotDoneError(_no_such(command.rest, tuple(library)))
        run, _ = await self._naming.run_and_text(command)
        playbook = (await self._playbooks.playbook_of(run)).playbook
        wanted = Commanded(event_id=command.command_id, command="graph", user=command.user, user_name=command.user_name)
        await self._incidents.command(wanted, run.incident_id)
        comes = f"The path of {line(run.incident_id, 40)} will be posted as a picture in its thread."
        return _drawn(comes, playbook, run)

    def _playbook(self, command: Command, compiled: CompiledPlaybook) -> Message:
        about = f"*{line(compiled.playbook.title, 150)}*"
        if self._draw is None:
            return _drawn(about, compiled.playbook)
        # Slack waits three seconds for the answer, and drawing and uploading may take longer.
        self._afterwards.begin(self._share(self._draw, command, compiled), f"drawing {compiled.name}")
        return _drawn(f"{about} will be posted as a picture in this channel.", compiled.playbook)

    async def _share(self, draw: Draw, command: Command, compiled: CompiledPlaybook) -> None:
        try:
            await draw(compiled, command.channel, f"{line(compiled.playbook.title, 150)}, for {mention(command.user)}")
        except MessengerError as error:
            log.warning("graph.not_shared", playbook=compiled.name, channel=command.channel, reason=error.reason)
            with contextlib.suppress(MessengerError):
                await self._messenger.notify(
                    command.user, command.channel, _not_shared(compiled, error), response_url=command.response_url
                )


def _not_shared(compiled: CompiledPlaybook, error: MessengerError) -> str:
    by_hand = f"incident-bot playbook graph {compiled.name} --format png --out {compiled.name}.png"
    return (
        f"The picture of {compiled.name} could not be posted here: {error.reason}. "
        f"Ask in a channel that the bot has joined, or draw it with: {by_hand}"
    )


def _setting(name: str, compiled: CompiledPlaybook) -> str:
    spec, effective = compiled.playbook.settings[name], compiled.settings[name]
    # Durations are kept in seconds, whatever they were written in.
    in_seconds = effective if isinstance(spec.default, str) and isinstance(effective, float) else None
    shown = lasting(in_seconds) if in_seconds is not None else value(effective, spec.unit)
    limits = (("at least", spec.min), ("at most", spec.max))
    bounds = [
        f"{word} {lasting(seconds(to)) if isinstance(to, str) else value(to)}" for word, to in limits if to is not None
    ]
    allowed = f" ({', '.join(bounds)})" if bounds else ""
    return f"• {code(name, 80)} *{line(shown, 80)}*{allowed}: {line(spec.why, 200)}"


def _no_such(name: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {code(close[0], 80)}?" if close else " `/incident playbooks` lists them."
    return f"There is no playbook {code(name, 80)}.{hint}"


def _drawn(head: str, playbook: Playbook, run: Run | None = None) -> Message:
    path, current = (run.findings.path, run.visit.state if run.is_open else "") if run else ((), "")
    text = mermaid(playbook, path=path, current=current)
    if len(code_block(text.splitlines(), 10 * GRAPH_CHARACTERS)) > GRAPH_CHARACTERS:
        command = f"incident-bot playbook graph {playbook.playbook}"
        return reply(
            head, f"Its text is too long for Slack ({len(text):,} characters): {code(command, 150)} prints it."
        )
    blocks = [block for part in _parts(text.splitlines()) for block in section([code_block(part, limits.SECTION)])]
    return Message(head, limits.fitted([*section([head]), *blocks]))


def _parts(lines: list[str]) -> list[list[str]]:
    """The lines in as few blocks as possible, measured after escaping."""
    parts: list[list[str]] = [[]]
    room = BLOCK_CHARACTERS
    for each in lines:
        size = len(line(each, BLOCK_CHARACTERS)) + 3
        if size > room:
            parts.append([])
            room = BLOCK_CHARACTERS
        parts[-1].append(each)
        room -= size
    return parts


def _opens(compiled: CompiledPlaybook) -> str:
    playbook = compiled.playbook
    by_hand = f"`/incident open {line(playbook.playbook, 80)}`"
    alerts = [code(each, 150) for each in playbook.opens_on[:3]]
    opens = f"alerts with {' or '.join(alerts)} or {by_hand}" if alerts else by_hand
    return f"opened by {opens}"


def _broken(file: str, faults: tuple[Fault, ...]) -> str:
    name = line(file.rpartition("/")[2], 80)
    more = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
    return f"⚠️ {code(name, 80)} is refused: {line(faults[0], 300)}{more}"
