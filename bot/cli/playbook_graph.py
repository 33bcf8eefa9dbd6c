"""`incident-bot playbook graph`: the same playbook as text for mermaid or as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from bot.adapters.yaml_playbooks import origins_in
from bot.domain.playbook.compiled import CompiledPlaybook
from bot.domain.playbook.graph import mermaid
from bot.domain.playbook.picture import picture


def graph_of(
    compiled: CompiledPlaybook, path: Path, file_format: Literal["mermaid", "svg", "png"], *, whole: bool
) -> bytes:
    if file_format == "mermaid":
        return mermaid(compiled.playbook).encode()
    from bot.adapters.drawn_graph import drawn

    folded = {} if whole else {state: origin.include for state, origin in origins_in(path).items()}
    return drawn(picture(compiled.playbook, folded=folded), file_format)
