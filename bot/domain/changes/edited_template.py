"""Edits flags, variables or the image in a workload's pod template: checked, and written where each is defined."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bot.domain.changes.differences import changed
from bot.domain.changes.plan import FLAG_TABLE, Circumstance, Difference
from bot.domain.cluster.json_patch import ABSENT, FieldEdit, edit_of, pointer, test_of
from bot.domain.cluster.objects import CONFIG_ANNOTATION, annotations_of, dig, name_of
from bot.domain.cluster.rollout import bare
from bot.domain.cluster.snapshot import Obj
from bot.domain.cluster.workload import PodTemplate, pod_templates
from bot.domain.flags.command_words import Place, Variables
from bot.domain.flags.flag_edits import Pen, Written, with_flag
from bot.domain.flags.flag_history import has_flag, is_v0
from bot.domain.flags.flag_rules import (
    Edits,
    Engine,
    EnvEdit,
    broken_allocator,
    broken_rule,
    changes_nothing,
    check_edits,
    check_flag,
    edit_in_words,
    faults_of_engine,
    image_wanted,
    number_of,
)
from bot.domain.flags.flag_table import newest_table, table_of, version_of_image
from bot.domain.flags.flags_in_spec import FlagEdit, FlagsInSpec, flags_of_template
from bot.domain.flags.mitigations import Move
from bot.domain.kernel.errors import impossible, not_needed
from bot.domain.kernel.redaction import redacted, shown_value

FIELDS = ("command", "args", "env", "image")
"""The fields of a container that edits may change."""


@dataclass(frozen=True)
class EditedConfigMap:
    obj: Obj
    fields: tuple[FieldEdit, ...]
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class EditedTemplate:
    fields: tuple[FieldEdit, ...]
    """The fields to replace in the workload."""
    guards: tuple[Obj, ...]
    """Pin the containers that the fields belong to."""
    differences: tuple[Difference, ...]
    templates: tuple[Obj, ...]
    """Every template of the workload after the edit; the serving pods' template comes first."""
    owners_part: dict[str, Any]
    """The part of the spec to change in the workload's owner."""
    notes: tuple[Circumstance, ...]
    summary: str
    choices: dict[str, str]
    config_maps: tuple[EditedConfigMap, ...] = ()
    """Patched before the template, whose annotation then rolls the pods."""
    edits: tuple[Any, ...] = ()
    """The edits as they were asked for, with the flag that was chosen of each `first_of`."""
    moves: tuple[Move, ...] = ()
    """Each changed flag, from its present to its future value."""

    @property
    def template(self) -> Obj:
        return self.templates[0]


@dataclass
class _Lines:
    """Differences by the ConfigMap that holds them; the empty name is the template itself."""

    root: str
    """Path of the template in the workload."""
    by_holder: dict[str, list[Difference]] = field(default_factory=dict)

    def add(self, holder: str, line: Difference) -> None:
        self.by_holder.setdefault(holder, []).append(line)

    def of(self, holder: str) -> tuple[Difference, ...]:
        return tuple(self.by_holder.get(holder, ()))


def edited_template(
    workload: Obj,
    arguments: Mapping[str, Any],
    config_maps: Mapping[str, Obj] | None = None,
    *,
    only_template: bool = False,
) -> EditedTemplate:
    """Returns the edited workload; raise `NoPlanError` if an edit is impossible, or if none changes anything.

    `only_template`: do not edit ConfigMaps, which replicas beside a canary or other workloads read too.
    """
    first, *others = pod_templates(workload)
    before = Written(bare(first.template), dict(config_maps or {}))
    flags = flags_of_template(before.template, None, before.config_maps)
    version = version_of_image(image_wanted(arguments.get("edits")) or flags.image)
    chosen = _with_chosen_flags(arguments.get("edits"), version)
    wanted, directions = _without_directions(chosen)
    engine = Engine(version, bool(version) and is_v0(version, flags.variables.value("VLLM_USE_V1")))
    edits = check_edits(wanted, engine)
    pen = Pen(engine.table, only_template)
    flags = pen.read(before)
    if not flags.container or (flags.unparsable and edits.flags):
        raise impossible(f"the flags of {name_of(workload)} cannot be edited: {flags.unparsable}", _by_hand(edits))
    _refuse_if_set_unseen(edits, flags.variables)
    lines = _Lines(first.path)
    after, done = _with_edits(before, edits, engine, pen, lines)
    read = pen.read(after)
    _check_result(flags, read, done, engine)
    if reason := broken_allocator(edits.variables, read, engine):
        raise impossible(reason)
    if after == before:
        raise not_needed("the flags have these values already" if edits.flags else "it is so already")
    asked = Edits(done, edits.variables, edits.image)
    change = _Change(first, before, after, asked, lines, engine, flags.container_index)
    rest = [_followed(workload, other, change) for other in others]
    moves = tuple(_move(edit, flags, engine, directions.get(edit.flag, "")) for edit in done)
    return replace(_result(workload, change, rest), edits=tuple(chosen), moves=moves)


