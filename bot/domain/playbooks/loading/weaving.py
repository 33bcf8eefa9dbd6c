"""Weaves the texts of a playbook: parameters, exits, definitions and new names in, each part with its origin."""

from __future__ import annotations

import re
from dataclasses import replace

from bot.domain.kernel.errors import ExpressionError
from bot.domain.playbooks.expressions.expression import MAX_LENGTH, did_you_mean, mentions_in
from bot.domain.playbooks.expressions.template import split_template
from bot.domain.playbooks.loading.definitions import Definitions
from bot.domain.playbooks.loading.include_sites import Faults, Site, Woven, Written, length_of, text_of
from bot.domain.playbooks.loading.options import PARAMETER
from bot.domain.playbooks.loading.text_roles import Role
from bot.domain.playbooks.mistakes import Mistake
from bot.domain.playbooks.source import Stretch

MAX_TEXT_LENGTH = 4000
_EXIT = re.compile(r"exits\.([A-Za-z_]\w*)")
_IN_TEXT = re.compile(r"(?<!\$)\{parameters\.([A-Za-z_]\w*)\}")
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_ATOM = re.compile(r"[\w.]+")
_OF_STATES = ("results", "answers", "forms")


class Weaver:
    """A value given to a fragment keeps the meaning that it has where it is written."""

    def __init__(self, host: Site, faults: Faults) -> None:
        self._host, self._faults = host, faults
        self._texts: dict[tuple[Site, str, Role], Woven | None] = {}
        self.definitions = Definitions(host, faults, self._expression)

    def stands_for(self, written: Written, role: Role) -> Written | None:
        """Returns what a text stands for that is only the name of a parameter or of an exit."""
        site = written.site
        if named := PARAMETER.fullmatch(written.value):
            return self._parameter(written, named[1])
        if site.fragment and role == "destination" and (named := _EXIT.fullmatch(written.value)):
            if named[1] in site.exits:
                return site.exits[named[1]]
            hint = did_you_mean(named[1], site.fragment.exits)
            self._faults.report(site, Mistake(written.path, f"the fragment has no exit '{named[1]}'", hint), "exits")
        return None

    def _parameter(self, written: Written, name: str, column: int = 0) -> Written | None:
        site = written.site
        declared = site.fragment.parameters if site.fragment else {}
        if name in site.parameters:
            return site.parameters[name]
        if name in declared and not declared[name].is_required:
            # A default names no other parameter, so it can never be circular.
            bare = replace(
                site, parameters={}, fragment=site.fragment and site.fragment.model_copy(update={"parameters": {}})
            )
            return Written(bare, ("parameters", name, "default"), declared[name].default)
        what = f"the fragment has no parameter '{name}'" if site.fragment else "only a fragment has parameters"
        self._faults.report(site, Mistake(written.path, what, did_you_mean(name, declared), column), "parameters")
        return None

    def woven(self, written: Written, role: Role) -> Woven:
        text = str(written.value)
        whole = written.copied(text, 0)
        match role:
            case "destination":
                return ((self._destination(written, text), whole[1]),)
            case "expression":
                woven = self._expression(written, text, 0)
            case "template":
                woven = self._template(written)
            case _:
                woven = self._plain(written, text, 0)
        if length_of(woven) > max(MAX_TEXT_LENGTH, len(text)):
            what = f"with its parameters it has over {MAX_TEXT_LENGTH} characters"
            self._faults.report(written.site, Mistake(written.path, what))
            return (whole,)
        return woven

    def _destination(self, written: Written, name: str) -> str:
        site = written.site
        if name and name not in site.names and site.fragment and not _EXIT.fullmatch(name) and name != "opening":
            known = [*site.names, *(f"exits.{exit_}" for exit_ in site.fragment.exits)]
            what = f"the fragment has no state '{name}'"
            self._faults.report(site, Mistake(written.path, what, did_you_mean(name, known)), name)
        return site.names.get(name, name)

    def _expression(self, written: Written, text: str, offset: int) -> Woven:
        """`text` starts `offset` characters into the written value."""
        site, parts, at = written.site, list[tuple[str, Stretch]](), 0
        for name, start in mentions_in(text) if len(text) <= MAX_LENGTH else ():
            head, _, rest = name.partition(".")
            word, _, tail = rest.partition(".")
            new: Woven | None = None
            if head == "parameters" and word:
                new = self._parameter_in(written, word, tail, offset + start + 1)
            elif name in self.definitions.names and site is self._host:
                new = self.definitions.within(written, name, offset + start + 1)
            elif head in _OF_STATES and site.names.get(word, word) != word:
                final = ".".join([head, site.names[word], *([tail] if tail else [])])
                new = (written.renamed(final, offset + start),)
            if new is not None:
                parts += [written.copied(text[at:start], offset + at), *new]
                at = start + len(name)
        return (*parts, written.copied(text[at:], offset + at))

    def _parameter_in(self, written: Written, word: str, tail: str, column: int) -> Woven | None:
        """Returns a parameter inside an expression: its text in brackets, or a name continued by `tail`."""
        site = written.site
        woven = self._inserted(written, word, "expression", column)
        if woven is None:
            return None
        text = text_of(woven)
        place = Stretch(1, site.place(written.path).at_column(column))
        if tail and not _NAME.fullmatch(text):
            self._faults.report(site, Mistake(written.path, f"'{text}' has no parts", "Give a name.", column))
            return None
        if tail:
            return (*woven, (f".{tail}", replace(place, length=len(tail) + 1)))
        return woven if _ATOM.fullmatch(text) else (("(", place), *woven, (")", place))

    def _inserted(self, written: Written, word: str, role: Role, column: int) -> Woven | None:
        key = (written.site, word, role)
        if key not in self._texts:
            value = self._parameter(written, word, column)
            self._texts[key] = None if value is None else self._as_text(written, word, value, role, column)
        return self._texts[key]

    def _as_text(self, written: Written, word: str, value: Written, role: Role, column: int) -> Woven | None:
        match value.value:
            case str() if len(value.value) <= MAX_TEXT_LENGTH:
                return self.woven(value, role)
            case bool():
                return (value.copied("true" if value.value else "false", None),)
            case int() | float():
                return (value.copied(str(value.value), None),)
            case _:
                mistake = Mistake(written.path, f"'{word}' is not a short text", "", column)
                self._faults.report(written.site, mistake, "parameters")
                return None

    def _template(self, written: Written) -> Woven:
        text = str(written.value)
        try:
            fragments = split_template(text)
        except ExpressionError:  # this fault is reported when the template is compiled
            return (written.copied(text, 0),)
        parts: list[tuple[str, Stretch]] = []
        for fragment, is_expression, start in fragments:
            if is_expression:
                woven = self._expression(written, fragment, start)
                parts += [written.copied("${", start - 2), *woven, written.copied("}", start + len(fragment))]
            else:
                parts += self._plain(written, fragment.replace("${", "$${"), start)
        return tuple(parts)

    def _plain(self, written: Written, text: str, offset: int) -> Woven:
        parts, at = list[tuple[str, Stretch]](), 0
        for named in _IN_TEXT.finditer(text):
            new = self._inserted(written, named[1], "text", offset + named.start() + 1)
            if new is not None:
                parts += [written.copied(text[at : named.start()], offset + at), *new]
                at = named.end()
            if length_of(parts) > MAX_TEXT_LENGTH:
                break
        return (*parts, written.copied(text[at:], offset + at))
