"""The playbooks of some folders as one library, with the overrides of the settings in force."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from bot.adapters.yaml_playbooks.files import FRAGMENTS, FragmentTexts, never_read, text_of, texts_of_fragments
from bot.adapters.yaml_playbooks.fragments import fragment_in
from bot.adapters.yaml_playbooks.playbook import check_file
from bot.domain.kernel.errors import Fault, PlaybookError
from bot.domain.playbooks.bundle import diverts_of
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.expressions.expression import did_you_mean
from bot.domain.playbooks.files import playbooks_in
from bot.domain.playbooks.library import SETTINGS, Library
from bot.domain.playbooks.loading.check import Checked
from bot.domain.playbooks.loading.check_paths import NOTHING_OPENS
from bot.domain.playbooks.loading.link import Known, link_faults, slim
from bot.domain.playbooks.loading.overrides import OnTarget, together_on, values_of_override
from bot.domain.playbooks.packaged import packaged_playbooks
from bot.domain.playbooks.settings import Override
from bot.domain.signals.signal import Value


class CheckedBefore(Protocol):
    """Playbooks that were found sound before."""

    def read(self, path: Path, text: str, fragments: Mapping[str, tuple[str, str]]) -> Checked | None:
        """Returns the playbook of this file; None if it has to be checked. `fragments`: their files and texts."""
        ...

    def keep(self, path: Path, checked: Checked) -> None:
        """Keeps it if it is sound."""
        ...


def load_folders(
    folders: Sequence[Path], overrides: Sequence[Override] = (), *, before: CheckedBefore | None = None
) -> Library:
    """Every `*.yaml` of the folders except `*.test.yaml`; of files with one name the last folder's counts.

    `before`: those that were found sound before are not checked again, unless a fault is found, whose exact place only
    the check knows.
    """
    if before is not None:
        library = _loaded(folders, overrides, before)
        if not library.faults:
            return library
    return _loaded(folders, overrides, None)


def load_folder(folder: Path, *overrides: Override) -> Library:
    return load_folders((folder,), overrides)


def with_packaged(folder: Path) -> tuple[Path, ...]:
    """A user's own folder as it is served: over the packaged one."""
    packaged = packaged_playbooks()
    return (folder,) if folder.resolve() == packaged.resolve() else (packaged, folder)


def _loaded(folders: Sequence[Path], overrides: Sequence[Override], before: CheckedBefore | None) -> Library:
    fragments = {folder: texts_of_fragments(folder / FRAGMENTS) for folder in folders}
    home = packaged_playbooks()
    packaged = fragments[home] if home in fragments else texts_of_fragments(home / FRAGMENTS)
    playbooks: dict[str, CompiledPlaybook] = {}
    faults: dict[str, tuple[Fault, ...]] = {}
    warnings: dict[str, tuple[Fault, ...]] = {}
    for path in {path.stem: path for folder in folders for path in playbooks_in(folder)}.values():
        checked = _checked(path, {**packaged, **fragments[path.parent]}, before)
        found = checked.compiled
        if found is not None and found.name in playbooks:
            faults[str(path)] = (Fault(str(path), f"'{found.name}' is also in {playbooks[found.name].file}"),)
        elif found is not None:
            playbooks[found.name] = slim(found)
        else:
            faults[str(path)] = checked.faults
        if checked.warnings:
            warnings[str(path)] = checked.warnings
    for folder in folders:
        others = (*folder.glob("[!.]*.yml"), *(folder / FRAGMENTS).glob("[!.]*.yml"))
        warnings |= {str(path): (never_read(path),) for path in sorted(others)}
    included = {each.file for playbook in playbooks.values() for each in playbook.fragments}
    unread = {file: (name, text) for own in fragments.values() for name, (file, text) in own.items()}
    broken = {file: fragment_in(*each, file).faults for file, each in unread.items() if file not in included}
    faults = {file: found for file, found in broken.items() if found} | faults
    _unlink(playbooks, faults, warnings)
    wrong = [*_unknown_names(playbooks, faults, overrides)]
    on_targets = _take_effect(playbooks, overrides, wrong)
    if wrong:
        faults[SETTINGS] = tuple(dict.fromkeys(wrong))
    return Library(playbooks, faults, warnings, on_targets)


