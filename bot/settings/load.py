"""Reads the settings: the environment over one optional YAML file, as one frozen value or one error with every fault.

They are read before any socket opens. Every setting has one name in the file (`slack.channel`) and one in the
environment (`INCIDENT_BOT_SLACK_CHANNEL`); the environment wins, and an empty variable counts as unset. Secrets are
never printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError as Invalid

from bot.domain.kernel.configured import pairs
from bot.domain.kernel.errors import SettingsError
from bot.settings.explain import explain
from bot.settings.model import PREFIX, Settings, StorageSettings
from bot.settings.places import PLAIN_NAMES, VARIABLES, Location, did_you_mean, sections

M = TypeVar("M", bound=StorageSettings)

FILE_VARIABLE = "INCIDENT_BOT_SETTINGS"
OVERRIDES: Location = ("overrides",)
TEXT, MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"
MAX_DEPTH = 8
"""An alias may contain itself."""

# For a Service named `incident-bot` Kubernetes sets variables like INCIDENT_BOT_PORT=tcp://… in every pod.
_SERVICE_LINK = re.compile(
    r"(.+_)?((SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)=.*|PORT=\w+://.*)", re.ASCII
)


def load_settings(environ: Mapping[str, str], file: Path | None = None, *, overrides: Sequence[str] = ()) -> Settings:
    """Raises `SettingsError` with every fault. `overrides` are `name=value` texts of the command line; they win."""
    return _load(Settings, environ, file, overrides)


def load_storage_settings(environ: Mapping[str, str], file: Path | None = None) -> StorageSettings:
    """As above, of the settings that are about Redis; the others are not looked at, and may be missing."""
    return _load(StorageSettings, environ, file, ())


def _load(model: type[M], environ: Mapping[str, str], file: Path | None, overrides: Sequence[str]) -> M:
    gathered = _Gathered()
    path = file or (Path(environ[FILE_VARIABLE]) if environ.get(FILE_VARIABLE) else None)
    if path is not None:
        gathered.read_file(path)
    gathered.read_environment(environ)
    gathered.read_overrides(overrides)
    if not gathered.is_file_known:
        # What seems to be missing may be in the file.
        raise SettingsError(gathered.problems)
    # What is not a setting at all stays, and is reported.
    others = Settings.model_fields.keys() - model.model_fields.keys()
    values = {name: value for name, value in gathered.values.items() if name not in others}
    try:
        settings = model.model_validate(values)
    except Invalid as invalid:
        explained = explain(model, invalid, values, gathered.sources)
        raise SettingsError([*gathered.problems, *explained]) from None
    if gathered.problems:
        raise SettingsError(gathered.problems)
    return settings


@dataclass
class _Gathered:
    """Raw values by place, with the source of each, and the errors so far."""

    values: dict[str, Any] = field(default_factory=lambda: {name: {} for name in sections(Settings)})
    sources: dict[Location, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    is_file_known: bool = True
    """False if there is a file that cannot be read as YAML."""

    def put(self, path: Location, value: Any, source: str) -> None:
        inner = self.values
        for name in path[:-1]:
            deeper = inner.get(name, {})
            if not isinstance(deeper, dict):
                return  # the file has another type of value there, and that is reported separately
            # An alias of YAML shares one mapping between several places, and only this one is meant.
            inner[name] = inner = dict(deeper)
        inner[path[-1]] = value
        self.sources[path] = source

    def read_environment(self, environ: Mapping[str, str]) -> None:
        for variable, path in (PLAIN_NAMES | VARIABLES).items():
            value = environ.get(variable, "").strip()
            if value and path == OVERRIDES:
                self._add_overrides(value, variable)
            elif value:
                self.put(path, value, variable)
        for name in sorted(environ):
            rest = name.removeprefix(PREFIX)
            if (
                rest == name
                or name in VARIABLES
                or name == FILE_VARIABLE
                or _SERVICE_LINK.fullmatch(f"{rest}={environ[name]}")
            ):
                continue
            self.problems.append(f"{name} is not a setting{did_you_mean(name, VARIABLES, prefix=PREFIX)}")

    def read_overrides(self, overrides: Sequence[str]) -> None:
        if overrides:
            self._add_overrides(",".join(overrides), "--set")

    def _add_overrides(self, text: str, source: str) -> None:
        """Appends them after those of the file, so that they take precedence."""
        try:
            added = pairs(text)
        except ValueError as wrong:
            self.problems.append(f"{source}: {wrong}; example: window=15s")
            return
        known = self.values.get("overrides", [])
        if isinstance(known, list):
            self.values["overrides"] = [*known, {"settings": added}]
            self.sources.setdefault(OVERRIDES, source)

    def read_file(self, path: Path) -> None:
        from ruamel.yaml import YAML
        from ruamel.yaml.constructor import DuplicateKeyError
        from ruamel.yaml.error import MarkedYAMLError, YAMLError

        # Only `problem` is shown: an error's snippet and the message about a duplicate contain values, perhaps secret.
        try:
            text = path.read_text(encoding="utf-8")
            root = YAML(typ="safe", pure=True).compose(text)
            strange = list(_strange_keys(root, str(path)))
            content = None if strange else YAML(typ="safe", pure=True).load(text)
        except (OSError, UnicodeDecodeError) as unreadable:
            self.is_file_known = False
            reason = unreadable.strerror if isinstance(unreadable, OSError) else "it is not UTF-8"
            self.problems.append(f"{path} cannot be read: {reason}; correct --settings or {FILE_VARIABLE}")
        except MarkedYAMLError as wrong:
            self.is_file_known = False
            mark = wrong.problem_mark
            where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
            what = "a key is written twice" if isinstance(wrong, DuplicateKeyError) else wrong.problem
            self.problems.append(f"{where}: not YAML: {what}")
        except YAMLError as wrong:
            self.is_file_known = False
            self.problems.append(f"{path}: not YAML: {type(wrong).__name__}")
        else:
            self.is_file_known = not strange
            self.problems += [f"{where}: the name of a setting must be a text; write it in quotes" for where in strange]
            if isinstance(content, dict):
                self._take(content, dict(_positions(root, str(path))))
            elif content is not None:
                self.problems.append(f"{path}: must hold settings by name; example: 'slack: {{channel: C0123456789}}'")

    def _take(self, content: dict[str, Any], positions: Mapping[Location, str]) -> None:
        self.values |= {name: value for name, value in content.items() if value is not None}
        self.sources |= {path: f"{where} ({'.'.join(path)})" for path, where in positions.items()}


def _strange_keys(node: Any, file: str, depth: int = 0) -> Iterator[str]:
    """Yields the places of keys that are not text, such as `1`, `null` or a list: they cannot name a setting."""
    if depth > MAX_DEPTH:
        return
    for item in node.value if getattr(node, "id", "") in ("mapping", "sequence") else ():
        key, value = item if node.id == "mapping" else (None, item)
        if key is not None and key.tag not in (TEXT, MERGE):
            yield _place(key, file)
        yield from _strange_keys(value, file, depth + 1)


def _place(node: Any, file: str) -> str:
    return f"{file}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"


def _positions(node: Any, file: str, path: Location = ()) -> Iterator[tuple[Location, str]]:
    if len(path) > MAX_DEPTH:
        return
    match getattr(node, "id", ""):
        case "mapping":
            parts = [(str(key.value), key, value) for key, value in node.value]
        case "sequence":
            # A plain item, such as one id of several, is found at its setting.
            parts = [(str(index), item, item) for index, item in enumerate(node.value) if item.id == "mapping"]
        case _:
            return
    for name, at, value in parts:
        yield (*path, name), _place(at, file)
        yield from _positions(value, file, (*path, name))
