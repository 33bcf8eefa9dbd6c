"""Applies one step of a granted plan: prove the grant, check again, claim, send. A call can win at most once.

After a possible earlier attempt it reads the cluster first: the stamp or the after-value means done, the before-value
means that the same call may be sent again, and anything else is unclear and goes to a person.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import structlog

from bot.domain.approvals.announced import is_pre_approved
from bot.domain.approvals.grant import Approved, Request, grant
from bot.domain.approvals.rules import ApprovalRules
from bot.domain.changes.catalogue import VERBS
from bot.domain.changes.interference import interference
from bot.domain.changes.plan import ROOM, Call, Plan, Step, Wait, highest
from bot.domain.changes.progress import progress
from bot.domain.cluster.node_disruption import NodeDisruption, node_disruption
from bot.domain.incidents.effect import ApplyStep
from bot.domain.incidents.event import Progressed, StepSettled
from bot.domain.incidents.impact import Impact, takes_capacity, too_much
from bot.domain.incidents.machine.changing import takes_back
from bot.domain.incidents.run import Run
from bot.domain.kernel.durations import lasting
from bot.domain.kernel.errors import ApprovalError, ClusterError
from bot.domain.kernel.redaction import redacted
from bot.domain.kernel.target import Target
from bot.domain.signals.signal import Reading
from bot.flow.handlers.generate import GenerateOnReplica
from bot.flow.handlers.job_result import JobResult
from bot.flow.handlers.plan import BREAKER_OPEN, RESET, PlanHandler
from bot.flow.handlers.read import PlaybookOf
from bot.flow.perform_effect import Done, EffectContext, Later
from bot.flow.ports.cluster import ClusterWriter, EarlierAttempt
from bot.flow.ports.storage import CallClaims, RunStore
from bot.flow.restrictions import Restrictions
from bot.flow.snapshot_reader import SnapshotReader, context_of

log = structlog.get_logger()
LOOK_EVERY_SECONDS = 1.0
ONE_TURN_SECONDS = 20.0
"""A wait is put back after this long, so that nothing blocks an effect slot for minutes."""
CHECKS_APART_SECONDS = (2.0, 4.0)
"""Pauses between checks while a check contradicts a granted call."""
UNCLEAR_ATTEMPTS = 3
CLOCK_STEP_SECONDS = 5.0
"""Allowed difference between the clocks of two servers."""
SEEN_DONE = "seen in the cluster after an interrupted attempt"
PATIENCE_SECONDS = 600.0
"""How long a budget (429) or another incident's lease may delay a call before people are asked."""

ROOM_TAKEN = "another incident took accelerators a moment ago; capacity is checked again once its pods are seen"
ONLY_OBSERVES = "the settings say observe-only: the bot changes nothing here"
REFUSALS: Mapping[str, str] = {"observe_only": ONLY_OBSERVES, "halted": "it was halted"}
HELD_BY_OTHERS: Mapping[str, str] = {
    "lease_held": "another incident is changing this workload",
    "room_held": ROOM_TAKEN,
}
OPEN_BREAKERS: Mapping[str, str] = {
    "breaker_open": BREAKER_OPEN,
    "node_breaker_open": "the node breaker is open: too many nodes were cordoned or drained within the hour",
    "too_many_gpus": "the node breaker is open: too much of the fleet would be cordoned",
}


