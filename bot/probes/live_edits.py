"""Whether a workload runs the edits that its owner was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.domain.changes.owners_edit import name_of_edit
from bot.domain.changes.steps.rolling import lacks_only_room
from bot.domain.cluster.objects import dig, name_of
from bot.domain.cluster.rollout import rollout_state
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import kind_of, template_of
from bot.domain.flags.flags_in_spec import FlagsInSpec, flags_of_template


def names_of(edits: Sequence[Mapping[str, Any]]) -> str:
    """Returns the flags, variables and images that are edited, with commas between."""
    return ", ".join(map(name_of_edit, edits))


@dataclass(frozen=True)
class Progress:
    """How far edits that somebody else makes have come."""

    is_done: bool
    """The workload has all of them, and every replica that has room runs them."""
    text: str


def how_far(snapshot: ClusterSnapshot, workload: Obj, edits: Sequence[Mapping[str, Any]]) -> Progress:
    """Compare these edits with the workload's template, and its rollout with the replicas that it should have."""
    template, rollout = template_of(workload), rollout_state(workload)
    flags = flags_of_template(template, config_maps=snapshot.config_maps)
    missing = [edit for edit in edits if not _has(template, flags, edit)]
    if missing:
        return Progress(False, f"{kind_of(workload)} {name_of(workload)} does not have {names_of(missing)}")
    if rollout.is_complete:
        return Progress(True, f"all {rollout.wanted} replicas run it")
    running = f"{min(rollout.updated, rollout.available)} of {rollout.wanted} replicas run it"
    if rollout.available and lacks_only_room(snapshot, workload):
        return Progress(True, f"{running}, and there is no room for the others")
    return Progress(False, f"{running} so far")


def _has(template: Obj, flags: FlagsInSpec, edit: Mapping[str, Any]) -> bool:
    container = dig(template, "spec", "containers", flags.container_index) or {}
    if "image" in edit:
        return bool(container.get("image") == edit["image"])
    if "env" in edit:
        found = next((one.get("value") for one in container.get("env") or [] if one.get("name") == edit["env"]), None)
        return found == (None if edit["value"] is None else str(edit["value"]))
    written = flags.last(str(edit["flag"]))
    if edit["value"] is None:
        return written is None
    return written is not None and _same(written.value, edit["value"])


def _same(written: object, wanted: object) -> bool:
    if isinstance(wanted, bool) or isinstance(written, bool):
        return str(written).lower() == str(wanted).lower()
    try:
        return float(str(written)) == float(str(wanted))
    except ValueError:
        return str(written) == str(wanted)
