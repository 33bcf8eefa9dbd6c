"""What the owner of a workload has to change where it is kept, since an edit in the cluster would be reverted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from bot.domain.cluster.objects import name_of, namespace_of
from bot.domain.cluster.snapshot import Obj
from bot.domain.cluster.workload import kind_of
from bot.domain.kernel.redaction import shown_value

STRATEGY = "strategy"
"""Goes with other edits: without it their rollout would not end."""


class OwnersEdit(BaseModel):
    """Edits of one object: flags of its engine, and fields of its `spec`."""

    model_config = ConfigDict(frozen=True)

    kind: str
    namespace: str
    name: str
    flags: tuple[dict[str, Any], ...] = ()
    """Edits of flags, variables and the image, in the form that `set_flags` takes."""
    fields: dict[str, Any] = {}
    """Field of the `spec` to its new value."""
    file: str = ""
    """The file in git that says so, for people; empty where the settings name none, or nothing may be changed."""

    @property
    def names(self) -> frozenset[str]:
        """The flags, variables and fields that it changes, with their object."""
        return frozenset(f"{self.kind} {self.name} {name}" for name in (*map(name_of_edit, self.flags), *self.fields))

    def __str__(self) -> str:
        """Returns what changes, without secrets: `--max-num-seqs 14, replicas: 6`."""
        fields = [f"{name}: {value}" for name, value in self.fields.items() if name != STRATEGY]
        return ", ".join([*map(_in_words, self.flags), *fields])


def owners_edit(
    obj: Obj, fields: Mapping[str, Any], *, kind: str = "", flags: Sequence[Mapping[str, Any]] = ()
) -> OwnersEdit:
    return OwnersEdit(
        kind=kind or kind_of(obj),
        namespace=namespace_of(obj),
        name=name_of(obj),
        flags=tuple(dict(each) for each in flags),
        fields=dict(fields),
    )


def name_of_edit(edit: Mapping[str, Any]) -> str:
    """Returns the flag or variable of an edit in the form that `set_flags` takes; `image` for one of the image."""
    return str(edit.get("flag") or edit.get("env") or "image")


def _in_words(edit: Mapping[str, Any]) -> str:
    name = name_of_edit(edit)
    value = edit.get("image") if name == "image" else edit.get("value")
    return f"no {name}" if value is None else f"{name} {shown_value(name, value)}"
