"""The base of every model that is read from a file: unknown keys are mistakes, and instances are immutable."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from bot.domain.kernel import descriptions


class Strict(BaseModel):
    """Attribute docstrings become descriptions in the JSON schema."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=descriptions.are_read)
