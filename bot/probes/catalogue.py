"""Every probe by its name: the `PROBE` of each module in the folders of `bot.probes`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping

from bot.flow.ports.readings import ProbeReader
from bot.probes import cluster, engine, gpu, incidents, upstream
from bot.probes.declaration import Probe, Sources


def _found() -> Iterator[Probe]:
    for folder in (cluster, engine, gpu, incidents, upstream):
        for each in pkgutil.iter_modules(folder.__path__):
            module = importlib.import_module(f"{folder.__name__}.{each.name}")
            if (probe := getattr(module, "PROBE", None)) is not None:
                yield probe


PROBES: Mapping[str, Probe] = {probe.name: probe for probe in _found()}


def probe_readers(sources: Sources) -> Mapping[str, ProbeReader]:
    return {name: probe.read(sources) for name, probe in PROBES.items()}
