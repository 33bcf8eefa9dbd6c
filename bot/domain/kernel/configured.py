"""Kinds of values that an operator may set, in the settings and in other layers' declarations for them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

from bot.domain.kernel import descriptions
from bot.domain.kernel.durations import seconds
from bot.domain.kernel.schedule import HOURS
from bot.domain.kernel.target import checked_pattern


class Section(BaseModel):
    """A part of the settings. The docstring of an attribute is its description."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=descriptions.are_read
    )


def _duration(raw: object) -> object:
    if isinstance(raw, timedelta):
        return raw
    if not isinstance(raw, str):
        raise ValueError("a duration needs a unit; write 90s, 5m or 1h30m")
    return timedelta(seconds=seconds(raw))


def _hours(raw: str) -> str:
    if not re.fullmatch(HOURS, raw):
        raise ValueError(f"'{raw}' is not a span of hours; write 22:00-06:00")
    begins, _, ends = raw.partition("-")
    if begins.strip() == ends.strip():
        raise ValueError(f"'{raw}' ends when it begins; leave the hours out for the whole day")
    return raw


Hours = Annotated[str, AfterValidator(_hours)]
"""As `HOURS`."""


def listed(raw: object) -> object:
    return tuple(part.strip() for part in raw.split(",") if part.strip()) if isinstance(raw, str) else raw


def from_a_file(raw: object) -> object:
    if isinstance(raw, str):
        raise ValueError("is a list, which only a settings file can hold")
    return raw


def pairs(raw: object) -> object:
    if isinstance(raw, Mapping):
        return {name: _text(value) for name, value in raw.items()}
    if not isinstance(raw, str):
        return raw
    found = [part.partition("=") for part in raw.split(",") if part.strip()]
    if any(not equals or not name.strip() or not value.strip() for name, equals, value in found):
        raise ValueError("write name=value, several of them with commas between")
    return {name.strip(): value.strip() for name, _, value in found}


def _text(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _address(raw: str) -> str:
    """Empty, or what an HTTP client accepts: it would refuse any other when it is used."""
    if raw and not _is_address(raw):
        raise ValueError("is not a web address")
    return raw


def _is_address(raw: str) -> bool:
    try:
        parts = urlsplit(raw)
        return parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _web_address(raw: str) -> str:
    """`https`, or `http` on this machine only: a token must not travel in clear."""
    if not _is_address(raw):
        raise ValueError("is not a web address")
    parts = urlsplit(raw)
    if parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
        raise ValueError("would send a token in clear; use https:// (http:// is for loopback addresses only)")
    return raw


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


Duration = Annotated[timedelta, BeforeValidator(_duration), Field(gt=timedelta(0))]
Secret = Annotated[SecretStr, Field(min_length=1)]
Pairs = Annotated[dict[str, str], BeforeValidator(pairs)]
TargetPatterns = Annotated[tuple[Annotated[str, AfterValidator(checked_pattern)], ...], BeforeValidator(listed)]
Address = Annotated[str, AfterValidator(_address)]
WebAddress = Annotated[str, AfterValidator(_web_address)]
