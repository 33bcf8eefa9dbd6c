"""Expands `recommend` and `before`; every value keeps its original position.

An option `limit` of a state `relieve` becomes the change `relieve_limit`. With `try`, a flag edit becomes a canary
first, and `relieve_limit_in_place` for where there can be no canary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from bot.domain.changes.plan import Risk
from bot.domain.kernel.errors import Fault
from bot.domain.kernel.runbook import Runbook
from bot.domain.kernel.strict import Strict
from bot.domain.playbooks.edges import CHANGE_OUTCOMES
from bot.domain.playbooks.language import question_without_options
from bot.domain.playbooks.loading.defaults import with_defaults
from bot.domain.playbooks.loading.former_keys import without_former_keys
from bot.domain.playbooks.loading.otherwise import with_otherwise
from bot.domain.playbooks.loading.structure import shape
from bot.domain.playbooks.mistakes import Mistake, Path
from bot.domain.playbooks.source import Position, Source


class WrittenOption(Strict):
    """One mitigation of a `recommend`: a change, or with `to` another state that is only offered, never recommended."""

    label: str
    """What it is called on the request and on its button."""
    possible: str = ""
    """True when it can be done now; absent, always. Unknown counts as not possible, with the reason."""
    why_not: str = ""
    """What people read when it is not possible."""
    effect: str = ""
    """One sentence on effect and cost."""
    repeat: bool = False
    """It may be recommended again in this incident, but not right after it was refused, and not with the values in its
    label (`${…}`) that a canary had before.
    """
    runbook: Runbook | None = None
    """The step of the runbook that it is."""
    to: str = ""
    """A state to go to instead of a change."""
    change: str = ""
    with_: dict[str, Any] = Field(default={}, alias="with")
    still: str = ""
    why: str = ""
    against: str = ""
    approvers: tuple[str, ...] = ()
    approved_with: tuple[str, ...] = ()
    """Earlier changes whose approval covers this one too, as in a change that is a state of its own."""
    risk: Risk | None = None
    expires: str = ""
    expected: str = ""
    done: str = ""
    not_needed: str = ""
    refused: str = ""
    expired: str = ""
    impossible: str = ""
    failed: str = ""
    unclear: str = ""


class Recommend(Strict):
    """A state that recommends the first possible option, as a request with its plan, and offers the others beside it.

    What an option does not say about its change (`runbook`, `still`, `against` and where its outcomes lead) is taken
    from here.
    """

    recommend: str
    """The question that the options answer."""
    why: str = ""
    title: str = ""
    runbook: Runbook | None = None
    read: tuple[str, ...] = ()
    options: dict[str, WrittenOption] = Field(min_length=1)
    """In order of preference, by the name of the change that each becomes."""
    none_possible: str = ""
    """Where it leads that no option is possible, or that each was tried. Absent, people are asked: their choices are
    the options with `to` and without `possible`, `expires` is how long they have, and `expired` where it leads then.
    """
    expires: str = ""
    try_: str = Field(default="", alias="try")
    """The state that judges a canary and rolls it out: flag edits are tried on a canary first, and go on there."""
    in_place: str = ""
    """True when a flag edit may be made without a canary, where there is no room for one; absent, always."""
    by_owner: str = ""
    """The state that an edit without a canary leads to when it is not possible: it waits for the workload's owner where
    that was handed a patch. Absent, `impossible`.
    """
    still: str = ""
    against: str = ""
    done: str = ""
    not_needed: str = ""
    refused: str = ""
    expired: str = ""
    impossible: str = ""
    failed: str = ""
    otherwise: str = ""
    """The next state for each outcome that is not named, also where no option is possible."""
    unclear: str = ""
    at_most: int | None = Field(default=None, ge=1)
    beyond: str = ""


PARAMETER = re.compile(r"parameters\.([A-Za-z_]\w*)")
"""The name of a fragment's parameter."""
_INHERITED = ("runbook", "still", "against", *CHANGE_OUTCOMES)
_OF_CHANGE = (
    *("change", "with", "why", "approvers", "approved_with", "risk", "expires", "expected"),
    *_INHERITED,
)
_OF_OPTION = ("label", "possible", "why_not", "effect", "repeat")
_OF_STATE = ("recommend", "why", "title", "runbook", "read", "none_possible", "at_most", "beyond")
_OF_QUESTION = ("why", "title", "runbook", "read", "expires", "expired")


@dataclass(frozen=True)
class Spread:
    """The playbook with its options as changes; `broken` are recommendations that could not be expanded."""

    source: Source
    faults: tuple[Fault, ...] = ()
    broken: frozenset[Path] = frozenset()


