"""Expands includes: a playbook with includes becomes one without, and every value keeps its original position.

They are hygienic macros: a value given to a fragment keeps the meaning it has where it is written, and a fragment's
names are its own. The result is bounded, whatever the files contain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bot.domain.kernel.errors import ExpressionError, Fault
from bot.domain.playbooks.edges import CHANGE_OUTCOMES
from bot.domain.playbooks.expressions.expression import MAX_LENGTH, check_syntax, did_you_mean, mentions_in
from bot.domain.playbooks.expressions.functions import FUNCTION_NAMES
from bot.domain.playbooks.expressions.template import split_template
from bot.domain.playbooks.loading.fragment import Fragment, Fragments, Include
from bot.domain.playbooks.loading.options import PARAMETER
from bot.domain.playbooks.loading.structure import shape
from bot.domain.playbooks.mistakes import Mistake, Path, of_expression
from bot.domain.playbooks.source import Position, Source, Stretch

MAX_STATES = 300
MAX_INCLUDES = 300
MAX_DEPTH = 4
MAX = 50_000
"""Limit on values, and on hundreds of characters in them."""
MAX_TEXT_LENGTH = 4000

Role = Literal["destination", "expression", "template", "text"]
_DESTINATIONS = frozenset(
    {
        *CHANGE_OUTCOMES,
        *("unknown", "taken", "held", "not_held", "beyond", "not_by", "option_of", "none_possible"),
    }
)
_EXIT = re.compile(r"exits\.([A-Za-z_]\w*)")
_IN_TEXT = re.compile(r"(?<!\$)\{parameters\.([A-Za-z_]\w*)\}")
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_ATOM = re.compile(r"[\w.]+")
_LIMIT = ("at_most", "beyond")
_OF_STATES = ("results", "answers", "forms")


@dataclass(frozen=True)
class Expanded:
    """The playbook without includes; `broken` are states that could not be expanded."""

    source: Source | None
    """None if the result is too big."""
    faults: tuple[Fault, ...] = ()
    broken: frozenset[Path] = frozenset()
    unbuilt: frozenset[str] = frozenset()
    """Words that are unknown only because of a fault that is already reported."""
    fragments: tuple[Source, ...] = ()
    """The files of the included fragments."""
    unused: tuple[str, ...] = ()
    """Definitions that nothing mentions."""
    doubled: tuple[Fault, ...] = ()
    """Limits of includes whose start has its own. Stored playbooks may have them: there they have no effect."""


def expand(source: Source, fragments: Fragments) -> Expanded:
    """Expands every include. Faults are reported where they are written; one fault never hides another include's."""
    states = source.data.get("states")
    has_parts = isinstance(states, Mapping) and any(_is_include(state) for state in states.values())
    if not isinstance(states, Mapping) or not (has_parts or source.data.get("define")):
        return Expanded(source)
    return _Expansion(source, fragments).expanded()


def _is_include(state: Any) -> bool:
    return isinstance(state, Mapping) and "include" in state


def role_of(path: Path) -> Role:
    """Returns the role of a value in a playbook, from its path."""
    match path:
        case ("start",) | ("exits", _):
            return "destination"
        case ("states", _, str(key)) if key in _DESTINATIONS:
            return "destination"
        case ("states", _, "go" | "choices" | "broke", _, "to" | "otherwise") | ("states", _, "returns", _):
            return "destination"
        case ("states", _, "go" | "broke", _, "when") | ("states", _, "watch" | "pick", _):
            return "expression"
        case ("states", _, "still" | "enough") | ("states", _, "with", "edits", _, "when") | ("define", _):
            return "expression"
        case ("states", _, "options", _, "given", "with", "edits", _, "when") | ("states", _, "options", _, "possible"):
            return "expression"
        case ("states", _, "options", _, "to") | ("states", _, "alternatives", _) | ("states", _, "approved_with", _):
            return "destination"
        case ("states", _, "options", _, "given", *_) | ("states", _, "options", _, "label" | "effect" | "why_not"):
            return "template"
        case ("states", _, "recommend") | ("users" | "diagnoses", _, "title" | "say"):
            return "template"
        case ("states", _, "with", *_) | ("states", _, "ask" | "why" | "expected" | "say"):
            return "template"
        case ("signals", _, "ending") | ("calm", "when" | "under_load") | ("users" | "diagnoses", _, "when"):
            return "expression"
        case _:
            return "text"


