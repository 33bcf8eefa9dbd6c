"""The `canary_edits` probe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.domain.changes.steps.canary_steps import EDITS_ANNOTATION
from bot.domain.cluster.objects import annotations_of, dig, is_ready
from bot.domain.cluster.rollout import rollout_state
from bot.domain.cluster.rotation import pods_of_canary
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import template_of
from bot.domain.flags.flags_in_spec import FlagsInSpec, flags_of_template
from bot.domain.signals.signal import Reading
from bot.flow.ports import ProbeRequest
from bot.probes.answers import answer, unreadable
from bot.probes.declaration import Probe


@dataclass(frozen=True)
class CanaryEdits:
    canary: bool
    ready: bool
    live: bool | None
    edits: str | None
    """Names of the flags and variables that were edited, with commas between."""


async def canary_edits(request: ProbeRequest) -> Reading:
    """Whether our canary exists and is Ready, and whether the workload's own template has the canary's edits."""
    snapshot = await request.snapshot()
    if failed := unreadable(request, snapshot, "canary", "pods"):
        return failed
    if snapshot.canary is None:
        parts = CanaryEdits(canary=False, ready=False, live=None, edits=None)
        return answer(request, parts, missing=dict.fromkeys(("live", "edits"), "there is no canary"))
    ready = any(is_ready(pod) for pod in pods_of_canary(snapshot))
    edits = _edits(snapshot.canary)
    live = None if snapshot.workload is None or edits is None else _is_live(snapshot, snapshot.workload, edits)
    missing = dict.fromkeys(("live", "edits"), "the canary does not say what it was started with")
    return answer(request, CanaryEdits(canary=True, ready=ready, live=live, edits=_names(edits)), missing=missing)


def _edits(canary: Obj) -> list[Mapping[str, Any]] | None:
    try:
        return list(json.loads(annotations_of(canary)[EDITS_ANNOTATION]))
    except (KeyError, ValueError):
        return None


def _names(edits: list[Mapping[str, Any]] | None) -> str | None:
    if edits is None:
        return None
    return ", ".join(str(edit.get("flag") or edit.get("env") or "image") for edit in edits)


def _is_live(snapshot: ClusterSnapshot, workload: Obj, edits: list[Mapping[str, Any]]) -> bool:
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


PROBE = Probe(
    name="canary_edits",
    help="Whether our canary exists and is ready, what was edited on it, and whether the workload has these edits.",
    answer=CanaryEdits,
    read=lambda sources: canary_edits,
)
