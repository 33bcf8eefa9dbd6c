"""Computes exactly what a change would do now: read, plan, and a dry run by the API server. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from bot.domain.approvals.edits import with_values
from bot.domain.changes.context import DEFAULT_DRAIN_SECONDS, DEFAULT_STARTUP_SECONDS, QUIET_SECONDS, PlanContext
from bot.domain.changes.plan import Call, Circumstance, PlanResult
from bot.domain.changes.planning import plan_change
from bot.domain.cluster.workload import KINDS as WORKLOADS
from bot.domain.incidents.effect import PlanChange
from bot.domain.incidents.event import Planned
from bot.domain.incidents.machine.changing import takes_back
from bot.domain.incidents.named_values import ScopeValues, units_of
from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import ClusterError
from bot.domain.kernel.redaction import redacted
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.expressions.expression import Unknown
from bot.domain.playbooks.language import ChangeState
from bot.domain.reports.statistics import last_time
from bot.domain.signals.signal import Reading
from bot.flow.handlers.read import PlaybookOf, ReadHandler
from bot.flow.hot_halls import refused_by_heat
from bot.flow.incident_history import PastRuns, asked_by, rollbacks_in_a_day, the_last
from bot.flow.perform_effect import Done, EffectContext, Later
from bot.flow.ports.cluster import Cluster
from bot.flow.ports.repositories import Repositories
from bot.flow.ports.storage import CallClaims
from bot.flow.restrictions import Restrictions
from bot.flow.snapshot_reader import SnapshotReader, context_of

GRANT_IT = "grant it in the bot's role; `incident-bot doctor` lists everything that it needs"
GONE = "the reason for this change is gone"
BREAKER_OPEN = "the breaker is open: too many disruptive changes on this workload within the hour"
RESET = "Look for a common cause; `/incident reset` restarts the count"
ATTEMPTS = 4
AGAIN_SECONDS = 4.0
"""Twelve seconds in all: a restart of an API server takes less, and people who are asked need more."""


class PlanHandler:
    def __init__(  # noqa: PLR0913 - what planning needs
        self, read: ReadHandler, see: SnapshotReader, cluster: Cluster, playbook_of: PlaybookOf, runs: PastRuns,
        *, restrictions: Restrictions, claims: CallClaims, repositories: Repositories | None = None,
    ) -> None:  # fmt: skip
        self._restrictions, self._claims, self._repositories = restrictions, claims, repositories
        self._read, self._see, self._cluster, self._playbook_of, self._runs = read, see, cluster, playbook_of, runs

    async def __call__(self, context: EffectContext, effect: PlanChange) -> Done | Later:
        """A plan that nothing could be read for is tried again before people are notified."""
        run, change = context.run, context.run.change
        result, readings = await self.plan(run, at=context.now)
        if result.outcome in ("failed", "unknown") and context.owed.attempts + 1 < ATTEMPTS:
            return Later(AGAIN_SECONDS, failed=True)
        back = change is not None and takes_back(change, result.plan)
        advice = await self._restrictions.advice(run, at=context.now, takes_back=back)
        if not advice:
            result = await self._with_breaker(run, result, at=context.now)
        elif result.owners_edit is not None:
            # What is only advised is not proposed in git either.
            result = result.model_copy(update={"owners_edit": None})
        event = Planned(
            event_id=effect.effect_id, effect_id=effect.effect_id, result=result, readings=dict(readings),
            only_advice=advice,
        )  # fmt: skip
        return Done((event,))

    def _with_file(self, run: Run, result: PlanResult) -> PlanResult:
        """With the file that the workload is kept in, where people may want a pull request."""
        if self._repositories is None or self._restrictions.observing.is_on(run.playbook, run.target):
            return result
        file, plan = {"file": self._repositories.file_of(run.target)}, result.plan
        if plan is not None and plan.owners_edit is not None:
            edit = plan.owners_edit.model_copy(update=file)
            return result.model_copy(update={"plan": plan.model_copy(update={"owners_edit": edit})})
        if result.owners_edit is not None:
            return result.model_copy(update={"owners_edit": result.owners_edit.model_copy(update=file)})
        return result

    async def _with_breaker(self, run: Run, result: PlanResult, *, at: float) -> PlanResult:
        """Warns where the breaker would send nothing, so that nobody approves it in vain."""
        plan = result.plan
        if plan is None or all(call.restores for call in plan.calls) or not plan.disruption("this change"):
            return result
        until = await self._claims.breaker_open_until(run.target.key, plan.disruption("this change"), at=at)
        if not until:
            return result
        text = f"{BREAKER_OPEN}: it lets nothing through before {datetime.fromtimestamp(until, UTC):%H:%M} UTC. {RESET}"
        warning = Circumstance(name="breaker", grade="warning", text=text)
        warned = plan.model_copy(update={"circumstances": (*plan.circumstances, warning)})
        return result.model_copy(update={"plan": warned})

    async def plan(self, run: Run, *, at: float) -> tuple[PlanResult, Mapping[str, Reading]]:
        """The plan as of now, and the readings that it is based on."""
        playbook = await self._playbook_of(run)
        change = run.change
        if change is None:
            return PlanResult(outcome="failed", reason="no change is under way"), {}
        if change.undo_of:
            return await self._of_snapshot(run, playbook, "undo", {"of": list(change.undo_of)}, at=at), {}
        state = playbook.state(change.state)
        if not isinstance(state, ChangeState):
            return PlanResult(outcome="failed", reason=f"'{change.state}' is not a change"), {}
        readings = await self._read.readings(run, change.state, for_change=True)
        arguments = arguments_of(run, playbook, state, readings)
        if isinstance(arguments, PlanResult):
            return arguments, readings
        return await self._of_snapshot(run, playbook, state.change, arguments, at=at), readings

    async def _of_snapshot(
        self, run: Run, playbook: CompiledPlaybook, verb: str, arguments: Mapping[str, object], *, at: float
    ) -> PlanResult:
        if verb == "rollback" and (done := await rollbacks_in_a_day(self._runs, run.target, at=at)):
            # Otherwise two revisions that are each taken for the good one would replace each other forever.
            why = f"{run.target} was rolled back within the last day already ({', '.join(done)})"
            return PlanResult(outcome="impossible", reason=why, hint="check what both revisions have in common")
        try:
            snapshot = await self._see(run, context_of(run, playbook.settings), at=at)
        except ClusterError as error:
            return PlanResult(outcome="failed", reason=f"the cluster cannot be read: {error}")
        result = self._with_file(run, plan_change(verb, dict(arguments), snapshot, plan_context(run, playbook, at=at)))
        if result.plan and (hot := await refused_by_heat(self._runs, run, result.plan, snapshot, at=at)):
            return PlanResult(outcome="impossible", reason=hot, hint="wait until facilities have it in hand")
        # Where the bot only observes, it may lack the permissions, and even a dry run is a request to change something.
        observes = self._restrictions.observing.is_on(run.playbook, run.target)
        checked = result if observes else await self._dry_run(result)
        if checked.plan is None:
            return checked
        earlier = await the_last(self._runs, run)
        if earlier is None:
            return checked
        held = last_time([earlier], run, checked.plan, at=at)
        asked = asked_by(earlier, checked.plan, at=at)
        return checked.model_copy(update={"asked_before": asked, "last_time": held})

    async def _dry_run(self, result: PlanResult) -> PlanResult:
        """Checks that every call is allowed, and sends the first one for each object as a dry run.

        Later calls for the same object, and for pods, depend on the effect of earlier ones.
        """
        # A generation is not a request to the API server.
        calls = [call for call in result.plan.calls if call.method != "generate"] if result.plan else []
        if not calls:
            return result
        try:
            if lacking := await self._cluster.lacking(calls):
                return PlanResult(outcome="impossible", reason=lacking, hint=GRANT_IT)
            refusal = ""
            for call in _first_for_each_object(calls):
                refusal = refusal or await self._cluster.dry_run(call)
        except ClusterError as error:
            return PlanResult(outcome="failed", reason=f"the API server did not dry-run the change: {error}")
        if refusal:
            return PlanResult(outcome="impossible", reason=f"the API server refuses it: {redacted(refusal)}")
        return result


def _first_for_each_object(calls: Sequence[Call]) -> list[Call]:
    first: dict[tuple[str, str], Call] = {}
    for call in calls:
        if call is calls[0] or call.target.kind in WORKLOADS:
            first.setdefault((call.target.kind, call.target.name), call)
    return list(first.values())


def arguments_of(
    run: Run, playbook: CompiledPlaybook, state: ChangeState, readings: Mapping[str, Reading]
) -> Mapping[str, object] | PlanResult:
    """The values of the `with` of the run's present change under these readings; or why nothing can be planned."""
    values = ScopeValues(run, readings)
    holds = playbook.still_holds(run.visit.state, values)
    if isinstance(holds, Unknown):
        why = f"whether its reason still holds: {playbook.in_words(holds, readings)}"
        return PlanResult(outcome="unknown", reason=why, missing=holds.missing)
    if not holds:
        now = playbook.no_longer(run.visit.state, values, units_of(readings))
        return PlanResult(outcome="not_needed", reason=f"{GONE}: {now}")
    is_asked = run.change is not None and bool(run.change.request_id)
    arguments = playbook.arguments(run.visit.state, values, as_asked=is_asked)
    if isinstance(arguments, Unknown):
        why = playbook.in_words(arguments, readings)
        return PlanResult(outcome="unknown", reason=why, missing=arguments.missing)
    return with_values(state.change, arguments, run.change.values) if run.change else arguments


def plan_context(run: Run, playbook: CompiledPlaybook, *, at: float) -> PlanContext:
    def setting(name: str, default: float) -> float:
        value = playbook.settings.get(name, default)
        return float(value) if isinstance(value, int | float) else default

    state = playbook.playbook.states.get(run.change.state) if run.change and not run.change.undo_of else None
    return PlanContext(
        against=state.against if isinstance(state, ChangeState) else "",
        incident_id=run.incident_id,
        now=at,
        ledger=run.ledger,
        picked=run.findings.picked,
        startup_seconds=setting("startup_budget", DEFAULT_STARTUP_SECONDS),
        drain_seconds=setting("drain_budget", DEFAULT_DRAIN_SECONDS),
        quiet_seconds=setting("quiet_for", QUIET_SECONDS),
    )
