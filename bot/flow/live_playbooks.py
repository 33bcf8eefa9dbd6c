"""The playbooks in force for new incidents. Edited files take effect without a restart, all of them at once.

A broken edit never removes a playbook: its last good version stays in force, and people are notified once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import PurePath

import structlog

from bot.domain.kernel.errors import Fault, MessengerError
from bot.domain.kernel.target import Target
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.library import NO_LABELS, SETTINGS, Library
from bot.flow.notify_once import Announce

log = structlog.get_logger()
FAULTS_SHOWN = 5

Look = Callable[[], Mapping[str, str]]
"""The present content of the files: a hash for each."""
Forget = Callable[[str], Awaitable[None]]
"""Allows a notice about this topic to be posted again."""


class LivePlaybooks:
    """`Playbooks`, from files that may change; `refresh` is called every second or so."""

    def __init__(self, read: Callable[[], Library], look: Look, notify_once: Announce, forget: Forget) -> None:
        self._read, self._look, self._notify_once, self._forget = read, look, notify_once, forget
        self._seen = self._settling = look()
        self._library = read()
        self._announced: dict[str, tuple[Fault, ...]] = {}
        self._unannounced: set[str] = set()
        _log(self._library.faults)

    @property
    def library(self) -> Library:
        """The present library."""
        return self._library

    def match(self, labels: Mapping[str, str]) -> Sequence[CompiledPlaybook]:
        return self._library.match(labels)

    def bundle(self, name: str, target: Target, labels: Mapping[str, str] = NO_LABELS) -> Bundle | None:
        return self._library.bundle(name, target, labels)

    def notices(self) -> Mapping[str, str]:
        """What is not in force as it is written, for the people who watch the bot."""
        faults = self._library.faults
        return {"playbooks": "; ".join(map(_first_of, faults.values()))} if faults else {}

    async def refresh(self) -> None:
        """Loads changes once they have settled: a file that is being written is not read halfway."""
        found = await asyncio.to_thread(self._look)
        if found != self._settling:
            self._settling = found
            return
        if found != self._seen:
            # Read here and not in a thread: it is slow only right after an edit, and the compiler is not shared.
            self._library = self._read().or_last_good(self._library)
            self._seen = found
            log.info("playbooks.read", playbooks=sorted(self._library.playbooks))
        await self._announce()

    async def _announce(self) -> None:
        faults = self._library.faults
        for file, found in faults.items():
            if self._announced.get(file) == found:
                continue
            if not await self._announced_once(_about(file, found), _text(file, found, self._library), file):
                continue
            await self._forget(_mended(file))
            self._announced[file] = found
            _log({file: found})
        for file in self._announced.keys() - faults.keys():
            await self._announce_mended(file)

    async def _announce_mended(self, file: str) -> None:
        """Posts nothing about a deleted file. The same fault may be reported again after that."""
        names = [name for name, playbook in self._library.playbooks.items() if playbook.file == file]
        text = f"A playbook file is sound again: {file}. New incidents take {''.join(names)} as it is now."
        if names and not await self._announced_once(_mended(file), text, file):
            return
        await self._forget(_about(file, self._announced.pop(file)))

    async def _announced_once(self, about: str, text: str, file: str) -> bool:
        try:
            await self._notify_once(about, text)
        except MessengerError as error:  # the next round, a second later, retries it
            if file not in self._unannounced:
                log.warning("playbooks.not_announced", file=file, reason=str(error))
            self._unannounced.add(file)
            return False
        self._unannounced.discard(file)
        return True


def _first_of(faults: Sequence[Fault]) -> str:
    more = len(faults) - 1
    return f"{faults[0]}" + (f" (and {more} more)" if more else "")


def _about(file: str, faults: Sequence[Fault]) -> str:
    return f"{file}:{'|'.join(map(str, faults))}"


def _mended(file: str) -> str:
    return f"{file}: sound"


def _text(file: str, faults: Sequence[Fault], library: Library) -> str:
    shown = [f"• {fault}" for fault in faults[:FAULTS_SHOWN]]
    more = [f"… and {len(faults) - FAULTS_SHOWN} more"] if len(faults) > FAULTS_SHOWN else []
    stays = [name for name in library.playbooks if name == PurePath(file).stem]
    what = f"The last good version of {stays[0]} stays in force." if stays else "It is not in force."
    head = f"A playbook file has faults: {file}. {what}"
    if file == SETTINGS:
        head = "Overrides in the bot's settings have faults. Those that have one are not in force."
    return "\n".join([head, *shown, *more])


def _log(faults: Mapping[str, Sequence[Fault]]) -> None:
    for file, found in faults.items():
        log.error("playbook.refused", file=file, faults=[str(fault) for fault in found])
