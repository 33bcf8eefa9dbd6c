"""Whether a workload runs edits that somebody else makes: a canary's, or those that its owner was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bot.domain.cluster.objects import dig
from bot.domain.cluster.rollout import rollout_state
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import template_of
from bot.domain.flags.flags_in_spec import FlagsInSpec, flags_of_template


def names_of(edits: Sequence[Mapping[str, Any]]) -> str:
    """Returns the flags, variables and images that are edited, with commas between."""
    return ", ".join(str(edit.get("flag") or edit.get("env") or "image") for edit in edits)


def is_live(snapshot: ClusterSnapshot, workload: Obj, edits: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the workload has all of these edits, and every replica runs them."""
    template = template_of(workload)
    flags = flags_of_template(template, config_maps=snapshot.config_maps)
    return rollout_state(workload).is_complete and all(_has(template, flags, edit) for edit in edits)


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
