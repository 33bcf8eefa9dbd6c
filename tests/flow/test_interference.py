"""Before each call the run checks for foreign changes to its objects; if there are any, nothing is sent."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.approvals.grant import Approved
from bot.domain.changes.plan import Call, PlanResult
from bot.domain.cluster.json_patch import applied as patched
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.incidents.effect import ApplyStep
from bot.domain.incidents.event import StepSettled
from bot.domain.incidents.run import Run
from bot.flow.handlers.apply import ApplyCall
from bot.flow.perform_effect import Done, EffectContext, Later
from bot.flow.ports.cluster import Sent
from bot.flow.ports.storage import Owed
from tests import builders
from tests.domain.changes.snapshots import deployment, planned, snapshot, template
from tests.domain.incidents.machine.steps import PLAYBOOK, Story
from tests.fakes.restrictions import restrictions
from tests.flow.harness import RULES

pytestmark = pytest.mark.fast


class Writer:
    def __init__(self) -> None:
        self.sent: list[str] = []

    async def send(self, approved: Approved, call: Call, *, call_id: str) -> Sent:
        self.sent.append(call.title)
        return Sent("done", "")

    async def look(self, call: Call, *, call_id: str) -> Any:
        return "not_done"


class Claims:
    """Nothing is claimed before unless a test claims it."""

    def __init__(self, *, before: bool = False) -> None:
        self._before = before

    async def was_claimed(self, incident_id: str, call_id: str) -> bool:
        return self._before

    async def claim(self, *_: Any, **__: Any) -> Any:
        return "already_claimed" if self._before else "claimed"


def second_step(first: Call | None = None) -> Run:
    """The run has scaled to five, or done `first`; the next step of its plan is another call."""
    first = first or planned("scale", {"by": 1}, snapshot()).calls[0]
    second = first.model_copy(update={"title": "the next call"})
    plan = builders.plan(steps=(first, second))
    story = Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=plan)).posted()
    return story.presses("approve").settles().run


def applier(writer: Writer, claims: Claims, workload: Obj) -> ApplyCall:
    async def see(run: Run, context: Any, *, at: float) -> ClusterSnapshot:
        return snapshot(workload=workload)

    async def playbook_of(run: Run) -> Any:
        return PLAYBOOK

    nothing: Any = None
    seen: Any = see
    claimed: Any = claims
    return ApplyCall(
        writer, claimed, nothing, nothing, seen, playbook_of,
        cluster="test", restrictions=restrictions(), job_result=nothing, generate=nothing, grant_valid_seconds=600,
        approvals=RULES.approvals,
    )  # fmt: skip


async def applied(writer: Writer, claims: Claims, *, replicas: int) -> Done | Later:
    return await applied_to(deployment(replicas=replicas), second_step(), writer, claims)


async def applied_to(workload: Obj, run: Run, writer: Writer, claims: Claims) -> Done | Later:
    assert run.change is not None
    effect = ApplyStep(effect_id="v/apply", request_id=run.change.request_id, step=1)
    owed: Any = Owed.__new__(Owed)
    return await applier(writer, claims, workload)(
        EffectContext(run=run, owed=owed, now=run.visit.entered_at + 20), effect
    )


def settled(outcome: Done | Later) -> StepSettled:
    (event,) = outcome.events
    assert isinstance(event, StepSettled)
    return event


async def test_a_call_is_sent_while_everything_is_as_the_run_left_it() -> None:
    writer = Writer()
    assert settled(await applied(writer, Claims(), replicas=5)).result == "done"
    assert writer.sent == ["the next call"]


async def test_a_scale_by_somebody_else_stops_the_run_before_its_next_call() -> None:
    writer = Writer()
    event = settled(await applied(writer, Claims(), replicas=9))
    assert (event.result, writer.sent) == ("interfered", [])
    assert event.detail == "Deployment serving/llm: /spec/replicas is 9, the bot left 5"
    assert [type(call) for call in event.evidence["calls"]] == [str]


async def test_what_still_holds_a_rollout_is_not_lost_to_somebody_elses_deploy() -> None:
    before = deployment(template(lifecycle={}))
    begun = planned("set_flags", {"edits": [{"flag": "--seed", "value": 6}]}, snapshot(workload=before)).calls[0]
    held = patched(begun.body, before)
    held["spec"]["template"]["spec"]["containers"][0]["args"] = ["--seed=7"]
    event = settled(await applied_to(held, second_step(begun), Writer(), Claims()))
    assert (event.result, event.evidence) == ("interfered", {"calls": []})
    assert "the bot still holds the rollout" in event.detail


async def test_after_a_possible_attempt_the_call_itself_is_looked_up_instead() -> None:
    """The snapshot may already show what this very call did."""
    writer = Writer()
    assert settled(await applied(writer, Claims(before=True), replicas=9)).result == "done"
