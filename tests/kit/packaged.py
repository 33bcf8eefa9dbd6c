"""The packaged playbooks, loaded once for each process of a test run: that takes two seconds."""

from __future__ import annotations

import functools

from bot.adapters.yaml_playbooks import load_folder
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.library import Library
from bot.domain.playbooks.packaged import packaged_playbooks


@functools.cache
def library() -> Library:
    return load_folder(packaged_playbooks())


def packaged(name: str) -> CompiledPlaybook:
    return library().playbooks[name]