def _checked(path: Path, fragments: FragmentTexts, before: CheckedBefore | None) -> Checked:
    text = text_of(path) if before is not None else None
    texts = {name: (file, found) for name, (file, found) in fragments.items() if isinstance(found, str)}
    if before is not None and isinstance(text, str) and (known := before.read(path, text, texts)) is not None:
        return known
    read = {name: fragment_in(name, found, file) for name, (file, found) in fragments.items()}
    checked = check_file(path, {}, fragments=read)
    if before is not None:
        before.keep(path, checked)
    return checked


def _unlink(
    playbooks: dict[str, CompiledPlaybook],
    faults: dict[str, tuple[Fault, ...]],
    warnings: dict[str, tuple[Fault, ...]],
) -> None:
    """Removes playbooks that divert to a missing one; a playbook that others divert to needs no trigger."""
    for name, compiled in list(playbooks.items()):
        known: Known = {**{Path(file).stem: None for file in faults}, **playbooks}
        if unlinked := tuple(link_faults(compiled, known)):
            faults[compiled.file] = unlinked
            del playbooks[name]
    for name in {name for compiled in playbooks.values() for name in diverts_of(compiled)} & playbooks.keys():
        file = playbooks[name].file
        if others := tuple(w for w in warnings.pop(file, ()) if w.what != NOTHING_OPENS):
            warnings[file] = others


def _unknown_names(
    playbooks: Mapping[str, CompiledPlaybook], faults: Mapping[str, object], overrides: Sequence[Override]
) -> Iterator[Fault]:
    refused = {Path(file).stem for file in faults}
    known = {name for playbook in playbooks.values() for name in playbook.settings}
    for override in overrides:
        name = override.playbook
        # A setting that nobody knows may be one of a playbook that is refused.
        for setting in [] if name or refused else sorted(override.settings.keys() - known):
            hint = did_you_mean(setting, known)
            yield Fault(override.place, f"no playbook has a setting '{setting}'", hint)
        if name and name not in playbooks and name not in refused:
            yield Fault(override.place, f"unknown playbook '{name}'", did_you_mean(name, playbooks))


def _take_effect(
    playbooks: dict[str, CompiledPlaybook], overrides: Sequence[Override], wrong: list[Fault]
) -> list[OnTarget]:
    """Applies the overrides that count everywhere. Returns those of targets, which count on top of them.

    One with a fault has no effect, and takes no playbook out of force; its faults are added to `wrong`.
    """
    on_targets: list[OnTarget] = []
    for override in sorted(overrides, key=lambda each: bool(each.target)):
        settings: dict[str, dict[str, Value]] = {}
        for playbook, own in _meant(override, playbooks):
            earlier = [each for each in on_targets if own and each[1].get(playbook.name)]
            together = together_on(override.target, earlier)
            try:
                values = [values_of_override(playbook, own, override.place, below) for below in together]
            except PlaybookError as error:
                wrong += error.faults
            else:
                settings[playbook.name] = values[0]
        if override.target:
            on_targets.append((override.target, settings))
        else:
            playbooks.update({name: playbooks[name].with_settings(values) for name, values in settings.items()})
    return on_targets


def _meant(
    override: Override, playbooks: Mapping[str, CompiledPlaybook]
) -> Iterator[tuple[CompiledPlaybook, Mapping[str, str]]]:
    """The playbooks that an override is for, each with the settings that apply to it."""
    for name, playbook in list(playbooks.items()):
        if override.playbook == name:
            yield playbook, override.settings
        elif not override.playbook:
            yield playbook, {key: text for key, text in override.settings.items() if key in playbook.settings}
