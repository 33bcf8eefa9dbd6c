"""The location of each setting: its place in the file and its name in the environment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from bot.domain.kernel.configured import Section
from bot.settings.model import PREFIX, Settings

Location = tuple[str, ...]

PLAIN_NAMES: dict[str, Location] = {
    "REDIS_URL": ("redis_url",),
    "SLACK_BOT_TOKEN": ("slack", "bot_token"),
    "SLACK_SIGNING_SECRET": ("slack", "signing_secret"),
    "SLACK_APP_TOKEN": ("slack", "app_token"),
}
"""Names that other tools use too; the prefixed name takes precedence."""


def leaves(model: type[BaseModel], path: Location = ()) -> Iterator[tuple[Location, FieldInfo]]:
    """Every single setting with its place in the file."""
    for name, info in model.model_fields.items():
        here = (*path, info.alias or name)
        nested = _nested(info)
        if nested is None:
            yield here, info
        else:
            yield from leaves(nested, here)


def sections(model: type[BaseModel]) -> list[str]:
    return [name for name, info in model.model_fields.items() if _nested(info)]


def names_beside(path: Location) -> list[str]:
    """The names that may be in place of the last one of `path`, which has no list indexes."""
    model: type[BaseModel] | None = Settings
    for name in path[:-1]:
        fields = model.model_fields if model else {}
        model = next((_model_in(info.annotation) for key, info in fields.items() if (info.alias or key) == name), None)
    return [info.alias or key for key, info in model.model_fields.items()] if model else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that a field is, or that its list contains."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


def _nested(info: FieldInfo) -> type[Section] | None:
    kind = info.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


LEAVES = dict(leaves(Settings))
VARIABLES = {PREFIX + "_".join(path).upper(): path for path in LEAVES}


def did_you_mean(word: str, known: Iterable[str], *, prefix: str = "") -> str:
    """`prefix`: what all have in common, which makes none of them alike."""
    near = get_close_matches(word.removeprefix(prefix), [each.removeprefix(prefix) for each in known], n=1)
    return f"; did you mean {prefix}{near[0]}?" if near else ""
