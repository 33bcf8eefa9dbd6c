"""How probes answer, and which pods they read.

A part that could not be read is absent and has its reason; it is never false and never zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from bot.domain.cluster.objects import dig, is_going_away
from bot.domain.cluster.rotation import pods_of_canary, pods_of_workload
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.references import pick_in, setting_in
from bot.domain.signals.sampling import span_of
from bot.domain.signals.signal import Reading, unknown
from bot.flow.ports.readings import ProbeRequest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
KUBERNETES = "Kubernetes"
NOT_THERE = "the workload is not there"


def answer(
    request: ProbeRequest,
    parts: DataclassInstance,
    *,
    missing: Mapping[str, str] | None = None,
    detail: str = "",
    source: str = KUBERNETES,
) -> Reading:
    """The reading of a probe. A part that is None is unknown, for the reason in `missing`."""
    values: dict[str, Any] = {field.name: getattr(parts, field.name) for field in fields(parts)}
    reasons = {name: (missing or {}).get(name, "not readable") for name, value in values.items() if value is None}
    if len(reasons) == len(values):
        why = "; ".join(dict.fromkeys(reasons.values()))
        return unknown(request.name, why, at=request.at, source=source)
    return Reading(
        name=request.name,
        fields={name: value for name, value in values.items() if value is not None},
        unknown_parts=reasons,
        at=request.at,
        source=source,
        query=request.spec.probe,
        detail=detail,
    )


def no_answer(request: ProbeRequest, why: str, *, source: str = KUBERNETES) -> Reading:
    """The reading if no part is known."""
    return unknown(request.name, why, at=request.at, source=source)


def unreadable(request: ProbeRequest, snapshot: ClusterSnapshot, *sources: str) -> Reading | None:
    """The unknown reading if one of these parts of the cluster could not be read."""
    reasons = [f"{source}: {snapshot.unreadable[source]}" for source in sources if source in snapshot.unreadable]
    return no_answer(request, "; ".join(reasons)) if reasons else None


def pods_asked_for(request: ProbeRequest, snapshot: ClusterSnapshot) -> tuple[Obj, ...]:
    """The pods that the probe reads: the workload's, our canary's, or the picked one."""
    of = request.spec.of
    if of == "canary":
        return pods_of_canary(snapshot)
    if (pick := pick_in(of)) is not None:
        name = request.context.picked.get(pick)
        return tuple(pod for pod in snapshot.pods if dig(pod, "metadata", "name") == name)
    return pods_of_workload(snapshot)


def number_asked_for(request: ProbeRequest, parameter: str) -> float | None:
    """The parameter as a number: as written, or the setting that holds it. None: the playbook gives none."""
    given = request.spec.parameters.get(parameter)
    if isinstance(given, str):
        given = request.context.settings.get(setting_in(given) or "")
    return None if given is None else float(given)


def seconds_asked_for(request: ProbeRequest, parameter: str, default: str = "") -> float | str:
    """The duration that the parameter asks for, as written or from its setting; a text says why it is none."""
    try:
        return span_of(str(request.spec.parameters.get(parameter, default)), request.context.settings)
    except ValueError as error:
        return str(error)


def text_asked_for(request: ProbeRequest, parameter: str) -> str:
    """The parameter as a text: as written, or the setting that holds it. Empty: the playbook gives none."""
    given = str(request.spec.parameters.get(parameter, ""))
    setting = setting_in(given)
    return given if setting is None else str(request.context.settings.get(setting, ""))


def agreed(values: Iterable[T]) -> T | None:
    """The value that all of these are; None if they differ, or if there are none."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def staying(pods: Sequence[Obj]) -> Sequence[Obj]:
    """The pods that are not terminating; all of them if every pod is."""
    return [pod for pod in pods if not is_going_away(pod)] or pods
