"""What determines the quality of answers: image, model, flags and variables of the engine, as one digest.

A score counts for the digest that it was measured on; any change to one of these changes the digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.domain.cluster.objects import dig
from bot.domain.cluster.snapshot import Obj
from bot.domain.flags.flags_in_spec import FlagsInSpec, engine_container, flags_of_template
from bot.domain.kernel.redaction import redacted
from bot.domain.signals.signal import Reading
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import answer, no_answer, pods_asked_for, staying, unreadable
from bot.probes.declaration import Probe

WITHOUT_EFFECT = frozenset({"--port", "--host", "--api-key", "--served-model-name", "--shutdown-timeout"})
"""These set where and how it is reached, not what it answers."""


@dataclass(frozen=True)
class ServedConfig:
    digest: str
    image: str
    model: str


async def served_config(request: ProbeRequest) -> Reading:
    """For the workload's replicas, or the canary; there is no digest if replicas differ."""
    snapshot = await request.snapshot()
    if failed := unreadable(request, snapshot, "pods"):
        return failed
    pods = staying(pods_asked_for(request, snapshot))
    if not pods:
        return no_answer(request, "there is no such pod")
    found = [_config_of(pod, snapshot.config_maps) for pod in pods]
    if unread := next((one for one in found if isinstance(one, str)), ""):
        return no_answer(request, f"its flags cannot be read: {unread}")
    read = [one for one in found if not isinstance(one, str)]
    if len({_digest(one) for one in read}) > 1:
        return no_answer(request, "the replicas differ")
    config = read[0]
    model = str(config["model"])
    parts = ServedConfig(_digest(config), str(config["image"]), model)
    return answer(request, parts, detail=redacted(f"{model} on {config['image']}: {' '.join(config['flags'])}")[:900])


def _config_of(pod: Obj, config_maps: Mapping[str, Obj]) -> dict[str, Any] | str:
    flags, found = flags_of_template(pod, config_maps=config_maps), engine_container(pod)
    if flags.unparsable or found is None:
        return flags.unparsable or "no container of it is recognised as the engine"
    container = found[1]
    statuses: dict[str, Obj] = {one.get("name", ""): one for one in dig(pod, "status", "containerStatuses") or []}
    return {
        # A tag may be moved; the id of the pulled image is fixed.
        "image": str(statuses.get(flags.container, {}).get("imageID") or flags.image),
        "model": _model(flags),
        "flags": sorted(f"{name}={value}" for name, value in flags.values.items() if name not in WITHOUT_EFFECT),
        "env": sorted(json.dumps(entry, sort_keys=True) for entry in container.get("env") or []),
        "from": json.dumps(container.get("envFrom") or [], sort_keys=True),
    }


def _model(flags: FlagsInSpec) -> str:
    written = flags.values.get("--model")
    if written is not None:
        return str(written)
    # An image whose entrypoint is `vllm` gets `serve` as its first argument.
    first = next((word.text for word in flags.words[:2] if word.text != "serve"), "")
    return "" if first.startswith("-") else first


def _digest(config: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


PROBE = Probe(
    name="served_config",
    label="Configuration in force",
    help="What is served now: a digest of the configuration, the image, the model.",
    answer=ServedConfig,
    read=lambda sources: served_config,
)
