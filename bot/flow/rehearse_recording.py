"""Rehearses a playbook over a recorded history: the real sampling and watching, in the recording's own time.

A recording has metrics and no cluster: results of probes are given by hand, or unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.incidents.run import Question, Run
from bot.domain.kernel.errors import ClusterError
from bot.domain.kernel.target import Target
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.testing.cases import Circumstances, given_at
from bot.domain.signals.signal import Reading
from bot.domain.signals.specs import SignalSpec
from bot.flow.ports.readings import History, ProbeReader, ReadContext
from bot.flow.read_signals import ReadSignals
from bot.flow.rehearse_case import AsWritten, times_in
from bot.flow.rehearse_run import Clock

Ask = Callable[[Question], str | None]
"""Asks the person who rehearses; None if there is no answer."""


class NoCluster:
    """The `Snapshots` port without a cluster."""

    async def snapshot(self, target: Target, *, incident_id: str) -> ClusterSnapshot:
        raise ClusterError("a recording has no cluster; say under `given` what this would have been")


class OverRecording(AsWritten):
    """Written values take precedence; the rest is read from the recording, and asked."""

    def __init__(
        self,
        written: Circumstances,
        playbook: CompiledPlaybook,
        clock: Clock,
        *,
        history: History,
        probes: Mapping[str, ProbeReader],
        ask: Ask,
    ) -> None:
        super().__init__(written, playbook, clock)
        self._ask = ask
        self._recorded = ReadSignals(history=history, probes=probes, cluster=NoCluster(), now=clock)

    async def read(self, wanted: Mapping[str, SignalSpec], context: ReadContext) -> Mapping[str, Reading]:
        run = self._run
        given = given_at(self._written, run.visit.state, times_in(run)) if run else {}
        written = await super().read({name: spec for name, spec in wanted.items() if name in given}, context)
        rest = {name: spec for name, spec in wanted.items() if name not in given}
        return {**await self._recorded.read(rest, context), **written}

    def answer(self, run: Run) -> str | tuple[str, Mapping[str, float | str]] | None:
        question = run.open_question
        answer = super().answer(run)
        return answer if answer is not None or question is None else self._ask(question)

    def still_the_same(self, run: Run) -> bool:
        return False