def spread(source: Source) -> Spread:
    """Fills in `otherwise` and the defaults, and expands every `recommend` and every `before` of a playbook."""
    spelled_out, faults = with_otherwise(without_former_keys(source))
    source = with_defaults(spelled_out)
    states = source.data.get("states")
    found = states.items() if isinstance(states, Mapping) else ()
    recommends = [name for name, state in found if isinstance(state, Mapping) and "recommend" in state]
    ends = [name for name, state in found if isinstance(state, Mapping) and {"end", "before"} <= state.keys()]
    if not isinstance(states, Mapping) or not (recommends or ends):
        return Spread(source, faults)
    spreading = _Spreading(source)
    for name in recommends:
        spreading.expand(str(name), states[name])
    for name in ends:
        spreading.precede(str(name), states[name])
    data = {**source.data, "states": spreading.states}
    whole = replace(source, data=data, values=spreading.values, keys=spreading.keys)
    return Spread(whole, (*faults, *map(source.fault, spreading.mistakes)), frozenset(spreading.broken))


class _Positions(dict[Path, Position]):
    """Positions by path. It knows those in each state and in each option, so that copying one does not look at all."""

    def __init__(self, known: Mapping[Path, Position]) -> None:
        super().__init__()
        self._inside: dict[Path, list[Path]] = {}
        for path, position in known.items():
            self[path] = position

    def __setitem__(self, path: Path, position: Position) -> None:
        if path not in self:
            for depth in _DEPTHS:
                if len(path) >= depth:
                    self._inside.setdefault(path[:depth], []).append(path)
        super().__setitem__(path, position)

    def alias(self, path: Path, other: Path) -> None:
        """Gives all positions at `path`, which is in a state, to `other` as well."""
        size = len(path)
        depth = next(depth for depth in _DEPTHS if size >= depth)
        for at in [at for at in self._inside.get(path[:depth], ()) if at[:size] == path]:
            self[(*other, *at[size:])] = self[at]


_DEPTHS = (4, 2)
"""Lengths of the paths of options and of states."""


