"""Fills in a state's `otherwise` for each outcome that it does not name; a fault in it is reported where it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.domain.kernel.errors import Fault
from bot.domain.playbooks.edges import CHANGE_OUTCOMES
from bot.domain.playbooks.loading.filled import with_states
from bot.domain.playbooks.mistakes import Mistake, Path
from bot.domain.playbooks.source import Source

_OF_CHANGE = tuple(outcome for outcome in CHANGE_OUTCOMES if outcome not in ("done", "unclear"))
OUTCOMES: Mapping[str, tuple[str, ...]] = {
    "recommend": (*_OF_CHANGE, "none_possible"),
    "change": _OF_CHANGE,
    "watch": ("not_held", "unknown"),
    "go": ("unknown",),
}
"""By kind of state. `done` and `held` are always written, and an unclear outcome is always asked about."""


def with_otherwise(source: Source) -> tuple[Source, tuple[Fault, ...]]:
    """Returns the playbook with its `otherwise` spelled out, and the faults of those that stand for nothing."""
    states = source.data.get("states")
    if not isinstance(states, Mapping):
        return source, ()
    filled: dict[str, Any] = dict(states)
    written: dict[Path, Path] = {}
    faults: list[Fault] = []
    for name, state in states.items():
        kind = next((kind for kind in OUTCOMES if isinstance(state, Mapping) and kind in state), "")
        if not kind or not isinstance(state.get("otherwise"), str):
            continue
        at = ("states", name, "otherwise")
        left = [outcome for outcome in OUTCOMES[kind] if outcome not in state]
        clauses = state["go"] if kind == "go" and isinstance(state["go"], list) else []
        is_last = clauses != [] and not any(isinstance(clause, Mapping) and "otherwise" in clause for clause in clauses)
        if clauses and not is_last:
            what = "'otherwise' is written twice: under 'go', and beside it"
            hint = "Write 'unknown' for where a condition that cannot be decided leads."
            faults.append(source.fault(Mistake(at, what, hint, at_key=True)))
        elif not left and not is_last:
            what = "'otherwise' stands for nothing: the state names every outcome"
            faults.append(source.fault(Mistake(at, what, "Remove it.", at_key=True)))
        filled[name] = {key: value for key, value in state.items() if key != "otherwise"}
        filled[name] |= dict.fromkeys(left, state["otherwise"])
        written |= {("states", name, outcome): at for outcome in left}
        if is_last:
            filled[name]["go"] = [*clauses, {"otherwise": state["otherwise"]}]
            place: Path = ("states", name, "go", len(clauses))
            written |= {place: at, (*place, "otherwise"): at}
    return with_states(source, filled, written) if written else source, tuple(faults)
