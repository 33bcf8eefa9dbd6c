"""Writes `schema.json` from the official client's models: `python -m bot.sandbox.kubernetes.write_schema`.

Run it after an upgrade of the client. Only this tool imports the client, so the server avoids its seconds of import.
"""

import datetime
import importlib
import json
import pathlib
import types
import typing
from typing import Any

from bot.sandbox.kubernetes.resources import RESOURCES
from bot.sandbox.kubernetes.schema import root_of

EXTRA_ROOTS = ("V1Eviction", "V1Scale", "V1DeleteOptions")
QUANTITIES = frozenset({"limits", "requests", "capacity", "allocatable", "hard", "used"})
_PLAIN = {str: "str", int: "int", bool: "bool", float: "float", datetime.datetime: "str", bytes: "str"}


def build() -> dict[str, dict[str, str]]:
    """Every type that the served kinds reach: type name -> field -> type."""
    models = importlib.import_module("kubernetes.aio.client.models")
    waiting = [root_of(row.kind, row.api_version) for row in RESOURCES if not row.is_custom]
    waiting.extend(EXTRA_ROOTS)
    found: dict[str, dict[str, str]] = {}
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name] = {}
        for field_name, info in getattr(models, name).model_fields.items():
            written, reached = _type_of(info.annotation)
            if field_name in QUANTITIES and written == "map:str":
                written = "map:quantity"
            found[name][info.serialization_alias or info.alias or field_name] = written
            waiting.extend(reached)
    return {name: dict(sorted(found[name].items())) for name in sorted(found)}


def _type_of(annotation: Any) -> tuple[str, list[str]]:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type_of(arguments[0])
    if origin in (typing.Union, types.UnionType):
        kept = [one for one in arguments if one is not type(None)]
        return _type_of(kept[0]) if len(kept) == 1 else ("any", [])
    if origin in (list, dict):
        inner, reached = _type_of(arguments[-1])
        return f"{'list' if origin is list else 'map'}:{inner}", reached
    if annotation in _PLAIN:
        return _PLAIN[annotation], []
    if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
        return annotation.__name__, [annotation.__name__]
    return "any", []


def text() -> str:
    return json.dumps(build(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    pathlib.Path(__file__).with_name("schema.json").write_text(text(), encoding="utf-8")
