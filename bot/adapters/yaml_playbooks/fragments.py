"""The fragments that a playbook may include: those beside it, and those that came with the bot."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path

from bot.adapters.yaml_playbooks.files import FRAGMENTS, texts_of_fragments
from bot.adapters.yaml_playbooks.source import read_source
from bot.domain.kernel.errors import Fault, PlaybookError
from bot.domain.playbooks.loading.fragment import Fragments, ReadFragment, read_fragment
from bot.domain.playbooks.packaged import packaged_playbooks


@cache
def packaged_fragments() -> Fragments:
    """The fragments that came with the bot: every playbook may include them; one of the same name beside it wins."""
    return read_fragments(packaged_playbooks() / FRAGMENTS)


def fragments_beside(path: Path) -> Fragments:
    """The fragments that a playbook may include."""
    return {**packaged_fragments(), **read_fragments(path.parent / FRAGMENTS)}


def read_fragments(folder: Path) -> Fragments:
    """Every fragment of a folder, by the name of its file; those of a playbook are in `fragments/` beside it."""
    return {name: fragment_in(name, text, file) for name, (file, text) in texts_of_fragments(folder).items()}


def fragments_of(texts: Mapping[str, str]) -> Fragments:
    """Fragments from texts, by name."""
    return {name: fragment_in(name, text, f"{FRAGMENTS}/{name}.yaml") for name, text in texts.items()}


@lru_cache(maxsize=64)
def fragment_in(name: str, text: str | Fault, file: str) -> ReadFragment:
    if isinstance(text, Fault):
        return ReadFragment(None, None, (text,))
    try:
        return read_fragment(name, read_source(text, file, is_included=True))
    except PlaybookError as error:
        return ReadFragment(None, None, error.faults)
