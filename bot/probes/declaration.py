"""The declaration of a probe, and the sources that probes read from.

A new probe is a new module with a `PROBE`, its test, and a number of the stored form; then
`python -m tests.deploy.reference`, as for a verb.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import get_type_hints

from bot.domain.kernel.target import Target
from bot.domain.signals.probe_spec import Parameter
from bot.domain.signals.signal import Kind
from bot.flow.incident_history import PastRuns
from bot.flow.ports.readings import (
    Finder,
    GpuShell,
    History,
    LoadLog,
    MemoryHistory,
    PodLogs,
    PodPages,
    ProbeReader,
    RegisterRecord,
    Router,
    SampleStore,
)

KINDS: Mapping[object, Kind] = {
    float: "number", float | None: "number",
    bool: "flag", bool | None: "flag",
    str: "text", str | None: "text",
}  # fmt: skip


@dataclass(frozen=True)
class Sources:
    """The sources of probes, besides the cluster snapshot of the request. None: not configured."""

    now: Callable[[], float]
    """Epoch seconds."""
    history: History
    logs: PodLogs
    finder: Finder
    pages: PodPages
    samples: SampleStore
    runs: PastRuns
    router: Router
    loads: LoadLog | None = None
    """The bot's own record of a day's load, used if no other source keeps samples that long."""
    memory: MemoryHistory | None = None
    registers: RegisterRecord | None = None
    gpu_shell: GpuShell | None = None
    """Runs nvidia-smi or rocm-smi in a replica."""
    only_reads: Callable[[Target], bool] = lambda target: False
    """Whether no program may be run in the replicas of this workload."""
    dcgm_labels: Mapping[str, str] | None = None
    """The labels of NVIDIA's exporter, if they differ from the known ones."""
    amd_labels: Mapping[str, str] | None = None
    """The labels of AMD's exporter, if they differ from the known ones."""
    exporter_namespaces: Collection[str] = ()
    """Where exporters run; empty: anywhere."""


@dataclass(frozen=True)
class Probe:
    """Declares one probe: everything that the bot and its users need to know about it.

    `answer` is a frozen dataclass. Its fields are the parts that expressions name: `float`, `bool` or `str`, with `|
    None` if a part can be unknown.
    """

    name: str
    label: str
    """What people read for its signal, where a playbook gives it no label."""
    help: str
    """One line for authors of playbooks."""
    answer: type
    read: Callable[[Sources], ProbeReader]
    """Builds the function that answers a request."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Units of the numbers in its answer."""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    """The parameters that a playbook may set."""

    @cached_property
    def kinds(self) -> Mapping[str, Kind]:
        return {name: KINDS[hint] for name, hint in get_type_hints(self.answer).items()}
