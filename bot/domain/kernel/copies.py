"""Copies of frozen models with some fields replaced, where a decision needs dozens of them."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel

Model = TypeVar("Model", bound=BaseModel)


def copy_with(model: Model, **changes: Any) -> Model:
    """A copy with some fields replaced; like `model_copy`, it does not validate them.

    For models without private attributes and without extra fields. There it takes a tenth of the time of `model_copy`
    (pydantic 2.12).
    """
    copied, fields_set = model.__class__.__new__(model.__class__), model.__pydantic_fields_set__
    object.__setattr__(copied, "__dict__", {**model.__dict__, **changes})
    # Copies may share the set, because nothing is set on a frozen model.
    fields_set = fields_set if changes.keys() <= fields_set else fields_set | changes.keys()
    object.__setattr__(copied, "__pydantic_fields_set__", fields_set)
    object.__setattr__(copied, "__pydantic_extra__", None)
    object.__setattr__(copied, "__pydantic_private__", None)
    return copied
