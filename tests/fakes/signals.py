"""`Signals` that a script computes from the cluster and the time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bot.domain.signals.signal import Reading, unknown
from bot.domain.signals.specs import ProbeSignal, SignalSpec
from bot.flow.ports.readings import ReadContext

Script = Callable[[], Mapping[str, object]]
"""Signal name to its value, or to the fields of a probe; what is missing cannot be read."""


class ScriptedSignals:
    def __init__(self, script: Script, now: Callable[[], float]) -> None:
        self._now = now
        self.script = script

    async def read(self, wanted: Mapping[str, SignalSpec], context: ReadContext) -> Mapping[str, Reading]:
        values = self.script()
        return {name: self._reading(name, spec, values.get(name)) for name, spec in wanted.items()}

    def _reading(self, name: str, spec: SignalSpec, value: object) -> Reading:
        if value is None:
            return unknown(name, "the script does not say", at=self._now())
        if isinstance(spec, ProbeSignal):
            return Reading.model_validate({"name": name, "fields": value, "at": self._now()})
        return Reading.model_validate({"name": name, "value": value, "at": self._now()})

    async def sample(self, context: ReadContext) -> None:
        """There is no history to sample for."""
