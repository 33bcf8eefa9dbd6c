"""`incident-bot playbook graph`: the same playbook as text for mermaid or as a picture."""

from __future__ import annotations

from typing import Literal

from bot.cli.failures import CommandError
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.expressions.expression import did_you_mean
from bot.domain.playbooks.picture.folding import sections_of
from bot.domain.playbooks.picture.graph import mermaid
from bot.domain.playbooks.picture.overview import overview, section_picture
from bot.domain.playbooks.picture.picture import Picture, picture


def graph_of(
    compiled: CompiledPlaybook, file_format: Literal["mermaid", "svg", "png"], *, whole: bool, section: str
) -> bytes:
    """Text always has every state: its viewer can zoom."""
    if file_format == "mermaid" and section:
        raise CommandError("--section needs --format svg or --format png: the text has every state")
    if file_format == "mermaid":
        return mermaid(compiled.playbook).encode()
    from bot.adapters.pictures.drawn_graph import drawn

    return drawn(_picture(compiled, whole=whole, section=section), file_format)


def _picture(compiled: CompiledPlaybook, *, whole: bool, section: str) -> Picture:
    if whole:
        return picture(compiled.playbook)
    if not section:
        return overview(compiled)
    known = list(dict.fromkeys(sections_of(compiled).values()))
    found = next((title for title in known if title.lower() == section.lower()), None)
    if found is None:
        hint = did_you_mean(section, known) or f"There are: {', '.join(known) or 'none'}."
        raise CommandError(f"{compiled.name} has no section '{section}'. {hint}")
    return section_picture(compiled, found)
