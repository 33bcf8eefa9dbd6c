"""A workload's pod template with engine flags edited: checked against the engine, and written where they stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.domain.change.context import impossible, not_needed
from bot.domain.change.differences import changed, shown
from bot.domain.change.flag_rules import broken_rule, check_edits
from bot.domain.change.flag_table import FlagTable, newest_table, table_of, version_of_image
from bot.domain.change.flags_in_spec import FlagEdit, FlagsInSpec, Where, flags_of_template, with_edits
from bot.domain.change.json_patch import FieldEdit, edit_of, pointer, test_of
from bot.domain.change.objects import dig, name_of
from bot.domain.change.plan import Circumstance, Difference
from bot.domain.change.rollout import TEMPLATE, bare
from bot.domain.change.world import Obj


@dataclass(frozen=True)
class EditedTemplate:
    flag_edits: tuple[FlagEdit, ...]
    fields: tuple[FieldEdit, ...]
    """The lists to replace in the Deployment."""
    guard: Obj
    """Pins the container that the lists belong to."""
    differences: tuple[Difference, ...]
    template: Obj
    """The template as it will be."""
    owners_part: dict[str, Any]
    """The part of the spec that an owner of the workload has to be given."""
    notes: tuple[Circumstance, ...]

    @property
    def summary(self) -> str:
        return ", ".join(f"{edit.flag} {shown(_value(edit))}" for edit in self.flag_edits)

    @property
    def choices(self) -> dict[str, str]:
        return {edit.flag: edit.text for edit in self.flag_edits}


def edited_template(workload: Obj, arguments: Mapping[str, Any]) -> EditedTemplate:
    """Raise `NoPlanError` when an edit cannot be, or when none changes anything."""
    template = dig(workload, "spec", "template") or {}
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
    return _written(workload, flags, edits, table or newest_table(), _table_note(version, table))


def _written(
    workload: Obj, flags: FlagsInSpec, edits: tuple[FlagEdit, ...], table: FlagTable, note: Circumstance
) -> EditedTemplate:
    path = TEMPLATE + pointer("spec", "containers", flags.container_index)
    lists = with_edits(flags, edits, table)
    wanted = {where: words for where, words in lists.items() if tuple(words) != flags.lists[where]}
    template = bare(dig(workload, "spec", "template"))
    template["spec"]["containers"][flags.container_index].update(wanted)
    named_lists: dict[str, Any] = {"name": flags.container}
    named_lists.update({where: words for where, words in lists.items() if words})
    return EditedTemplate(
        flag_edits=edits,
        fields=tuple(edit_of(workload, f"{path}/{where}", words) for where, words in wanted.items()),
        guard=test_of(workload, f"{path}/name"),
        differences=tuple(
            changed(edit.flag, f"{path}/{_where(flags, edit)}", flags.values.get(edit.flag), _value(edit))
            for edit in edits
        ),
        template=template,
        owners_part={"template": {"spec": {"containers": [named_lists]}}},
        notes=(note,),
    )


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
