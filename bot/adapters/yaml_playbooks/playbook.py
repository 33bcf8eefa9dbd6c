"""One playbook, checked with the fragments that it includes. All its faults are found at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from bot.adapters.yaml_playbooks.files import text_of
from bot.adapters.yaml_playbooks.fragments import fragments_beside, fragments_of
from bot.adapters.yaml_playbooks.source import read_source
from bot.domain.kernel.errors import Fault, PlaybookError
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.edges import Origin
from bot.domain.playbooks.files import playbooks_in
from bot.domain.playbooks.library import SETTINGS
from bot.domain.playbooks.loading.check import Checked, check
from bot.domain.playbooks.loading.fragment import Fragments
from bot.domain.playbooks.loading.include import expand
from bot.domain.playbooks.loading.link import link_faults
from bot.domain.playbooks.loading.overrides import values_of_override
from bot.domain.playbooks.mistakes import Mistake
from bot.domain.playbooks.packaged import packaged_playbooks
from bot.domain.playbooks.source import owner_of
from bot.probes.catalogue import PROBES

NO_FRAGMENTS: Fragments = MappingProxyType({})
NO_TEXTS: Mapping[str, str] = MappingProxyType({})


def load_playbook(path: Path, overrides: Mapping[str, str] | None = None, *, place: str = SETTINGS) -> CompiledPlaybook:
    """Raises `PlaybookError` with all faults of the file, or of the overrides that are written at `place`."""
    return _sound(check_file(path, overrides or {}, place=place))


def load_text(
    text: str,
    overrides: Mapping[str, str] | None = None,
    *,
    file: str = "playbook",
    fragments: Mapping[str, str] = NO_TEXTS,
) -> CompiledPlaybook:
    return _sound(check_text(text, overrides or {}, file=file, fragments=fragments_of(fragments)))


def _sound(checked: Checked) -> CompiledPlaybook:
    if checked.compiled is None:
        raise PlaybookError(checked.faults)
    return checked.compiled


def check_file(
    path: Path, overrides: Mapping[str, str], *, place: str = SETTINGS, fragments: Fragments | None = None
) -> Checked:
    """`fragments`: None for a file that is checked alone, with the fragments and the playbooks beside it.

    `place`: where the overrides were written, for their faults.
    """
    text = text_of(path)
    if isinstance(text, Fault):
        return Checked(None, (text,))
    beside = fragments_beside(path) if fragments is None else fragments
    checked = check_text(text, overrides, file=str(path), place=place, fragments=beside)
    compiled = checked.compiled
    if compiled is None:
        return checked
    if compiled.name != path.stem:
        other = Mistake(("playbook",), f"its file is called '{path.stem}'", "Give both one name: commands take it.")
        checked = replace(checked, warnings=(*checked.warnings, compiled.fault(other)))
    if fragments is not None:
        return checked
    # A playbook is seldom written in the folder that serves it: beside the packaged ones.
    others = (*playbooks_in(packaged_playbooks()), *playbooks_in(path.parent))
    neighbours = {other.stem: None for other in others}
    unlinked = tuple(link_faults(compiled, {**neighbours, compiled.name: compiled}))
    return Checked(None, unlinked) if unlinked else checked


def check_text(
    text: str,
    overrides: Mapping[str, str],
    *,
    file: str = "playbook",
    place: str = SETTINGS,
    fragments: Fragments = NO_FRAGMENTS,
) -> Checked:
    try:
        checked = check(read_source(text, file), fragments, PROBES)
        if checked.compiled is None or not overrides:
            return checked
        values = values_of_override(checked.compiled, overrides, place)
        return replace(checked, compiled=checked.compiled.with_settings(values))
    except PlaybookError as error:
        return Checked(None, error.faults)


def origins_in(path: Path) -> Mapping[str, Origin]:
    """States of a valid playbook that come from a fragment, by the fragment's own names."""
    fragments = fragments_beside(path)
    text = text_of(path)
    source = read_source(text, str(path)) if isinstance(text, str) else None
    expanded = expand(source, fragments) if source else None
    if source is None or expanded is None or expanded.source is None:
        return {}
    includes = [str(where[1]) for where in source.keys if len(where) == 3 and where[::2] == ("states", "include")]
    own = {
        (read.source.file, at.line): (name, str(where[1]))
        for name, read in fragments.items()
        if read.source is not None
        for where, at in read.source.keys.items()
        if len(where) == 2 and where[0] == "states"
    }
    found: dict[str, Origin] = {}
    for where, at in expanded.source.keys.items():
        if len(where) == 2 and where[0] == "states" and (at.file, at.line) in own:
            fragment, state = own[at.file, at.line]
            found[str(where[1])] = Origin(fragment, state, include=owner_of(str(where[1]), includes))
    return found