def _with_chosen_flags(wanted: Any, version: str) -> Any:
    """Returns the edits with the first flag of each `first_of` that this engine version has, else the last."""

    def chosen(edit: Any) -> Any:
        if not isinstance(edit, dict) or "first_of" not in edit:
            return edit
        flags = [str(flag) for flag in edit["first_of"]]
        flag = next((flag for flag in flags[:-1] if version and has_flag(version, flag)), flags[-1])
        return {"flag": flag, **{key: value for key, value in edit.items() if key != "first_of"}}

    return [chosen(edit) for edit in wanted] if isinstance(wanted, list | tuple) else wanted


def _without_directions(wanted: Any) -> tuple[Any, dict[str, str]]:
    """Returns the edits, and the direction that the playbook declares for each flag."""
    edits = wanted if isinstance(wanted, list | tuple) else ()
    directions = {
        str(e["flag"]): str(e["direction"]) for e in edits if isinstance(e, dict) and "flag" in e and "direction" in e
    }
    bare = [{k: v for k, v in e.items() if k != "direction"} if isinstance(e, dict) else e for e in edits]
    return (bare, directions) if directions else (wanted, directions)


def _move(edit: FlagEdit, before: FlagsInSpec, engine: Engine, declared: str) -> Move:
    default = engine.default(edit.flag)
    written = before.values.get(edit.flag)
    # `8k` is a number too, so that a raise is known as one.
    number = None if written is None else number_of(written, engine.table, edit.flag)
    now = default if written is None else written if number is None else number
    return Move(edit.flag, now, default if edit.value is None else edit.value, declared)


def _followed(workload: Obj, other: PodTemplate, leader: _Change) -> _WrittenTemplate:
    """Makes the same edits in the other pods of a group: flags where they are written, the rest where the engine runs.

    ConfigMaps have been edited already; the command line takes precedence over them.
    """
    pen = Pen(leader.engine.table, only_template=True)
    before = Written(bare(other.template), leader.after.config_maps)
    flags = pen.read(before)
    if not flags.container:
        return _WrittenTemplate(before.template)
    runs_it = flags.image == leader.pen.read(leader.before).image
    edits = Edits(
        tuple(edit for edit in leader.edits.flags if not flags.unparsable and flags.last(edit.flag)),
        leader.edits.variables if runs_it else (),
        leader.edits.image if runs_it else "",
    )
    lines = _Lines(other.path)
    after, _done = _with_edits(before, edits, leader.engine, pen, lines)
    change = _Change(other, before, after, edits, lines, leader.engine, flags.container_index)
    return _written(workload, change, after.template)


