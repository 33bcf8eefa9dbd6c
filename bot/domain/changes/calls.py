"""Builds calls: a patch tests the object's uid and each field's old value, and includes its own inverse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bot.domain.changes.differences import inverted
from bot.domain.changes.plan import Call, Difference
from bot.domain.cluster.json_patch import FieldEdit
from bot.domain.cluster.objects import ObjectRef, ref_of
from bot.domain.cluster.snapshot import Obj

UID_PATH = "/metadata/uid"
TAKES_BACK = "it takes back a change of the bot"


@dataclass(frozen=True)
class Wording:
    """The texts of a call for people."""

    title: str
    undo_title: str
    differences: tuple[Difference, ...] = ()


def patch_call(
    obj: Obj,
    kind: str,
    edits: Sequence[FieldEdit],
    wording: Wording,
    *,
    guards: Sequence[Obj] = (),
    subresource: Literal["", "scale"] = "",
) -> Call:
    """Returns a JSON patch of `obj`. `guards` are more tests that must hold before and after (a container's name)."""
    target = ref_of(obj, kind)
    common: dict[str, Any] = {
        "method": "patch",
        "target": target,
        "subresource": subresource,
        "stamped": subresource == "",
    }
    undo = Call(
        **common,
        body=_operations(target, guards, [edit.inverted() for edit in reversed(edits)]),
        differences=tuple(map(inverted, reversed(wording.differences))),
        title=wording.undo_title,
        no_undo=TAKES_BACK,
        restores=True,
    )
    return Call(
        **common,
        body=_operations(target, guards, edits),
        differences=wording.differences,
        title=wording.title,
        undo=(undo,),
    )


def _operations(target: ObjectRef, guards: Sequence[Obj], edits: Sequence[FieldEdit]) -> list[Obj]:
    tested: Obj = {"op": "test", "path": UID_PATH, "value": target.uid}
    return [tested, *guards, *(operation for edit in edits for operation in edit.operations())]


def delete_call(target: ObjectRef, *, title: str, no_undo: str) -> Call:
    return Call(
        method="delete",
        target=target,
        body={"propagationPolicy": "Background"},
        title=title,
        no_undo=no_undo,
        stamped=False,
        restores=True,
    )
