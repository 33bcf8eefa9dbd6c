"""The arguments of one Web API call, from a form or JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bot.sandbox.slack.errors import ApiError, Json


class Arguments:
    """Reads typed values; a missing or unreadable one raises `invalid_arguments` with Slack's wording."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def text(self, name: str, default: str = "") -> str:
        value = self._values.get(name)
        return default if value is None else str(value)

    def required(self, name: str) -> str:
        value = self.text(name)
        if not value:
            raise ApiError("invalid_arguments", f"[ERROR] missing required field: {name}")
        return value

    def flag(self, name: str) -> bool:
        return self.text(name).lower() in ("1", "true")

    def number(self, name: str, default: int) -> int:
        try:
            return int(self.text(name) or default)
        except ValueError:
            raise ApiError("invalid_arguments", f"[ERROR] must be a number: {name}") from None

    def structure(self, name: str) -> Any:
        """A JSON value, which a form carries as text; None if it is absent."""
        value = self._values.get(name)
        if not isinstance(value, str):
            return value
        if not value:
            return None
        try:
            return json.loads(value)
        except ValueError:
            code = "invalid_blocks_format" if name == "blocks" else "invalid_arguments"
            raise ApiError(code, f"[ERROR] must be valid json: {name}") from None

    def mapping(self, name: str) -> Json:
        value = self.structure(name)
        if not isinstance(value, dict):
            raise ApiError("invalid_arguments", f"[ERROR] missing required field: {name}")
        return value
