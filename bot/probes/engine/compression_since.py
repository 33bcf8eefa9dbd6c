"""When the present KV compression was turned on: as given by a person, else the rollout that brought its first sign.

The reading is dated by that moment, so that windows can end there. If the moment is unknown, so is the reading, and
there is no such window: the present is never taken for the time before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bot.domain.changes.template_differences import template_differences
from bot.domain.cluster.objects import dig
from bot.domain.cluster.rollout import replica_sets_of, revision_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.flags.flags_in_spec import engine_container
from bot.domain.signals.probe_spec import Parameter
from bot.domain.signals.signal import Reading
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import answer, no_answer, unreadable
from bot.probes.declaration import Probe
from bot.probes.engine.compression import compression_of, evidence_of
from bot.probes.revisions import rolled_out_at

HOUR = 3600.0


@dataclass(frozen=True)
class _TurnedOn:
    """A revision with signs of a compression after one without any; `at` is None if it has no date."""

    at: float | None
    before: Obj
    after: Obj
    revision_before: float | None
    """The number of the last revision without it: rolling back to that turns it off completely."""


@dataclass(frozen=True)
class CompressionSince:
    by: str
    hours: float
    same_image: bool | None
    changed: str | None
    revision: float | None


async def compression_since(request: ProbeRequest) -> Reading:
    """`said`: names of moments that a person may have given; the first known one counts."""
    snapshot = await request.snapshot()
    if failed := unreadable(request, snapshot, "replica_sets"):
        return failed
    turned_on = _turned_on(snapshot)
    given = next((at for name in _names(request) if (at := request.context.moments.get(name)) is not None), None)
    at = given if given is not None else turned_on.at if turned_on else None
    if at is None or at >= request.at:
        why = "no revision shows when it was turned on, and nobody said" if at is None else "that is not in the past"
        return no_answer(request, why)
    parts = CompressionSince(
        by="a person" if given is not None else "the rollout",
        hours=(request.at - at) / HOUR,
        same_image=None if turned_on is None else _image(turned_on.before) == _image(turned_on.after),
        changed=None if turned_on is None else _changed(turned_on),
        revision=None if turned_on is None else turned_on.revision_before,
    )
    missing = dict.fromkeys(PROBE.kinds, "no revision shows the change")
    reading = answer(request, parts, missing=missing, detail=(parts.changed or "")[:900])
    return reading.model_copy(update={"at": at})


def _names(request: ProbeRequest) -> Sequence[str]:
    names = request.spec.parameters.get("said", ())
    return (names,) if isinstance(names, str) else tuple(map(str, names))


def _turned_on(snapshot: ClusterSnapshot) -> _TurnedOn | None:
    """The newest such revision."""
    found = replica_sets_of(snapshot)
    for index, (after, before) in enumerate(pairwise(found)):
        old, new = (dig(one, "spec", "template") or {} for one in (before, after))
        if _signs(new, snapshot.config_maps) and not _signs(old, snapshot.config_maps):
            revision = revision_of(before)
            began = rolled_out_at(after, snapshot, is_current=index == 0)
            return _TurnedOn(began, old, new, None if revision is None else float(revision))
    return None


def _signs(template: Obj, config_maps: Mapping[str, Obj]) -> tuple[str, ...]:
    """The signs of a compression in a template alone; offloading does not count."""
    found = compression_of(evidence_of(template, config_maps))
    return found.seen if found.kind not in (None, "none") else ()


def _image(template: Obj) -> str:
    engine = engine_container(template)
    return str(engine[1].get("image") or "") if engine else ""


def _changed(turned_on: _TurnedOn) -> str:
    found = template_differences(turned_on.before, turned_on.after)
    return "; ".join(change.text for change in found)[:600]


PROBE = Probe(
    name="compression_since",
    label="Compression since",
    help="When the compression was switched on, and by what.",
    answer=CompressionSince,
    parameters={
        "said": Parameter("Names of moments that a person may have given; the first known one counts."),
    },
    read=lambda sources: compression_since,
)
