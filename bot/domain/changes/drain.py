"""How a replica of this workload can end without cutting its streams; read from the pod spec and the selectors alone.

native: it leaves rotation in preStop and finishes its requests within `--shutdown-timeout`. label: a label takes it out
of rotation first. orphan: a label that its ReplicaSet selects by does; the ReplicaSet releases it and creates a
replacement at once. none: streams are cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from bot.domain.cluster.objects import dig, grace_seconds, labels_of
from bot.domain.cluster.rotation import RotationKey, releasing_key, replicas_present, rotation_key
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import template_of
from bot.domain.flags.flags_in_spec import FlagsInSpec, flags_of_template

Mode = Literal["native", "label", "orphan", "none"]
MIN_PRE_STOP_SECONDS = 10.0
"""Endpoints and proxies need this long to drop a pod; with less, requests reach an engine that has stopped."""
CANARY_SECONDS = 15.0
"""What the grace period must leave beyond preStop and the engine's own drain."""
_SLEEP = re.compile(r"\bsleep\s+(\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class DrainMode:
    mode: Mode
    text: str
    seconds: float = 0.0
    """native: how long a request has to finish after the replica has left rotation."""

    @property
    def cuts_streams(self) -> bool:
        """Whether ending a replica without preparation cuts its streams."""
        return self.mode != "native"


def drain_mode(snapshot: ClusterSnapshot, template: Obj | None = None) -> DrainMode:
    """Returns the mode of the workload's replicas, or of pods made from `template`."""
    template = template or template_of(snapshot.workload)
    native, why_not = _native(template, snapshot.config_maps)
    if native is not None:
        return native
    key = rotation_key(snapshot, _labels(snapshot, template))
    if isinstance(key, RotationKey):
        return DrainMode("label", f"label {key.key} takes a replica out of rotation; {why_not}")
    releasing = releasing_key(snapshot, _labels(snapshot, template))
    if isinstance(releasing, RotationKey):
        text = f"label {releasing.key} takes a replica out of rotation; its ReplicaSet lets it go and replaces it"
        return DrainMode("orphan", f"{text}; {why_not}")
    return DrainMode("none", "; ".join(dict.fromkeys((key, releasing, why_not))))


def _labels(snapshot: ClusterSnapshot, template: Obj) -> dict[str, str]:
    """Returns the labels of a running pod of this template, which include the hash that its ReplicaSet selects by."""
    wanted = labels_of(template)
    for pod in replicas_present(snapshot):
        if wanted.items() <= labels_of(pod).items():
            return labels_of(pod)
    return wanted


def _native(template: Obj, config_maps: Mapping[str, Obj]) -> tuple[DrainMode | None, str]:
    flags = flags_of_template(template, config_maps=config_maps)
    pre_stop = pre_stop_seconds(template, flags)
    if pre_stop is None or pre_stop < MIN_PRE_STOP_SECONDS:
        return None, f"preStop sleeps {_seconds(pre_stop)}, at least {MIN_PRE_STOP_SECONDS:.0f} s are needed"
    if flags.unparsable:
        return None, f"--shutdown-timeout is not known: {flags.unparsable}"
    drain = shutdown_timeout(flags)
    if drain <= 0:
        return None, "--shutdown-timeout is 0: the engine cuts its requests on SIGTERM"
    grace = grace_seconds(template)
    if grace < pre_stop + drain + CANARY_SECONDS:
        return None, f"grace {grace:.0f} s is shorter than preStop {pre_stop:.0f} s + drain {drain:.0f} s + 15 s"
    text = f"preStop {pre_stop:.0f} s, then up to {drain:.0f} s to finish, grace {grace:.0f} s"
    return DrainMode("native", text, seconds=drain), ""


def pre_stop_seconds(template: Obj, flags: FlagsInSpec) -> float | None:
    """Returns how long the engine's container sleeps before SIGTERM; None without such a hook that can be parsed."""
    hook = dig(template, "spec", "containers", flags.container_index, "lifecycle", "preStop")
    if (sleep := dig(hook, "sleep", "seconds")) is not None:
        return float(sleep)
    command = " ".join(dig(hook, "exec", "command") or [])
    found = _SLEEP.search(command)
    return float(found.group(1)) if found else None


def shutdown_timeout(flags: FlagsInSpec) -> float:
    """Returns how many seconds the engine has to finish requests after SIGTERM; its default is 0."""
    value = flags.values.get("--shutdown-timeout", "0")
    try:
        return float(value)
    except ValueError:
        return 0.0


def _seconds(value: float | None) -> str:
    return "not at all" if value is None else f"{value:.0f} s"
