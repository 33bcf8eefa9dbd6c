"""The port at which the engine of a pod serves its API and its metrics."""

from __future__ import annotations

import re

from bot.domain.cluster.objects import dig
from bot.domain.cluster.snapshot import Obj
from bot.domain.cluster.workload import words_of
from bot.domain.flags.flags_in_spec import engine_container

PORT_NAMES = ("http", "http1", "metrics")
DEFAULT_PORT = 8000
_WRITTEN = re.compile(r"(?<!\S)--port(?:=|\s+)(\d{1,5})\b")


def engine_port(pod: Obj) -> int:
    """Returns the port of its command line, else the one named for it, else its only one, else vLLM's default.

    A sidecar may name a port for its own metrics: its ports count only where the engine is not known.
    """
    engine = engine_container(pod)
    containers = [engine[1]] if engine is not None else dig(pod, "spec", "containers") or []
    if engine is not None and (written := _WRITTEN.search(" ".join(words_of(containers)))):
        return int(written[1])
    ports = [(port.get("name"), int(port["containerPort"])) for one in containers for port in one.get("ports") or []]
    only = ports[0][1] if engine is not None and len(ports) == 1 else DEFAULT_PORT
    return next((dict(ports)[name] for name in PORT_NAMES if name in dict(ports)), only)