@dataclass(eq=False)
class _Site:
    """One use of a file: the playbook itself, or one include of a fragment with its arguments."""

    source: Source
    prefix: str = ""
    fragment: Fragment | None = None
    parameters: Mapping[str, _Written] = field(default_factory=dict)
    exits: Mapping[str, _Written] = field(default_factory=dict)
    runbook: _Written | None = None
    """The include's, or that of the include around it: for states without one."""
    limit: tuple[_Written, ...] = ()
    """The include's `at_most` and `beyond`, for its start."""
    names: dict[str, str] = field(default_factory=dict)
    """Its own state names, with their names in the playbook."""
    inside: dict[str, _Site] = field(default_factory=dict)

    def place(self, path: Path) -> Position:
        return self.source.values.get(path) or self._beginning()

    def place_of_key(self, path: Path) -> Position:
        return self.source.keys.get(path) or self._beginning()

    def _beginning(self) -> Position:
        return Position(1, 1, file=self.source.file if self.fragment else "")


@dataclass(frozen=True)
class _Written:
    """A value as written: in which use of which file, and where."""

    site: _Site
    path: Path
    value: Any


@dataclass
class _Sheet:
    """Positions of the values being built."""

    values: dict[Path, Position] = field(default_factory=dict)
    keys: dict[Path, Position] = field(default_factory=dict)


class _TooBigError(Exception):
    """The result would be larger than any playbook needs."""


_Woven = tuple[tuple[str, Stretch], ...]
"""A text in parts, each with its origin."""


