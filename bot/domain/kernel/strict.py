"""The base of every model that is read from a file: what it does not know is a mistake, and nothing alters it later."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Attribute docstrings become descriptions in the JSON schema."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
