"""Finds the engine's command in a script for `sh -c`: its words with their places; the rest is not parsed.

It supports a small part of the shell's grammar: quotes, escapes, comments, variables, line continuation, and command
ends. Anything else that would affect the engine's words makes them unknown; nothing is guessed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from bot.domain.flags.command_words import Place, Spot, Variables, Word, behind_engine_name, split_words
from bot.domain.kernel.errors import BotError

_VARIABLE = re.compile(
    r"\$(?:(?P<bare>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)(?::?-(?P<default>[^}$`\\'\"]*))?\}"
    r"|\((?P<pod>[A-Za-z_][\w.-]*)\)|(?P<rest>@|\{@\}|\*))"
)
_SEVERAL_WORDS = re.compile(r"\$\{(?:[@*]|\w+\[[@*]\])")
"""An expansion that may be any number of words, even in quotes."""
_FUNCTION_HEAD = re.compile(r"(?:\bfunction\s+[\w.-]+|\(\s*\))\s*\Z")
_BEFORE_A_COMMAND = ("if", "then", "elif", "else", "while", "until", "do", "!", "{", "builtin", "command")
_REDIRECTION = re.compile(r"(?:&>>?|<<<|<<-?|[<>]{1,2}[&|]?)")
_ENDS = "\n;&|()"


class ShellScriptError(BotError):
    """The engine's words are unknown; the message has the reason."""


@dataclass
class _Part:
    text: str
    name: str = ""
    """Of a variable."""
    is_quoted: bool = True
    is_known: bool = True


@dataclass
class _Token:
    start: int
    end: int = 0
    parts: list[_Part] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)


@dataclass(frozen=True)
class Script:
    """A script, its `$@` arguments, and the variables of its container."""

    text: str
    place: Place
    variables: Variables
    rest: Sequence[Word] = ()


def engine_words(script: Script) -> list[Word]:
    """Returns the words after the engine's own name; raise `ShellScriptError` if they cannot be known."""
    found = [words for command in _commands(script) if (words := _behind_engine(_words(script, command))) is not None]
    if not found:
        raise ShellScriptError("no command of its shell script is recognised as the engine")
    if len(found) > 1:
        raise ShellScriptError("its shell script has more than one engine command")
    words = found[0]
    if not words:
        raise ShellScriptError("the engine command of its shell script names no model")
    hidden = next((word for word in words if word.is_open and word.variable == "@"), None)
    if hidden is not None:
        raise ShellScriptError(f"{hidden.text} in its shell script may stand for flags that are not known")
    return words


def _behind_engine(words: Sequence[Word]) -> list[Word] | None:
    behind = behind_engine_name([word.text for word in words])
    return None if behind is None else list(words[behind:])


def _commands(script: Script) -> list[list[_Token]]:
    scanner = _Scanner(script.text, script.variables)
    return scanner.commands()


def _words(script: Script, tokens: Sequence[_Token]) -> list[Word]:
    return [word for token in tokens for word in _words_of(script, token)]


def _words_of(script: Script, token: _Token) -> list[Word]:
    spot = Spot(script.place, token.start, token.end)
    parts = token.parts
    if len(parts) == 1 and parts[0].name == "@":
        if parts[0].is_known:
            return list(script.rest)
        return [Word(script.text[token.start : token.end], spot, in_shell=True, variable="@", is_open=True)]
    text = token.text
    loose = [part for part in parts if part.name and not part.is_quoted]
    if len(parts) == 1 and loose:
        return _of_reference(script, loose[0], spot)
    if any(not part.is_known or re.search(r"\s", part.text) for part in loose):
        return [Word(script.text[token.start : token.end], spot, in_shell=True, is_open=True)]
    named = [part for part in parts if part.name]
    ends_with_it = len(named) == 1 and parts[-1] is named[0] and (len(parts) == 1 or _opens_value(parts[:-1]))
    return [Word(text, spot, in_shell=True, variable=named[0].name if ends_with_it else "")]


def _opens_value(parts: Sequence[_Part]) -> bool:
    return re.fullmatch(r"-{1,2}[\w.-]+=", "".join(part.text for part in parts)) is not None


def _of_reference(script: Script, part: _Part, spot: Spot) -> list[Word]:
    known = script.variables.by_name.get(part.name)
    if not part.is_known:
        return [Word(part.text, spot, in_shell=True, is_open=True)]
    if known is None or not known.text:
        return [Word(text, spot, in_shell=True) for text in part.text.split()]
    return split_words(known, script.variables, spot, in_shell=True)


