"""`define`: a name of the playbook that stands for its expression, everywhere in the playbook and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from bot.domain.kernel.errors import ExpressionError
from bot.domain.playbooks.expressions.expression import MAX_LENGTH, check_syntax
from bot.domain.playbooks.expressions.functions import FUNCTION_NAMES
from bot.domain.playbooks.loading.include_sites import Faults, Site, Woven, Written, length_of, text_of
from bot.domain.playbooks.mistakes import Mistake, Path, of_expression
from bot.domain.playbooks.source import Position, Stretch

Weave = Callable[[Written, str, int], Woven]
"""Weaves an expression that starts so many characters into the written value."""


class Definitions:
    """A definition is woven when something mentions it, with those that it mentions."""

    def __init__(self, host: Site, faults: Faults, weave: Weave) -> None:
        self._host, self._faults, self._weave = host, faults, weave
        define = host.source.data.get("define")
        self._define: Mapping[str, Any] = define if isinstance(define, Mapping) else {}
        # That a definition is named like a function is reported elsewhere.
        self.names = {str(name) for name in self._define} - FUNCTION_NAMES
        self._in_work: list[str] = []
        self._woven: dict[str, Woven | None] = {}
        self._mentions: dict[str, set[str]] = {}
        """Definitions by the one that mentions them; by the empty name where something else does."""

    def within(self, written: Written, name: str, column: int) -> Woven | None:
        """Returns a definition of the playbook inside an expression: its text in brackets."""
        self._mentions.setdefault(self._in_work[-1] if self._in_work else "", set()).add(name)
        woven = self._definition(name)
        if woven is None:
            return None
        place = Stretch(1, self._host.place(written.path).at_column(column))
        return (("(", place), *woven, (")", place))

    def _definition(self, name: str) -> Woven | None:
        """Returns a definition with those that it mentions; None if it has a fault, which is reported there."""
        if name in self._in_work:
            circle = self._in_work[self._in_work.index(name) :]
            what = f"'{name}' is defined by itself: {' → '.join([*circle, name])}"
            self._faults.report(
                self._host, Mistake(("define", name), what, "Write one of them out.", at_key=True), *circle
            )
            return None
        if name not in self._woven:
            self._in_work.append(name)
            self._woven[name] = self._checked_definition(name)
            self._in_work.pop()
            if self._woven[name] is None:
                self._faults.unbuilt.add(name)
        return self._woven[name]

    def _checked_definition(self, name: str) -> Woven | None:
        host, path, value = self._host, ("define", name), self._define[name]
        if not isinstance(value, str):  # this fault is reported with the shape of the file
            return None
        try:
            check_syntax(value)
        except ExpressionError as error:
            self._faults.report(host, of_expression(path, error))
            return None
        woven = self._weave(Written(host, path, value), value, 0)
        if length_of(woven) > MAX_LENGTH:
            what = f"with the definitions that it mentions it has over {MAX_LENGTH} characters"
            self._faults.report(host, Mistake(path, what, "Shorten it."))
            return None
        return woven

    def built(self) -> tuple[dict[str, Any], dict[Path, Position]]:
        """Returns them as they are used, each with those that it mentions, and their places; without faulty ones."""
        built, places = dict(self._define), dict[Path, Position]()
        for name, value in self._define.items():
            woven = self._definition(str(name))
            if woven is None and isinstance(value, str):
                del built[name]
            elif woven is not None and len(woven) > 1:
                stretches = tuple(stretch for _, stretch in woven)
                place = self._host.place(("define", name))
                places["define", name] = replace(place, text_column=None, stretches=stretches)
                built[name] = text_of(woven)
        return built, places

    def unused(self) -> tuple[str, ...]:
        used: set[str] = set()
        todo = [""]
        while todo:
            found = self._mentions.get(todo.pop(), set()) - used
            used |= found
            todo += found
        return tuple(sorted(self.names - used))
