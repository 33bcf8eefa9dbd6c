"""Random histories of presses through the real machine, the real grant and the real `ApplyCall`, all in memory.

Effects are performed in any order, twice, by two replicas step by step in turn, or not to their end; whatever reaches
the cluster is judged at once by `press_oracle`, which knows only what people did.
"""

from __future__ import annotations

import json
import random
import types
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from bot.domain.approvals.announced import PreApproved
from bot.domain.approvals.grant import Approved, Authority, Demand, Press, Request
from bot.domain.approvals.rules import ApprovalRules
from bot.domain.changes.plan import Call, Circumstance, Plan, PlanResult
from bot.domain.cluster.node_disruption import NodeDisruption
from bot.domain.incidents.effect import ApplyStep, Effect, JudgePress, PlanChange
from bot.domain.incidents.event import (
    AlertChanged,
    Commanded,
    Due,
    Event,
    Judged,
    Planned,
    Posted,
    Pressed,
    SignalsRead,
    Watched,
)
from bot.domain.incidents.machine import Decision, Rules, advance
from bot.domain.incidents.run import Run, before_start
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.signals.signal import Reading
from bot.flow.handlers.apply import ApplyCall
from bot.flow.handlers.generate import GenerateOnReplica
from bot.flow.handlers.job_result import JobResult
from bot.flow.handlers.plan import PlanHandler
from bot.flow.perform_effect import Done as Performed
from bot.flow.perform_effect import EffectContext, Later
from bot.flow.ports.cluster import Sent
from bot.flow.ports.storage import EVERYTHING, ClaimVerdict, HaltWord, Owed, RunStore
from bot.flow.snapshot_reader import SnapshotReader
from tests import builders
from tests.domain.incidents.machine.steps import BUNDLE, PLAYBOOK
from tests.fakes.restrictions import restrictions
from tests.flow.harness import RULES
from tests.flow.press_oracle import Done, Memory, as_seen, why_not

Advance = Callable[[Run, Event, Bundle, Rules], Decision]
TEAMS: Mapping[str, frozenset[str]] = {
    "ana": frozenset({"approvers", "serving"}),
    "ben": frozenset({"approvers", "serving"}),
    "lea": frozenset({"lead", "serving"}),
    "mia": frozenset({"model", "lead"}),
    "eve": frozenset(),
}
TEAMS_OF_TARGET: Mapping[str, frozenset[str]] = {
    **TEAMS,
    "ana": frozenset({"serving"}),
    "ben": frozenset({"serving"}),
    "lea": frozenset({"approvers", "lead", "serving"}),
    "eve": frozenset({"approvers"}),
}
"""Where the target has approvers of its own: Lea and Eve, in place of Ana and Ben."""
LEAD = Demand(team="lead", users=("lea", "mia"))


def _policies() -> tuple[ApprovalRules, ...]:
    serving, model = Demand(team="serving", users=("ana", "ben", "lea")), Demand(team="model", users=("mia",))
    wanted: tuple[dict[str, Any], ...] = (
        {},
        {"needs_reason": True},
        {"needed": 2},
        {"demands": (serving, LEAD)},
        {"demands": (serving, model)},
        {"demands": (serving.model_copy(update={"needed": 2}), LEAD), "expires_seconds": 300.0},
    )
    levels = [builders.policy(**fields) for fields in wanted]
    teams = {"lead": LEAD}
    every = [
        ApprovalRules(low=level, medium=level, high=level, teams=teams, escalate_to="lead", break_glass="lead")
        for level in levels
    ]
    twice = (PreApproved(change="scale", at_most=2),)
    own = builders.policy(demands=(Demand(users=("lea", "eve"), of_target="serving/*"),))
    of_target = every[0].model_copy(update={"low": own, "medium": own, "high": own})
    return (
        *every,
        every[0].model_copy(update={"pre_approved": twice}),
        every[0].model_copy(update={"of_targets": (("other/*", every[0]), ("serving/*", of_target))}),
    )


POLICIES = _policies()


@types.coroutine
def _turn() -> Generator[None, None, None]:
    """Where the other replica may come in between."""
    yield


