"""A month of three workloads in virtual time: random trouble, people who answer, refuse or sleep, and what must hold.

The flow, the machine, the storage and the playbooks are the real ones. What is read, planned, applied and watched comes
from a seeded generator: readings from the cases of the playbooks' own test tables. `Month.faults` names what was wrong.
"""

from __future__ import annotations

import functools
import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from bot.adapters.yaml_playbooks import load_folder
from bot.domain.approvals.contacts import Contact, Contacts
from bot.domain.approvals.grant import Press
from bot.domain.changes.plan import PlanResult
from bot.domain.incidents.effect import (
    ApplyStep,
    DrawChart,
    DrawPath,
    ExportTimeline,
    JudgePress,
    Notify,
    PageTeam,
    PassOnChanges,
    PlanChange,
    ReadCalm,
    ReadSeries,
    ReadSignals,
    ReleaseLeases,
    RouteAgain,
    ShowInSlack,
    WatchSignals,
)
from bot.domain.incidents.event import CalmRead, Planned, Posted, Pressed, SignalsRead, StepSettled, Watched
from bot.domain.incidents.machine.entering import MAX_DIVERTS
from bot.domain.incidents.run import Question, Run
from bot.domain.incidents.stub_plans import stub_plan
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.form import Form, FormField
from bot.domain.kernel.target import Target
from bot.domain.kernel.timeline import first_break
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.language import ChangeState, WatchState
from bot.domain.playbooks.library import NO_LABELS, Library
from bot.domain.playbooks.testing.cases import Case, Table, given_at, reading_of, table_of
from bot.domain.signals.signal import Reading, unknown
from bot.domain.signals.specs import SignalSpec
from bot.flow.advance_run import AdvanceRun
from bot.flow.handlers.judge import JudgeHandler
from bot.flow.handlers.page import PageHandler
from bot.flow.handlers.pass_on import PassOnHandler, RouteAgainHandler
from bot.flow.handlers.plan import arguments_of
from bot.flow.perform_effect import Done, EffectContext, Later
from bot.flow.ports.people import PageCall
from bot.flow.ports.storage import AlertStore, Owed, RunStore
from bot.flow.route_alerts import RouteAlerts
from tests import builders
from tests.fakes.cluster import MemoryCluster
from tests.fakes.incident_service import KnownPeople
from tests.fakes.restrictions import restrictions
from tests.flow.harness import APPROVERS, CHANNEL, LEAD, RULES
from tests.life.memory_store import MemoryStore

PLAYBOOKS = Path(__file__).parents[2] / "playbooks"
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
REPEAT_SECONDS = 4 * HOUR
"""How often Alertmanager repeats an alert that fires, as in `deploy/alertmanager-snippet.yaml`."""
RECEIVED_WITHIN = 3 * MINUTE
"""After each notification, an alert that fires has an open incident within this time."""
CALLED_WITHIN = 35 * MINUTE
"""Somebody was paged about what waits for people in an incident that pages, within this time."""
WORKLOADS = ("llm", "chat", "code")
ALERTS = {
    "VllmKVCacheThrash": 8, "VLLMEngineDead": 3, "InferenceSLOBurnFast": 4, "GPUFatalXID": 2, "GPUThermalCritical": 1,
    "KVCompressionNoSavings": 2,
}  # fmt: skip
"""Alert name to how often it is drawn."""
CALM_READINGS: Mapping[str, Mapping[str, Any]] = {
    "kv-cache-oom": {
        "kv_usage": 0.4, "thrash": 0.0, "preempted": 0.0, "stall": False, "waiting": 0.0, "running": 5.0, "queue": 0.0,
        "arrivals": 1e6, "asked_prompt": 100.0, "asked_answer": 100.0,
    },
    "inference-slo-breach": {
        "ttft_missed": 0.0, "tpot_missed": 0.0, "ttft_p99": 0.0, "tpot_p99": 0.0, "queue": 0.0, "arrivals": 1e6,
        "asked_prompt": 100.0, "asked_answer": 100.0,
    },
    "vllm-oom-triage": {
        "restarts": {"oom": False, "crashed": False}, "rotation": {"ready": 4.0, "wanted": 4.0}, "queue": 1.0,
        "arrivals": 1e6, "asked_prompt": 100.0, "asked_answer": 100.0,
    },
    "kv-compression-no-savings": {"thrash": 0.0, "kv_usage": 0.2},
    "thermal-emergency": {"heat": {"scope": "none"}, "waiting": 0.0, "arrivals": 0.0, "ttft_p99": 0.0},
}  # fmt: skip
CONTACTS = Contacts(
    teams={
        "serving": Contact(team="serving", mentions=("S0SERVING",), has_pager=True),
        "lead": Contact(team="lead", mentions=("S0LEAD",), has_pager=True),
    }
)