def _with_edits(
    before: Written, edits: Edits, engine: Engine, pen: Pen, lines: _Lines
) -> tuple[Written, tuple[FlagEdit, ...]]:
    """Returns the template after all edits, and the flag edits that changed something."""
    index = pen.read(before).container_index
    path = pointer("spec", "containers", index)
    written = before
    image = before.text(Place(f"{path}/image"))
    if edits.image and edits.image != image:
        written = written.with_text(Place(f"{path}/image"), edits.image)
        lines.add("", changed("image", f"{lines.root}{path}/image", image, edits.image))
    for variable in edits.variables:
        written = _with_variable(written, variable, path, lines)
        if variable.value is None:
            _refuse_if_still_set(variable.name, pen.read(written).variables)
    done = []
    for edit in edits.flags:
        flags = pen.read(written)
        if changes_nothing(edit, flags, engine):
            continue
        new = with_flag(written, edit, pen)
        holder = next((name for name, held in new.config_maps.items() if held != written.config_maps[name]), "")
        value = edit.value if isinstance(edit.value, bool) or edit.value is None else edit.text
        at = lines.root + _changed_field(written, new, path) if not holder else ""
        lines.add(holder, changed(edit.flag, at, flags.values.get(edit.flag), value))
        written = new
        done.append(edit)
    return written, tuple(done)


def _changed_field(before: Written, after: Written, path: str) -> str:
    return next(
        (
            f"{path}/{name}"
            for name in FIELDS
            if before.text(Place(f"{path}/{name}")) != after.text(Place(f"{path}/{name}"))
        ),
        path,
    )


def _with_variable(written: Written, edit: EnvEdit, path: str, lines: _Lines) -> Written:
    place = Place(f"{path}/env")
    held = written.text(place)
    entries: list[Obj] = list(held) if isinstance(held, list) else []
    present = [number for number, entry in enumerate(entries) if entry["name"] == edit.name]
    # The API server leaves an empty value out.
    valued = {"value": edit.value} if edit.value else {}
    if edit.value is None:
        new = [entry for entry in entries if entry["name"] != edit.name]
    elif not present:
        new = [*entries, {"name": edit.name, **valued}]
    else:
        number = present[-1]
        if "valueFrom" in entries[number]:
            raise impossible(f"{edit.name} comes from {_source(entries[number])}, not from the pod template")
        kept = {key: value for key, value in entries[number].items() if key != "value"}
        new = [*entries[:number], kept | valued, *entries[number + 1 :]]
    if new == entries:
        return written
    last = entries[present[-1]] if present else {}
    was = last.get("value", "(from elsewhere)" if "valueFrom" in last else "") if present else None
    lines.add("", changed(f"env {edit.name}", f"{lines.root}{path}/env", was, edit.value))
    return written.with_text(place, new)


def _refuse_if_still_set(name: str, variables: Variables) -> None:
    left = variables.by_name.get(name)
    if left is not None and left.place is not None:
        raise impossible(f"{name} comes from ConfigMap {left.place.config_map}", "remove it there")


def _refuse_if_set_unseen(edits: Edits, before: Variables) -> None:
    """Raise if none of the variables to remove is there, and one may come from what is not read."""
    names = [edit.name for edit in edits.variables if edit.value is None]
    if names and before.unreadable and before.by_name.keys().isdisjoint(names):
        raise impossible(f"the pod template does not set {' or '.join(names)}, and {before.unreadable}")


def _source(entry: Obj) -> str:
    return ", ".join(sorted(entry["valueFrom"])) or "elsewhere"


def _check_result(before: FlagsInSpec, after: FlagsInSpec, done: tuple[FlagEdit, ...], engine: Engine) -> None:
    """Raise `NoPlanError` unless the engine would start with the result and read it as intended."""
    if after.unparsable and not before.unparsable:
        raise impossible(f"the edited command line could not be read any more: {after.unparsable}")
    for edit in done:
        present = after.values.get(edit.flag)
        as_number = number_of(present or "", engine.table, edit.flag)
        reads = present in (edit.text, edit.value) or as_number == edit.value
        if not reads and not (not edit.value and present is None):
            raise impossible(f"{edit.flag} cannot be written there so that the engine reads {edit.text}")
    edited = {edit.flag for edit in done}
    moved = {name for name in after.values if after.values[name] != before.values.get(name)}
    for name in sorted(moved - edited):
        check_flag(name, after.values[name], engine)
    # The same version of the engine already runs with them.
    if version_of_image(before.image) != engine.version and (faults := faults_of_engine(after, engine)):
        raise impossible(f"{after.image} would not run with its flags: {'; '.join(faults)}")
    if reason := broken_rule(after, edited | moved, engine):
        raise impossible(reason)


