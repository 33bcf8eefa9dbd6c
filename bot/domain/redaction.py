"""What must not be read by everybody who sees a difference, a log line or a report: one rule for all of them.

A name that says secret hides its value, and a value that looks like a secret is hidden whatever its name. What is shown
or recorded is a copy: the plan that is applied keeps every character.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

MASK = "(masked)"

_ENDS_SECRET = ("token", "key", "apikey", "accesskey", "secretkey", "pat")
_IS_SECRET = ("secret", "secrets", "password", "passwd", "passphrase", "credential", "credentials", "authorization")
_ONLY_REFERS = ("name", "file", "path", "dir", "ref", "names", "keyfile", "url", "id", "count")
"""`HF_TOKEN_PATH` and `secretName` say where a secret is, not what it is."""
_PARTS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+(?![a-z])")

_VALUES = re.compile(
    r"xox[abeprs]-[\w-]{4,}|xapp-[\w-]{4,}|\bhf_\w{6,}|\bsk-[\w-]{6,}|\bgh[opsu]_\w{10,}|\bgithub_pat_\w{10,}"
    r"|\bglpat-[\w-]{8,}|\bnvapi-[\w-]{8,}|\bA(?:KIA|SIA)[0-9A-Z]{16}\b|\beyJ[\w-]{10,}\.[\w-]+\.[\w-]+"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
_BEARER = re.compile(r"\b(Bearer|Basic)(\s+)[\w.~+/=-]{6,}", re.IGNORECASE)
_IN_URL = re.compile(r"(://[^/\s:@'\"]*):[^@\s/'\"]+@")
_VALUE = r"(\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s'\",;)}\]]+)"
_OPTION = re.compile(r"(?<![\w-])(['\"]?)(--[\w.-]+)(['\"]?\s{0,3}[=, ]\s{0,3})(?!-)" + _VALUE)
_NAMED = re.compile(r"(['\"]?)(?<![\w-])([A-Za-z][\w-]*)(['\"]?\s{0,3}[=:]\s{0,3})(?!//)" + _VALUE)


def is_secret_name(name: str) -> bool:
    """Whether a variable, flag or field of this name holds a secret: HF_TOKEN does, --max-num-batched-tokens not."""
    parts = [part.lower() for part in _PARTS.findall(name)]
    if not parts or parts[-1] in _ONLY_REFERS:
        return False
    return parts[-1] in _ENDS_SECRET or any(part in _IS_SECRET for part in parts)


def redacted(text: str) -> str:
    """The same text, with every secret in it masked."""
    text = _VALUES.sub(MASK, text)
    text = _BEARER.sub(rf"\1\2{MASK}", text)
    text = _IN_URL.sub(rf"\1:{MASK}@", text)
    text = _OPTION.sub(_without_value, text)
    return _NAMED.sub(_without_value, text)


def _without_value(found: re.Match[str]) -> str:
    before, name, between, value = found.groups()
    # A reference (`$HF_TOKEN`, `$(HF_TOKEN)`) is the name of a place, and what is masked already stays readable.
    is_open = value.startswith("$") or MASK.startswith(value.strip("'\"")) or not is_written_secret(name)
    return found[0] if is_open else f"{before}{name}{between}{MASK}"


def is_written_secret(name: str) -> bool:
    """Of names in running text only the telling ones: `key: 5` in a sentence is no secret, `API_KEY=5` is."""
    return is_secret_name(name) and name.lower() not in ("key", "pat")


def shown_value(name: str, value: Any) -> Any:
    """A field's value as people may see it."""
    if value is None or isinstance(value, bool):
        return value
    if is_secret_name(name) and not (isinstance(value, str) and value.startswith("$")):
        return MASK
    return redacted_data(value)


def redacted_data(data: Any) -> Any:
    """A copy of JSON with its secrets masked: by field name, in `{name, value}` pairs, behind options in lists."""
    if isinstance(data, str):
        return redacted(data)
    if isinstance(data, Mapping):
        return _redacted_fields(data)
    if isinstance(data, Sequence) and not isinstance(data, bytes):
        return _redacted_list(data)
    return data


def _redacted_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    name = data.get("name")
    if isinstance(name, str) and isinstance(data.get("value"), str) and is_secret_name(name):
        return {key: shown_value(name, item) if key == "value" else redacted_data(item) for key, item in data.items()}
    return {
        key: MASK if isinstance(item, str) and item and is_written_secret(key) else redacted_data(item)
        for key, item in data.items()
    }


def _redacted_list(items: Sequence[Any]) -> list[Any]:
    shown: list[Any] = []
    hides = False
    for item in items:
        is_option = isinstance(item, str) and item.startswith("-")
        hides = hides and not is_option
        hide = hides and isinstance(item, str) and not item.startswith("$")
        shown.append(MASK if hide else redacted_data(item))
        if is_option:
            hides = "=" not in item and is_secret_name(item)
    return shown
