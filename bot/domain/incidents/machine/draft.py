"""A decision in progress: the next run, its timeline entries and its effects. Lives for one `advance`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from bot.domain.approvals.contacts import Contacts
from bot.domain.approvals.grant import Press, Request, RequestStatus
from bot.domain.approvals.rules import ApprovalRules
from bot.domain.incidents.effect import Effect, Notify, ShowInSlack
from bot.domain.incidents.named_values import ScopeValues, units_of
from bot.domain.incidents.run import NEXT_STATUS, PARKED_REMINDER, SILENCE_ENDS, Looked, Post, PostKind, Question, Run
from bot.domain.kernel.copies import copy_with
from bot.domain.kernel.links import Dashboards
from bot.domain.kernel.redaction import redacted, redacted_data
from bot.domain.kernel.timeline import Entry, EntryKind
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.language import ChangeState, RecommendState

SHOW = ShowInSlack(effect_id="show")
"""One per incident: showing updates everything, so a second pending one adds nothing."""


UNSEEN = {
    "ignored", "version", "counter", "deadlines", "calm_since", "looked", "users_at", "in_slack",
}  # fmt: skip
SHOWN = tuple(Run.model_fields.keys() - UNSEEN)
"""The fields of a run that people see in Slack."""
NEVER_LEFT_OUT: frozenset[PostKind] = frozenset({"request", "question", "closed"})
"""They also bring people what happened since they were last addressed."""
NO_TROUBLE = "no trouble found"
"""The diagnosis of an incident that ends before it has one, if each check ruled out what it looked for."""
MAX_DECISIONS = 60
"""Decisions on readings that the details of one message list, at most."""
THREAD_IS_FULL = "the thread is full: only requests and questions still appear here; the rest is on the timeline"


class Rules(BaseModel):
    """A deployment's settings for every run."""

    model_config = ConfigDict(frozen=True)

    approvals: ApprovalRules
    contacts: Contacts = Contacts()
    dashboards: Dashboards = Dashboards()
    replans_at_most: int = 5
    keeps_messages_at_most: int = 200
    status_every_seconds: float = 1800.0
    """How long a paging incident may go without a status update; 0: forever."""
    watches_advice_seconds: float = 4 * 3600.0
    """How long a run watches whether its trouble ends after a change was only advised."""
    stores_reports: bool = False
    """Whether the report of each closed incident is kept outside."""
    parks_after_seconds: float = 1800.0
    """How long a question without an expiry may be unanswered before the incident is parked."""


@dataclass(frozen=True)
class Decision:
    run: Run
    entries: tuple[Entry, ...] = ()
    effects: tuple[Effect, ...] = ()