@dataclass(frozen=True)
class _Change:
    present: PodTemplate
    before: Written
    after: Written
    edits: Edits
    lines: _Lines
    engine: Engine
    container_index: int

    @property
    def path(self) -> str:
        return pointer("spec", "containers", self.container_index)

    @property
    def pen(self) -> Pen:
        return Pen(self.engine.table)


@dataclass(frozen=True)
class _WrittenTemplate:
    """One template with the edits written into it."""

    template: Obj
    fields: tuple[FieldEdit, ...] = ()
    guards: tuple[Obj, ...] = ()
    owners_part: dict[str, Any] = field(default_factory=dict)


def _result(workload: Obj, change: _Change, others: Sequence[_WrittenTemplate]) -> EditedTemplate:
    before, after, edits = change.before, change.after, _changing(change)
    config_maps = tuple(
        _edited_config_map(held, after.config_maps[name], change.lines.of(name))
        for name, held in before.config_maps.items()
        if held != after.config_maps[name]
    )
    written = [_written(workload, change, _rolled_template(after.template, config_maps)), *others]
    return EditedTemplate(
        fields=tuple(edit for each in written for edit in each.fields),
        guards=tuple(guard for each in written for guard in each.guards),
        differences=(*change.lines.of(""), *_indirect(change)),
        templates=tuple(each.template for each in written),
        owners_part=_merged([each.owners_part for each in written]),
        notes=(_table_note(change.engine, edits.flags),),
        summary=_summary(edits),
        choices=_choices(edits),
        config_maps=config_maps,
    )


def _written(workload: Obj, change: _Change, template: Obj) -> _WrittenTemplate:
    before, path, root = change.before, change.path, change.present.path
    container = template["spec"]["containers"][change.container_index]
    for name in FIELDS:
        if container.get(name) == [] and before.text(Place(f"{path}/{name}")) != []:
            del container[name]
    fields = [
        edit_of(workload, f"{root}{path}/{name}", container.get(name, ABSENT))
        for name in FIELDS
        if container.get(name, ABSENT) != before.text(Place(f"{path}/{name}"))
    ]
    fields += _annotation_edits(workload, change.present, template)
    if not fields:
        return _WrittenTemplate(template)
    part: Obj = _for_owner(before, container, path)
    owners: Obj = {"spec": {"containers": [part]}}
    if part.keys() == {"name"}:
        owners = {"metadata": {"annotations": {CONFIG_ANNOTATION: annotations_of(template)[CONFIG_ANNOTATION]}}}
    return _WrittenTemplate(
        template,
        fields=tuple(fields),
        guards=(test_of(workload, f"{root}{path}/name"),),
        owners_part=change.present.in_spec(owners),
    )