class ApplyCall:
    def __init__(  # noqa: PLR0913 - the ports that it speaks to
        self,
        writer: ClusterWriter,
        claims: CallClaims,
        runs: RunStore,
        planner: PlanHandler,
        see: SnapshotReader,
        playbook_of: PlaybookOf,
        *,
        cluster: str,
        restrictions: Restrictions,
        job_result: JobResult,
        generate: GenerateOnReplica,
        grant_valid_seconds: float,
        approvals: ApprovalRules,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`cluster`: its name, which may be empty. A target may be stored with another: a label, or none."""
        self._cluster = cluster
        self._job_result, self._generate, self._restrictions = job_result, generate, restrictions
        self._writer, self._claims, self._runs = writer, claims, runs
        self._planner, self._see, self._playbook_of = planner, see, playbook_of
        self._grant_valid, self._approvals, self._pause = grant_valid_seconds, approvals, pause
        self._put_off_since: dict[str, float] = {}

    async def __call__(self, context: EffectContext, effect: ApplyStep) -> Done | Later:
        change, request = context.run.change, context.run.requests.get(effect.request_id)
        if change is None or request is None or change.step != effect.step or change.request_id != effect.request_id:
            return Done()
        if not request.plan.steps:
            return self._settled(effect, "done", "nothing to do")
        step = request.plan.steps[effect.step]
        if (stopped := await self._stopped(context, effect, request)) is not None:
            return stopped
        if isinstance(step, Wait):
            # A rollout may outlast a lease, and it changes the workload as much as its calls do.
            await self._claims.hold(context.incident_id, self._lease_keys(context.run, request.plan, is_first=False))
            return await self._wait(context, effect, step, request.plan.calls)
        try:
            approved = grant(request, request.presses)
        except ApprovalError as error:
            return self._settled(effect, "withheld", f"not granted: {error}")
        outcome = await self._call(context, effect, request, approved, step)
        if isinstance(outcome, Done):
            self._put_off_since.pop(effect.call_id(context.incident_id), None)
        return await self._with_impact(context, effect, request, outcome)

    def _lease_keys(self, run: Run, plan: Plan, *, is_first: bool) -> list[str]:
        # Incidents with different names of this cluster are about the same workloads.
        return lease_keys(run.target.model_copy(update={"cluster": self._cluster}), plan, is_first=is_first)

    # --- remaining replicas -----------------------------------------------------------------------------------------

    async def _stopped(self, context: EffectContext, effect: ApplyStep, request: Request) -> Done | None:
        """Before each step but the first: whether the impact on users of the other replicas is too high to go on."""
        change = context.run.change
        if effect.step == 0 or change is None or change.impact is None or not takes_capacity(request.plan):
            return None
        call_id = effect.call_id(context.incident_id)
        # A call that may already have been sent has an outcome, which must be known first.
        if await self._claims.was_claimed(context.incident_id, call_id):
            return None
        now = await self._impact(context, at=context.now)
        risen = too_much(change.impact, now)
        if not risen:
            return None
        log.warning("change.stopped", incident=context.incident_id, request=request.request_id, risen=risen)
        return self._settled(effect, "affected", risen, impact=now)

    async def _impact(self, context: EffectContext, *, at: float) -> Impact:
        playbook = await self._playbook_of(context.run)
        return await self._see.impact(context_of(context.run, playbook.settings), at=at)

    async def _with_impact(
        self, context: EffectContext, effect: ApplyStep, request: Request, outcome: Done | Later
    ) -> Done | Later:
        """Adds the impact at the time of the grant to the first step: from samples, so it is the same after a crash."""
        if effect.step > 0 or not isinstance(outcome, Done) or not takes_capacity(request.plan):
            return outcome
        impact = await self._impact(context, at=request.decided_at if request.decided_at is not None else context.now)
        events = [
            event.model_copy(update={"impact": impact})
            if isinstance(event, StepSettled) and event.result == "done"
            else event
            for event in outcome.events
        ]
        return Done(tuple(events))

    # --- calls ------------------------------------------------------------------------------------------------------

    async def _call(
        self, context: EffectContext, effect: ApplyStep, request: Request, approved: Approved, call: Call
    ) -> Done | Later:
        call_id = effect.call_id(context.incident_id)
        claimed_before = await self._claims.was_claimed(context.incident_id, call_id)
        if not claimed_before and effect.step == 0:
            changed = await self._looked_again(context, effect, request)
            if changed is not None:
                return changed
        # An undo compares each value itself; after a possible attempt, the cluster may show the effect of this very
        # call.
        if not claimed_before and request.plan.verb != "undo":
            touched = await self._touched(context, effect, call_id)
            if touched is not None:
                return touched
        node = await self._node_at_stake(context, request.plan) if not (call.restores or claimed_before) else None
        if isinstance(node, str):
            return self._put_off(context, effect, f"what the node takes from the fleet is not known: {node}", call_id)
        verdict = await self._claims.claim(
            context.incident_id,
            call_id,
            workload_key=context.run.target.key,
            playbook=context.run.playbook,
            lease_keys=self._lease_keys(context.run, request.plan, is_first=effect.step == 0),
            disruption="" if call.restores else request.plan.disruption(f"{context.incident_id}/{request.request_id}"),
            node=node,
            effect_id=effect.effect_id,
        )
        if verdict == "lost":
            return Later(0.0)
        if why := _refusal(verdict, node):
            sent = await self._sent_before(context, effect, call, call_id, why) if claimed_before else None
            return sent or self._refused(context, effect, verdict, why, call_id)
        if context.lost.is_set():
            return Later(0.0)
        if verdict != "already_claimed":
            return await self._send(context, effect, approved, call, call_id)
        known = await self._after_an_attempt(context, effect, request, call, call_id)
        return known if known is not None else await self._send_again(context, effect, approved, call, call_id)

    def _refused(self, context: EffectContext, effect: ApplyStep, verdict: str, why: str, call_id: str) -> Done | Later:
        if verdict in HELD_BY_OTHERS:
            return self._put_off(context, effect, why, call_id)
        return self._settled(effect, "halted" if verdict == "halted" else "withheld", why, call_id=call_id)

    async def _sent_before(
        self, context: EffectContext, effect: ApplyStep, call: Call, call_id: str, why: str
    ) -> Done | None:
        """What an earlier attempt did to a call that may not be sent any more; None if it had no effect."""
        seen = "unclear" if call.method == "generate" else await self._look(context, call, call_id)
        if seen == "done":
            return self._settled(effect, "done", SEEN_DONE, call_id=call_id)
        if seen == "unclear":
            return self._settled(effect, "unclear", f"it may have been sent before; now {why}", call_id=call_id)
        return None

    async def _node_at_stake(self, context: EffectContext, plan: Plan) -> NodeDisruption | str | None:
        """What the plan takes from the fleet, read now; None if it disturbs no node, a text if that is not known."""
        verb = VERBS.get(plan.verb)
        if verb is None or not verb.takes_node:
            return None
        playbook = await self._playbook_of(context.run)
        try:
            snapshot = await self._see(context.run, context_of(context.run, playbook.settings), at=context.now)
        except ClusterError as error:
            return str(error)
        found = node_disruption(snapshot, str(plan.choices["node"]))
        return found if isinstance(found, str) else replace(found, cluster=context.run.target.cluster)

    async def _send(
        self, context: EffectContext, effect: ApplyStep, approved: Approved, call: Call, call_id: str
    ) -> Done | Later:
        log.info("call.sent", incident=context.incident_id, call=call_id, method=call.method, target=str(call.target))
        if call.method == "generate":
            return await self._generated(context, effect, approved, call, call_id)
        sent = await self._writer.send(approved, call, call_id=call_id)
        if sent.result == "done":
            return self._settled(effect, "done", sent.detail, call_id=call_id)
        if sent.result == "failed" and sent.retry_after_seconds is not None:
            return self._put_off(context, effect, sent.detail, call_id, after_seconds=sent.retry_after_seconds)
        if sent.result == "failed":
            return self._settled(effect, "failed", sent.detail, call_id=call_id)
        unclear = self._unclear(context, effect, sent.detail, call_id)
        if isinstance(unclear, Done) and await self._is_done_after_all(context, call, call_id):
            return self._settled(effect, "done", SEEN_DONE, call_id=call_id)
        return unclear

    async def _is_done_after_all(self, context: EffectContext, call: Call, call_id: str) -> bool:
        """Checks once more a moment after the last attempt, before a person is asked."""
        await self._pause(LOOK_EVERY_SECONDS)
        return await self._look(context, call, call_id) == "done"

    async def _send_again(
        self, context: EffectContext, effect: ApplyStep, approved: Approved, call: Call, call_id: str
    ) -> Done | Later:
        """Checks a refused call once more: the earlier attempt may have been carried out at this very moment."""
        outcome = await self._send(context, effect, approved, call, call_id)
        refused = next((e for e in _settlements(outcome) if e.result == "failed"), None)
        seen = await self._look(context, call, call_id) if refused is not None else "not_done"
        if refused is None or seen == "not_done":
            return outcome
        if seen == "unclear":
            return self._unclear(context, effect, refused.detail, call_id)
        return self._settled(effect, "done", SEEN_DONE, call_id=call_id)

    async def _generated(
        self, context: EffectContext, effect: ApplyStep, approved: Approved, call: Call, call_id: str
    ) -> Done | Later:
        """Waits with the request until it ends; a halt or a lost lease ends it early."""

        async def report(text: str) -> None:
            await self._runs.append(context.incident_id, self._progress(context, effect, text))

        made = await self._generate(context, approved, call, report)
        if context.lost.is_set():
            return Later(0.0)
        readings = {made.reading.name: made.reading} if made.reading else {}
        return self._settled(effect, made.result, made.detail, call_id=call_id, readings=readings)

    async def _after_an_attempt(
        self, context: EffectContext, effect: ApplyStep, request: Request, call: Call, call_id: str
    ) -> Done | Later | None:
        """The outcome of an earlier attempt; None if it had no effect and the call may be sent (only one can win)."""
        if call.method == "generate":
            reason = "it was started before the bot was interrupted; nothing shows whether it was sent or how it ended"
            return self._settled(effect, "unclear", reason, call_id=call_id)
        seen = await self._look(context, call, call_id)
        if seen == "done":
            return self._settled(effect, "done", SEEN_DONE, call_id=call_id)
        if seen == "unclear":
            return self._unclear(context, effect, "the object is in neither its old nor its new state", call_id)
        return self._lapsed(context, effect, request, PATIENCE_SECONDS) if effect.step == 0 else None

    async def _look(self, context: EffectContext, call: Call, call_id: str) -> EarlierAttempt:
        seen = await self._writer.look(call, call_id=call_id)
        log.info("call.looked_up", incident=context.incident_id, call=call_id, seen=seen)
        return seen

    def _unclear(self, context: EffectContext, effect: ApplyStep, detail: str, call_id: str) -> Done | Later:
        """Checks again a moment later; after some attempts only a person can decide."""
        if context.owed.attempts + 1 < UNCLEAR_ATTEMPTS:
            return Later(LOOK_EVERY_SECONDS, failed=True)
        return self._settled(effect, "unclear", detail, call_id=call_id)

    def _put_off(
        self, context: EffectContext, effect: ApplyStep, why: str, call_id: str, *, after_seconds: float = 5.0
    ) -> Done | Later:
        change = context.run.change
        # Since when this process has put it off: after a downtime the step may have begun long ago.
        first = self._put_off_since.setdefault(call_id, context.now)
        since = max(first, change.step_started_at) if change is not None else first
        if context.now - since > PATIENCE_SECONDS:
            waited = f"{why}; waited {PATIENCE_SECONDS / 60:.0f} minutes"
            return self._settled(effect, "withheld", waited, call_id=call_id)
        return Later(after_seconds, self._progress(context, effect, f"waiting: {why}"))

    async def _looked_again(self, context: EffectContext, effect: ApplyStep, request: Request) -> Done | None:
        """Right before the first call: grant still fresh, reason still valid, plan still the same and no riskier.

        A check that contradicts the grant is repeated: one failed read must not discard people's decision.
        """
        if (lapsed := self._lapsed(context, effect, request)) is not None:
            return lapsed
        change = context.run.change
        back = change is not None and takes_back(change, request.plan)
        if (advice := await self._restrictions.advice(context.run, at=context.now, takes_back=back)) is not None:
            return self._settled(effect, "lapsed", f"it is only advised now: {advice.text}")
        against = await self._against(context, effect, request, at=context.now)
        for seconds in CHECKS_APART_SECONDS:
            if against is None or _settlements(against)[0].result == "not_needed" or context.lost.is_set():
                break
            await self._pause(seconds)
            against = await self._against(context, effect, request, at=await self._runs.now())
        return against

    async def _against(self, context: EffectContext, effect: ApplyStep, request: Request, *, at: float) -> Done | None:
        result, readings = await self._planner.plan(context.run, at=at)
        if result.outcome == "not_needed":
            return self._settled(effect, "not_needed", result.reason, readings=dict(readings))
        if result.outcome == "unknown":
            return self._settled(effect, "still_unknown", result.reason, readings=dict(readings))
        if result.outcome != "planned" or result.plan is None:
            return self._settled(effect, "superseded", result.reason, replanned=result)
        moved = what_changed(request.plan, result.plan) or self._out_of_bounds(context.run, request, result.plan, at)
        return self._settled(effect, "superseded", moved, replanned=result) if moved else None

    def _out_of_bounds(self, run: Run, request: Request, plan: Plan, at: float) -> str:
        """Why a change that the settings had pre-approved is not any more: its call may have waited for others."""
        if not is_pre_approved(request.policy.announced):
            return ""
        others = [other for other in run.requests.values() if other.request_id != request.request_id]
        why = self._approvals.for_target(run.target).announced(
            plan, request.kind, plan.risk, state=request.state, target=run.target, ledger=run.ledger, earlier=others,
            at=at,
        )  # fmt: skip
        return "" if why else "it is outside of what the settings pre-approve by now"

    def _lapsed(
        self, context: EffectContext, effect: ApplyStep, request: Request, more_seconds: float = 0.0
    ) -> Done | None:
        """Whether the grant is too old to start on: it must be requested again, since its approvers no longer watch.

        `more_seconds`: how long a call may be delayed once it was claimed.
        """
        waited = context.now - (request.decided_at if request.decided_at is not None else context.now)
        # A negative age: the storage's clock went back, so the age of the decision is unknown.
        if -CLOCK_STEP_SECONDS <= waited <= self._grant_valid + more_seconds:
            return None
        return self._settled(
            effect, "lapsed", f"the approved change was not started within {self._grant_valid / 60:.0f} minutes"
        )

    async def _touched(self, context: EffectContext, effect: ApplyStep, call_id: str) -> Done | Later | None:
        """Whether somebody else has since changed what this run changed: then a person decides how to go on."""
        if not context.run.held:
            return None
        playbook = await self._playbook_of(context.run)
        try:
            snapshot = await self._see(context.run, context_of(context.run, playbook.settings), at=context.now)
        except ClusterError as error:
            return self._put_off(context, effect, f"the cluster cannot be read: {error}", call_id)
        found = interference(context.run.ledger, snapshot)
        if not found:
            return None
        log.warning("call.interfered", incident=context.incident_id, call=call_id, calls=[one.call_id for one in found])
        detail, calls = "; ".join(one.text for one in found), [one.call_id for one in found if not one.still_holds]
        return self._settled(effect, "interfered", detail, call_id=call_id, evidence={"calls": calls})

    # --- waits ------------------------------------------------------------------------------------------------------

    async def _wait(
        self, context: EffectContext, effect: ApplyStep, wait: Wait, calls: tuple[Call, ...]
    ) -> Done | Later:
        """Checks until the wait is over, failed or late. A wait is not a call: it can be repeated without a claim."""
        change = context.run.change
        started = change.step_started_at if change else context.now
        playbook = await self._playbook_of(context.run)
        read_context = context_of(context.run, playbook.settings)
        reported = change.progress if change else ""
        now, turn_ends = context.now, context.now + ONE_TURN_SECONDS
        while now < turn_ends and not context.lost.is_set():
            try:
                snapshot = await self._see(context.run, read_context, at=now)
                seen = progress(wait, snapshot, calls=calls, waited_seconds=now - started)
                state, text = seen.state, seen.text
            except ClusterError as error:
                state, text = "pending", f"the cluster cannot be read: {error}"
            if state in ("done", "failed"):
                return self._settled(effect, state, text, readings=await self._given(context, wait, at=now))
            if now - started > wait.within_seconds:
                return self._settled(effect, "failed", f"not seen within {lasting(wait.within_seconds)}: {text}")
            if text != reported:
                await self._runs.append(context.incident_id, self._progress(context, effect, text))
                reported = text
            await self._pause(LOOK_EVERY_SECONDS)
            now = await self._runs.now()
        return Later(0.0)

    async def _given(self, context: EffectContext, wait: Wait, *, at: float) -> dict[str, Reading]:
        """The readings that are available once the wait is over."""
        return {wait.gives: await self._job_result(context.run, wait.about, at=at)} if wait.gives else {}

    # --- outcomes ---------------------------------------------------------------------------------------------------

    def _progress(self, context: EffectContext, effect: ApplyStep, text: str) -> tuple[Progressed, ...]:
        text = redacted(text)  # an API server's message may quote what it refuses
        if context.run.change is not None and context.run.change.progress == text:
            return ()
        event_id = f"progress/{effect.effect_id}/{context.run.version}/{text}"
        return (Progressed(event_id=event_id, effect_id=effect.effect_id, text=text),)

    def _settled(self, effect: ApplyStep, result: Any, detail: str, **more: Any) -> Done:
        """The outcome as an event; `more` are further fields of `StepSettled`, checked there."""
        event = StepSettled(
            event_id=f"settled/{effect.effect_id}",
            effect_id=effect.effect_id,
            request_id=effect.request_id,
            step=effect.step,
            result=result,
            detail=redacted(detail),
            **more,
        )
        return Done((event,))


def _settlements(outcome: Done | Later) -> list[StepSettled]:
    return [event for event in outcome.events if isinstance(event, StepSettled)]


def _refusal(verdict: str, node: NodeDisruption | None) -> str:
    """Why the claim was refused; empty if it was not."""
    if verdict not in OPEN_BREAKERS:
        return {**REFUSALS, **HELD_BY_OTHERS}.get(verdict, "")
    text = OPEN_BREAKERS[verdict]
    if verdict == "too_many_gpus" and node is not None:
        # A share is not counted: only nodes that take pods again make room for it.
        elsewhere = (
            ", ".join(f"{name} ({gpus})" for name, gpus in node.cordoned.items()) or "nodes counted a moment ago"
        )
        return f"{text}: {node.gpus} of {node.fleet_gpus} GPUs on {node.node}, besides {elsewhere}"
    return f"{text}. {RESET}"


def what_changed(approved: Plan, now: Plan) -> str:
    """Why the approved plan must be approved again; empty if it is the same and the circumstances are no worse."""
    if approved.digest != now.digest:
        old = [line.text or line.path for call in approved.calls for line in call.differences]
        new = [line.text or line.path for call in now.calls for line in call.differences]
        return f"the plan has changed: {'; '.join(new)} instead of {'; '.join(old)}"
    worse = list(now.is_worse_than(approved))
    # A run may have raised the risk that was shown, never lowered it.
    if highest(now.risk, approved.risk) != approved.risk:
        worse.append(f"its risk is {now.risk}, not {approved.risk}")
    worse += [f"{team} must approve it too" for team in now.approved_by if team not in approved.approved_by]
    return f"circumstances got worse: {'; '.join(worse)}" if worse else ""


def lease_keys(target: Target, plan: Plan, *, is_first: bool) -> list[str]:
    """The exclusive leases: the workload, every node that the plan touches, and at first the room that it takes."""
    nodes = {step.target.name for step in _calls(plan.steps) if step.target.kind == "Node"}
    nodes |= {str(plan.choices["node"])} if "node" in plan.choices else set()
    takes_room = is_first and any(each.name == ROOM for each in plan.circumstances)
    room = [f"room/{target.cluster}"] if takes_room else []
    return [f"workload/{target.key}", *(f"node/{target.cluster}/{name}" for name in sorted(nodes)), *room]


def _calls(steps: tuple[Step, ...]) -> tuple[Call, ...]:
    return tuple(step for step in steps if isinstance(step, Call))