class World:
    """A workload with a number of replicas, and a mark that the second call of each plan raises."""

    def __init__(self) -> None:
        self.values = {"/spec/replicas": 4, "/spec/mark": 0}
        self.is_worse = False
        self.is_calm = False

    def plan(self, wanted: Mapping[str, int | float]) -> PlanResult:
        if self.is_calm:
            return PlanResult(outcome="not_needed", reason="the reason is gone")
        to = int(wanted.get("replicas", self.values["/spec/replicas"] + 1))
        if to == self.values["/spec/replicas"]:
            return PlanResult(outcome="impossible", reason="it has that many")
        calls = (self._call("/spec/replicas", to), self._call("/spec/mark", self.values["/spec/mark"] + 1))
        room = Circumstance(name="room", grade="warning" if self.is_worse else "fine", text="room")
        plan = Plan(verb="scale", title=f"to {to}", choices={"to": to}, steps=calls, circumstances=(room,), risk="low")
        return PlanResult(outcome="planned", plan=plan)

    def _call(self, path: str, after: int) -> Call:
        body = [
            {"op": "test", "path": path, "value": self.values[path]},
            {"op": "replace", "path": path, "value": after},
        ]
        return builders.call(body=body, undo=(), no_undo="a test", title=f"{path} to {after}")

    def patched(self, call: Call) -> bool:
        test, replace = call.body
        if self.values[test["path"]] != test["value"]:
            return False
        self.values[test["path"]] = replace["value"]
        return True


class Claims:
    """`CallClaims` of one deployment, in memory; each method is one step, as one script is."""

    def __init__(self) -> None:
        self.claimed: set[str] = set()
        self.halted = ""

    async def was_claimed(self, incident_id: str, call_id: str) -> bool:
        await _turn()
        return call_id in self.claimed

    async def claim(
        self, incident_id: str, call_id: str, *, workload_key: str, lease_keys: Sequence[str], disruption: str,
        node: NodeDisruption | None = None, playbook: str = "", effect_id: str = "",
    ) -> ClaimVerdict:  # fmt: skip
        await _turn()
        if self.halted:
            return "halted"
        known = call_id in self.claimed
        self.claimed.add(call_id)
        return "already_claimed" if known else "claimed"

    async def hold(self, incident_id: str, lease_keys: Sequence[str]) -> None: ...

    async def breaker_open_until(self, workload_key: str, disruption: str, *, at: float) -> float:
        return 0.0

    async def reset_breakers(self, workload_key: str, *, cluster: str) -> None: ...

    async def release(self, incident_id: str, request_id: str = "") -> None: ...

    async def halted_by(self, incident_id: str) -> str:
        return self.halted

    async def halts(self) -> Mapping[str, str]:
        return {EVERYTHING: self.halted} if self.halted else {}

    async def set_halt_of_all(self, word: HaltWord, *, halts: bool) -> None:
        await self.set_halt(EVERYTHING, by=word.by if halts else "")

    async def halt_word(self) -> HaltWord:
        return HaltWord()

    async def set_halt(self, incident_id: str, *, by: str) -> None:
        self.halted = by


class Planner(PlanHandler):
    """What would be done now, from the world alone."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def plan(self, run: Run, *, at: float) -> tuple[PlanResult, Mapping[str, Reading]]:
        await _turn()
        return self._world.plan(run.change.values if run.change else {}), {}


class Writer:
    """`ClusterWriter` that asks the oracle about whatever is sent, and loses some replies."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.won: Counter[str] = Counter()

    async def send(self, approved: Approved, call: Call, *, call_id: str) -> Sent:
        await _turn()
        history = self._history
        request = history.run.requests[approved.request_id]
        if wrong := why_not(request, call, history.memory):
            history.faults.append(wrong)
        won = history.world.patched(call)
        self.won[call_id] += won
        await _turn()
        if history.rng.random() < 0.15:
            return Sent("unclear", "no answer")
        return Sent("done") if won else Sent("failed", "the value is another one")

    async def look(self, call: Call, *, call_id: str) -> Any:
        await _turn()
        return "done" if self.won[call_id] else "not_done"


