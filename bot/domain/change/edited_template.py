"""A workload's pod template with engine flags edited: checked against the engine, and written where they stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.domain.change.context import impossible, not_needed
from bot.domain.change.differences import changed, shown
from bot.domain.change.flag_rules import broken_rule, check_edits
from bot.domain.change.flag_table import FlagTable, newest_table, table_of, version_of_image
from bot.domain.change.flags_in_spec import FlagEdit, FlagsInSpec, Where, flags_of_template, with_edits
from bot.domain.change.json_patch import FieldEdit, edit_of, pointer, test_of
from bot.domain.change.objects import name_of
from bot.domain.change.plan import Circumstance, Difference
from bot.domain.change.rollout import bare
from bot.domain.change.workload import PodTemplate, pod_templates
from bot.domain.change.world import Obj


@dataclass(frozen=True)
class EditedTemplate:
    flag_edits: tuple[FlagEdit, ...]
    fields: tuple[FieldEdit, ...]
    """The lists to replace in the workload."""
    guards: tuple[Obj, ...]
    """Pin the containers that the lists belong to."""
    differences: tuple[Difference, ...]
    templates: tuple[Obj, ...]
    """Every template of the workload as it will be; that of the pods that serve comes first."""
    owners_part: dict[str, Any]
    """The part of the spec that an owner of the workload has to be given."""
    notes: tuple[Circumstance, ...]

    @property
    def template(self) -> Obj:
        return self.templates[0]

    @property
    def summary(self) -> str:
        return ", ".join(f"{edit.flag} {shown(_value(edit))}" for edit in self.flag_edits)

    @property
    def choices(self) -> dict[str, str]:
        return {edit.flag: edit.text for edit in self.flag_edits}


def edited_template(workload: Obj, arguments: Mapping[str, Any]) -> EditedTemplate:
    """Raise `NoPlanError` when an edit cannot be, or when none changes anything."""
    first, *others = pod_templates(workload)
    template = first.template
    version = version_of_image(flags_of_template(template).image)
    table = table_of(version)
    flags = flags_of_template(template, table)
    if flags.unparsable:
        raise impossible(f"the flags of {name_of(workload)} cannot be edited: {flags.unparsable}", _by_hand(arguments))
    edits = check_edits(arguments.get("edits"), flags, table or newest_table(), is_sure=table is not None)
    if not edits:
        raise not_needed("the flags have these values already")
    if reason := broken_rule(flags, edits):
        raise impossible(reason)
    table, note = table or newest_table(), _table_note(version, table)
    written = [_written(workload, first, flags, edits, table)]
    written += [_written(workload, other, _same_flags(other.template, table, edits), edits, table) for other in others]
    return EditedTemplate(
        flag_edits=edits,
        fields=tuple(edit for each in written for edit in each.fields),
        guards=tuple(guard for each in written for guard in each.guards),
        differences=written[0].differences,
        templates=tuple(each.template for each in written),
        owners_part=_merged([each.owners_part for each in written]),
        notes=(note,),
    )


def _same_flags(template: Obj, table: FlagTable, edits: tuple[FlagEdit, ...]) -> FlagsInSpec | None:
    """The flags of the other pods of a group, where they are written out and have to agree with the leader's."""
    flags = flags_of_template(template, table)
    has_them = not flags.unparsable and any(flags.last(edit.flag) for edit in edits)
    return flags if has_them else None


@dataclass(frozen=True)
class _Written:
    """One template with the edits written into it."""

    template: Obj
    fields: tuple[FieldEdit, ...] = ()
    guards: tuple[Obj, ...] = ()
    differences: tuple[Difference, ...] = ()
    owners_part: dict[str, Any] = field(default_factory=dict)


def _written(
    workload: Obj, present: PodTemplate, flags: FlagsInSpec | None, edits: tuple[FlagEdit, ...], table: FlagTable
) -> _Written:
    template = bare(present.template)
    if flags is None:
        return _Written(template)
    path = present.path + pointer("spec", "containers", flags.container_index)
    lists = with_edits(flags, edits, table)
    wanted = {where: words for where, words in lists.items() if tuple(words) != flags.lists[where]}
    template["spec"]["containers"][flags.container_index].update(wanted)
    named_lists: dict[str, Any] = {"name": flags.container}
    named_lists.update({where: words for where, words in lists.items() if words})
    part: dict[str, Any] = {"spec": {"containers": [named_lists]}}
    for key in reversed(present.way[1:]):
        part = {key: part}
    return _Written(
        template,
        fields=tuple(edit_of(workload, f"{path}/{where}", words) for where, words in wanted.items()),
        guards=(test_of(workload, f"{path}/name"),),
        differences=tuple(
            changed(edit.flag, f"{path}/{_where(flags, edit)}", flags.values.get(edit.flag), _value(edit))
            for edit in edits
        ),
        owners_part=part,
    )


def _merged(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            merged[key] = _merged([merged[key], value]) if isinstance(merged.get(key), dict) else value
    return merged


def _value(edit: FlagEdit) -> str | bool:
    return edit.value if isinstance(edit.value, bool) else edit.text


def _where(flags: FlagsInSpec, edit: FlagEdit) -> Where:
    present = flags.last(edit.flag) or (flags.written[-1] if flags.written else None)
    return present.where if present else "args"


def _by_hand(arguments: Mapping[str, Any]) -> str:
    edits = [edit for edit in arguments.get("edits") or [] if isinstance(edit, Mapping)]
    return "set by hand: " + " ".join(f"{edit.get('flag')}={edit.get('value')}" for edit in edits) if edits else ""


def _table_note(version: str, table: FlagTable | None) -> Circumstance:
    if table is not None:
        return Circumstance(name="flag_table", grade="fine", text=f"flags checked against vLLM {version}")
    engine = f"vLLM {version}" if version else "this image, whose tag does not say a version"
    text = f"no flag table for {engine}: only types were checked, against vLLM {newest_table().version}"
    return Circumstance(name="flag_table", grade="warning", text=text)