def _merged(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            merged[key] = _merged([merged[key], value]) if isinstance(merged.get(key), dict) else value
    return merged


def _rolled_template(template: Obj, config_maps: tuple[EditedConfigMap, ...]) -> Obj:
    """A ConfigMap's change alone restarts nothing, but a changed annotation of the template does."""
    template = bare(template)
    if config_maps:
        texts = "\n".join(str(edit.after) for one in config_maps for edit in one.fields)
        mark = hashlib.sha256(texts.encode()).hexdigest()[:16]
        metadata: dict[str, Any] = template.setdefault("metadata", {})
        metadata["annotations"] = {**annotations_of(template), CONFIG_ANNOTATION: mark}
    return template


def _annotation_edits(workload: Obj, present: PodTemplate, template: Obj) -> list[FieldEdit]:
    metadata, wanted = present.template.get("metadata"), annotations_of(template)
    held = dig(metadata, "annotations")
    if wanted == (held or {}):
        return []
    path = f"{present.path}/metadata"
    if metadata is None:
        return [edit_of(workload, path, {"annotations": wanted})]
    if held is None:
        return [edit_of(workload, f"{path}/annotations", wanted)]
    return [edit_of(workload, f"{path}/annotations" + pointer(CONFIG_ANNOTATION), wanted[CONFIG_ANNOTATION])]


def _edited_config_map(before: Obj, after: Obj, differences: tuple[Difference, ...]) -> EditedConfigMap:
    if before.get("immutable"):
        raise impossible(f"ConfigMap {name_of(before)} is immutable", "it has to be replaced by its owner")
    keys = [key for key in before["data"] if before["data"][key] != after["data"][key]]
    paths = {key: pointer("data", key) for key in keys}
    return EditedConfigMap(
        obj=before,
        fields=tuple(edit_of(before, paths[key], after["data"][key]) for key in keys),
        differences=tuple(line.model_copy(update={"path": paths[keys[0]]}) for line in differences),
    )


def _indirect(change: _Change) -> list[Difference]:
    """Flags that change through a variable."""
    pen, path = change.pen, f"{change.lines.root}{change.path}/env"
    was, now = pen.read(change.before).values, pen.read(change.after).values
    named = {edit.flag for edit in change.edits.flags}
    return [
        changed(name, path, was.get(name), now.get(name))
        for name in sorted(was.keys() | now.keys())
        if name not in named and was.get(name) != now.get(name)
    ]


def _for_owner(before: Written, container: Obj, path: str) -> Obj:
    old_env = before.text(Place(f"{path}/env"))
    part: Obj = {"name": container.get("name")}
    for name in FIELDS:
        if container.get(name, ABSENT) == before.text(Place(f"{path}/{name}")):
            continue
        value = container.get(name)
        if name == "env":
            value = [entry for entry in value or [] if not isinstance(old_env, list) or entry not in old_env]
        part[name] = value
    return part


def _changing(change: _Change) -> Edits:
    """The edits without the removal of variables that are not there: one may have several names."""
    there = change.pen.read(change.before).variables.by_name
    return replace(
        change.edits, variables=tuple(v for v in change.edits.variables if v.value is not None or v.name in there)
    )


def _summary(edits: Edits) -> str:
    descriptions = [edit_in_words(edit) for edit in edits.flags]
    descriptions += [
        f"{e.name}={shown_value(e.name, e.value)}" if e.value is not None else f"no {e.name}" for e in edits.variables
    ]
    return redacted(", ".join([*descriptions, *([f"image {edits.image}"] if edits.image else [])]))


def _choices(edits: Edits) -> dict[str, str]:
    """The edits as shown to people; the exact values are in the calls."""
    chosen = {
        edit.flag: "(removed)" if edit.value is None else str(shown_value(edit.flag, edit.text)) for edit in edits.flags
    }
    chosen |= {e.name: "(removed)" if e.value is None else str(shown_value(e.name, e.value)) for e in edits.variables}
    return chosen | ({"image": edits.image} if edits.image else {})


def _by_hand(edits: Edits) -> str:
    return f"set by hand: {' '.join(f'{edit.flag}={edit.text}' for edit in edits.flags)}" if edits.flags else ""


def _table_note(engine: Engine, edited: tuple[FlagEdit, ...]) -> Circumstance:
    """A warning only if it is not known whether this version has an edited flag: it may not start with it."""
    version = engine.version
    if table_of(version) is not None:
        return Circumstance(name=FLAG_TABLE, grade="fine", text=f"flags checked against vLLM {version}")
    known = f"vLLM {version}" if version else "this image, whose tag does not say a version,"
    added = [edit.flag for edit in edited if edit.value is not None]
    unsure = [flag for flag in added if not (version and _is_known(flag, version))]
    if unsure:
        text = f"whether {known} has {', '.join(unsure)} is not known: checked against vLLM {newest_table().version}"
        return Circumstance(name=FLAG_TABLE, grade="warning", text=text)
    text = f"{known} has these flags; their values were checked against vLLM {newest_table().version}"
    return Circumstance(name=FLAG_TABLE, grade="note", text=text)


def _is_known(flag: str, version: str) -> bool:
    try:
        return has_flag(version, flag)
    except ValueError:
        return False
