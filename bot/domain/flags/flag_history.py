"""Which engine versions support a flag or a variable, from data: additions, removals and replacements.

Releases that were not read are unknown: between the last one without a flag and the first one with it, support is
unsure.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from pydantic import BaseModel, ConfigDict, Field

from bot.domain.flags.flag_table import FlagValue, table_of


def release(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


class Values(BaseModel):
    """Values that a flag accepted in some releases, if they differ from the newest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    since: str = Field(default="0.0", alias="from")
    until: str
    choices: tuple[str, ...] = ()
    default: FlagValue | None = None
    only_on: bool = False
    """A switch without a `--no-` form."""


class Ignored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    since: str = Field(alias="from")
    why: str
    v1_alone: bool = False
    """Only the engine before V1 honors the flag, in releases that still have it."""


class Life(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    first: str = ""
    lacking: str = ""
    last: str = ""
    seen: str = ""
    """A later release that has it, if the last one is not known."""
    removed: str = ""
    """The first release read that lacks it."""
    source: str = ""
    """A key of the file's sources; empty for the notes."""
    replacement: str = ""
    note: str = ""
    ignored: Ignored | None = None
    values: tuple[Values, ...] = ()

    def is_gone(self, version: str) -> bool:
        return bool(version and self.removed) and release(version) >= release(self.removed)

    def is_yet_to_come(self, version: str) -> bool:
        return bool(version and self.lacking) and release(version) <= release(self.lacking)

    def values_in(self, version: str) -> Values | None:
        """Returns the values in this release, if they are known to differ from the newest table."""
        if not version:
            return None
        at = release(version)
        return next((v for v in self.values if release(v.since) <= at <= release(v.until)), None)


class History(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    sources: dict[str, str] = {}
    first_release: str
    newest_release: str
    flags: dict[str, Life]
    variables: dict[str, Life]


@cache
def history() -> History:
    text = files(__package__).joinpath("tables", "history.json").read_text(encoding="utf-8")
    return History.model_validate_json(text)


def life_of_flag(flag: str) -> Life | None:
    return history().flags.get(flag)


def release_of(version: str) -> str:
    """Returns `0.32` for `v0.32.1+cu129`; raise `ValueError` if there is no release in the text."""
    found = re.match(r"v?(\d{1,4}\.\d{1,4})(?!\d)", version)
    if found is None:
        raise ValueError(f"'{version}' names no release of the engine")
    return found[1]


def has_flag(version: str, flag: str) -> bool:
    """Whether this release accepts and honors the flag; raise `ValueError` if that is unknown."""
    at = release_of(version)
    if fault_of_flag(flag, at):
        return False
    table = table_of(at)
    if table is not None:
        return table.name_of(flag) is not None
    life = life_of_flag(flag)
    if life is None or not life.first or release(at) < release(life.first):
        raise ValueError(f"nothing is known of {flag} in vLLM {at}")
    if release(at) > release(life.last or history().newest_release):
        raise ValueError(f"whether vLLM {at} still has {flag} was not checked")
    return True


def was_read(version: str) -> bool:
    """Whether the release is among those whose flags and metrics are known; raise `ValueError` if none is named."""
    at = release(release_of(version))
    return release(history().first_release) <= at <= release(history().newest_release)


def version_at_least(version: str, least: str) -> bool:
    """Compares by release: a patch version counts as its release."""
    return release(release_of(version)) >= release(release_of(least))


FIRST_BY_DEFAULT, V1_ONLY = (0, 8), (0, 11)


def is_v0(version: str, asked: str | None) -> bool:
    """Whether it runs the engine before V1; `asked` is the text of VLLM_USE_V1, None if not set."""
    at = release(version)
    return at < V1_ONLY and (asked != "1" if at < FIRST_BY_DEFAULT else asked == "0")


def fault_of_flag(flag: str, version: str, *, on_v0: bool = False) -> str:
    """Returns why this engine does not accept the flag, and its replacement; empty if no reason is known."""
    return _fault(flag, life_of_flag(flag), version, on_v0=on_v0)


def fault_of_variable(name: str, version: str) -> str:
    return _fault(name, history().variables.get(name), version)


def _fault(name: str, life: Life | None, version: str, *, on_v0: bool = False) -> str:
    if life is None:
        return ""
    if life.is_gone(version):
        never = f"vLLM {version} has no {name}" + ("" if not life.last else f": it was removed in {life.removed}")
        return never + _instead(life)
    if life.is_yet_to_come(version):
        return f"vLLM {version} has no {name} yet: it was first seen in {life.first}" + (
            f"; {life.note}" if life.note else ""
        )
    ignored = life.ignored
    if (
        ignored is not None
        and version
        and release(version) >= release(ignored.since)
        and not (on_v0 and ignored.v1_alone)
    ):
        return f"vLLM {version} ignores {name}: {ignored.why}"
    return ""


def _instead(life: Life) -> str:
    parts = [f"use {life.replacement} instead" if life.replacement else "", life.note]
    advice = "; ".join(part for part in parts if part)
    return f"; {advice}" if advice else ""
