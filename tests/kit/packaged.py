"""The packaged playbooks, loaded once for each process of a test run, as a start loads them: once one has checked them,
the others read what it kept.
"""

from __future__ import annotations

import functools

from bot.adapters.checked_playbooks import CheckedPlaybooks
from bot.adapters.yaml_playbooks import load_folders
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.library import Library
from bot.domain.playbooks.packaged import packaged_playbooks
from bot.domain.playbooks.settings import Override
from bot.probes.catalogue import PROBES


def library_with(*overrides: Override) -> Library:
    return load_folders([packaged_playbooks()], overrides, before=CheckedPlaybooks(PROBES))


@functools.cache
def library() -> Library:
    return library_with()


def packaged(name: str) -> CompiledPlaybook:
    return library().playbooks[name]
