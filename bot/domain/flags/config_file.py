"""A `--config` file of the engine: `flag: value` lines of YAML, read and edited without changing any other character.

Only an unindented line is a flag; indented lines below it belong to it and are left unchanged.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from bot.domain.kernel.errors import BotError

_KEY = re.compile(r"(?P<key>[A-Za-z_][\w.-]*)\s*:(?P<behind>[ \t].*|)$")
_VALUE = re.compile(r"(?P<space>[ \t]*)(?P<value>'(?:[^']|'')*'|\"(?:[^\"\\]|\\.)*\"|.*?)[ \t]*(?:(?<=[ \t])#.*)?$")
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")
_OPAQUE = "&*!|>[{@`%"
"""A value that starts with one of these is more than a plain word or number."""
_PLAIN = re.compile(r"[A-Za-z0-9_./+][\w./+:=-]*|-\d+(\.\d+)?")


class ConfigFileError(BotError):
    """The text is not a flat list of flags; the message has the reason."""


@dataclass(frozen=True)
class ConfigEntry:
    key: str
    value: str | bool
    start: int
    end: int
    """The characters of the value."""
    entry_start: int
    entry_end: int
    """The characters of its line and of the lines that belong to it."""
    is_scalar: bool

    @property
    def option(self) -> str:
        return f"--{self.key}"


def entries_of(text: str) -> tuple[ConfigEntry, ...]:
    """Returns the flags of the file in order; raise `ConfigFileError` if it has another format."""
    found: list[ConfigEntry] = []
    offset = 0
    for line in text.splitlines(keepends=True):
        bare, start = line.rstrip("\r\n"), offset
        offset += len(line)
        if not bare.strip() or bare.lstrip().startswith("#") or (start == 0 and bare.rstrip() == "---"):
            continue
        if bare[0] in " \t" or bare.startswith("- "):
            if not found:
                raise ConfigFileError("it begins with an indented line")
            found[-1] = _longer(found[-1], offset)
            continue
        found.append(_entry(bare, start, offset))
    return tuple(found)


def _longer(entry: ConfigEntry, end: int) -> ConfigEntry:
    return ConfigEntry(entry.key, entry.value, entry.start, entry.end, entry.entry_start, end, is_scalar=False)


def _entry(line: str, start: int, end: int) -> ConfigEntry:
    key = _KEY.match(line)
    value = _VALUE.match(key["behind"]) if key else None
    if key is None or value is None:
        raise ConfigFileError(f"its line {line.strip()[:60]!r} is not `flag: value`")
    raw, at = value["value"], start + key.start("behind") + value.start("value")
    is_scalar = bool(raw) and raw[0] not in _OPAQUE
    return ConfigEntry(key["key"], _read(raw), at, at + len(raw), start, end, is_scalar)


def _read(raw: str) -> str | bool:
    if raw[:1] == "'":
        return raw[1:-1].replace("''", "'")
    if raw[:1] == '"':
        try:
            return str(json.loads(raw))
        except ValueError:
            return raw[1:-1]
    if raw.lower() in _TRUE + _FALSE:
        return raw.lower() in _TRUE
    return raw


def with_value(text: str, entry: ConfigEntry, value: str) -> str:
    """Keeps the author's quotes, if there are any."""
    raw = text[entry.start : entry.end]
    return text[: entry.start] + _scalar(value, raw[:1]) + text[entry.end :]


def with_switch(text: str, entry: ConfigEntry, key: str) -> str:
    """Writes `key: true` in place of the entry; false is written as the `no-` form, which every version accepts."""
    behind = text[entry.entry_start + len(entry.key) : entry.start]
    return text[: entry.entry_start] + key + behind + "true" + text[entry.end :]


def without(text: str, entry: ConfigEntry) -> str:
    return text[: entry.entry_start] + text[entry.entry_end :]


def with_line(text: str, key: str, value: str) -> str:
    """Adds a flag at the end; the file keeps its final line break or its absence."""
    line = f"{key}: {_scalar(value, '')}"
    if not text or text.endswith("\n"):
        return f"{text}{line}\n"
    return f"{text}\n{line}"


def _scalar(value: str, quote: str) -> str:
    if quote == "'":
        return "'" + value.replace("'", "''") + "'"
    return value if quote != '"' and _PLAIN.fullmatch(value) else json.dumps(value)
