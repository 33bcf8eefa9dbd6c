"""The file that a workload is kept in: a manifest of the object, or the values of a Helm chart."""

from __future__ import annotations

import copy
from typing import Any

from bot.adapters.github.yaml_edit import NotEditableError, documents, edited
from bot.domain.changes.edited_template import edited_template
from bot.domain.changes.kept_in import KeptIn
from bot.domain.changes.owners_edit import OwnersEdit, name_of_edit
from bot.domain.cluster.json_patch import applied
from bot.domain.cluster.snapshot import Obj
from bot.domain.kernel.errors import NoPlanError

ALREADY = "the file says so already"


def edited_file(text: str, edit: OwnersEdit, kept: KeptIn) -> str:
    """Returns the text with the edit. Raises `NotEditableError` with the reason for people.

    `kept` names the places of flags and replicas in the values of a chart; without them the file has the object itself.
    """
    found = documents(text)
    if kept.is_values:
        wanted = _values(found[0] if found else None, edit, kept)
        number = 0
    else:
        number = _number_of(found, edit)
        wanted = _object(found[number], edit)
    if wanted == found[number]:
        raise NotEditableError(ALREADY)
    return edited(text, number, wanted)


def _number_of(found: list[Any], edit: OwnersEdit) -> int:
    for number, each in enumerate(found):
        metadata = each.get("metadata") if isinstance(each, dict) else None
        if not isinstance(metadata, dict) or each.get("kind") != edit.kind or metadata.get("name") != edit.name:
            continue
        if metadata.get("namespace", edit.namespace) == edit.namespace:
            return number
    raise NotEditableError(f"it has no {edit.kind} {edit.namespace}/{edit.name}")


def _object(document: Obj, edit: OwnersEdit) -> Obj:
    wanted = _with_flags(document, edit) if edit.flags else copy.deepcopy(document)
    spec = wanted.get("spec")
    wanted["spec"] = (spec if isinstance(spec, dict) else {}) | edit.fields
    return wanted


def _with_flags(workload: Obj, edit: OwnersEdit) -> Obj:
    try:
        template = edited_template(workload, {"edits": [dict(each) for each in edit.flags]}, only_template=True)
    except NoPlanError as declined:
        if declined.outcome == "not_needed":
            return copy.deepcopy(workload)
        raise NotEditableError(declined.reason) from declined
    return applied([operation for field in template.fields for operation in field.operations()], workload)


def _values(values: Any, edit: OwnersEdit, kept: KeptIn) -> Any:
    """The values of a chart: only a list of flags, and a number of replicas, have a place in them."""
    wanted = copy.deepcopy(values)
    if edit.flags:
        if others := [name_of_edit(each) for each in edit.flags if "flag" not in each]:
            raise NotEditableError(f"the settings name no place for {', '.join(others)} in it")
        holder, key = _place(wanted, kept.flags, "flags")
        if not isinstance(holder[key], list):
            raise NotEditableError(f"{kept.flags} is not a list of flags")
        container = {"name": edit.name, "args": holder[key]}
        pod = {"template": {"spec": {"containers": [container]}}}
        done = _with_flags({"kind": "Deployment", "metadata": {"name": edit.name}, "spec": pod}, edit)
        holder[key] = done["spec"]["template"]["spec"]["containers"][0].get("args", [])
    for name, value in edit.fields.items():
        if name != "replicas":
            raise NotEditableError(f"the settings name no place for {name} in it")
        holder, key = _place(wanted, kept.replicas, "replicas")
        holder[key] = value
    return wanted


def _place(values: Any, path: str, what: str) -> tuple[Any, str | int]:
    """Returns what holds the value at `servingEngineSpec.modelSpec.0.replicaCount`, and its key there."""
    if not path:
        raise NotEditableError(f"the settings name no place for {what} in it")
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    holder = values
    try:
        for part in parents:
            holder = holder[part]
        holder[last]
    except (KeyError, IndexError, TypeError):
        raise NotEditableError(f"it has no {path}") from None
    return holder, last
