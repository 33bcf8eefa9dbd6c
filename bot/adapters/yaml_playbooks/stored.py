"""The playbooks that a run keeps, as they were stored at its start."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bot.adapters.yaml_playbooks.fragments import fragment_in
from bot.adapters.yaml_playbooks.source import read_source
from bot.domain.kernel.errors import Fault, PlaybookError
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.loading.check import recompile
from bot.probes.catalogue import PROBES


class StoredPlaybooks:
    """Rebuilds the playbooks of a run's start, with the settings of that time; newer rules of the check do not stop it.

    Compiling one takes a second, so a playbook that is in force with the same text is taken from there.
    """

    def __init__(self, in_force: Callable[[], Mapping[str, CompiledPlaybook]] = dict) -> None:
        self._in_force = in_force

    def __call__(self, stored: Mapping[str, str]) -> Bundle:
        return Bundle(stored["entry"], _WhenNeeded(json.loads(stored["playbooks"]), self._in_force))


class _WhenNeeded(Mapping[str, CompiledPlaybook]):
    """Stored playbooks, each compiled when a run first enters it: most runs never leave the first."""

    def __init__(
        self, kept: Mapping[str, Mapping[str, Any]], in_force: Callable[[], Mapping[str, CompiledPlaybook]]
    ) -> None:
        self._kept, self._in_force = kept, in_force
        self._compiled: dict[str, CompiledPlaybook] = {}

    def __getitem__(self, name: str) -> CompiledPlaybook:
        if name not in self._compiled:
            kept, current = self._kept[name], self._in_force().get(name)
            if current is not None and {**current.texts(), "settings": kept.get("settings")} == kept:
                self._compiled[name] = current.with_settings(kept["settings"])
            else:
                self._compiled[name] = _from_stored(name, kept)
        return self._compiled[name]

    def __contains__(self, name: object) -> bool:
        return name in self._kept

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


def _from_stored(name: str, kept: Mapping[str, Any]) -> CompiledPlaybook:
    try:
        source, settings = read_source(kept["source"], kept["file"]), kept["settings"]
        fragments = {each: fragment_in(each, it["source"], it["file"]) for each, it in kept["fragments"].items()}
    except KeyError as missing:
        what = f"this version of the bot cannot read how it is stored: {missing} is missing"
        raise PlaybookError((Fault(name, what),)) from missing
    return recompile(source, fragments, settings, PROBES)