class Draft:
    def __init__(self, run: Run, bundle: Bundle, rules: Rules, at: float, *, other: str = "") -> None:
        """`other`: the incident that has the target's slot, for a parked or closed run; empty if the slot is free."""
        self.run, self.bundle, self.rules, self.at, self.other = run, bundle, rules, at, other
        self._before = run
        self.names: Mapping[str, str] = {}
        """The name of the person whose command is decided, by id: reports outside Slack show it."""
        self._entries: list[Entry] = []
        self._effects: list[Effect] = []

    @property
    def playbook(self) -> CompiledPlaybook:
        """The run's current playbook."""
        return self.bundle.playbooks[self.run.playbook]

    @property
    def approvals(self) -> ApprovalRules:
        """Who approves changes of the run's target."""
        return self.rules.approvals.for_target(self.run.target)

    def text(self, key: str) -> str:
        """Returns a text of the current state with current readings filled in: `ask`, `why`, `expected` or `say`."""
        values = ScopeValues(self.run, self.run.visit.readings)
        return self.playbook.text(self.run.visit.state, key, values, units_of(self.run.latest))

    def option(self, name: str) -> str:
        """Returns what its recommendation called this change; empty for a change that is no option."""
        of = self.recommended_by(name)
        recommendation = self.playbook.playbook.states.get(of)
        if not isinstance(recommendation, RecommendState):
            return ""
        key = next(
            (key for key, each in recommendation.options.items() if name in (each.to, f"{each.to}_in_place")), ""
        )
        return next((each.label for each in self.run.findings.options.get(of, ()) if each.key == key), "")

    def recommended_by(self, name: str) -> str:
        """Returns the state that recommends this change; empty for a change that is no option."""
        state = self.playbook.playbook.states.get(name)
        return state.option_of if isinstance(state, ChangeState) else ""

    def set(self, **changes: Any) -> None:
        self.run = self.run.with_(**changes)

    def keep_request(self, request: Request, **changes: Any) -> Request:
        """Store the request with these fields replaced, and return it."""
        kept = request.model_copy(update=changes)
        self.set(requests=self.run.requests | {kept.request_id: kept})
        return kept

    def end_request(self, request: Request, status: RequestStatus, reason: str = "", **changes: Any) -> Request:
        """Store the request as one that waits for people no more, and return it."""
        self.clear_deadlines(request.slot)
        return self.keep_request(request, status=status, decision_reason=redacted(reason), **changes)

    def keep_question(self, question: Question, **changes: Any) -> Question:
        """Store the question with these fields replaced, and return it."""
        kept = question.model_copy(update=changes)
        self.set(questions=self.run.questions | {kept.question_id: kept})
        return kept

    def drop_change(self) -> None:
        """No change is under way any more; the state waits for what people say."""
        self.set(change=None)
        self.clear_deadlines("change")
        if self.run.playbook in self.bundle.playbooks:  # without its playbook a run enters no state again
            self.visit(machine_state=self.playbook.machine.entry(self.run.visit.state))

    def visit(self, **changes: Any) -> None:
        self.set(visit=copy_with(self.run.visit, **changes))

    def in_slack(self, **changes: Any) -> None:
        self.set(in_slack=copy_with(self.run.in_slack, **changes))

    def leave_state(self) -> None:
        """Void what the current visit waits for, and every effect of it that is still owed."""
        self.set(change=None, watch=None, question="")
        self.visit(number=self.run.visit.number + 1)

    def learn(self, **findings: Any) -> None:
        self.set(findings=copy_with(self.run.findings, **findings))

    def record(
        self, kind: EntryKind, text: str, *, who: str = "", data: dict[str, Any] | None = None, at: float | None = None
    ) -> None:
        """Record a copy without secrets; the run keeps the exact plan. `at`: when it happened, if earlier."""
        data = {**(data or {}), "user": who, "user_name": self.names[who]} if who in self.names else data
        known = redacted_data(data or {})
        entry = Entry(
            kind=kind,
            at=self.at if at is None else at,
            text=redacted(text),
            who=who,
            state=self.run.visit.state,
            data=known,
        )
        self._entries.append(entry)

    def ignore(self, what: str) -> None:
        """Record an unexpected event on the timeline; identical ones are folded into a count."""
        if what not in self.run.ignored:
            self.record("ignored", what)
        self.set(ignored=self.run.ignored | {what: self.run.ignored.get(what, 0) + 1})

    def fold(self, kind: EntryKind, text: str, *, who: str) -> None:
        """Record a person's attempt on the timeline; repeats by the same person are only counted."""
        what = f"{who}: {text}"
        if what not in self.run.ignored:
            self.record(kind, text, who=who)
        self.set(ignored=self.run.ignored | {what: self.run.ignored.get(what, 0) + 1})

    def want(self, effect: Effect) -> None:
        self._effects.append(effect)

    def notify(self, press: Press, text: str) -> None:
        """Send one person an ephemeral answer."""
        effect_id = f"notify/{press.press_id}/{len(self._effects)}"
        self.want(
            Notify(
                effect_id=effect_id,
                user=press.user,
                channel=press.channel,
                text=text,
                response_url=press.response_url,
            )
        )

    def number(self) -> int:
        """Returns the next number for a request, question or note of this incident."""
        self.set(counter=self.run.counter + 1)
        return self.run.counter

    def post(self, kind: PostKind, slot: str, ref: str, data: dict[str, Any] | None = None) -> None:
        """Add a message to the thread. A full thread accepts only messages that the run needs to continue or to end.

        What addresses people brings the diagnosis with it, and what happened since they were last addressed.
        """
        data = {**(data or {}), **(self._news() if kind in NEVER_LEFT_OUT else {})}
        if len(self.run.posts) >= self.rules.keeps_messages_at_most and kind not in NEVER_LEFT_OUT:
            self.fold("slack", THREAD_IS_FULL, who="")
            return
        post = Post(slot=slot, kind=kind, ref=ref, at=self.at, data=redacted_data(data))
        self.set(posts=(*self.run.posts, post))

    def post_note(self, text: str, *, user: str = "", **more: Any) -> str:
        """Add a line to the thread; return its reference. `user`: its author; `more`: further data of the message."""
        ref = f"N{self.number()}"
        self.post("note", f"note:{ref}", ref, {"text": text, "user": user, **more})
        return ref

    def take_news(self) -> dict[str, Any]:
        """What happened since people were last addressed, for the message that brings it."""
        news = {"news": [each.model_dump(mode="json") for each in self.run.news]} if self.run.news else {}
        self.set(news=())
        return news

    def _news(self) -> dict[str, Any]:
        run, findings = self.run, self.run.findings
        looked = {"looked": run.looked.model_dump(mode="json", exclude_defaults=True)}
        news = self.take_news()
        self.set(looked=Looked())
        # At the end nobody has to decide: what was found before, perhaps by another playbook, is enough.
        is_posted = findings.is_diagnosed or (not run.is_open and any(post.kind == "diagnosis" for post in run.posts))
        checks = [[each.found, each.text] for each in findings.checks]
        if findings.is_diagnosed:
            self._correct_diagnosis(checks)
        if is_posted or not (findings.checks or run.cause):
            return news | looked
        self.learn(is_diagnosed=True)
        is_clear = not run.is_open and all(each.found == "ruled_out" for each in findings.checks)
        title = run.diagnosis or (NO_TROUBLE if is_clear else "")
        data = {"title": title, "cause": run.cause, "users": run.users, "checks": checks}
        self.record("diagnosis", title or "not clear yet", data=data)
        # The closing message follows at once, and says what users feel.
        shown = data if run.is_open else data | {"users": ""}
        self.post("diagnosis", f"diagnosis:{run.visit.number}", run.playbook, shown | looked)
        return news

    def _correct_diagnosis(self, checks: list[list[str]]) -> None:
        """Until the first change after it, the diagnosis also has what was found since; then it is about the past."""
        last = next((post for post in reversed(self.run.posts) if post.kind == "diagnosis"), None)
        if last is None or last.ref != self.run.playbook or any(it.applied_at >= last.at for it in self.run.ledger):
            return
        corrected = last.model_copy(update={"data": last.data | redacted_data({"checks": checks})})
        if corrected.data["checks"] != last.data.get("checks"):
            self.set(posts=tuple(corrected if post is last else post for post in self.run.posts))
            data = {key: corrected.data.get(key, "") for key in ("title", "cause", "users", "checks")}
            self.record("diagnosis", str(data["title"]) or "not clear yet", data=data)

    def looked(self, decision: str) -> None:
        """Keep what was read, and what it decided, for the details of the next message to people."""
        looked, here = self.run.looked, (self.playbook.called(self.run.visit.state), decision)
        readings = looked.readings | self.run.visit.readings
        self.set(looked=Looked(readings=readings, decisions=(*looked.decisions, here)[-MAX_DECISIONS:]))

    def effect_id(self, what: str) -> str:
        return f"v{self.run.visit.number}/{what}"

    def is_of_this_visit(self, effect_id: str) -> bool:
        return effect_id.startswith(f"v{self.run.visit.number}/")

    def set_deadline(self, name: str, at: float | None) -> None:
        others = {key: value for key, value in self.run.deadlines.items() if key != name}
        self.set(deadlines=others if at is None else others | {name: at})

    def clear_waits(self) -> None:
        """Clear the deadlines of the current wait; statuses and silences do not depend on the state."""
        kept = (NEXT_STATUS, SILENCE_ENDS, *((PARKED_REMINDER,) if self.run.parked is not None else ()))
        self.set(deadlines={name: at for name, at in self.run.deadlines.items() if name in kept})

    def clear_deadlines(self, about: str) -> None:
        self.set(deadlines={k: v for k, v in self.run.deadlines.items() if not k.startswith(f"{about}:")})

    def decision(self) -> Decision:
        """Returns the decision. Any change that people see is shown; folding a repeated unexpected event is not."""
        before, after = self._before.__dict__, self.run.__dict__
        replaced = [name for name in SHOWN if after[name] is not before[name]]
        if any(after[name] != before[name] for name in replaced):
            self.want(SHOW)
        return Decision(self.run, tuple(self._entries), tuple(self._effects))
