"""A whole run in memory and virtual time: the real machine and handlers; the cluster, Slack and people are simulated.

This module decides nothing: effects are performed in order, time passes when nothing else can happen, people answer.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from bot.domain.approvals.grant import APPROVERS, Alternative, Authority, Demand, Policy, Press
from bot.domain.approvals.rules import ApprovalRules
from bot.domain.changes.plan import PlanResult
from bot.domain.incidents.effect import ApplyStep, Effect, PlanChange, ShowInSlack, WatchSignals
from bot.domain.incidents.event import (
    AlertChanged,
    Due,
    Event,
    OpenedByHand,
    Planned,
    Posted,
    Pressed,
    StepSettled,
    Watched,
)
from bot.domain.incidents.machine import Rules, advance
from bot.domain.incidents.machine.recommending import alternatives
from bot.domain.incidents.rehearsed import Proposed, Rehearsed
from bot.domain.incidents.run import Run
from bot.domain.incidents.stub_plans import stub_plan
from bot.domain.kernel.copies import copy_with
from bot.domain.kernel.timeline import Entry
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.language import ChangeState, WatchState
from bot.domain.signals.signal import Reading
from bot.flow.handlers.judge import JudgeHandler
from bot.flow.handlers.plan import arguments_of
from bot.flow.handlers.read import ReadHandler
from bot.flow.handlers.watch import SAMPLES_THAT_AGREE, WatchHandler, broke_seconds, held_seconds, holds
from bot.flow.perform_effect import Done, EffectContext, Handler, Later
from bot.flow.ports.readings import Signals
from bot.flow.ports.storage import Owed, WatchSample

MAX_VISITS = 200
ANYBODY = Policy(demands=(Demand(users=("anybody",)),), expires_seconds=900.0)
RULES = Rules(approvals=ApprovalRules(low=ANYBODY, medium=ANYBODY, high=ANYBODY))

ALL_ASKED = RULES.approvals.model_copy(update={"four_eyes": ("all",)})

Silence = Literal["silence"]
"""Deliberately no press: time passes until it expires."""


@dataclass
class Clock:
    now: float

    def __call__(self) -> float:
        return self.now


class Circumstances(Protocol):
    """What the run meets."""

    @property
    def signals(self) -> Signals: ...

    def see(self, run: Run) -> None:
        """The run at this moment, before anything is read or asked for it."""

    def answer(self, run: Run) -> str | tuple[str, Mapping[str, float | str]] | Silence | None:
        """The choice for the open question, with the fields of its form; None if there is no person to answer."""

    def change(self, run: Run) -> str:
        """The result of this state's change: `done`, `refused`, `expired`, `impossible`, `failed` …"""

    def came_back(self, run: Run) -> Mapping[str, float | bool | str]:
        """The result of this state's change by part; empty if that is not known."""
        ...

    def verdict(self, run: Run) -> str:
        """The verdict of this watch; empty if the readings decide."""

    def still_the_same(self, run: Run) -> bool:
        """Whether the readings of this state cannot change while the run stays there."""


class MemoryWatchLog:
    """The `WatchLog` port."""

    def __init__(self) -> None:
        self._samples: dict[int, list[WatchSample]] = defaultdict(list)

    async def add(self, incident_id: str, visit: int, sample: WatchSample) -> Sequence[WatchSample]:
        self._samples[visit].append(sample)
        return self._samples[visit]

    def keep(self, visit: int, sample: WatchSample) -> None:
        self._samples[visit].append(sample)

    def of(self, visit: int) -> Sequence[WatchSample]:
        return tuple(self._samples[visit])


class Everybody:
    """The `People` port: in a rehearsal every person has every permission."""

    async def authority(self, user: str, policy: Policy, *, at: float) -> Authority:
        teams = tuple(demand.team for demand in policy.demands)
        return Authority(allowed=True, teams=teams, reason="a rehearsal", read_at=at)

    async def may_operate(self, user: str, *, at: float) -> Authority:
        return Authority(allowed=True, teams=(APPROVERS,), reason="a rehearsal", read_at=at)


@dataclass(order=True)
class _Due:
    at: float
    number: int
    effect: Effect = field(compare=False)


