"""Parses the command line of a vLLM container as vLLM 0.32 does, including argparse's messages about a bad one.

The table of flags was dumped from the real server's parser; the values that the model understands become its limits.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, NoReturn

MAIN_USAGE = (
    "usage: {prog} [-h] [-v]",
    "            {{chat,complete,serve,launch,bench,collect-env,download-kernels,preload,run-batch,snapshot}}",
    "            ...",
)
SUFFIXES = {"k": 1000, "m": 1000**2, "g": 1000**3, "K": 1024, "M": 1024**2, "G": 1024**3}


class UsageError(Exception):
    """The command line is rejected: argparse's lines, exit code 2."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__(lines[-1])
        self.lines = tuple(lines)


@dataclass(frozen=True, slots=True)
class ServeFlags:
    """The flags that were given, by their argparse names, and which of them differ from their defaults."""

    given: Mapping[str, Any]
    non_default: Mapping[str, Any]

    def get(self, name: str, default: Any = None) -> Any:
        return self.given.get(name, default)


def is_vllm(argv: Sequence[str]) -> bool:
    try:
        return _split(argv) is not None
    except UsageError:
        return True  # a vLLM behind a shell that cannot parse its own line: it starts, and exits at once


def parse_serve(argv: Sequence[str]) -> ServeFlags:
    """Parses a container's whole command; raises `UsageError` if the real server would exit with 2."""
    split = _split(argv)
    if split is None:
        raise UsageError((f"{argv[0] if argv else 'sh'}: this is not a vLLM command",))
    prog, words = split
    parser = _parser("vllm serve" if prog == "vllm" else prog)
    namespace, unknown = parser.parse_known_args([_normal(word) for word in words])
    if unknown:
        usage = [line.format(prog=prog) for line in MAIN_USAGE] if prog == "vllm" else _usage(prog)
        raise UsageError([*usage, f"{prog}: error: unrecognized arguments: {' '.join(unknown)}"])
    return _flags(vars(namespace))


def _split(argv: Sequence[str]) -> tuple[str, list[str]] | None:
    """The program name for messages, and the words after it; None if this is not a vLLM command."""
    words = list(argv)
    if len(words) >= 3 and words[0].rsplit("/", 1)[-1] in ("sh", "bash") and re.fullmatch("-[a-z]*c", words[1]):
        if "vllm" not in words[2]:
            return None
        try:
            words = shlex.split(words[2], comments=True)
        except ValueError:
            raise UsageError(("sh: 1: Syntax error: Unterminated quoted string",)) from None
        if words[:1] == ["exec"]:
            words = words[1:]
    if len(words) >= 2 and words[0].rsplit("/", 1)[-1] == "vllm" and words[1] == "serve":
        return "vllm", words[2:]
    for index, word in enumerate(words[:4]):
        if word.startswith("vllm.entrypoints.openai.api_server"):
            return "api_server.py", words[index + 1 :]
    return None


def _normal(word: str) -> str:
    """vLLM accepts underscores in a flag's name; `--x.y` is a JSON key of `--x`."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def _flags(values: Mapping[str, Any]) -> ServeFlags:
    given = {name: value for name, value in values.items() if value is not None}
    if "model_tag" in given:
        given["model"] = given["model_tag"]
    order = ["model_tag", *_defaults()]
    non_default = {
        name: given[name]
        for name in order
        if name in given and (name == "model_tag" or given[name] != _defaults()[name])
    }
    return ServeFlags(given, non_default)


@lru_cache(maxsize=1)
def _table() -> tuple[dict[str, Any], ...]:
    text = resources.files(__package__).joinpath("vllm_flags_0_32.json").read_text()
    return tuple(json.loads(text))


@lru_cache(maxsize=1)
def _defaults() -> dict[str, Any]:
    return {_destination(row["options"]): _literal(row.get("default")) for row in _table()}


def _destination(options: Sequence[str]) -> str:
    return next(o for o in options if o.startswith("--")).removeprefix("--").replace("-", "_")


def _literal(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text  # a default that is an object in vLLM; its repr is never passed on a command line


def _usage(prog: str) -> list[str]:
    return [f"usage: {prog} [model_tag] [options]"]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError([*_usage(self.prog), f"{self.prog}: error: {message}"])


@lru_cache(maxsize=2)
def _parser(prog: str) -> argparse.ArgumentParser:
    parser = _Parser(prog=prog, add_help=False, argument_default=None)
    parser.add_argument("model_tag", nargs="?")
    for row in _table():
        options: dict[str, Any] = {}
        if row["kind"] in ("switch", "true"):
            switch = argparse.BooleanOptionalAction if row["kind"] == "switch" else "store_true"
            options = {"action": switch, "default": None}
        else:
            options = {"type": _TYPES[row["kind"]], "choices": row.get("choices"), "nargs": row.get("nargs")}
            if row.get("append"):
                options = {"action": "append"}
        parser.add_argument(*row["options"], dest=_destination(row["options"]), **options)
    return parser


def human_readable_int(text: str) -> int:
    """`8k` is 8,000 and `8K` is 8,192, as in vLLM."""
    found = re.fullmatch(r"(-?\d+(?:\.\d+)?)([kmgKMG]?)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"invalid integer value: {text!r}")
    return int(float(found[1]) * SUFFIXES.get(found[2], 1))


def human_readable_int_or_auto(text: str) -> int:
    return -1 if text in ("auto", "-1") else human_readable_int(text)


_TYPES = {
    "int": int,
    "float": float,
    "human": human_readable_int,
    "human_or_auto": human_readable_int_or_auto,
    "text": str,
}