class _Spreading:
    def __init__(self, source: Source) -> None:
        self.states: dict[str, Any] = dict(source.data["states"])
        self.values = _Positions(source.values)
        self.keys = _Positions(source.keys)
        self.mistakes: list[Mistake] = []
        self.broken: set[Path] = set()
        self._source = source

    def expand(self, name: str, state: Mapping[str, Any]) -> None:
        at: Path = ("states", name)
        mistakes = [each for each in shape(Recommend, state, at) if not _is_parameter(self._source.data, each.path)]
        mistakes += _neither_nor(at, state)
        mistakes += [] if mistakes else _nothing_to_try(at, state)
        self.mistakes += mistakes
        if mistakes:
            self._leave_out(name, state)
            return
        kept = {key: state[key] for key in _OF_STATE if key in state}
        targets = {key: option.get("to") or f"{name}_{key}" for key, option in state["options"].items()}
        self.states[name] = kept | {
            "options": {key: self._option(at, key, option, targets[key]) for key, option in state["options"].items()}
        }
        if "none_possible" not in state:
            self._add_question(name, state)
        for key, option in state["options"].items():
            if "change" in option:
                others = {other: to for other, to in targets.items() if other != key}
                self._add_changes(name, key, state, {"option_of": name, "alternatives": others})

    def precede(self, name: str, state: Mapping[str, Any]) -> None:
        """Puts the fragment that an end names as `before` in front of it; the end itself becomes `<name>_end`."""
        at: Path = ("states", name)
        end = f"{name}_end"
        if not isinstance(state["before"], str) or end in self.states:
            what = f"there is a state '{end}' already" if end in self.states else "'before' is the name of a fragment"
            self.mistakes.append(Mistake((*at, "before"), what, at_key=True))
            return
        self._alias(at, ("states", end))
        self.states[end] = _without(state, "before")
        self._alias((*at, "before"), (*at, "include"))
        self.states[name] = {"include": state["before"], "exits": {"done": end}}

    def _leave_out(self, name: str, state: Mapping[str, Any]) -> None:
        options = state.get("options")
        made = [f"{name}_{key}" for key in options] if isinstance(options, Mapping) else []
        del self.states[name]
        self.broken |= {("states", each) for each in (name, *made)}

    def _option(self, at: Path, key: str, option: Mapping[str, Any], to: str) -> dict[str, Any]:
        given = {word: option[word] for word in ("with", "why", "expected") if word in option}
        for word in given:
            self._alias((*at, "options", key, word), (*at, "options", key, "given", word))
        kept = {word: option[word] for word in _OF_OPTION if word in option}
        return {**kept, "to": to, "is_change": "change" in option, "given": given}

    def _add_changes(self, name: str, key: str, state: Mapping[str, Any], links: Mapping[str, Any]) -> None:
        at: Path = ("states", name, "options", key)
        option, tried = state["options"][key], state.get("try", "")
        final = f"{name}_{key}"
        if final in self.states:
            self.mistakes.append(Mistake(at, f"there is a state '{final}' already", "Rename one.", at_key=True))
            return
        # A title is not a template.
        title = state.get("title", "") if "${" in option["label"] else option["label"]
        change: dict[str, Any] = {"title": title} if title else {}
        self.keys["states", final] = self.keys.get(at, Position(1, 1))
        self.values["states", final] = self.values.get(at, Position(1, 1))
        self._alias((*at, "label"), ("states", final, "title"))
        for other in links["alternatives"]:
            written = self.values.get(("states", name, "options", other, "to"))
            self.values["states", final, "alternatives", other] = written or self.values["states", final]
        for word in _OF_CHANGE:
            if word in option:
                change[word] = option[word]
                self._alias((*at, word), ("states", final, word))
            elif (
                word in _INHERITED
                and word in state
                and not (word == "against" and "edits" not in option.get("with", {}))
            ):
                change[word] = state[word]
                self._alias(("states", name, word), ("states", final, word))
        if "why" not in option:
            text = "effect" if option.get("effect") else "label"
            change["why"] = option[text]
            self._alias((*at, text), ("states", final, "why"))
        change |= links
        if not tried or option["change"] != "set_flags":
            self.states[final] = change
            return
        in_place = f"{final}_in_place"
        if in_place in self.states:
            self.mistakes.append(Mistake(at, f"there is a state '{in_place}' already", "Rename one.", at_key=True))
            return
        for word in ("done", "failed"):
            self._alias(("states", name, "try"), ("states", final, word))
        outcomes = {"done": tried, "failed": tried}
        without_room = f"{final}_enough" if state.get("in_place") else in_place
        self.states[final] = {**_without(change, "risk"), "change": "canary", **outcomes, "impossible": without_room}
        if without_room != in_place:
            self._add_guard(name, state, without_room, in_place)
        by_owner = {"impossible": state["by_owner"]} if state.get("by_owner") else {}
        self.states[in_place] = {**change, **outcomes, **by_owner}
        if title:
            self.states[in_place]["title"] = f"{title}, without a canary"
        self._alias(("states", final), ("states", in_place))
        self._alias(("states", name, "by_owner"), ("states", in_place, "impossible"))

    def _add_question(self, name: str, state: Mapping[str, Any]) -> None:
        """Adds the question that is asked where no option is possible."""
        question, at = question_without_options(name), ("states", name)
        left = {key: option for key, option in state["options"].items() if "to" in option and "possible" not in option}
        if question in self.states or not left:
            what = f"there is a state '{question}' already" if left else "'none_possible' is missing"
            advice = "Rename one." if left else "Add it, or an option with 'to'."
            self.mistakes.append(Mistake(at, what, advice, at_key=True))
            return
        self._alias(at, ("states", question))
        self._alias((*at, "options"), ("states", question, "choices"))
        self._alias((*at, "recommend"), ("states", question, "ask"))
        choices = {key: {"label": option["label"], "to": option["to"]} for key, option in left.items()}
        kept = {word: state[word] for word in _OF_QUESTION if word in state}
        self.states[question] = {"ask": state["recommend"], **kept, "choices": choices}
        self.states[name] |= {"none_possible": question}
        self.values[(*at, "none_possible")] = self.keys[(*at, "none_possible")] = self.keys[at]

    def _add_guard(self, name: str, state: Mapping[str, Any], guard: str, in_place: str) -> None:
        """Adds the state between a canary that is not possible and the same edit in place."""
        otherwise = state.get("impossible", "")
        self.states[guard] = {
            "title": "May it be changed without a canary?",
            "go": [{"when": state["in_place"], "to": in_place}, {"otherwise": otherwise}],
            "unknown": otherwise,
        }
        self.keys["states", guard] = self.keys["states", name]
        self._alias(("states", name, "in_place"), ("states", guard, "go", 0, "when"))
        for path in (("go", 1, "otherwise"), ("unknown",)):
            self._alias(("states", name, "impossible"), ("states", guard, *path))

    def _alias(self, path: Path, other: Path) -> None:
        """Gives all positions at `path` to `other` as well."""
        self.values.alias(path, other)
        self.keys.alias(path, other)


def _without(change: Mapping[str, Any], word: str) -> dict[str, Any]:
    return {key: value for key, value in change.items() if key != word}


def _is_parameter(data: Any, path: Path) -> bool:
    """Whether the value is a fragment's parameter: what stands for it is checked where the fragment is included."""
    for key in path:
        if not isinstance(data, Mapping) or key not in data:
            return False
        data = data[key]
    return isinstance(data, str) and bool(PARAMETER.fullmatch(data))


def _neither_nor(at: Path, state: Mapping[str, Any]) -> Iterator[Mistake]:
    options = state.get("options")
    for key, option in options.items() if isinstance(options, Mapping) else ():
        if isinstance(option, Mapping) and ("change" in option) == ("to" in option):
            what = "an option has 'change' or 'to', and not both"
            yield Mistake((*at, "options", key), what, "Write the change, or the state to go to.", at_key=True)


def _nothing_to_try(at: Path, state: Mapping[str, Any]) -> Iterator[Mistake]:
    if state.get("try") and not any(option.get("change") == "set_flags" for option in state["options"].values()):
        yield Mistake((*at, "try"), "no option edits flags, so nothing is tried", "Delete 'try'.", at_key=True)