class Rehearsal:
    def __init__(
        self,
        run: Run,
        bundle: Bundle,
        met: Circumstances,
        clock: Clock,
        *,
        listen: Callable[[Entry], None] | None = None,
        until: float = float("inf"),
    ) -> None:
        self.run, self._bundle, self._met, self._clock = run, bundle, met, clock
        self._listen, self._until = listen, until
        self._entries: list[Entry] = []
        self._proposed: list[Proposed] = []
        self._owed: dict[str, _Due] = {}
        self._pressed: set[tuple[str, str]] = set()
        self._notice = ""
        self._number = 0
        self._read = ReadHandler(met.signals, self._playbook_of)
        self._samples = MemoryWatchLog()
        self._watch = WatchHandler(self._read, self._samples, self._playbook_of)
        self._handlers: Mapping[str, Handler] = {
            "read_signals": self._read,
            "watch_signals": self._watched,
            "plan_change": self._planned,
            "apply_step": self._applied,
            "judge_press": JudgeHandler(Everybody()),
            "show_in_slack": self._shown,
            "notify": self._notified,
        }

    async def play(self, opening: AlertChanged | OpenedByHand) -> Rehearsed:
        self._happens(opening)
        stopped = ""
        while self.run.is_open and not stopped:
            if self.run.visit.number > MAX_VISITS:
                stopped = f"it goes round: {' → '.join(self.run.findings.path[-6:])}"
                break
            due = min(self._owed.values(), default=None)
            if due is not None and due.at <= self._clock.now:
                await self._perform(due)
            else:
                stopped = self._people_or_time(due)
            if self.run.parked is not None and self.run.parked.unanswered:
                stopped = stopped or f"nobody answers, and it is parked in '{self.run.visit.state}'"
            if self._clock.now > self._until and self.run.is_open:
                stopped = stopped or "the recording ends here"
        return Rehearsed(self.run, tuple(self._entries), tuple(self._proposed), stopped)

    async def _playbook_of(self, run: Run) -> CompiledPlaybook:
        return self._bundle.playbooks[run.playbook]

    # --- events and effects ---------------------------------------------------------------------------------------

    def _happens(self, event: Event) -> None:
        stamped = copy_with(event, at=self._clock.now)
        decision = advance(self.run, stamped, self._bundle, self._rules())
        self.run = decision.run
        self._met.see(self.run)
        for entry in decision.entries:
            self._entries.append(entry)
            if self._listen is not None:
                self._listen(entry)
        for effect in decision.effects:
            self._owe(effect, self._clock.now)

    def _rules(self) -> Rules:
        """Nothing is announced where people refuse or do not answer: with four eyes they are always asked."""
        is_change = isinstance(self._bundle.playbooks[self.run.playbook].state(self.run.visit.state), ChangeState)
        says_no = is_change and self._outcome(self.run) in ("refused", "expired")
        return RULES.model_copy(update={"approvals": ALL_ASKED}) if says_no else RULES

    def _owe(self, effect: Effect, at: float) -> None:
        self._number += 1
        self._owed[effect.effect_id] = _Due(at, self._number, effect)

    async def _perform(self, due: _Due) -> None:
        effect = due.effect
        del self._owed[effect.effect_id]
        if effect.visit is not None and effect.visit != self.run.visit.number:
            return
        handler = self._handlers.get(effect.kind)
        if handler is None:  # leases and files: there is nothing to release and nowhere to upload
            return
        owed = Owed(self.run.incident_id, effect, attempts=0, token="")
        result = await handler(EffectContext(self.run, owed, self._clock.now), effect)
        if isinstance(result, Later):
            self._owe(effect, self._clock.now + result.after_seconds)
        for event in result.events:
            self._happens(event)

    # --- people and time ------------------------------------------------------------------------------------------

    def _people_or_time(self, due: _Due | None) -> str:
        """A person presses, or time passes until something is due; else the reason why nothing can happen any more."""
        press = self._press()
        if isinstance(press, Press):
            if (press.about, press.user) in self._pressed:
                return self._notice or f"the press '{press.value or press.action}' changes nothing"
            self._pressed.add((press.about, press.user))
            self._happens(Pressed(event_id=press.press_id, press=press))
            return ""
        if press is None:
            question = self.run.open_question
            return f"nobody answers: {question.text if question else 'what waits'}"
        deadlines = sorted((at, name) for name, at in self.run.deadlines.items())
        if due is not None and (not deadlines or due.at <= deadlines[0][0]):
            self._clock.now = due.at
        elif deadlines:
            at, name = deadlines[0]
            self._clock.now = max(at, self._clock.now)
            self._happens(Due(event_id=f"due/{self.run.visit.number}/{name}", deadline=name, due_at=at))
        else:
            return "nothing happens any more, and nothing expires"
        return ""

    def _press(self) -> Press | Silence | None:
        request, question = self.run.open_request, self.run.open_question
        if question is not None:
            answer = self._met.answer(self.run)
            if answer is None or answer in ("silence", "expired"):
                return None if answer is None else "silence"
            choice, fields = (answer, {}) if isinstance(answer, str) else answer
            return self._made("choose", question.question_id, value=choice, fields=fields)
        if request is not None:
            outcome = self._outcome(self.run)
            if outcome == "expired":
                return "silence"
            if outcome.startswith("option:"):
                key = outcome.removeprefix("option:")
                return self._made("choose", request.request_id, digest=request.digest, value=key)
            action = "refuse" if outcome == "refused" else "approve"
            why = "a rehearsal" if request.needs_reason else ""
            number = len(request.presses)
            return self._made(action, request.request_id, digest=request.digest, reason=why, number=number)
        return "silence"

    def _made(self, action: str, about: str, *, number: int = 0, **more: Any) -> Press:
        # Another person each time: a person may approve only once, and some questions require a person not asked
        # before.
        user = f"{about}-{number + 1}"
        return Press.model_validate(
            {"press_id": f"press/{user}", "action": action, "about": about, "user": user, "channel": "-", **more}
        )

    # --- stubs ------------------------------------------------------------------------------------------------------

    async def _watched(self, context: EffectContext, effect: WatchSignals) -> Done | Later:
        verdict = self._met.verdict(context.run)
        if verdict:
            return await self._given_verdict(context, effect, verdict)
        result = await self._watch(context, effect)
        watch = self.run.watch
        if not isinstance(result, Later) or watch is None or not self._met.still_the_same(context.run):
            return result
        return replace(
            result, after_seconds=await self._seconds_until_decided(context.run, effect.state, result.after_seconds)
        )

    async def _seconds_until_decided(self, run: Run, state: str, every: float) -> float:
        """Returns the seconds until what is true now has been so long enough, or the time is over.

        Keeps the samples until then: all are equal.
        """
        playbook = await self._playbook_of(run)
        written, samples, watch = playbook.state(state), self._samples.of(run.visit.number), run.watch
        if not isinstance(written, WatchState) or watch is None:
            return every
        now, newest = self._clock.now, samples[-1]
        left = [
            playbook.seconds(written.broke[place].for_) - broke_seconds(samples, every, place) for place in newest.broke
        ]
        left += [playbook.seconds(written.for_) - held_seconds(samples, every)] if holds(newest) else []
        if not left:
            return max(watch.until - now, 0.0)
        if len(samples) < SAMPLES_THAT_AGREE:
            return every
        count = math.ceil(min(*left, watch.until - now) / every)
        for number in range(1, count):
            self._samples.keep(run.visit.number, replace(newest, at=now + number * every))
        return max(count, 1) * every

    async def _given_verdict(self, context: EffectContext, effect: WatchSignals, verdict: str) -> Done:
        word, _, clause = verdict.partition(":")
        readings = await self._read.readings(context.run, effect.state)
        watch = context.run.watch
        if word in ("not_held", "unknown") and watch is not None:
            self._clock.now = watch.until
        event = {
            "event_id": effect.effect_id, "effect_id": effect.effect_id, "verdict": word, "detail": "as the table says",
            "broke": int(clause or 0) if word == "broke" else None, "readings": dict(readings),
        }  # fmt: skip
        return Done((Watched.model_validate(event),))

    async def _planned(self, context: EffectContext, effect: PlanChange) -> Done:
        run, change, readings = context.run, context.run.change, {}
        if change is None:
            return Done()
        playbook = await self._playbook_of(run)
        state = playbook.state(change.state)
        if change.undo_of or not isinstance(state, ChangeState):
            result = self._proposes(run, "undo", {"of": list(change.undo_of)})
        else:
            readings = dict(await self._read.readings(run, change.state))
            arguments = arguments_of(run, playbook, state, readings)
            outcome = self._outcome(run)
            if isinstance(arguments, PlanResult):
                result = arguments
            elif outcome in ("impossible", "not_needed"):
                result = PlanResult.model_validate({"outcome": outcome, "reason": f"the table says: {outcome}"})
            else:
                result = self._proposes(
                    run, state.change, arguments, alternatives(run, state, playbook.playbook.states)
                )
        return Done((Planned(event_id=effect.effect_id, effect_id=effect.effect_id, result=result, readings=readings),))

    def _proposes(
        self, run: Run, verb: str, arguments: Mapping[str, Any], beside: Sequence[Alternative] = ()
    ) -> PlanResult:
        possible = tuple(each.key for each in beside if not each.why_not)
        self._proposed.append(Proposed(run.visit.state, verb, dict(arguments), self._clock.now, possible))
        return PlanResult(outcome="planned", plan=stub_plan(verb, arguments, run))

    def _outcome(self, run: Run) -> str:
        """The result given for a state's change does not apply to an undo that a person requests there."""
        return "done" if run.change and run.change.undo_of else self._met.change(run)

    async def _applied(self, context: EffectContext, effect: ApplyStep) -> Done:
        outcome = self._outcome(context.run)
        result = outcome if outcome in ("failed", "unclear") else "done"
        call_id = effect.call_id(context.incident_id)
        event = {
            "event_id": effect.effect_id, "effect_id": effect.effect_id, "request_id": effect.request_id,
            "step": effect.step, "call_id": call_id, "result": result,
            "detail": "as the table says", "readings": self._came_back(context.run),
        }  # fmt: skip
        return Done((StepSettled.model_validate(event),))

    def _came_back(self, run: Run) -> dict[str, Reading]:
        fields, verb = dict(self._met.came_back(run)), run.change.verb if run.change else ""
        return {verb: Reading(name=verb, fields=fields, at=self._clock(), source="the table")} if fields else {}

    async def _shown(self, context: EffectContext, effect: ShowInSlack) -> Done:
        """A message counts as shown in Slack as soon as it is wanted: requests count their time from there."""
        waiting = context.run.open_request
        if waiting is None or waiting.posted_at is not None:
            return Done()
        slot = waiting.slot
        return Done((Posted(event_id=f"posted/{slot}", slot=slot, ts="0", channel="-"),))

    async def _notified(self, context: EffectContext, effect: Any) -> Done:
        self._notice = effect.text
        return Done()
