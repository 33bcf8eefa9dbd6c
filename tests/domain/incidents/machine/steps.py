"""A small playbook and a driver for tests of `advance`: events in, the newest run and its effects out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from bot.adapters.yaml_playbooks import load_text
from bot.domain.approvals.grant import APPROVERS, Authority, Press
from bot.domain.changes.plan import PlanResult, Wait
from bot.domain.incidents.effect import Effect
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
    StepSettled,
    Watched,
)
from bot.domain.incidents.machine import Decision, advance
from bot.domain.incidents.run import Run, before_start
from bot.domain.kernel.timeline import Entry
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.signals.signal import Reading, unknown
from tests import builders

E = TypeVar("E")

TEXT = """
language: 1
playbook: small
title: A small playbook
opens_on: ['alertname=~".+"']
settings:
  ceiling: {default: 0.9, min: 0.1, max: 1, why: a test}
  calm_for: {default: 10s, why: a test}
  within: {default: 60s, why: a test}
signals:
  usage: {metric: kv_cache_usage_perc, over: 60s}
start: look
states:
  look:
    baseline: true
    read: [usage]
    go:
      - {when: usage > settings.ceiling, to: choose}
      - {otherwise: calm}
    unknown: choose
  choose:
    ask: What now?
    choices:
      grow: {label: Grow, to: grow, style: primary}
      stop: {label: Stop, to: calm}
    expires: settings.within
    expired: left
  grow:
    change: scale
    with: {by: 1}
    still: usage > settings.ceiling
    why: More room.
    risk: low
    done: watch
    refused: choose
  watch:
    watch: {calm: usage < settings.ceiling}
    for: settings.calm_for
    within: settings.within
    broke:
      - {when: usage > 0.99, to: choose}
    held: calm
    not_held: choose
  left: {end: handed_over, say: Nobody answered.}
  calm: {end: fixed, say: It is calm.}
