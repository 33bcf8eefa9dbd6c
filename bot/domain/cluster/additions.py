"""What others add to a pod template that the bot changed: annotations, variables, containers, defaults.

Reloaders, admission webhooks and platform controllers do. Where they leave alone what the bot wrote, it still stands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bot.domain.cluster.json_patch import ABSENT

TEMPLATES = ("/spec/template", "/spec/leaderWorkerTemplate")
COMMAND_LINE = frozenset({"command", "args"})
"""One of them where there was none changes what the other means."""
DEFAULT_REGISTRY = re.compile(r"^(?:index\.)?docker\.io/(?:library/)?")
TAG = re.compile(r":[^:/]+$")
RELOADERS_PREFIX = "STAKATER_"
"""Stakater Reloader counts reloads in variables with such names, or in an annotation."""


def is_kept(path: str, present: Any, written: Any, before: Any) -> bool:
    """Whether the field at `path` still is as it was written in place of `before`.

    In a pod template, others may add fields and named elements, but not what was removed, and the digest of an image.
    They may also change annotations and reloaders' variables that were not written.
    """
    if present == written:
        return True
    return path.startswith(TEMPLATES) and _is_kept(present, written, before, is_theirs=path.endswith("/annotations"))


def _is_kept(present: Any, written: Any, before: Any, *, is_theirs: bool) -> bool:
    fields, now, old = _fields(written), _fields(present), _fields(before) or {}
    if fields is None or now is None:
        return bool(present == written) or (is_theirs and written == before and present is not ABSENT)
    added = now.keys() - fields.keys()
    if added & (COMMAND_LINE - old.keys()):
        return False
    if any(_is_back(now[name], old[name], is_theirs=is_theirs or _is_theirs(name)) for name in added & old.keys()):
        return False
    return all(
        _is_kept(now.get(name, ABSENT), value, old.get(name, ABSENT), is_theirs=is_theirs or _is_theirs(name))
        or (name == "image" and _is_pinned(now.get(name), value))
        for name, value in fields.items()
    )


def _is_pinned(present: Any, written: Any) -> bool:
    """Whether a webhook that verifies images put a digest to this one's tag, or in its place."""
    if not isinstance(present, str) or not isinstance(written, str) or "@" in written:
        return False
    image, _, digest = DEFAULT_REGISTRY.sub("", present).partition("@")
    wanted = DEFAULT_REGISTRY.sub("", written)
    return bool(digest) and image in (wanted, TAG.sub("", wanted))


def _is_theirs(name: str) -> bool:
    return name == "annotations" or name.startswith(RELOADERS_PREFIX)


def _is_back(present: Any, removed: Any, *, is_theirs: bool) -> bool:
    """Whether something of what was removed is there again."""
    now, old = _fields(present), _fields(removed)
    if now is None or old is None:
        return not is_theirs
    return any(
        _is_back(now[name], old[name], is_theirs=is_theirs or _is_theirs(name)) for name in now.keys() & old.keys()
    )


def without_ours(present: Any, written: Any, before: Any) -> Any:
    """Returns `present` with what was written taken back, and with what others added; `ABSENT` if nothing is left."""
    if written == before:
        return present
    now = _fields(present)
    fields, old = ({} if value is ABSENT else _fields(value) for value in (written, before))
    if fields is None or now is None or old is None:
        return before
    kept = {}
    for name in dict.fromkeys((*old, *now)):
        is_added = name not in fields and name not in old
        value = (
            now[name]
            if is_added
            else without_ours(now.get(name, ABSENT), fields.get(name, ABSENT), old.get(name, ABSENT))
        )
        if value is not ABSENT:
            kept[name] = value
    if before is ABSENT and not kept:
        return ABSENT
    return kept if isinstance(present, dict) else list(kept.values())


def _fields(value: Any) -> Mapping[str, Any] | None:
    """Returns the fields of an object, or the elements of a list by their names; None if there are none."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, list) or not all(isinstance(one, dict) and "name" in one for one in value):
        return None
    named = {str(one["name"]): one for one in value}
    return named if len(named) == len(value) else None