class _Scanner:
    """One pass over a script: tokens, and where commands end."""

    def __init__(self, text: str, variables: Variables) -> None:
        self._text, self._variables = text, variables
        self._at = 0
        self._token: _Token | None = None
        self._skips_next = False
        self._tokens: list[_Token] = []
        self._commands: list[list[_Token]] = []
        self._blocks: list[bool] = []
        """For each open `{`: whether it begins a function body, where `$@` means the arguments of the function."""
        self._sets_positional = False
        self._sets_any_variable = False

    def commands(self) -> list[list[_Token]]:
        while self._at < len(self._text):
            self._step(self._text[self._at])
        self._end_command()
        return self._commands

    def _step(self, char: str) -> None:
        redirection = _REDIRECTION.match(self._text, self._at)
        if self._text.startswith("\\\n", self._at):
            self._at += 2
        elif char in " \t\r":
            self._end_token()
            self._at += 1
        elif redirection:
            self._redirect(redirection)
        elif char in _ENDS:
            self._end_command()
            self._at += 1
        elif char == "#" and self._token is None:
            end = self._text.find("\n", self._at)
            self._at = end if end >= 0 else len(self._text)
        elif char == "'":
            self._single_quoted()
        elif char == '"':
            self._double_quoted()
        elif char == "\\":
            self._add(_Part(self._text[self._at + 1 : self._at + 2]), 2)
        elif char in "$`":
            self._dollar(is_quoted=False)
        else:
            self._add(_Part(char), 1)

    def _add(self, part: _Part, length: int) -> None:
        if self._token is None:
            self._token = _Token(self._at)
        last = self._token.parts[-1] if self._token.parts else None
        if last is not None and not last.name and not part.name and last.is_known and part.is_known:
            last.text += part.text
        else:
            self._token.parts.append(part)
        self._at += length
        self._token.end = self._at

    def _redirect(self, found: re.Match[str]) -> None:
        if found[0].startswith("<<"):
            raise ShellScriptError("its shell script has a here-document, which is not taken apart")
        if self._token is not None and self._text[self._token.start : self._at].isdigit():
            self._token = None
        self._end_token()
        self._at = found.end()
        self._skips_next = True

    def _end_token(self) -> None:
        if self._token is None:
            return
        if self._skips_next:
            self._skips_next = False
        else:
            self._tokens.append(self._token)
            self._note_block(self._token)
        self._token = None

    def _note_block(self, token: _Token) -> None:
        raw = self._text[token.start : token.end]
        if raw == "{":
            self._blocks.append(_FUNCTION_HEAD.search(self._text[: token.start]) is not None)
        elif raw == "}" and self._blocks:
            self._blocks.pop()

    def _end_command(self) -> None:
        self._end_token()
        self._skips_next = False
        if self._tokens:
            self._commands.append(self._tokens)
            self._note_assignments(self._tokens)
        self._tokens = []

    def _note_assignments(self, tokens: Sequence[_Token]) -> None:
        """A sourced file may set any variable; one of the container is still taken for what the container says."""
        name, *rest = itertools.dropwhile(_BEFORE_A_COMMAND.__contains__, [token.text for token in tokens] + [""])
        is_from_output = any(token.parts[0].name == "(command)" for token in tokens)
        if name in ("source", ".", "eval") or (name in ("export", "declare") and is_from_output):
            self._sets_any_variable = True
        if name == "set" and "--" in rest:
            self._sets_positional = True

    def _single_quoted(self) -> None:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise ShellScriptError("its shell script has a quote that does not end")
        self._add(_Part(self._text[self._at + 1 : end]), end + 1 - self._at)

    def _double_quoted(self) -> None:
        self._add(_Part(""), 1)
        while not self._text.startswith('"', self._at):
            char = self._text[self._at : self._at + 1]
            if not char:
                raise ShellScriptError("its shell script has a quote that does not end")
            if char == "\\" and self._text[self._at + 1 : self._at + 2] in ("$", "`", '"', "\\"):
                self._add(_Part(self._text[self._at + 1]), 2)
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
            elif char in "$`":
                self._dollar(is_quoted=True)
            else:
                self._add(_Part(char), 1)
        self._add(_Part(""), 1)
        self._without_empty_edges()

    def _without_empty_edges(self) -> None:
        """A word that is only a quoted reference has one part."""
        assert self._token is not None
        filled = [part for part in self._token.parts if part.text or part.name]
        self._token.parts = filled or [_Part("")]

    def _dollar(self, *, is_quoted: bool) -> None:
        found = _VARIABLE.match(self._text, self._at)
        name = (found["bare"] or found["braced"] or found["pod"] or "") if found else ""
        if found and found["rest"]:
            is_known = not self._sets_positional and not any(self._blocks)
            self._add(_Part(found[0], "@", is_quoted, is_known=is_known), len(found[0]))
        elif found and (found["pod"] is None or name in self._variables.by_name):
            self._add(self._reference(found, name, is_quoted), len(found[0]))
        elif self._text[self._at] == "`" or self._text.startswith("$(", self._at):
            length = self._substitution()
            self._add(_Part(self._text[self._at : self._at + length], "(command)", is_quoted, is_known=False), length)
        elif self._text.startswith("${", self._at):
            length = max(self._text.find("}", self._at) + 1 - self._at, 2)
            name = "@" if _SEVERAL_WORDS.match(self._text, self._at) else "(expansion)"
            self._add(_Part(self._text[self._at : self._at + length], name, is_quoted, is_known=False), length)
        else:
            self._add(_Part("$"), 1)

    def _reference(self, found: re.Match[str], name: str, is_quoted: bool) -> _Part:
        known, value = self._variables.by_name.get(name), self._variables.value(name)
        may_be_set = self._variables.unreadable or self._sets_any_variable
        if self._is_set_by_script(name) or (known is not None and value is None) or (known is None and may_be_set):
            return _Part(found[0], name, is_quoted, is_known=False)
        return _Part(value or found["default"] or "", name, is_quoted)

    def _is_set_by_script(self, name: str) -> bool:
        assigned = rf"(?:^|[\s;&|(]){name}\+?=|\$\{{{name}:?=|\b(?:for|read(?:\s+-\w+)*)\s+{name}\b"
        return re.search(assigned, self._text) is not None

    def _substitution(self) -> int:
        """Returns the length of a command substitution, whose content is not parsed."""
        if self._text[self._at] == "`":
            return max(self._text.find("`", self._at + 1) + 1 - self._at, 1)
        depth = 0
        for at in range(self._at + 1, len(self._text)):
            depth += {"(": 1, ")": -1}.get(self._text[at], 0)
            if depth == 0:
                return at + 1 - self._at
        raise ShellScriptError("its shell script has a bracket that does not close")