"""
PLAYBOOK: CompiledPlaybook = load_text(TEXT, file="small.yaml")
BUNDLE = Bundle.of(PLAYBOOK)


class Story:
    """One run as it moves; every event is stamped ten seconds after the last."""

    def __init__(self, bundle: Bundle = BUNDLE, **rules: Any) -> None:
        self.rules = builders.rules(**rules)
        self.bundle = bundle
        self.known = {bundle.digest: bundle}
        """Bundles by digest: those of offers too, once a test adds them."""
        entry = bundle.playbooks[bundle.entry]
        self.run: Run = builders.run(
            playbook=entry.name, digest=bundle.digest, visit=before_start(entry, at=builders.START)
        )
        self.entries: list[Entry] = []
        self.effects: list[Effect] = []
        self.last = Decision(self.run)
        self.happened: list[tuple[Event, Run, Decision]] = []
        """Each event with the run before it and what was decided."""
        self.at = builders.START
        self._number = 0

    def happens(self, event: Event) -> Decision:
        self.at += 10
        self.last = advance(self.run, event.model_copy(update={"at": self.at}), self._bundle(event), self.rules)
        self.happened.append((event, self.run, self.last))
        self.run = self.last.run
        self.entries += self.last.entries
        self.effects += self.last.effects
        return self.last

    def _bundle(self, event: Event) -> Bundle:
        new = event.offer if isinstance(event, AlertChanged) else None
        offers = ({new.playbook: new} if new else {}) | self.run.offers
        offered = {name: self.known[each.digest] for name, each in offers.items() if each.digest in self.known}
        bundle = self.known.get(self.run.digest, self.bundle)
        return replace(bundle, offered=offered) if offered else bundle

    def id(self) -> str:
        self._number += 1
        return f"e{self._number}"

    def wanted(self, kind: type[E]) -> E:
        """The newest effect of this kind that the last decision wants."""
        return next(effect for effect in reversed(self.last.effects) if isinstance(effect, kind))

    def kinds(self) -> list[str]:
        return [effect.kind for effect in self.last.effects if effect.kind != "show_in_slack"]

    def texts(self, kind: str = "") -> list[str]:
        return [entry.text for entry in self.entries if not kind or entry.kind == kind]

    # --- what happens -------------------------------------------------------------------------------------------------

    def opened(self) -> Story:
        self.happens(AlertChanged(event_id=self.id(), alert=builders.alert()))
        return self

    def reads(self, usage: float | None, **others: Reading) -> Story:
        reading = (
            unknown("usage", "the page did not answer", at=self.at)
            if usage is None
            else Reading(name="usage", value=usage, at=self.at)
        )
        event = {"event_id": self.id(), "effect_id": f"v{self.run.visit.number}/read"}
        self.happens(SignalsRead.model_validate(event | {"readings": {"usage": reading} | others}))
        return self

    def chooses(
        self, choice: str, *, about: str = "", allowed: bool = True, user: str = "ana", **fields: float | str
    ) -> Story:
        press = builders.press(
            press_id=self.id(), action="choose", about=about or self.run.question, value=choice, user=user
        )
        return self.judged(press.model_copy(update={"fields": fields}), allowed=allowed)

    def judged(
        self,
        press: Press,
        *,
        allowed: bool = True,
        at: float | None = None,
        teams: tuple[str, ...] = (APPROVERS,),
    ) -> Story:
        self.happens(Pressed(event_id=self.id(), press=press))
        authority = Authority(
            allowed=allowed,
            reason="on the list" if allowed else "not on the list",
            teams=teams if allowed else (),
            read_at=self.at,
        )
        pressed_at = self.at if at is None else at
        self.happens(Judged(event_id=self.id(), press=press, pressed_at=pressed_at, authority=authority))
        return self

    def planned(self, result: PlanResult | None = None) -> Story:
        found = result or PlanResult(outcome="planned", plan=builders.plan())
        self.happens(Planned(event_id=self.id(), effect_id=f"v{self.run.visit.number}/plan/0", result=found))
        return self

    def posted(self) -> Story:
        request = self.request
        self.happens(Posted(event_id=self.id(), slot=f"request:{request}", ts="1.1", channel="C1"))
        return self

    def presses(
        self, action: str, *, user: str = "ana", digest: str = "", reason: str = "", value: str = "", **more: Any
    ) -> Story:
        request = self.run.requests[self.request]
        # The form of a high risk asks for a reason; " " stands for a press without one.
        reason = reason or ("users wait" if request.policy.needs_reason and not request.asked_before else "")
        press = builders.press(
            press_id=self.id(), action=action, about=request.request_id, digest=digest or request.digest, user=user,
            reason=reason, value=value,
        )  # fmt: skip
        return self.judged(press, **more)

    def settles(self, result: str = "done", **fields: Any) -> Story:
        change = self.run.change
        assert change is not None
        event = {
            "event_id": self.id(),
            "effect_id": f"v{self.run.visit.number}/apply",
            "request_id": change.request_id,
            "step": change.step,
            "call_id": f"INC-1/{change.request_id}/{change.step}",
            "result": result,
        }
        self.happens(StepSettled.model_validate(event | fields))
        return self

    def watched(self, verdict: str, **fields: Any) -> Story:
        event = {"event_id": self.id(), "effect_id": f"v{self.run.visit.number}/watch", "verdict": verdict}
        self.happens(Watched.model_validate(event | fields))
        return self

    def due(self, deadline: str) -> Story:
        due_at = self.run.deadlines.get(deadline, 0.0)
        self.happens(Due(event_id=self.id(), deadline=deadline, due_at=due_at))
        return self

    def says(self, command: str, **fields: Any) -> Story:
        self.happens(Commanded.model_validate({"event_id": self.id(), "command": command, "user": "ana"} | fields))
        return self

    # --- shortcuts ----------------------------------------------------------------------------------------------------

    @property
    def request(self) -> str:
        return max(self.run.requests, key=lambda name: int(name[1:]))

    def asked(self) -> Story:
        """A request to scale is open and posted."""
        return self.opened().reads(0.95).chooses("grow").planned().posted()

    def granted(self) -> Story:
        return self.asked().presses("approve")

    def applied(self) -> Story:
        return self.granted().settles()


TWO_STEPS = builders.plan(
    steps=(
        builders.call(),
        Wait(condition="scaled", about=builders.call().target, within_seconds=60, title="5 replicas are Ready"),
        builders.call(title="second call"),
    )
)
