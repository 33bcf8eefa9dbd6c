"""The flags of each engine version and their values: data generated from the engine's own parser.

Nothing is guessed: for an engine version without a table, existence and range are "not checked", never "fine".
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from pydantic import BaseModel, ConfigDict

FlagType = Literal["int", "float", "human_int", "human_int_or_auto", "switch", "true", "text", "json"]
FlagValue = int | float | bool | str
NUMBER_TYPES = ("int", "float", "human_int", "human_int_or_auto")

_TABLE = re.compile(r"vllm-(\d+\.\d+)\.json")


def _known_versions() -> tuple[str, ...]:
    names = (each.name for each in files(__package__).joinpath("tables").iterdir())
    found = (match[1] for name in names if (match := _TABLE.fullmatch(name)))
    return tuple(sorted(found, key=lambda version: tuple(map(int, version.split(".")))))


KNOWN_VERSIONS = _known_versions()
"""Engine versions (major.minor) that have a table, oldest first: another file adds another version."""

_HUMAN = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class FlagSpec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    type: FlagType
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    many: bool = False
    default: FlagValue | None = None
    """The parser's value if the flag is absent; None if the engine decides by itself."""

    @property
    def is_switch(self) -> bool:
        return self.type in ("switch", "true")


class FlagValueError(ValueError):
    """The flag does not accept this value; the message is for people."""


@dataclass(frozen=True)
class FlagTable:
    version: str
    flags: dict[str, FlagSpec]
    spellings: dict[str, str]
    """Every option string (`-tp`, `--no-x`, aliases) to the flag's name."""

    def name_of(self, option: str) -> str | None:
        """Returns the flag of an option string: exact, or a unique prefix, as in argparse.

        A key of a JSON flag keeps its dots: `--compilation-config.level`.
        """
        spelled, dot, key = normalised(option).partition(".")
        name = self._name_of(spelled)
        return f"{name}{dot}{key}" if name else None

    def _name_of(self, spelled: str) -> str | None:
        if spelled in self.spellings:
            return self.spellings[spelled]
        if not spelled.startswith("--"):
            return None
        longer = {name for known, name in self.spellings.items() if known.startswith(spelled)}
        return longer.pop() if len(longer) == 1 else None

    def spec(self, name: str) -> FlagSpec | None:
        return self.flags.get(name)


@cache
def table_of(version: str) -> FlagTable | None:
    """Returns the table of an engine version (`0.32`), or None without one."""
    if version not in KNOWN_VERSIONS:
        return None
    text = files(__package__).joinpath("tables", f"vllm-{version}.json").read_text(encoding="utf-8")
    flags = {name: FlagSpec.model_validate(spec) for name, spec in json.loads(text)["flags"].items()}
    spellings = {name: name for name in flags}
    for name, spec in flags.items():
        spellings.update(dict.fromkeys(spec.aliases, name))
        if spec.type == "switch":
            spellings[f"--no-{name.removeprefix('--')}"] = name
    return FlagTable(version, flags, spellings)


def newest_table() -> FlagTable:
    table = table_of(KNOWN_VERSIONS[-1])
    assert table is not None
    return table


OWN_VERSIONS = re.compile(r"(?:^|/)(?:lmcache|llm-d|nvidia|kserve|rhaiis)/")
"""Projects whose images contain vLLM, and whose tags are versions of their own (`lmcache/vllm-openai:v0.3.7`)."""


def tag_of(image: str) -> str:
    """Returns the part of an image that may say the engine's version; empty if its tag says that of another project."""
    return "" if OWN_VERSIONS.search(image) else image.partition("@")[0]


def version_of_image(image: str) -> str:
    """Returns `major.minor` from an image's tag (`…:v0.32.0`), or an empty text if the tag has no version."""
    found = re.search(r":v?(\d+\.\d+)(?:\.\d+)?(?:[-.+].*)?$", tag_of(image))
    return found.group(1) if found else ""


def normalised(option: str) -> str:
    """Replaces underscores of a flag's name with dashes, as the engine does; keys after a dot keep theirs."""
    spelled = option.split("=", 1)[0]
    if not spelled.startswith("--"):
        return spelled
    name, dot, key = spelled.partition(".")
    return name.replace("_", "-") + dot + key


def parse_value(spec: FlagSpec | None, value: FlagValue) -> FlagValue:
    """Parses the value as the engine would; raise `FlagValueError` if it would not. Without a spec: unchanged."""
    if spec is None:
        return value
    if spec.is_switch:
        if not isinstance(value, bool):
            raise FlagValueError("is a switch: its value is true or false")
        return value
    if spec.type in NUMBER_TYPES:
        return _number(spec.type, value)
    text = text_of(value)
    if spec.choices and text not in spec.choices:
        raise FlagValueError(f"takes one of {', '.join(spec.choices)}, not {text!r}")
    return text


def _number(kind: FlagType, value: FlagValue) -> FlagValue:
    if isinstance(value, bool):
        raise FlagValueError(f"takes a number, not {str(value).lower()}")
    text = text_of(value)
    if kind == "human_int_or_auto" and text in ("auto", "-1"):
        return -1
    try:
        return float(text) if kind == "float" else _whole_number(text, human=kind != "int")
    except ValueError:
        raise FlagValueError(f"takes a {'number' if kind == 'float' else 'whole number'}, not {text!r}") from None


def _whole_number(text: str, *, human: bool) -> int:
    if human and text and text[-1] in _HUMAN:
        # Capital letters are powers of two and take no fraction.
        head, unit = text[:-1], _HUMAN[text[-1]]
        return int(float(head) * unit) if text[-1].islower() else int(head) * unit
    return int(text)


def text_of(value: FlagValue) -> str:
    """Returns the text to write after a flag: expressions yield 6.0 where a person writes 6."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