@functools.cache
def library() -> Library:
    return Library(load_folder(PLAYBOOKS).playbooks)


@functools.cache
def cases() -> Mapping[str, tuple[Case, ...]]:
    """The cases of each playbook: believable readings, state by state."""
    found = {}
    for name in library().playbooks:
        written = yaml.load((PLAYBOOKS / f"{name}.test.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
        table = table_of(written if isinstance(written, dict) else {"cases": written})
        assert isinstance(table, Table), table
        found[name] = tuple(case for case in table.whole() if case.opened_by == "alert" and not case.settings)
    return found


@dataclass
class Trouble:
    """What is wrong with a workload: an alert that fires until it is cured, or until it goes away."""

    alert: Alert
    workload: str
    ends_at: float
    notified_at: float = 0.0
    cured: bool = False
    over_at: float | None = None


@dataclass(order=True)
class Due:
    at: float
    number: int
    what: Any = field(compare=False)


@dataclass
class Outcome:
    endings: Counter[str]
    presses: list[int]
    relief: list[float]
    incidents: int
    faults: list[str]

    def lines(self) -> Iterator[str]:
        yield f"{self.incidents} incidents: " + ", ".join(f"{name} {n}" for name, n in self.endings.most_common())
        if self.presses:
            yield f"presses for an incident: median {statistics.median(self.presses):.0f}, most {max(self.presses)}"
        if self.relief:
            median, most = statistics.median(self.relief), max(self.relief)
            yield f"minutes to relief by a change: median {median:.0f}, most {most:.0f}"
        yield from self.faults


class Month:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._at = builders.START
        self.store = MemoryStore(self.now)
        self.pages: list[PageCall] = []
        rules = RULES.model_copy(update={"contacts": CONTACTS})
        self.advance = AdvanceRun(cast(RunStore, self.store), _stored_bundle, rules)
        self.route = RouteAlerts(
            cast(AlertStore, self.store), cast(RunStore, self.store), _Playbooks(),
            {"test": MemoryCluster(self.now)}, restrictions=restrictions(), wake=lambda *_: None,
        )  # fmt: skip
        store = cast(Any, self.store)
        self.handlers: Mapping[type, Any] = {
            JudgePress: JudgeHandler(KnownPeople(LEAD, *APPROVERS)),
            RouteAgain: RouteAgainHandler(store),
            PassOnChanges: PassOnHandler(store),
            PageTeam: PageHandler(_Pager(self.pages), _no_links, deployment="month"),
            **_World(self).handlers(),
        }
        self.troubles: list[Trouble] = []
        """Those that are not over."""
        self.faults: list[str] = []
        self.presses: Counter[str] = Counter()
        self.relief: list[float] = []
        self._reported: set[str] = set()
        self._plans: list[Due] = []
        self._number = 0
        self._cases: dict[tuple[str, str], Case] = {}
        self._reacted: set[tuple[str, str]] = set()
        self._approved: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._waits_since: dict[tuple[str, str], float] = {}
        self._applying: dict[str, tuple[str, str]] = {}
        self._pages_seen = 0
        self._triggered: dict[str, str] = {}

    # --- the month ---------------------------------------------------------------------------------------------------

    async def play(self, days: float = 30.0) -> Outcome:
        ends = self.now() + days * DAY
        for workload in WORKLOADS:
            self._next_trouble(workload, ends)
        while self.now() < ends:
            await self._work()
            await self._go_on(ends)
        for trouble in self.troubles:
            trouble.ends_at = min(trouble.ends_at, self.now())
        self._plans = [due for due in self._plans if not isinstance(due.what, Press)]
        await self._pass(10 * DAY)
        self._all_is_over()
        return self._outcome()

    async def _pass(self, seconds: float) -> None:
        """Nobody is there any more, and nothing new happens."""
        self._is_over = True
        ends = self.now() + seconds
        while self.now() < ends:
            await self._work()
            await self._go_on(ends)

    _is_over = False

    def now(self) -> float:
        return self._at

    async def _work(self) -> None:
        """Everything that can be done at this moment."""
        for _ in range(200):
            await self._alertmanager()
            await self.route()
            incidents, effects = self._to_advance(), self._to_perform()
            if not (incidents or effects):
                return self._check()
            for name in incidents:
                await self.advance(name)
            for key in effects:
                await self._perform(*key)
        return self.fault(f"it does not come to rest: {self._to_advance()}, {self._to_perform()}")

    def _to_advance(self) -> list[str]:
        now = self.now()
        overdue = {name for name, at in self.store.next_deadlines.items() if at <= now}
        return sorted(overdue | self.store.inboxes.keys())

    def _to_perform(self) -> list[tuple[str, str]]:
        return [key for key, (at, _) in self.store.owed.items() if at <= self.now()]

    async def _perform(self, incident: str, effect_id: str) -> None:
        if (incident, effect_id) not in self.store.owed:
            return
        _, effect = self.store.owed.pop((incident, effect_id))
        context = EffectContext(self.store.runs[incident], Owed(incident, effect, attempts=0, token=""), self.now())
        result = await self.handlers[type(effect)](context, effect)
        if isinstance(result, Later):
            self.store.owed.setdefault((incident, effect_id), (self.now() + result.after_seconds, effect))
        await self.store.append(incident, result.events)

    async def _go_on(self, ends: float) -> None:
        """Let time pass until something happens: a deadline, an effect that is owed, a person, an alert."""
        times = [at for at, _ in self.store.owed.values()]
        times += self.store.next_deadlines.values()
        times += [due.at for due in self._plans[:1]]
        times += [min(one.ends_at, one.notified_at + REPEAT_SECONDS) for one in self.troubles]
        self._at = max(min([ends, *times]), self._at + 0.5)
        while self._plans and self._plans[0].at <= self.now():
            what = self._plans.pop(0).what
            await self._press(what) if isinstance(what, tuple) else what()

    def plan(self, seconds: float, what: Any) -> None:
        self._number += 1
        self._plans.append(Due(self.now() + seconds, self._number, what))
        self._plans.sort()

    def _day(self) -> str:
        return f"day {(self.now() - builders.START) / DAY:.2f}"

    # --- trouble -----------------------------------------------------------------------------------------------------

    def _next_trouble(self, workload: str, ends: float) -> None:
        after = self.rng.expovariate(1 / (20 * HOUR))
        if self.now() + after < ends:
            self.plan(after, lambda: self._begins(workload, ends))

    def _begins(self, workload: str, ends: float) -> None:
        for _ in range(1 if self.rng.random() < 0.7 else 2):
            name = self.rng.choices(list(ALERTS), weights=list(ALERTS.values()))[0]
            severity = "critical" if self.rng.random() < 0.6 else "warning"
            fingerprint = f"{workload}-{name}"
            if any(one.alert.fingerprint == fingerprint for one in self.troubles):
                continue
            alert = builders.alert(
                fingerprint=fingerprint, starts_at=self.now(), alertname=name, deployment=workload,
                severity=severity,
            )  # fmt: skip
            lasts = self.rng.expovariate(1 / (6 * HOUR))
            self.troubles.append(Trouble(alert, workload, self.now() + lasts, self.now() - DAY))
        self._next_trouble(workload, ends)

    async def _alertmanager(self) -> None:
        now = self.now()
        for one in list(self.troubles):
            if now >= one.ends_at:
                self.troubles.remove(one)
                one.over_at = now
                resolved = one.alert.model_copy(update={"status": "resolved"})
                await self.store.accept([resolved], truncated=0)
            elif now - one.notified_at >= REPEAT_SECONDS:
                one.notified_at = now
                await self.store.accept([one.alert], truncated=0)
                self.plan(RECEIVED_WITHIN, functools.partial(self._expects, one))

    def _expects(self, one: Trouble) -> None:
        self._expected.append(one)

    @functools.cached_property
    def _expected(self) -> list[Trouble]:
        """Troubles whose alert must have an open incident now."""
        return []

    def fires(self, workload: str) -> bool:
        return any(one.workload == workload for one in self.troubles)

    def cure(self, workload: str) -> None:
        """A change helps: half of the alerts end soon."""
        for one in self.troubles:
            if one.workload == workload and not one.cured and self.rng.random() < 0.5:
                one.cured = True
                one.ends_at = min(one.ends_at, self.now() + 8 * MINUTE)
                self.relief.append((self.now() - one.alert.starts_at.timestamp()) / MINUTE)

    # --- people ------------------------------------------------------------------------------------------------------

    def _look_at_slack(self, run: Run) -> None:
        """Somebody sees what waits, or sleeps."""
        about = run.question or (run.open_request.request_id if run.open_request else "")
        if not about or self._is_over or (run.incident_id, about) in self._reacted:
            return
        self._reacted.add((run.incident_id, about))
        hour = (self.now() % DAY) / HOUR
        if self.rng.random() < (0.6 if hour < 7 else 0.25):
            return
        after = self.rng.lognormvariate(1.5, 1.0) * MINUTE
        if run.open_question is not None:
            self.plan(after, self._answer(run, run.open_question))
        elif run.open_request is not None:
            action = self.rng.choices(("approve", "refuse"), weights=(8, 2))[0]
            for user in APPROVERS[: run.open_request.policy.needed if action == "approve" else 1]:
                self.plan(after, (run.incident_id, self._pressed(action, about, user, run.open_request.digest)))

    def _answer(self, run: Run, question: Question) -> tuple[str, Press]:
        choices = sorted(question.choices)
        choice = self.rng.choices(choices, weights=[1 if one in ("close", "hand_over") else 4 for one in choices])[0]
        press = self._pressed("choose", question.question_id, LEAD, "", value=choice)
        fields = _filled(question.forms.get(choice, {}))
        return run.incident_id, press.model_copy(update={"fields": fields})

    def _pressed(self, action: str, about: str, user: str, digest: str, *, value: str = "") -> Press:
        self._number += 1
        return builders.press(
            press_id=f"p{self._number}", action=action, about=about, user=user, digest=digest, value=value,
            reason="users wait", channel=CHANNEL,
        )  # fmt: skip

    async def _press(self, what: tuple[str, Press]) -> None:
        incident, press = what
        self.presses[incident] += 1
        if press.action == "approve":
            self._approved[incident, press.digest].add(press.user)
        event = Pressed(event_id=f"press/{press.press_id}", press=press)
        await self.store.append(incident, [event])

    # --- what must hold ----------------------------------------------------------------------------------------------

    def _check(self) -> None:
        runs = self.store.open_runs
        owed = {name for name, _ in self.store.owed}
        for run in runs:
            self._look_at_slack(run)
            self._has_a_next_step(run, owed)
            self._is_the_most_urgent(run)
            self._people_are_called(run)
        for one in self._expected:
            if one.over_at is None and not any(_has(run, one) for run in self.store.runs.values()):
                self.fault(f"nobody works on {one.alert.name} of {one.workload}")
        self._expected.clear()
        self._pages_are_right()

    def fault(self, what: str) -> None:
        """Each kind of fault is reported once, with the day on which it was seen first."""
        if what not in self._reported:
            self._reported.add(what)
            self.faults.append(f"{self._day()}: {what}")

    def _has_a_next_step(self, run: Run, owed: set[str]) -> None:
        if not run.deadlines and run.incident_id not in owed:
            self.fault(f"{run.incident_id} has no next step in {run.playbook}/{run.visit.machine_state}")
        if run.parked is None and run.severity == "page" and (run.open_question or run.open_request):
            return
        if run.question == "" and run.open_request is None and run.incident_id not in owed:
            self.fault(f"{run.incident_id} waits for nothing in {run.playbook}/{run.visit.machine_state}")

    def _is_the_most_urgent(self, run: Run) -> None:
        is_begun = run.change is not None and run.change.begun
        if run.parked is not None or is_begun or run.frames or run.diverts >= MAX_DIVERTS:
            return
        here = library().playbooks[run.playbook].playbook.priority
        firing = [alert for alert in run.alerts.values() if alert.status == "firing"]
        wanted = [library().match(alert.labels)[0] for alert in firing]
        late = [one.name for one in wanted if one.playbook.priority > here and one.name in run.offers]
        if late:
            self.fault(f"{run.incident_id} is in {run.playbook} although {late} is more urgent")

    def _people_are_called(self, run: Run) -> None:
        about = run.question or (run.open_request.request_id if run.open_request else "")
        if not about or run.severity != "page" or run.parked is not None:
            return
        since = self._waits_since.setdefault((run.incident_id, about), self.now())
        if self.now() - since > CALLED_WITHIN and not run.pages:
            self.fault(f"{run.incident_id} waits for {about} since {self.now() - since:.0f} s and paged nobody")

    def _pages_are_right(self) -> None:
        for call in self.pages[self._pages_seen :]:
            before = self._triggered.get(call.key)
            if call.action == "trigger" and before in ("trigger", "acknowledge"):
                self.fault(f"{call.key} was paged twice")
            self._triggered[call.key] = call.action
        self._pages_seen = len(self.pages)

    def begins_to_apply(self, run: Run, effect: ApplyStep) -> None:
        request, key = run.requests[effect.request_id], run.target.key
        users = self._approved[run.incident_id, request.digest]
        if not request.policy.announced and len(users) < request.policy.needed:
            self.fault(f"{run.incident_id}/{effect.request_id} is applied, approved by {sorted(users)} only")
        if run.parked is not None:
            self.fault(f"{run.incident_id} changes something while it is parked")
        mine = (run.incident_id, effect.request_id)
        if self._applying.get(key, mine) != mine:
            self.fault(f"{mine} and {self._applying[key]} change {run.target} at once")
        self._applying[key] = mine

    def ends_to_apply(self, run: Run) -> None:
        self._applying.pop(run.target.key, None)

    def _all_is_over(self) -> None:
        for name, run in self.store.runs.items():
            if run.is_open and run.parked is None:
                self.fault(f"{name} never came to an end: {run.playbook}/{run.visit.machine_state}")
            if not run.is_open and any(page.wanted != "resolve" for page in run.pages.values()):
                self.fault(f"{name} is closed and still calls people")
            if broken := first_break(self.store.entries[name]):
                self.fault(f"the timeline of {name} is broken at {broken}")

    def _outcome(self) -> Outcome:
        runs = self.store.runs.values()
        endings = Counter(run.ending or "parked" for run in runs)
        presses = [self.presses[run.incident_id] for run in runs]
        return Outcome(endings, presses, self.relief, len(runs), self.faults)


def _has(run: Run, one: Trouble) -> bool:
    """Whether the incident works on the alert, or came to an end after it was notified last."""
    known = run.alerts.get(one.alert.fingerprint)
    is_at_work = run.closed_at is None or run.closed_at >= one.notified_at
    return run.target.name == one.workload and known is not None and known.status == "firing" and is_at_work


def _filled(form: Form) -> dict[str, float | str]:
    def value(spec: FormField) -> float | str:
        if spec.kind == "number":
            return float(spec.min if spec.min is not None else spec.max if spec.max is not None else 1)
        return str(next(iter(spec.options), "x"))

    return {name: value(spec) for name, spec in form.items() if not spec.optional}


class _Playbooks:
    """The shipped playbooks with one SLO for all workloads, so that each is compiled once."""

    def match(self, labels: Mapping[str, str]) -> Sequence[CompiledPlaybook]:
        return library().match(labels)

    def bundle(self, name: str, target: Target, labels: Mapping[str, str] = NO_LABELS) -> Bundle | None:
        return _bundle(name)


class _Pager:
    """Accepts every call."""

    def __init__(self, sent: list[PageCall]) -> None:
        self._sent = sent

    async def send(self, team: str, call: PageCall) -> str:
        self._sent.append(call)
        return "PagerDuty"


async def _no_links(incident_id: str) -> Mapping[str, str]:
    return {}


def _stored_bundle(stored: Mapping[str, str]) -> Bundle:
    return _bundle(stored["entry"])


@functools.cache
def _bundle(entry: str) -> Bundle:
    return Bundle.of(library().playbooks[entry], library().playbooks)


class _World:
    """What the bot reads, plans, applies and watches; the handlers of everything else are the real ones."""

    def __init__(self, month: Month) -> None:
        self._month, self._rng = month, month.rng
        self._began: dict[str, float] = {}

    def handlers(self) -> dict[type, Any]:
        own: dict[type, Any] = {
            ReadSignals: self._read, ReadCalm: self._calm, PlanChange: self._plan, ApplyStep: self._apply,
            WatchSignals: self._watch, ShowInSlack: self._show,
        }  # fmt: skip
        nothing = (Notify, ReleaseLeases, ExportTimeline, DrawPath, ReadSeries, DrawChart)
        return own | dict.fromkeys(nothing, self._nothing)

    def _playbook(self, run: Run) -> CompiledPlaybook:
        return library().playbooks[run.playbook]

    def _readings(self, run: Run, wanted: Mapping[str, SignalSpec]) -> dict[str, Reading]:
        key = (run.incident_id, run.playbook)
        if key not in self._month._cases or self._rng.random() < 0.05:
            self._month._cases[key] = self._rng.choice(cases()[run.playbook])
        case = self._month._cases[key]
        given = given_at(case, run.visit.state, max(run.findings.path.count(run.visit.state), 1))
        at = self._month.now()
        return {
            name: unknown(name, "no answer", at=at)
            if self._rng.random() < 0.02
            else reading_of(name, spec, given.get(name), at=at)
            for name, spec in wanted.items()
        }

    async def _read(self, context: EffectContext, effect: ReadSignals) -> Done:
        run = context.run
        readings = self._readings(run, self._playbook(run).wanted(effect.state))
        return Done((SignalsRead(event_id=effect.effect_id, effect_id=effect.effect_id, readings=readings),))

    async def _calm(self, context: EffectContext, effect: ReadCalm) -> Done:
        run, wanted = context.run, self._playbook(context.run).wanted_for_calm
        if self._month.fires(run.target.name):
            readings = self._readings(run, wanted)
        else:
            given, at = CALM_READINGS[run.playbook], self._month.now()
            readings = {name: reading_of(name, spec, given.get(name), at=at) for name, spec in wanted.items()}
        return Done((CalmRead(event_id=effect.effect_id, effect_id=effect.effect_id, readings=readings),))

    async def _plan(self, context: EffectContext, effect: PlanChange) -> Done:
        run, change = context.run, context.run.change
        if change is None:
            return Done()
        state = self._playbook(run).playbook.states.get(change.state)
        readings: dict[str, Reading] = {}
        verb, arguments = "undo", cast(dict[str, Any], {"of": list(change.undo_of)})
        outcome = "planned"
        if isinstance(state, ChangeState) and not change.undo_of:
            readings = self._readings(run, self._playbook(run).wanted(change.state))
            found = arguments_of(run, self._playbook(run), state, readings)
            verb = state.change
            if isinstance(found, PlanResult):
                return self._planned(effect, found, readings)
            arguments = dict(found)
            outcome = self._rng.choices(("planned", "impossible", "not_needed", "failed"), weights=(85, 8, 4, 3))[0]
        if outcome != "planned":
            result = PlanResult.model_validate({"outcome": outcome, "reason": "the month says so"})
            return self._planned(effect, result, readings)
        plan = stub_plan(verb, arguments, run)
        steps = plan.steps * self._rng.choice((1, 1, 2))
        plan = plan.model_copy(update={"steps": steps})
        return self._planned(effect, PlanResult(outcome="planned", plan=plan), readings)

    def _planned(self, effect: PlanChange, result: PlanResult, readings: Mapping[str, Reading]) -> Done:
        event = Planned(event_id=effect.effect_id, effect_id=effect.effect_id, result=result, readings=dict(readings))
        return Done((event,))

    async def _apply(self, context: EffectContext, effect: ApplyStep) -> Done | Later:
        run, now = context.run, self._month.now()
        key = f"{run.incident_id}/{effect.effect_id}"
        if key not in self._began:
            self._month.begins_to_apply(run, effect)
            self._began[key] = now + self._rng.uniform(20, 900)
        if now < self._began[key]:
            return Later(self._began[key] - now)
        result = self._rng.choices(("done", "failed", "unclear"), weights=(88, 9, 3))[0]
        self._month.ends_to_apply(run)
        if result == "done":
            self._month.cure(run.target.name)
        event = StepSettled(
            event_id=effect.effect_id, effect_id=effect.effect_id, request_id=effect.request_id, step=effect.step,
            call_id=f"{run.incident_id}/{effect.request_id}/{effect.step}", result=cast(Any, result),
            detail="the month says so",
        )  # fmt: skip
        return Done((event,))

    async def _watch(self, context: EffectContext, effect: WatchSignals) -> Done | Later:
        run, now, playbook = context.run, self._month.now(), self._playbook(context.run)
        state = playbook.state(effect.state)
        if not isinstance(state, WatchState) or run.watch is None:
            return Done()
        key = f"{run.incident_id}/{effect.effect_id}"
        least, most = playbook.seconds(state.for_), playbook.seconds(state.within)
        ends = self._began.setdefault(key, now + self._rng.uniform(least, min(most, max(least, 2 * HOUR))))
        if now < ends:
            return Later(ends - now)
        good = "not_held" if self._month.fires(run.target.name) else "held"
        verdict = self._rng.choices((good, "held", "not_held", "unknown", "broke"), weights=(6, 1, 1, 1, 1))[0]
        if verdict == "broke" and not state.broke:
            verdict = good
        event = {
            "event_id": effect.effect_id, "effect_id": effect.effect_id, "verdict": verdict, "detail": "the month",
            "broke": self._rng.randrange(len(state.broke)) if verdict == "broke" else None,
            "readings": self._readings(run, playbook.wanted(effect.state)),
        }  # fmt: skip
        return Done((Watched.model_validate(event),))

    async def _show(self, context: EffectContext, effect: ShowInSlack) -> Done:
        run = context.run
        waiting = [f"question:{run.question}"] if run.question else []
        waiting += [f"request:{run.open_request.request_id}"] if run.open_request else []
        slots = [slot for slot in waiting if slot not in run.in_slack.places]
        return Done(tuple(Posted(event_id=f"posted/{slot}", slot=slot, ts="1.1", channel=CHANNEL) for slot in slots))

    async def _nothing(self, context: EffectContext, effect: Any) -> Done:
        return Done()


async def a_month(seed: int, *, days: float = 30.0) -> Outcome:
    return await Month(seed).play(days)