class _Expansion:
    def __init__(self, source: Source, fragments: Fragments) -> None:
        self._fragments = fragments
        self._host = _Site(source)
        self._faults: dict[Fault, None] = {}
        self._doubled: dict[Fault, None] = {}
        self._broken: set[Path] = set()
        self._unbuilt: set[str] = set()
        self._used: dict[str, Source] = {}
        self._texts: dict[tuple[_Site, str, Role], _Woven | None] = {}
        self._states = self._includes = self._size = 0
        define = source.data.get("define")
        # That a definition is named like a function is reported elsewhere.
        self._defined = {str(name) for name in define} - FUNCTION_NAMES if isinstance(define, Mapping) else set[str]()
        self._defining: list[str] = []
        self._definitions_woven: dict[str, _Woven | None] = {}
        self._mentions: dict[str, set[str]] = {}
        """Definitions by the one that mentions them; by the empty name where something else does."""
        self._sheet = _Sheet(dict(source.values), dict(source.keys))

    def expanded(self) -> Expanded:
        host = self._host
        try:
            self._lay_out(host, ())
            self._no_collisions()
            data: dict[str, Any] = dict(host.source.data)
            data["states"] = self._states_of(host)
            if isinstance(data.get("define"), Mapping):
                data["define"] = self._define(data["define"])
            for section in ("calm", "users", "diagnoses"):
                if isinstance(data.get(section), Mapping | list):
                    data[section] = self._copy(_Written(host, (section,), data[section]), (section,), self._sheet)
            for section in ("settings", "signals"):
                if merged := self._merged(section, host, data.get(section)):
                    data[section] = merged
            if isinstance(data.get("start"), str):
                data["start"] = host.names.get(data["start"], data["start"])
        except _TooBigError as error:
            self._fault(host, Mistake(("states",), str(error), "Split the playbook.", at_key=True))
            return Expanded(None, tuple(self._faults))
        built = replace(host.source, data=data, values=self._sheet.values, keys=self._sheet.keys)
        broken, unbuilt = frozenset(self._broken), frozenset(self._unbuilt)
        used = tuple(self._used.values())
        return Expanded(built, tuple(self._faults), broken, unbuilt, used, self._unused(), tuple(self._doubled))

    def _fault(self, site: _Site, mistake: Mistake) -> None:
        self._faults[site.source.fault(mistake)] = None

    # --- which fragment is where ---------------------------------------------------------------------------------

    def _lay_out(self, site: _Site, chain: tuple[str, ...]) -> None:
        """Gives every state its name in the playbook, after visiting the includes."""
        for name, state in site.source.data["states"].items():
            site.names[name] = site.prefix + name
            if not _is_include(state):
                self._states += 1
                if self._states > MAX_STATES:
                    raise _TooBigError(f"with its fragments the playbook has more than {MAX_STATES} states")
                continue
            self._includes += 1
            if self._includes > MAX_INCLUDES:
                raise _TooBigError(f"with its fragments the playbook has more than {MAX_INCLUDES} includes")
            inside = self._include(site, name, state, chain)
            if inside is None:
                self._broken.add(("states", site.prefix + name))
                self._unbuilt.add(site.prefix + name)
                continue
            site.inside[name] = inside
            self._lay_out(inside, (*chain, state["include"]))
            assert inside.fragment is not None
            site.names |= {f"{name}_{local}": final for local, final in inside.names.items()}
            site.names[name] = inside.names[inside.fragment.start]

    def _include(self, site: _Site, name: str, state: Mapping[str, Any], chain: tuple[str, ...]) -> _Site | None:
        at: Path = ("states", name)
        mistakes = list(shape(Include, state, at))
        if not mistakes:
            mistakes += self._wrong_fragment((*at, "include"), str(state["include"]), chain)
        read = self._fragments[str(state["include"])] if not mistakes else None
        if read is not None and (read.fragment is None or read.source is None):
            self._faults |= dict.fromkeys(read.faults)
            return None
        if read is not None and read.fragment is not None:
            mistakes += _unlike(at, read.fragment, state)
        for mistake in mistakes:
            self._fault(site, mistake)
        if mistakes or read is None or read.source is None:
            return None
        self._used[str(state["include"])] = read.source
        given = {
            key: {k: _Written(site, (*at, key, k), value) for k, value in state.get(key, {}).items()}
            for key in ("with", "exits")
        }
        runbook = _Written(site, (*at, "runbook"), state["runbook"]) if "runbook" in state else site.runbook
        limit = self._limit_around(site, name, state) or tuple(
            _Written(site, (*at, key), state[key]) for key in _LIMIT if key in state
        )
        prefix = f"{site.prefix}{name}_"
        return _Site(read.source, prefix, read.fragment, given["with"], given["exits"], runbook, limit)

    def _limit_around(self, site: _Site, name: str, state: Mapping[str, Any]) -> tuple[_Written, ...]:
        """Returns the limit of the include around a state, which is for its start; that may be an include itself."""
        if not site.limit or site.fragment is None or name != site.fragment.start:
            return ()
        if not any(key in state for key in _LIMIT):
            return site.limit
        given = site.limit[0]
        what = f"the start of the fragment '{site.fragment.fragment}' has its own limit"
        mistake = Mistake(given.path, what, "Delete one of the two.", at_key=True)
        self._doubled[given.site.source.fault(mistake)] = None
        return ()

    def _wrong_fragment(self, at: Path, wanted: str, chain: tuple[str, ...]) -> Iterator[Mistake]:
        if wanted not in self._fragments:
            yield Mistake(at, f"unknown fragment '{wanted}'", did_you_mean(wanted, self._fragments))
        elif (read := self._fragments[wanted].fragment) is not None and not read.states:
            yield Mistake(at, f"the fragment '{wanted}' has no states", "Name it under 'uses' instead.")
        elif wanted in chain:
            yield Mistake(at, f"fragments include each other: {' → '.join([*chain, wanted])}")
        elif len(chain) >= MAX_DEPTH:
            yield Mistake(at, f"more than {MAX_DEPTH} fragments inside each other")

    def _no_collisions(self) -> None:
        taken: dict[str, Path] = {}
        for site, name in _all_states(self._host):
            final, at = site.prefix + name, ("states", name)
            if final in taken:
                why = f"the state '{final}' would exist twice: one stands in an include"
                self._fault(site, Mistake(at, why, "Rename one.", at_key=True))
            taken[final] = at

    # --- what is built -----------------------------------------------------------------------------------------------

    def _states_of(self, site: _Site) -> dict[str, Any]:
        built: dict[str, Any] = {}
        for name, state in site.source.data["states"].items():
            if name in site.inside:
                built |= self._states_of(site.inside[name])
            elif not _is_include(state):
                final = site.prefix + name
                written = _Written(site, ("states", name), state)
                self._sheet.keys["states", final] = site.place_of_key(written.path)
                built[final] = self._copy(written, ("states", final), self._sheet)
                self._add_from_include(site, name, final, built[final])
        return built

    def _add_from_include(self, site: _Site, name: str, final: str, state: Any) -> None:
        if not isinstance(state, dict):
            return
        if site.runbook and "runbook" not in state:
            self._sheet.keys["states", final, "runbook"] = site.runbook.site.place_of_key(site.runbook.path)
            state["runbook"] = self._copy(site.runbook, ("states", final, "runbook"), self._sheet)
        for written in self._limit_around(site, name, state):
            key = str(written.path[-1])
            self._sheet.keys["states", final, key] = written.site.place_of_key(written.path)
            state[key] = self._copy(written, ("states", final, key), self._sheet)

    def _merged(self, section: str, host: _Site, own: Any) -> dict[str, Any]:
        """Returns the definitions of the playbook, and those of its fragments that it does not override."""
        if own is not None and not isinstance(own, Mapping):
            return {}
        merged: dict[str, Any] = dict(own or {})
        for name, written in self._definitions(section, host).items():
            if name not in merged:
                self._sheet.keys[section, name] = written.site.place_of_key(written.path)
                merged[name] = self._copy(written, (section, name), self._sheet)
        return merged

    def _definitions(self, section: str, site: _Site) -> dict[str, _Written]:
        """Returns the definitions of one use of a file: its own override those of the fragments in it."""
        own = site.source.data.get(section) or {}
        found: dict[str, _Written] = {}
        for inside in site.inside.values():
            for name, written in self._definitions(section, inside).items():
                if name in found and name not in own and not self._is_same(section, name, written, found[name]):
                    what = f"the {section.removesuffix('s')} '{name}' is another one in {found[name].site.source.file}"
                    hint = f"Define '{name}' in the playbook."
                    self._fault(written.site, Mistake(written.path, what, hint, at_key=True))
                found.setdefault(name, written)
        if isinstance(own, Mapping) and site.fragment:
            found |= {name: _Written(site, (section, name), value) for name, value in own.items()}
        return {name: written for name, written in found.items() if site.fragment or name not in own}

    def _is_same(self, section: str, name: str, one: _Written, other: _Written) -> bool:
        built = [self._copy(written, (section, name), _Sheet()) for written in (one, other)]
        return bool(built[0] == built[1])

    def _copy(self, written: _Written, out: Path, sheet: _Sheet) -> Any:
        """Returns the value as it is in the playbook, with its positions; its references use the playbook's names."""
        site, path, value = written.site, written.path, written.value
        self._size += 1 + (len(value) // 100 if isinstance(value, str) else 0)
        if self._size > MAX:
            raise _TooBigError("with its fragments the playbook becomes too big")
        if isinstance(value, str):
            return self._copy_text(written, out, sheet)
        sheet.values[out] = site.place(path)
        if isinstance(value, Mapping):
            copied: dict[str, Any] = {}
            for key, item in value.items():
                here, there = (*path, key), (*out, key)
                sheet.keys[there] = site.place_of_key(here)
                copied[key] = self._copy(_Written(site, here, item), there, sheet)
            return copied
        if isinstance(value, list):
            return [self._copy(_Written(site, (*path, i), item), (*out, i), sheet) for i, item in enumerate(value)]
        return value

    def _copy_text(self, written: _Written, out: Path, sheet: _Sheet) -> Any:
        role = role_of(out)
        stands_for = self._stands_for(written, role)
        if stands_for is not None:
            return self._copy(stands_for, out, sheet)
        place = sheet.values[out] = written.site.place(written.path)
        woven = self._woven(written, role)
        text = "".join(part for part, _ in woven)
        if text != written.value:
            sheet.values[out] = replace(place, text_column=None, stretches=tuple(stretch for _, stretch in woven))
        return text

    def _stands_for(self, written: _Written, role: Role) -> _Written | None:
        """Returns what a text stands for that is only the name of a parameter or of an exit."""
        site = written.site
        if named := PARAMETER.fullmatch(written.value):
            return self._parameter(written, named[1])
        if site.fragment and role == "destination" and (named := _EXIT.fullmatch(written.value)):
            if named[1] in site.exits:
                return site.exits[named[1]]
            hint = did_you_mean(named[1], site.fragment.exits)
            self._fault(site, Mistake(written.path, f"the fragment has no exit '{named[1]}'", hint))
            self._unbuilt.add("exits")
        return None

    def _parameter(self, written: _Written, name: str, column: int = 0) -> _Written | None:
        site = written.site
        declared = site.fragment.parameters if site.fragment else {}
        if name in site.parameters:
            return site.parameters[name]
        if name in declared and not declared[name].is_required:
            # A default names no other parameter, so it can never be circular.
            bare = replace(
                site, parameters={}, fragment=site.fragment and site.fragment.model_copy(update={"parameters": {}})
            )
            return _Written(bare, ("parameters", name, "default"), declared[name].default)
        what = f"the fragment has no parameter '{name}'" if site.fragment else "only a fragment has parameters"
        self._fault(site, Mistake(written.path, what, did_you_mean(name, declared), column))
        self._unbuilt.add("parameters")
        return None

    # --- texts -------------------------------------------------------------------------------------------------------

    def _woven(self, written: _Written, role: Role) -> _Woven:
        text = str(written.value)
        whole = _as_written(written, text, 0)
        match role:
            case "destination":
                return ((self._destination(written, text), whole[1]),)
            case "expression":
                woven = self._expression(written, text, 0)
            case "template":
                woven = self._template(written)
            case _:
                woven = self._plain(written, text, 0)
        if sum(len(part) for part, _ in woven) > max(MAX_TEXT_LENGTH, len(text)):
            self._fault(
                written.site, Mistake(written.path, f"with its parameters it has over {MAX_TEXT_LENGTH} characters")
            )
            return (whole,)
        return woven

    def _destination(self, written: _Written, name: str) -> str:
        site = written.site
        if name and name not in site.names and site.fragment and not _EXIT.fullmatch(name) and name != "opening":
            known = [*site.names, *(f"exits.{exit_}" for exit_ in site.fragment.exits)]
            self._fault(site, Mistake(written.path, f"the fragment has no state '{name}'", did_you_mean(name, known)))
            self._unbuilt.add(name)
        return site.names.get(name, name)

    def _expression(self, written: _Written, text: str, offset: int) -> _Woven:
        """`text` starts `offset` characters into the written value."""
        site, parts, at = written.site, list[tuple[str, Stretch]](), 0
        for name, start in mentions_in(text) if len(text) <= MAX_LENGTH else ():
            head, _, rest = name.partition(".")
            word, _, tail = rest.partition(".")
            new: _Woven | None = None
            if head == "parameters" and word:
                new = self._parameter_in(written, word, tail, offset + start + 1)
            elif name in self._defined and site is self._host:
                new = self._definition_in(written, name, offset + start + 1)
            elif head in _OF_STATES and site.names.get(word, word) != word:
                new = (
                    _renamed(written, ".".join([head, site.names[word], *([tail] if tail else [])]), offset + start),
                )
            if new is not None:
                parts += [_as_written(written, text[at:start], offset + at), *new]
                at = start + len(name)
        return (*parts, _as_written(written, text[at:], offset + at))

    def _definition_in(self, written: _Written, name: str, column: int) -> _Woven | None:
        """Returns a definition of the playbook inside an expression: its text in brackets."""
        self._mentions.setdefault(self._defining[-1] if self._defining else "", set()).add(name)
        woven = self._definition(name)
        if woven is None:
            return None
        place = Stretch(1, self._host.place(written.path).at_column(column))
        return (("(", place), *woven, (")", place))

    def _definition(self, name: str) -> _Woven | None:
        """Returns a definition with those that it mentions; None if it has a fault, which is reported there."""
        if name in self._defining:
            circle = self._defining[self._defining.index(name) :]
            self._unbuilt.update(circle)
            what = f"'{name}' is defined by itself: {' → '.join([*circle, name])}"
            self._fault(self._host, Mistake(("define", name), what, "Write one of them out.", at_key=True))
            return None
        if name not in self._definitions_woven:
            self._defining.append(name)
            self._definitions_woven[name] = self._checked_definition(name)
            self._defining.pop()
            if self._definitions_woven[name] is None:
                self._unbuilt.add(name)
        return self._definitions_woven[name]

    def _checked_definition(self, name: str) -> _Woven | None:
        host, path, value = self._host, ("define", name), self._host.source.data["define"][name]
        if not isinstance(value, str):  # this fault is reported with the shape of the file
            return None
        try:
            check_syntax(value)
        except ExpressionError as error:
            self._fault(host, of_expression(path, error))
            return None
        woven = self._expression(_Written(host, path, value), value, 0)
        if sum(len(part) for part, _ in woven) > MAX_LENGTH:
            what = f"with the definitions that it mentions it has over {MAX_LENGTH} characters"
            self._fault(host, Mistake(path, what, "Shorten it."))
            return None
        return woven

    def _define(self, define: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the definitions as they are used, each with those that it mentions, without those with a fault."""
        built = dict(define)
        for name, value in define.items():
            woven = self._definition(str(name))
            if woven is None and isinstance(value, str):
                del built[name]
            elif woven is not None and len(woven) > 1:
                place = self._host.place(("define", name))
                stretches = tuple(stretch for _, stretch in woven)
                self._sheet.values["define", name] = replace(place, text_column=None, stretches=stretches)
                built[name] = "".join(part for part, _ in woven)
        return built

    def _unused(self) -> tuple[str, ...]:
        used: set[str] = set()
        todo = [""]
        while todo:
            found = self._mentions.get(todo.pop(), set()) - used
            used |= found
            todo += found
        return tuple(sorted(self._defined - used))

    def _parameter_in(self, written: _Written, word: str, tail: str, column: int) -> _Woven | None:
        """Returns a parameter inside an expression: its text in brackets, or a name continued by `tail`."""
        site = written.site
        woven = self._text_of(written, word, "expression", column)
        if woven is None:
            return None
        text = "".join(part for part, _ in woven)
        place = Stretch(1, site.place(written.path).at_column(column))
        if tail and not _NAME.fullmatch(text):
            self._fault(site, Mistake(written.path, f"'{text}' has no parts", "Give a name.", column))
            return None
        if tail:
            return (*woven, (f".{tail}", replace(place, length=len(tail) + 1)))
        return woven if _ATOM.fullmatch(text) else (("(", place), *woven, (")", place))

    def _text_of(self, written: _Written, word: str, role: Role, column: int) -> _Woven | None:
        key = (written.site, word, role)
        if key not in self._texts:
            value = self._parameter(written, word, column)
            self._texts[key] = None if value is None else self._as_text(written, word, value, role, column)
        return self._texts[key]

    def _as_text(self, written: _Written, word: str, value: _Written, role: Role, column: int) -> _Woven | None:
        match value.value:
            case str() if len(value.value) <= MAX_TEXT_LENGTH:
                return self._woven(value, role)
            case bool():
                return (_as_written(value, "true" if value.value else "false", None),)
            case int() | float():
                return (_as_written(value, str(value.value), None),)
            case _:
                self._fault(written.site, Mistake(written.path, f"'{word}' is no short text", "", column))
                self._unbuilt.add("parameters")
                return None

    def _template(self, written: _Written) -> _Woven:
        text = str(written.value)
        try:
            fragments = split_template(text)
        except ExpressionError:  # this fault is reported when the template is compiled
            return (_as_written(written, text, 0),)
        parts: list[tuple[str, Stretch]] = []
        for fragment, is_expression, start in fragments:
            if is_expression:
                woven = self._expression(written, fragment, start)
                parts += [
                    _as_written(written, "${", start - 2),
                    *woven,
                    _as_written(written, "}", start + len(fragment)),
                ]
            else:
                parts += self._plain(written, fragment.replace("${", "$${"), start)
        return tuple(parts)

    def _plain(self, written: _Written, text: str, offset: int) -> _Woven:
        parts, at = list[tuple[str, Stretch]](), 0
        for named in _IN_TEXT.finditer(text):
            new = self._text_of(written, named[1], "text", offset + named.start() + 1)
            if new is not None:
                parts += [_as_written(written, text[at : named.start()], offset + at), *new]
                at = named.end()
            if sum(len(part) for part, _ in parts) > MAX_TEXT_LENGTH:
                break
        return (*parts, _as_written(written, text[at:], offset + at))


def _all_states(site: _Site) -> Iterator[tuple[_Site, str]]:
    """Returns every state of the resulting playbook, the playbook's own first."""
    for name, state in site.source.data["states"].items():
        if not _is_include(state):
            yield site, name
    for inside in site.inside.values():
        yield from _all_states(inside)


def _unlike(at: Path, fragment: Fragment, state: Mapping[str, Any]) -> Iterator[Mistake]:
    """Reports where an include does not match the fragment's declaration."""
    given, exits = state.get("with", {}), state.get("exits", {})
    for noun, key, known, said in (
        ("parameter", "with", fragment.parameters, given),
        ("exit", "exits", fragment.exits, exits),
    ):
        for name in said.keys() - known.keys():
            what = f"the fragment '{fragment.fragment}' has no {noun} '{name}'"
            yield Mistake((*at, key, name), what, did_you_mean(name, known), at_key=True)
    missing = [f"with: {name}" for name, p in fragment.parameters.items() if p.is_required and name not in given]
    missing += [f"exits: {name}" for name in fragment.exits if name not in exits]
    for what in missing:
        yield Mistake((*at, "include"), f"the fragment '{fragment.fragment}' needs '{what}'")


def _as_written(written: _Written, text: str, offset: int | None) -> tuple[str, Stretch]:
    """Returns a part copied unchanged from the file, `offset` characters into the value; None if it was not copied."""
    column = 0 if offset is None else offset + 1
    return text, Stretch(len(text), written.site.place(written.path), column)


def _renamed(written: _Written, name: str, offset: int) -> tuple[str, Stretch]:
    """Returns a new name for the text that starts `offset` characters into the value: all of it points there."""
    return name, Stretch(len(name), written.site.place(written.path).at_column(offset + 1))
