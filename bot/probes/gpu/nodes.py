"""Judges a node by its conditions and taints, which node-problem-detector and GPU operators set.

Only changes in the incident's time count: a mark from last month is a note. A cordon is somebody's choice and not a
fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bot.domain.cluster.objects import condition, dig, is_cordoned, seconds_of
from bot.domain.cluster.snapshot import Obj
from bot.probes.gpu.verdict import Verdict, any_of

PLAIN_CONDITIONS = frozenset({"Ready", "NetworkUnavailable", "MemoryPressure", "DiskPressure", "PIDPressure"})
TROUBLE = re.compile(
    r"unhealthy|(?<!de)fault|fail|error|problem|xid|ecc|degraded|thermal|repair|(?<!c)hang|deadlock|fallen", re.I
)

Claim = tuple[bool | None, str]


def judge_node(name: str, node: Obj | None, since: float) -> Verdict:
    """`since`: when the incident's time began. Older marks do not count."""
    if node is None:
        return Verdict.on(name, None, False, "the node cannot be read")
    if condition(node, "Ready").get("status") != "True":
        return Verdict.on(name, True, False, "not Ready")
    claims = [*_conditions(node, since), *_taints(node, since)]
    cordon_note = "cordoned" if is_cordoned(node) else ""
    return Verdict.on(name, any_of(*(claim for claim, _ in claims)), False, *(note for _, note in claims), cordon_note)


def _conditions(node: Obj, since: float) -> Iterator[Claim]:
    for one in dig(node, "status", "conditions") or []:
        kind = str(one.get("type") or "")
        # A condition about trouble is True if there is trouble; others may mean health.
        if kind in PLAIN_CONDITIONS or one.get("status") != "True" or not TROUBLE.search(kind):
            continue
        yield _dated(f"{kind}: {one.get('reason') or 'no reason'}", one.get("lastTransitionTime"), since)


def _taints(node: Obj, since: float) -> Iterator[Claim]:
    for one in dig(node, "spec", "taints") or []:
        key = str(one.get("key") or "")
        if TROUBLE.search(key):
            yield _dated(f"taint {key}", one.get("timeAdded"), since)


def _dated(what: str, time: str | None, since: float) -> Claim:
    at = seconds_of(time)
    if at is None:
        return None, f"{what}, its age is not known"
    return (True, f"{what} since the incident began") if at >= since else (False, f"{what}, not recent")
