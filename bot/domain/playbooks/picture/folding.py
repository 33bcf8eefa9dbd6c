"""Which states a picture may draw as one: those of an included fragment, and those below one heading.

A heading is a comment on its own line between states, `# --- Which mitigation? ---`. It affects no decision: it is
where the authors divided their file.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.source import Position, owner_of

FIRST = "First"
"""The states above the first heading."""
_HEADING = re.compile(r" *# --- (?P<title>\S.*?) -{3,} *")


def rows_of_fragments(compiled: CompiledPlaybook) -> dict[str, str]:
    """Maps each state to the one that represents its fragment: states written in a fragment carry that file's name."""
    written: dict[tuple[str, int], list[str]] = {}
    for fragment in compiled.fragments:
        for where, at in fragment.keys.items():
            if len(where) == 2 and where[0] == "states":
                written.setdefault((fragment.file, at.line), []).append(str(where[1]))

    def own_name(state: str, at: Position) -> str:
        # The changes of one option of a recommendation are written at the same place.
        names = [name for name in written.get((at.file, at.line), ()) if state.endswith(f"_{name}")]
        return max(names, key=len, default="")

    states = {state: own_name(state, at) for state, at in _states(compiled).items()}
    includes = {state: state.removesuffix(f"_{own}") for state, own in states.items() if own}
    # A fragment that another one includes is part of its row: it is not a state of the playbook's own file.
    own = [include for include in dict.fromkeys(includes.values()) if include in states]
    return {state: owner_of(include, own) for state, include in includes.items()}


def sections_of(compiled: CompiledPlaybook) -> dict[str, str]:
    """Maps each state to the heading above it; empty for a playbook without headings."""
    begins = compiled.source.keys["states",].line
    lines = compiled.source.text.splitlines()
    headings = [
        (number, heading["title"].partition(". ")[0])
        for number, text in enumerate(lines, start=1)
        if number > begins and (heading := _HEADING.fullmatch(text))
    ]
    if not headings:
        return {}
    places = [line for line, _ in headings]
    titles = [FIRST, *(title for _, title in headings)]
    own = {state: at.line for state, at in _states(compiled).items() if not at.file}

    # A fragment's states are placed at the state that includes it, whose name is their prefix.
    return {state: titles[bisect_right(places, own[owner_of(state, own)])] for state in compiled.playbook.states}


def _states(compiled: CompiledPlaybook) -> dict[str, Position]:
    """Returns the positions of all written states and of those that only include."""
    keys = compiled.source.keys
    return {str(where[1]): at for where, at in keys.items() if len(where) == 2 and where[0] == "states"}