@dataclass(frozen=True)
class Bugs:
    """What may be planted beside the machine."""

    world: Callable[[], World] = World
    claims: Callable[[], Claims] = Claims


NO_BUGS = Bugs()


class History:
    """One run and everybody around it; `faults` is what should never have happened."""

    def __init__(self, seed: int, *, machine: Advance = advance, bugs: Bugs = NO_BUGS) -> None:
        self.rng = random.Random(seed)
        self.rules = Rules(approvals=self.rng.choice(POLICIES))
        self.machine = machine
        self.teams = TEAMS_OF_TARGET if self.rules.approvals.of_targets else TEAMS
        permitted = sum(rule.at_most for rule in self.rules.approvals.pre_approved)
        self.memory, self.world, self.claims = Memory(pre_approved=permitted), bugs.world(), bugs.claims()
        self.faults: list[str] = []
        self.at = builders.START
        self.owed: dict[str, Effect] = {}
        self.received: set[str] = set()
        self.run = builders.run(
            playbook=PLAYBOOK.name, digest=BUNDLE.digest, visit=before_start(PLAYBOOK, at=builders.START),
            severity=self.rng.choice(["page", "page", "ticket"]),
        )  # fmt: skip
        self.number = 0
        self.writer = Writer(self)
        self.apply = self._apply_call()
        self._open()

    def _apply_call(self) -> ApplyCall:
        async def playbook_of(run: Run) -> CompiledPlaybook:
            return PLAYBOOK

        # This plan has neither waits nor generations, and holds nothing: nobody else is asked.
        return ApplyCall(
            self.writer, self.claims, cast(RunStore, self), Planner(self.world), cast(SnapshotReader, None),
            playbook_of,
            cluster="test", restrictions=restrictions(),
            job_result=cast(JobResult, None), generate=cast(GenerateOnReplica, None), grant_valid_seconds=600.0,
            approvals=RULES.approvals,
            pause=self.pause,
        )  # fmt: skip

    async def pause(self, seconds: float) -> None:
        self.at += seconds

    async def now(self) -> float:
        return self.at

    # --- the storage --------------------------------------------------------------------------------------------------

    def happens(self, event: Event) -> None:
        """Each event once by its id, stamped as it enters."""
        if event.event_id in self.received:
            return
        self.received.add(event.event_id)
        decision = self.machine(self.run, event.model_copy(update={"at": self.at}), BUNDLE, self.rules)
        self.run = decision.run.with_(version=self.run.version + 1)
        self.memory.saw_ends(self.run.requests, self.at)
        for request in self.run.requests.values():
            if request.policy.announced and request.request_id not in self.memory.announced:
                self._is_announced(request)
        self.owed |= {effect.effect_id: effect for effect in decision.effects if effect.kind in PERFORMED}
        self.owed = {name: e for name, e in self.owed.items() if e.visit is None or e.visit == self.run.visit.number}

    def _is_announced(self, request: Request) -> None:
        self.memory.announced.append(request.request_id)
        self.memory.shown[request.request_id] = (request.digest, tuple(as_seen(call) for call in request.plan.calls))
        self.memory.shown_worse[request.request_id] = any(c.grade == "warning" for c in request.plan.circumstances)

    def _id(self) -> str:
        self.number += 1
        return f"e{self.number}"

    def _open(self) -> None:
        self.happens(AlertChanged(event_id=self._id(), alert=builders.alert()))
        usage = {"usage": Reading(name="usage", value=0.95, at=self.at)}
        self.happens(SignalsRead(event_id=self._id(), effect_id=f"v{self.run.visit.number}/read", readings=usage))

    # --- what may happen ----------------------------------------------------------------------------------------------

    def play(self, steps: int) -> History:
        for _ in range(steps):
            self.at += self.rng.choice([1, 5, 20])
            self.rng.choice(DEEDS)(self)
        while self.owed and not self.faults:
            before = self.owed
            self.perform()
            if self.owed == before:
                break
        twice = [call for call, times in self.writer.won.items() if times > 1]
        self.faults += [f"{call} was applied {self.writer.won[call]} times" for call in twice]
        return self

    def goes_on(self) -> None:
        """Whatever the run waits for by itself."""
        request, change = self.run.open_request, self.run.change
        if request is not None and request.posted_at is None:
            self.shows(request)
        elif self.run.open_question is not None:
            self.answers()
        elif self.run.watch is not None:
            name = f"v{self.run.visit.number}/watch"
            self.happens(Watched(event_id=self._id(), effect_id=name, verdict="not_held"))
        elif change is not None or self.owed:
            self.perform()

    def shows(self, request: Request) -> None:
        """The message stands; the run hears of it at once, or only later."""
        name = request.request_id
        calls = tuple(as_seen(call) for call in request.plan.calls)
        self.memory.shown.setdefault(name, (request.digest, calls))
        if self.rng.random() < 0.8:
            self.happens(Posted(event_id=f"posted:{name}", slot=f"request:{name}", ts="1.1", channel="C1"))
            self.memory.posted_at.setdefault(name, self.at)

    def answers(self) -> None:
        question = self.run.open_question
        assert question is not None
        wanted = [key for key in question.choices if key in ("grow", "again", "goto:choose", "goto:grow")]
        value = self.rng.choice(wanted or list(question.choices))
        user = self.rng.choice(list(self.teams))
        press = builders.press(
            press_id=self._id(), action="choose", about=question.question_id, value=value, user=user, digest=""
        )
        self.happens(Pressed(event_id=f"press/{press.press_id}", press=press))
        self.perform()

    def presses(self, *, is_judged: bool | None = None) -> None:
        """Somebody presses something on a request, old or new; now and then on a copy or with another digest."""
        known = [self.run.requests[name] for name in self.memory.shown if name in self.run.requests]
        if not known:
            return self.goes_on()
        request = known[-1] if self.rng.random() < 0.8 else self.rng.choice(known)
        digest = request.digest if self.rng.random() < 0.9 else self.rng.choice([known[0].digest, "0ld", ""])
        is_copy = request.request_id in self.memory.posted_at and self.rng.random() < 0.07
        is_late = request.half_at is not None and self.at >= request.half_at
        actions = ACTIONS | ({"break_glass": 10} if is_late else {})
        action = self.rng.choices(list(actions), weights=list(actions.values()))[0]
        press = Press(
            press_id=self._id(),
            action=action,
            about=request.request_id,
            digest=digest,
            value=json.dumps({"replicas": str(self.rng.choice([0, 3, 5, 6]))}) if action == "edit" else "",
            reason=self.rng.choice(["", "users are cut off", "users are cut off"]),
            user=self.rng.choice(list(self.teams)),
            channel="C9" if is_copy else "C1",
        )
        self.memory.presses.append(Done(press, self.at, self.teams[press.user], is_original=not is_copy))
        for _ in range(self.rng.choice([1, 1, 2])):
            self.happens(Pressed(event_id=f"press/{press.press_id}", press=press))
        if (self.rng.random() < 0.8) if is_judged is None else is_judged:
            self.judge(JudgePress(effect_id=f"judge/{press.press_id}", press=press, pressed_at=self.at))
        return None

    def judge(self, effect: JudgePress) -> None:
        """Membership is read for the people whom the request names, as the bot does."""
        press = effect.press
        request = self.run.requests.get(press.about)
        asked = (
            [] if request is None else [each for each in request.policy.all_demands if self._is_in(press.user, each)]
        )
        teams = tuple(sorted({each.team for each in asked} if request else self.teams[press.user]))
        authority = Authority(
            allowed=bool(teams), reason="known" if teams else "a stranger", teams=teams, read_at=self.at
        )
        self.owed.pop(effect.effect_id, None)
        self.memory.judged.append(press.press_id)
        self.happens(
            Judged(event_id=f"judged/{press.press_id}", press=press, pressed_at=effect.pressed_at, authority=authority)
        )

    def _is_in(self, user: str, demand: Demand) -> bool:
        return any(user in source.users for source in demand.sources)

    def perform(self) -> None:
        """One owed effect, by one replica or by two at once."""
        if not self.owed:
            return
        effect = self.owed[self.rng.choice(list(self.owed))]
        if isinstance(effect, JudgePress):
            self.judge(effect)
        elif isinstance(effect, PlanChange):
            values = self.run.change.values if self.run.change else {}
            self.owed.pop(effect.effect_id)
            result = self.world.plan(values)
            self.happens(Planned(event_id=effect.effect_id, effect_id=effect.effect_id, result=result))
        elif isinstance(effect, ApplyStep):
            self._apply(effect)

    def _apply(self, effect: ApplyStep) -> None:
        context = EffectContext(self.run, Owed(self.run.incident_id, effect, self.rng.choice([0, 0, 3]), ""), self.at)
        replicas = self.rng.choice([1, 1, 2])
        for ended in self._in_turns([self.apply(context, effect) for _ in range(replicas)]):
            if isinstance(ended, Performed):
                self.owed.pop(effect.effect_id, None)
                for event in ended.events:
                    self.happens(event)

    def _in_turns(self, replicas: Sequence[Awaitable[Performed | Later]]) -> list[Performed | Later]:
        """Step by step in any order; now and then one dies on its way."""
        live = [cast(Coroutine[Any, Any, Performed | Later], replica) for replica in replicas]
        ended: list[Performed | Later] = []
        while live:
            replica = self.rng.choice(live)
            if self.rng.random() < 0.03:
                replica.close()
                live.remove(replica)
                continue
            try:
                replica.send(None)
            except StopIteration as stop:
                ended.append(stop.value)
                live.remove(replica)
        return ended

    def time_passes(self) -> None:
        """Long enough for deadlines; what is due is received, now or later."""
        self.at += self.rng.choice([60, 200, 460, 460, 900])
        for name, due_at in list(self.run.deadlines.items()):
            if due_at <= self.at and self.rng.random() < 0.8:
                self.happens(Due(event_id=f"due/{name}/{due_at}", deadline=name, due_at=due_at))

    def somebody_moves_the_world(self) -> None:
        match self.rng.randrange(4):
            case 0:
                self.world.values["/spec/replicas"] = self.rng.choice([3, 4, 5])
            case 1:
                self.world.is_worse = not self.world.is_worse
            case 2:
                self.world.is_calm = self.rng.random() < 0.3
            case _:
                self.alerts_change(self.rng.choice(["resolved", "firing"]))

    def alerts_change(self, status: str) -> None:
        known = next(iter(self.run.alerts.values()))
        starts_at = self.at if status == "firing" else known.starts_at.timestamp()
        self.happens(AlertChanged(event_id=self._id(), alert=builders.alert(status, starts_at=starts_at)))
        if status == "resolved" and known.status == "firing":
            self.memory.resolved_at.append(self.at)

    def alerts_resolve_before_a_press_is_judged(self) -> None:
        """The press was made for another situation."""
        if self.run.open_request is None or any(isinstance(effect, ApplyStep) for effect in self.owed.values()):
            return self.goes_on()
        self.presses(is_judged=False)
        self.at += 5
        self.alerts_change("resolved")
        self.perform()
        return None

    def somebody_halts(self) -> None:
        word = "resume" if self.claims.halted else "halt"
        self.claims.halted = "" if self.claims.halted else "ana"
        self.happens(Commanded.model_validate({"event_id": self._id(), "command": word, "user": "ana"}))


PERFORMED = frozenset({"judge_press", "plan_change", "apply_step"})
ACTIONS: dict[Any, int] = {"approve": 12, "break_glass": 1, "more_time": 2, "edit": 2, "refuse": 1}
"""With how often each is pressed; the glass more often once it may be broken."""
DEEDS: tuple[Callable[[History], None], ...] = (
    *(History.goes_on,) * 8,
    *(History.presses,) * 9,
    *(History.perform,) * 3,
    *(History.time_passes,) * 2,
    History.somebody_moves_the_world,
    History.somebody_halts,
    History.alerts_resolve_before_a_press_is_judged,
)
