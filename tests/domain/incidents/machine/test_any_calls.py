"""Any history of alerts, presses, deadlines, downtimes and outages: people are called, and once for each reason.

The machine and the handler that pages are real. Effects are performed late, or by a process that still has the run as
it was; Slack accepts nothing for a while; pagers refuse, lose answers, or are not reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Literal

import pytest
from hypothesis import event as covers
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bot.adapters.yaml_playbooks import load_text
from bot.domain.approvals.advice import OBSERVE_ONLY, OnlyAdvice
from bot.domain.approvals.contacts import Contact, Contacts
from bot.domain.approvals.grant import Request
from bot.domain.changes.plan import PlanResult
from bot.domain.incidents.effect import Effect, PageTeam, PlanChange, ReadSignals, WatchAdvice, WatchSignals
from bot.domain.incidents.event import (
    AdviceWatched,
    AlertChanged,
    Commanded,
    Due,
    EffectFailed,
    Event,
    Planned,
    Posted,
)
from bot.domain.incidents.machine import Decision, set_aside, without_playbook
from bot.domain.incidents.run import Page, Run, Severity
from bot.domain.kernel.errors import PagerError
from bot.domain.playbooks.bundle import Bundle
from bot.flow.handlers.page import PageHandler
from bot.flow.perform_effect import Done, EffectContext
from bot.flow.ports.people import PageCall
from bot.flow.ports.storage import Owed
from tests import builders
from tests.domain.incidents.machine.steps import Story
from tests.domain.incidents.machine.test_calling import HALL

pytestmark = pytest.mark.fast
MINUTE = 60.0
BUNDLE = Bundle.of(
    load_text(HALL.replace("{default: 60s, why: a test}", "{default: 20m, why: a test}"), file="small.yaml")
)
Answer = Literal["accepted", "not_reached", "lost", "refused"]
answers = st.sampled_from(["accepted", "accepted", "accepted", "not_reached", "lost", "refused"])


def team(name: str) -> st.SearchStrategy[Contact]:
    mentions = (f"S0{name.upper()}",)
    return st.sampled_from([Contact(team=name, mentions=mentions, has_pager=each) for each in (True, True, False)])


class Pager:
    """Deduplicates by key, as the real ones do."""

    def __init__(self) -> None:
        self.answer: Answer = "accepted"
        self.calls: list[PageCall] = []

    async def send(self, team: str, call: PageCall) -> str:
        if self.answer in ("accepted", "lost"):
            self.calls.append(call)
        if self.answer != "accepted":
            raise PagerError(f"it {self.answer}", lasting=self.answer == "refused")
        return "PagerDuty"


async def no_links(incident_id: str) -> Mapping[str, str]:
    return {}


def ended(work: Coroutine[Any, Any, Any]) -> Any:
    """The outcome of what waits for nothing."""
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits for something")


def waits_for(run: Run) -> list[str]:
    """What only a person moves on, as the deadlines name it."""
    found = [f"question:{run.open_question.question_id}"] if run.open_question else []
    requests: list[Request | None] = [run.open_request, run.advised]
    return [*found, *(f"request:{each.request_id}" for each in requests if each and not each.carried_out)]


class Calls(RuleBasedStateMachine):
    @initialize(
        on_call=team("serving"),
        lead=st.none() | team("lead"),
        facilities=st.none() | team("facilities"),
        severity=st.sampled_from(["page", "page", "ticket", "info"]),
        advice=st.sampled_from([None, None, OBSERVE_ONLY]),
    )
    def opens(
        self, on_call: Contact, lead: Contact | None, facilities: Contact | None, severity: Severity,
        advice: OnlyAdvice | None,
    ) -> None:  # fmt: skip
        self.story, self.pager, self.advice = Story(BUNDLE), Pager(), advice
        self.owed: dict[str, tuple[Effect, int]] = {}
        self.versions: list[Run] = []
        self.slack_is_up, self.is_stranded = True, False
        teams = {each.team: each for each in (on_call, lead, facilities) if each is not None}
        self.story.rules = self.story.rules.model_copy(update={"contacts": Contacts(teams=teams)})
        found = None if severity == "page" else severity
        self.story.run = self.story.run.with_(severity=severity, severity_found=found)
        self.handler = PageHandler(self.pager, no_links, deployment="bot")
        self.alert("f1", severity="critical" if severity == "page" else "warning")

    # --- the flow -----------------------------------------------------------------------------------------------------

    @property
    def run(self) -> Run:
        return self.story.run

    def receive(self, event: Event) -> None:
        if self.is_stranded:
            self.story.at += 10
            stamped = event.model_copy(update={"at": self.story.at})
            self.took(without_playbook(self.run, stamped, "no such file", self.story.rules))
        else:
            self.story.happens(event)
            self.took(self.story.last)

    def took(self, decision: Decision) -> None:
        self.story.run = decision.run.with_(version=self.run.version + 1 if self.versions else 1)
        self.versions.append(self.run)
        self.check_new_pages(decision)
        for effect in decision.effects:
            self.owed[effect.effect_id] = (effect, self.run.version)
        live = {name: each for name, each in self.owed.items() if each[0].visit in (None, self.run.visit.number)}
        self.owed = live

    def alert(self, fingerprint: str, status: Any = "firing", **fields: Any) -> None:
        made = builders.alert(status, fingerprint=fingerprint, starts_at=self.story.at, **fields)
        self.receive(AlertChanged(event_id=self.story.id(), alert=made))

    def check_new_pages(self, decision: Decision) -> None:
        """A team is called anew only after somebody answered, or the earlier call has ended."""
        before = self.versions[-2].pages if len(self.versions) > 1 else {}
        for page in decision.run.pages.values():
            if page.name in before:
                continue
            earlier = [each for name, each in decision.run.pages.items() if each.team == page.team and name in before]
            assert not earlier or earlier[-1].wanted != "trigger", f"{page.team} is being called already"
            # Each call of another team that could not be sent is a reason of its own.
            if "could not be paged" not in page.text:
                assert not [each for each in earlier if each.wanted != "resolve" and each.text == page.text]

    # --- what happens -------------------------------------------------------------------------------------------------

    @rule(fingerprint=st.sampled_from(["f1", "f2"]), severity=st.sampled_from(["critical", "warning"]))
    @precondition(lambda self: self.run.parked is None)
    def an_alert_fires(self, fingerprint: str, severity: str) -> None:
        self.alert(fingerprint, severity=severity)

    @rule(fingerprint=st.sampled_from(["f1", "f2"]))
    @precondition(lambda self: len(self.run.alerts) > 0)
    def an_alert_resolves(self, fingerprint: str) -> None:
        if (known := self.run.alerts.get(fingerprint)) is not None:
            resolved = known.model_copy(update={"status": "resolved"})
            self.receive(AlertChanged(event_id=self.story.id(), alert=resolved))

    @rule(usage=st.sampled_from([0.95, 0.95, 0.5, None]), verdict=st.sampled_from(["held", "not_held", "unknown"]))
    def the_bot_goes_on(self, usage: float | None, verdict: str) -> None:
        """Performs what the state needs."""
        self.a_page_is_sent("accepted", is_late=False)
        effects = [effect for effect, _ in self.owed.values()]
        for effect in effects:
            if isinstance(effect, ReadSignals):
                self.performed(effect, partial(self.story.reads, usage))
            elif isinstance(effect, PlanChange):
                self.performed(effect, partial(self.plans, effect.effect_id))
            elif isinstance(effect, WatchSignals):
                self.performed(effect, partial(self.story.watched, verdict))
            elif effect.kind == "apply_step" and self.run.change is not None and self.run.change.begun:
                self.performed(effect, self.story.settles)

    @rule()
    def the_trouble_goes_on(self) -> None:
        """Most often: twice, so that what it needs is read, and whoever is needed is called."""
        self.the_bot_goes_on(0.95, "not_held")
        self.the_bot_goes_on(0.95, "not_held")

    @rule(by=st.sampled_from(["alert", "hand"]))
    def it_closes_and_comes_back(self, by: str) -> None:
        self.somebody_says("resolve")
        self.a_page_is_sent("accepted", is_late=False)
        if by == "alert":
            self.alert("f1", severity="critical")
        else:
            self.somebody_says("reopen")

    def performed(self, effect: Effect, story: Callable[[], object]) -> None:
        self.owed.pop(effect.effect_id)
        if not self.is_stranded:
            story()
            self.took(self.story.last)

    def plans(self, effect_id: str) -> None:
        result = PlanResult(outcome="planned", plan=builders.plan())
        self.story.happens(
            Planned(event_id=self.story.id(), effect_id=effect_id, result=result, only_advice=self.advice)
        )

    @rule(lifted=st.booleans())
    @precondition(lambda self: self.run.advised is not None and not self.is_stranded)
    def the_advice_is_watched(self, lifted: bool) -> None:
        effect = next(each for each, _ in self.owed.values() if isinstance(each, WatchAdvice))
        self.advice = None if lifted else self.advice
        fields = {"event_id": self.story.id(), "effect_id": effect.effect_id, "request_id": effect.request_id}
        del self.owed[effect.effect_id]
        self.receive(AdviceWatched.model_validate(fields | {"result": "lifted" if lifted else "not_recovered"}))

    @rule()
    def slack_fails_or_comes_back(self) -> None:
        self.slack_is_up = not self.slack_is_up

    @rule()
    @precondition(lambda self: self.slack_is_up)
    def slack_shows_what_waits(self) -> None:
        for slot in waits_for(self.run):
            self.receive(Posted(event_id=self.story.id(), slot=slot, ts="1.1", channel="C1"))

    @rule(answer=answers, is_late=st.booleans())
    def a_page_is_sent(self, answer: Answer, *, is_late: bool) -> None:
        """`is_late`: by a process that took it before the last decision."""
        pages = [effect for effect, _ in self.owed.values() if isinstance(effect, PageTeam)]
        for effect in pages:
            owed_by = self.owed[effect.effect_id][1]
            run = (
                self.versions[-2]
                if is_late and len(self.versions) > 1 and effect.page in self.versions[-2].pages
                else self.run
            )
            self.pager.answer = answer
            context = EffectContext(run, Owed(run.incident_id, effect, 0, ""), self.story.at)
            outcome = ended(self.handler(context, effect))
            for each in outcome.events:
                self.receive(each)
            if isinstance(outcome, Done) and owed_by <= run.version and self.owed[effect.effect_id][1] == owed_by:
                del self.owed[effect.effect_id]

    @rule()
    def a_page_fails_in_the_bot(self) -> None:
        for effect in [each for each, _ in self.owed.values() if isinstance(each, PageTeam)][:1]:
            del self.owed[effect.effect_id]
            reason = "InvalidURL: no port"
            self.receive(
                EffectFailed(
                    event_id=self.story.id(), effect_id=effect.effect_id, effect_kind="page_team", reason=reason
                )
            )

    @rule(minutes=st.sampled_from([1, 6, 12, 25, 45, 24 * 60]))
    def time_passes_or_the_bot_is_down(self, minutes: int) -> None:
        self.story.at += minutes * MINUTE
        due = sorted(self.run.deadlines.items(), key=lambda each: each[1])
        for name, at in due:
            if at <= self.story.at:
                self.receive(Due(event_id=self.story.id(), deadline=name, due_at=at))

    # --- people -------------------------------------------------------------------------------------------------------

    @rule(choice=st.integers(0, 9), allowed=st.booleans(), user=st.sampled_from(["ana", "ben"]))
    @precondition(lambda self: self.slack_is_up and not self.is_stranded and self.run.open_question is not None)
    def somebody_answers(self, choice: int, allowed: bool, user: str) -> None:
        question = self.run.open_question
        assert question is not None
        choices = list(question.choices)
        self.story.chooses(choices[choice % len(choices)], allowed=allowed, user=user)
        for _, _, decision in self.story.happened[-2:]:
            self.took(decision)

    @rule(action=st.sampled_from(["approve", "refuse", "carried_out", "more_time"]), allowed=st.booleans())
    @precondition(lambda self: self.slack_is_up and not self.is_stranded and bool(self.run.requests))
    def somebody_presses(self, action: str, allowed: bool) -> None:
        self.story.presses(action, allowed=allowed)
        for _, _, decision in self.story.happened[-2:]:
            self.took(decision)

    @rule(
        command=st.sampled_from(
            ["lead", "note", "handover", "halt", "resume", "status", "resolve", "reopen", "undo", "freeze"]
        )
    )
    def somebody_says(self, command: str) -> None:
        fields = {"event_id": self.story.id(), "command": command, "user": "ana", "text": "so"}
        self.receive(Commanded.model_validate(fields))

    @rule()
    @precondition(lambda self: len(self.versions) > 10)
    def the_playbook_is_gone(self) -> None:
        self.is_stranded = True

    @rule()
    @precondition(lambda self: not self.is_stranded)
    def an_event_is_set_aside(self) -> None:
        self.story.at += 10
        event = Due(event_id=self.story.id(), deadline="x", due_at=0.0, at=self.story.at)
        self.took(set_aside(self.run, event, "KeyError", BUNDLE, self.story.rules))

    # --- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def whoever_is_needed_is_being_called(self) -> None:
        run = getattr(self, "story", None) and self.run
        if not run or not run.is_open or run.severity != "page" or run.parked is not None or run.lead:
            return
        for slot in waits_for(run):
            covers(f"waits for {slot.partition(':')[0]}")
            pages = list(run.pages.values())
            is_being_called = any(each.wanted == "trigger" and self.is_on_its_way(each) for each in pages)
            is_answered = any(each.wanted == "acknowledge" for each in pages)
            first = next(post.at for post in run.posts if post.slot == slot)
            is_mentioned = any(post.data.get("mentions") for post in run.posts if post.at >= first)
            # Advice waits for nothing more once the lead was called and somebody answered.
            goes_on = (
                self.is_stranded
                or bool(run.advised)
                or any(f"{slot}:{each}" in run.deadlines for each in ("expiry", "unanswered", "unposted"))
            )
            is_called = is_being_called or (is_answered and goes_on) or (not self.on_call_has_pager and is_mentioned)
            assert is_called, (slot, pages, run.deadlines)

    @property
    def on_call_has_pager(self) -> bool:
        return self.story.rules.contacts.on_call_for(self.run.target).has_pager

    def is_on_its_way(self, page: Page) -> bool:
        return page.sent == "trigger" or f"page/{page.name}" in self.owed or bool(page.error)

    @invariant()
    def nobody_is_called_twice(self) -> None:
        if not getattr(self, "story", None):
            return
        rang: Counter[str] = Counter()
        ended_keys: set[str] = set()
        for call in self.pager.calls:
            if call.action == "trigger":
                rang[call.key] += call.key in ended_keys
            else:
                ended_keys.add(call.key)
        assert not +rang, "a pager rings again for what was answered"

    @invariant()
    def a_closed_incident_calls_nobody(self) -> None:
        if getattr(self, "story", None) and not self.run.is_open:
            assert {page.wanted for page in self.run.pages.values()} <= {"resolve"}


TestCalls = Calls.TestCase
TestCalls.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
