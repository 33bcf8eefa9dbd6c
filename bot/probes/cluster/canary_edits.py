"""The `canary_edits` probe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.domain.changes.steps.canary_steps import EDITS_ANNOTATION
from bot.domain.cluster.objects import annotations_of, is_ready
from bot.domain.cluster.rotation import pods_of_canary
from bot.domain.cluster.snapshot import Obj
from bot.domain.signals.signal import Reading
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import answer, unreadable
from bot.probes.declaration import Probe
from bot.probes.live_edits import how_far, names_of


@dataclass(frozen=True)
class CanaryEdits:
    canary: bool
    ready: bool
    live: bool | None
    """Whether every replica runs what was edited: for incidents that began before `handed_out` covered canaries."""
    edits: str | None
    """Names of the flags and variables that were edited, with commas between."""


async def canary_edits(request: ProbeRequest) -> Reading:
    """Whether our canary exists and is Ready, and what was edited on it."""
    snapshot = await request.snapshot()
    if failed := unreadable(request, snapshot, "canary", "pods"):
        return failed
    if snapshot.canary is None:
        parts = CanaryEdits(canary=False, ready=False, live=None, edits=None)
        return answer(request, parts, missing=dict.fromkeys(("live", "edits"), "there is no canary"))
    ready = any(is_ready(pod) for pod in pods_of_canary(snapshot))
    edits = _edits(snapshot.canary)
    names = None if edits is None else names_of(edits)
    known = snapshot.workload is not None and edits is not None
    live = how_far(snapshot, snapshot.workload or {}, edits or ()).is_done if known else None
    return answer(
        request,
        CanaryEdits(canary=True, ready=ready, live=live, edits=names),
        missing=dict.fromkeys(("live", "edits"), "the canary does not say what it was started with"),
    )


def _edits(canary: Obj) -> list[Mapping[str, Any]] | None:
    try:
        return list(json.loads(annotations_of(canary)[EDITS_ANNOTATION]))
    except (KeyError, ValueError):
        return None


PROBE = Probe(
    name="canary_edits",
    label="Canary and its flags",
    help="Whether our canary exists and is ready, and what was edited on it.",
    answer=CanaryEdits,
    read=lambda sources: canary_edits,
)
