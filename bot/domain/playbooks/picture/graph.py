"""A playbook as mermaid text: its written states and edges, the path of a run and its present state."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from bot.domain.playbooks.edges import Edge, edges_of
from bot.domain.playbooks.language import Playbook, State, kind_of

SHAPES: dict[str, tuple[str, str]] = {
    "read": ("[", "]"),
    "ask": ("{{", "}}"),
    "recommend": ("{{", "}}"),
    "change": ("[[", "]]"),
    "watch": ("([", "])"),
    "divert": ("[/", "/]"),
    "return": ("[\\", "\\]"),
    "end": ("((", "))"),
}
_STYLES = (
    "classDef ask fill:#fff3cd,stroke:#b58900",
    "classDef recommend fill:#ffe3c2,stroke:#b45f06",
    "classDef change fill:#fde2e1,stroke:#c0392b",
    "classDef watch fill:#e1f0fd,stroke:#2471a3",
    "classDef divert fill:#eee6f7,stroke:#6c3483",
    "classDef return fill:#e3f4e3,stroke:#6c3483",
    "classDef end_ fill:#e3f4e3,stroke:#1e8449",
    "classDef read fill:#f7f7f7,stroke:#7f8c8d",
    "classDef current stroke:#000,stroke-width:4px",
)
_MAX_LABEL_LENGTH = 48


def mermaid(playbook: Playbook, *, path: Sequence[str] = (), current: str = "") -> str:
    """Returns flowchart text; `path` are the written states that a run entered, in order, `current` its present one."""
    lines = ["flowchart TD"]
    for name, state in playbook.states.items():
        begin, end = SHAPES[kind_of(state)]
        lines.append(f"  {_id(name)}{begin}{_label(state, name)}{end}")
    taken = set(pairwise(path))
    thick: list[int] = []
    edges = [(name, edge) for name, state in playbook.states.items() for edge in _joined(edges_of(state))]
    for number, (name, edge) in enumerate(edges):
        label = f"|{_quoted(edge.label)}|" if edge.label else ""
        lines.append(f"  {_id(name)} -->{label} {_id(edge.to)}")
        if (name, edge.to) in taken:
            thick.append(number)
    lines += [
        f'  click {_id(name)} href "{state.runbook.link}" {_quoted(state.runbook.step)}'
        for name, state in playbook.states.items()
        if state.runbook and state.runbook.link
    ]
    lines += [f"  {style}" for style in _STYLES]
    for kind in SHAPES:
        members = [_id(name) for name, state in playbook.states.items() if kind_of(state) == kind]
        if members:
            lines.append(f"  class {','.join(members)} {'end_' if kind == 'end' else kind}")
    if thick:
        lines.append(f"  linkStyle {','.join(map(str, thick))} stroke:#000,stroke-width:3px")
    if current:
        lines.append(f"  class {_id(current)} current")
    return "\n".join(lines) + "\n"


def _joined(edges: Sequence[Edge]) -> list[Edge]:
    """One arrow for all outcomes that lead to the same state."""
    labels: dict[str, list[str]] = {}
    for edge in edges:
        labels.setdefault(edge.to, []).append(edge.label)
    return [Edge("", to, (), " / ".join(filter(None, texts))) for to, texts in labels.items()]


def _id(name: str) -> str:
    # Mermaid would read a bare `end` or `default` as a keyword.
    return f"s_{name}"


def _label(state: State, name: str) -> str:
    parked = " (parked)" if getattr(state, "parked", False) else ""
    title = _quoted(f"{state.title or name.replace('_', ' ')}{parked}")
    return f"{title[:-1]}<br>{_quoted(f'Runbook: {state.runbook.step}')[1:]}" if state.runbook else title


def _quoted(text: str) -> str:
    short = text if len(text) <= _MAX_LABEL_LENGTH else text[: _MAX_LABEL_LENGTH - 1] + "…"
    escaped = short.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    return f'"{escaped}"'
