"""Which playbook a person means: by its file, its folder, or the name of a packaged one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from bot.cli.failures import CommandError
from bot.domain.playbooks.files import playbooks_in
from bot.domain.playbooks.packaged import packaged_playbooks


def file_of(path: Path) -> Path:
    """A bare name is that of a packaged playbook, unless a file here has that name."""
    if path.exists() or path.parent != Path() or path.suffix:
        return path
    packaged = packaged_playbooks() / f"{path}.yaml"
    if not packaged.is_file():
        names = [each.stem for each in playbooks_in(packaged_playbooks())]
        raise CommandError(f"{path}: no such file, folder or packaged playbook; {meant(str(path), names)}")
    return packaged


def meant(name: str, known: Iterable[str]) -> str:
    """The nearest known name, or all of them, as the hint of an error."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1)
    return f"did you mean '{near[0]}'?" if near else f"there are: {', '.join(names) or 'none'}"
