"""Expressions of the playbook language: CEL over declared names, checked at load, three-valued at run time.

A value that cannot be read or computed is `Unknown` with its reason: never 0, never false, never an exception.
"""

from __future__ import annotations

import ast
import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

from bot.domain.kernel.errors import ExpressionError
from bot.domain.kernel.patterns import HINT, compile_pattern
from bot.domain.playbooks.expressions.functions import FUNCTION_NAMES, FUNCTIONS, METHODS, Function, nonzero
from bot.domain.signals.signal import Kind, Value

UNDEFINED = "Define it under 'signals' or 'settings'."
Scope = Mapping[str, Kind]
"""Every name that an expression may use, with its kind."""

MAX_LENGTH = 1000
MAX_DEPTH = 20

_KIND_WORDS: dict[Kind, str] = {
    "number": "a number",
    "text": "a text",
    "flag": "true or false",
    "by_replica": "numbers by replica",
}
# CEL's own `size` returns an integer, which cannot be compared with the numbers here. CEL's `/` returns NaN for 0/0,
# and a comparison with NaN is false. Both are replaced under names that an author cannot write.
_HIDDEN = {"size": "size__"}
_NONZERO = Function("nonzero__", ("number",), "number", nonzero, "refuses 0")

_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<measured>\d+(?:\.\d+)?(?:ms|[smhd])\b)
    |(?P<float>(?:\d+\.\d+|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
    |(?P<whole>\d+)
    |(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
    |(?P<sign>&&|\|\||[=!<>]=|[-+*/%!<>?:()\[\],.])
    |(?P<strange>.)""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)
_WORDS = frozenset({"true", "false", "in"})
_WRITE: dict[Kind, str] = {
    "flag": "Compare it with something: a > 3, a == 'x'.",
    "text": "Write worst(signal) or best(signal) for a replica, quotes around a word.",
}
_FOREIGN = {"and": "&&", "or": "||", "not": "!", "=": "==", "&": "&&", "|": "||", "true": "true", "false": "false"}
_FAULT = re.compile(r"ERROR: <input>:1:(\d+): (.*)")
_MISMATCH = re.compile(r"found no matching overload for '(\S+)' applied to '\((.*)\)'")
_CEL_WORDS = {"double": "a number", "string": "a text", "bool": "true or false", "map(string, double)": "by replica"}


@dataclass(frozen=True)
class Unknown:
    """No known value; `missing` lists the names that had none."""

    reason: str
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Expression:
    """A checked expression; `kind` is the kind of its value and `names` are the names of its scope that it mentions."""

    source: str
    kind: Kind
    names: frozenset[str]
    _kinds: Mapping[str, Kind] = field(repr=False, compare=False)
    _program: Any = field(repr=False, compare=False)

    def evaluate(self, data: Mapping[str, Value]) -> Value | Unknown:
        """Returns the value for `data`; a name without a value matters only if the result depends on it."""
        given: dict[str, Any] = {}
        for name in self.names:
            known = data.get(name)
            value = None if known is None else _conforming(known, self._kinds[name])
            if value is not None:
                given[name] = value
        try:
            answer = self._program.eval(data=given)
        except RuntimeError as error:  # what CEL cannot even start to evaluate
            return Unknown(_plain(str(error)))
        if answer.type() == _cel().Type.ERROR:
            missing = tuple(sorted(self.names - given.keys()))
            if missing and "No value with name" in str(answer.value()):
                return Unknown("not known: " + ", ".join(missing), missing)
            return Unknown(_plain(str(answer.value())))
        return _checked(answer.plain_value(), self.kind)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int


def compile_expression(source: str, scope: Scope, wants: Kind | None) -> Expression:
    """Check `source` against the names of `scope`; raise `ExpressionError` with the column of its first fault."""
    tokens = _words_of(source)
    names = _names(tokens, scope)
    _refuse_what_never_works(tokens)
    text, columns = _as_cel(tokens)
    program = _compile(text, columns, _environment_of(scope))
    gives = next((kind for kind, cel_type in _types().items() if cel_type == program.return_type()), None)
    if gives is None:
        raise ExpressionError(f"the expression gives {program.return_type().name()}, which nothing here can use", 1)
    if wants is not None and gives != wants:
        what = f"the expression gives {_KIND_WORDS[gives]}, but {_KIND_WORDS[wants]} is needed here"
        raise ExpressionError(what, 1, _WRITE.get(wants, ""))
    kinds = {name: scope[name] for name in names}
    return Expression(source, gives, names, kinds, program)


def check_syntax(source: str) -> None:
    """Raise `ExpressionError` unless the text alone is an expression, whatever its names mean."""
    text, columns = _as_cel(_words_of(source))
    try:
        _environment(frozenset()).compile(text)
    except RuntimeError as error:
        if "Syntax error" in str(error):
            raise _fault_in(error, columns) from error


def _words_of(source: str) -> tuple[_Token, ...]:
    if len(source) > MAX_LENGTH:
        raise ExpressionError(f"the expression is longer than {MAX_LENGTH} characters", 1, "Split it over two states.")
    tokens = _tokens(source)
    if not tokens:
        raise ExpressionError("the expression is empty", 1)
    return tokens


def names_in(source: str) -> dict[str, int]:
    """Returns the dotted names of an expression with their columns; checks nothing, and faults yield no names."""
    return {name: start + 1 for name, start in mentions_in(source)}


def mentions_in(source: str) -> list[tuple[str, int]]:
    """Returns every mention of a name, in order, with its offset from 0; faults yield none."""
    try:
        tokens = _tokens(source)
    except ExpressionError:  # this fault is reported when the expression is compiled
        return []
    return [(token.text, token.start) for token in tokens if token.kind == "name" and token.text not in _WORDS]


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns the known word that was probably intended; empty if none is like it."""
    return next(iter(difflib.get_close_matches(word, sorted(set(known)), n=1, cutoff=0.6)), "")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns a hint with the nearest known word, or with all of them if there are few."""
    words = sorted(set(known))
    if near := nearest(word, words):
        return f"Did you mean '{near}'?"
    return f"Known: {', '.join(words)}." if 0 < len(words) <= 12 else ""


@lru_cache(maxsize=8192)
def _tokens(source: str) -> tuple[_Token, ...]:
    tokens = []
    for match in _TOKEN.finditer(source):
        kind, text = str(match.lastgroup), match.group()
        if kind == "strange":
            if text in "'\"":
                hint = f"Close it with {text}."
                raise ExpressionError("the text that begins here is not closed", match.start() + 1, hint)
            hint = f"Write {_FOREIGN[text]}." if text in _FOREIGN else ""
            raise ExpressionError(f"'{text}' has no meaning here", match.start() + 1, hint)
        if kind == "measured":
            raise ExpressionError(f"'{text}' has a unit", match.start() + 1, "Write seconds, or name a setting.")
        if kind != "space":
            tokens.append(_Token(kind, text, match.start()))
    _not_too_deep(tokens)
    return tuple(tokens)


def _not_too_deep(tokens: Sequence[_Token]) -> None:
    depth = 0
    for token in tokens:
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        if depth > MAX_DEPTH:
            raise ExpressionError(f"more than {MAX_DEPTH} brackets inside each other", token.start + 1)


def _names(tokens: Sequence[_Token], scope: Scope) -> frozenset[str]:
    found: set[str] = set()
    for index, token in enumerate(tokens):
        if token.kind != "name" or token.text in _WORDS:
            continue
        called = index + 1 < len(tokens) and tokens[index + 1].text == "("
        if index and tokens[index - 1].text == ".":
            _known_method(token.text, token.start)
        elif called and "." in token.text:
            owner, method = token.text.rsplit(".", 1)
            _known_method(method, token.start + len(owner) + 1)
            found.add(_known(owner, token, scope))
        elif called:
            if token.text.lower() in _FOREIGN:
                sign = _FOREIGN[token.text.lower()]
                raise ExpressionError(f"unknown word '{token.text}'", token.start + 1, f"Write {sign}.")
            if token.text not in FUNCTION_NAMES:
                hint = did_you_mean(token.text, FUNCTION_NAMES) or f"Known: {', '.join(sorted(FUNCTION_NAMES))}."
                raise ExpressionError(f"unknown function '{token.text}'", token.start + 1, hint)
        else:
            found.add(_known(token.text, token, scope))
    return frozenset(found)


def _known(name: str, token: _Token, scope: Scope) -> str:
    if name in scope:
        return name
    parts = [known for known in scope if known.startswith(name + ".")]
    if parts and name.lower() not in _FOREIGN:
        raise ExpressionError(f"'{name}' has parts: name one of them", token.start + 1, did_you_mean(name, parts))
    hint, near = _hint_for_name(name, scope)
    raise ExpressionError(f"unknown name '{name}'", token.start + 1, hint, unknown=name, near=near)


def _hint_for_name(name: str, scope: Scope) -> tuple[str, str]:
    """Returns the hint for an unknown name, and the known name that it suggests."""
    if name.lower() in _FOREIGN:
        return f"Write {_FOREIGN[name.lower()]}.", ""
    if name.startswith("baseline.") and not any(known.startswith("baseline.") for known in scope):
        return "Write 'baseline: true' in a state that reads it before.", ""
    if name.startswith("baseline.") and name.removeprefix("baseline.") in scope:
        return f"Read '{name.split('.')[1]}' in the state with 'baseline: true'.", ""
    known = [known for known in scope if "." in name and known.startswith(name.rsplit(".", 1)[0] + ".")] or scope
    return did_you_mean(name, known) or UNDEFINED, nearest(name, known)


def _known_method(method: str, start: int) -> None:
    if method not in METHODS:
        raise ExpressionError(f"unknown method '{method}'", start + 1, did_you_mean(method, METHODS))


def _refuse_what_never_works(tokens: Sequence[_Token]) -> None:
    """Each would be unknown in every incident: a division by 0, and an invalid regular expression."""
    for index, token in enumerate(tokens[:-1]):
        following = tokens[index + 1]
        if token.text in ("/", "%") and following.kind in ("whole", "float") and float(following.text) == 0:
            raise ExpressionError("this divides by 0", following.start + 1, "Write a number or a name that is not 0.")
        if token.text.rpartition(".")[2] != "matches" or following.text != "(" or index + 2 >= len(tokens):
            continue
        pattern = tokens[index + 2]
        if pattern.kind != "text":
            continue
        try:
            compile_pattern(ast.literal_eval(pattern.text))
        except (ValueError, SyntaxError) as error:
            raise ExpressionError(str(error), pattern.start + 1, HINT) from error


def _as_cel(tokens: Sequence[_Token]) -> tuple[str, list[int]]:
    """Returns the text for CEL, every whole number a float and every divisor guarded, and each character's origin."""
    closing: dict[int, int] = {}
    guarded = set()
    for index, token in enumerate(tokens):
        if token.text == "/" and index + 1 < len(tokens):
            guarded.add(index + 1)
            end = _operand_end(tokens, index + 1)
            closing[end] = closing.get(end, 0) + 1
    fragments: list[tuple[str, int]] = []
    for index, token in enumerate(tokens):
        if index in guarded:
            fragments.append((_NONZERO.name + "(", token.start))
        text = token.text + ".0" if token.kind == "whole" else token.text
        called = index + 1 < len(tokens) and tokens[index + 1].text == "("
        fragments.append((_HIDDEN.get(text, text) if called else text, token.start))
        fragments.append((")" * closing.get(index, 0) + " ", token.start + len(token.text) - 1))
    columns: list[int] = []
    for text, start in fragments:
        columns.extend(start + 1 for _ in text)
    return "".join(text for text, _ in fragments), columns


def _operand_end(tokens: Sequence[_Token], start: int) -> int:
    """Returns the last token of the operand that starts at `start`: signs, a primary, then calls and selections."""
    index = start
    while index < len(tokens) - 1 and tokens[index].text in ("-", "!"):
        index += 1
    if tokens[index].text == "(":
        index = _closing(tokens, index)
    while index + 1 < len(tokens):
        if tokens[index + 1].text in ("(", "["):
            index = _closing(tokens, index + 1)
        elif tokens[index + 1].text == "." and index + 2 < len(tokens):
            index += 2
        else:
            break
    return index


def _closing(tokens: Sequence[_Token], opening: int) -> int:
    depth = 0
    for index in range(opening, len(tokens)):
        depth += (tokens[index].text in ("(", "[")) - (tokens[index].text in (")", "]"))
        if depth == 0:
            return index
    raise ExpressionError("this bracket is not closed", tokens[opening].start + 1, "Write its end.")


_newest: tuple[Scope, Any] | None = None


def _environment_of(scope: Scope) -> Any:
    """Returns the environment of a scope. A state's expressions share one scope, which is not hashed again for each."""
    global _newest  # noqa: PLW0603 - one scope at a time: a state's expressions follow each other
    newest = _newest
    if newest is None or newest[0] is not scope:
        _newest = newest = (scope, _environment(frozenset(scope.items())))
    return newest[1]


@lru_cache(maxsize=256)
def _environment(scope: frozenset[tuple[str, Kind]]) -> Any:
    # Without macros there are no loops: an expression ends in time proportional to its length.
    config = _cel().NewEnvConfigFromYaml("stdlib: {disable_macros: true}")
    variables = {name: _types()[kind] for name, kind in scope}
    return _cel().NewEnv(config=config, variables=variables, functions=_declarations())


@cache
def _cel() -> Any:
    """It takes 5 MB, and nothing needs it until an expression is compiled."""
    from cel_expr_python import cel

    return cel


@cache
def _types() -> dict[Kind, Any]:
    found = _cel().Type
    by_replica = found.Map(found.STRING, found.DOUBLE)
    return {"number": found.DOUBLE, "text": found.STRING, "flag": found.BOOL, "by_replica": by_replica}


def _declarations() -> list[Any]:
    overloads: dict[str, list[Any]] = {}
    for number, function in enumerate((*FUNCTIONS, _NONZERO)):
        name = _HIDDEN.get(function.name, function.name)
        takes = [_types()[kind] for kind in function.takes]
        overload = _cel().Overload(f"{name}_{number}", _types()[function.gives], takes, impl=function.call)
        overloads.setdefault(name, []).append(overload)
    return [_cel().FunctionDecl(name, group) for name, group in overloads.items()]


def _compile(text: str, columns: Sequence[int], environment: Any) -> Any:
    try:
        return environment.compile(text)
    except RuntimeError as error:
        raise _fault_in(error, columns) from error


def _fault_in(error: RuntimeError, columns: Sequence[int]) -> ExpressionError:
    fault = _FAULT.search(str(error))
    if fault is None:  # its depth limits carry no position
        return ExpressionError("the expression is too deep", 1, "Split it over two states.")
    at = min(int(fault.group(1)), len(columns)) - 1
    what, hint = _in_our_words(fault.group(2))
    return ExpressionError(what, columns[at] if columns else 1, hint)


def _in_our_words(message: str) -> tuple[str, str]:
    mismatch = _MISMATCH.search(message)
    if mismatch:
        name = {"_?_:_": "? :", "_[_]": "[ ]"}.get(mismatch.group(1), mismatch.group(1).strip("_"))
        name = "/" if name == _NONZERO.name.strip("_") else name
        kinds = re.sub("|".join(map(re.escape, _CEL_WORDS)), lambda m: _CEL_WORDS[m.group()], mismatch.group(2))
        hint = f"It takes {takes}." if (takes := _takes(name)) else _hint_for(name, kinds)
        return f"'{name}' does not work with {' and '.join(kinds.rsplit(', ', 1))}", hint
    if message.startswith("Syntax error"):
        word = re.search(r"'((?:[^'\\]|\\.)*)'", message)
        if "'<EOF>'" in message or word is None:
            return "the expression ends too early", "Close each bracket, and write what follows the last sign."
        is_bracket = word.group(1) in ("(", ")", "[", "]")
        hint = "Open and close each bracket." if is_bracket else "Write a sign between two values: a > 3 && b < 0.5."
        return f"'{word.group(1)}' does not fit here", hint
    # The names were looked up before, so that it is a function, called with too few or too many values.
    undeclared = re.match(r"undeclared reference to '(\w+)'", message)
    if undeclared:
        name = undeclared.group(1)
        return f"'{name}' does not take so many values", f"It takes {_takes(name)}."
    return message.replace(" (in container '')", ""), ""


def _takes(function: str) -> str:
    """What a function takes, in words; empty for an operator."""
    return " or ".join(" and ".join(_KIND_WORDS[kind] for kind in f.takes) for f in FUNCTIONS if f.name == function)


def _hint_for(operator: str, kinds: str) -> str:
    if operator in ("<", "<=", ">", ">=") and "true or false" in kinds:
        return "Join two comparisons with &&: 1 < a && a < 5."
    if operator in ("&&", "||", "!"):
        return "Both sides must be true or false: a > 3 && b > 5." if operator != "!" else "Compare it: !(a > 3)."
    return "Both sides must be of one kind; a number has no quotes."


def _plain(message: str) -> str:
    """Returns CEL's message without its status words."""
    return re.sub(r"^[A-Z_]+: ", "", re.sub(r"\s*\[[A-Z_]+\]$", "", message)).strip()


def _conforming(value: Value, kind: Kind) -> Any:
    """Returns the value in CEL's form, or None if it is not of its kind: then it is unknown."""
    match kind:
        case "number":
            if isinstance(value, bool) or not isinstance(value, int | float):
                return None
            return float(value) if math.isfinite(value) else None
        case "text":
            return value if isinstance(value, str) else None
        case "flag":
            return value if isinstance(value, bool) else None
        case "by_replica":
            if not isinstance(value, dict):
                return None
            return {name: float(number) for name, number in value.items() if math.isfinite(number)}


def _checked(answer: Any, kind: Kind) -> Value | Unknown:
    if kind == "number" and not math.isfinite(answer):
        return Unknown("the result is not a number")
    return answer  # type: ignore[no-any-return] # compile_expression checked its type
