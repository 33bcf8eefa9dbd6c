"""One step of a granted plan, port by port: its claim, its call, and the notices to the run and to people."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import pytest

from bot.domain.approvals.grant import Approved
from bot.domain.approvals.repeats import REMEMBERED_SECONDS
from bot.domain.changes.plan import Call, Circumstance, LedgerEntry, Plan, PlanResult, Wait
from bot.domain.cluster.json_patch import applied
from bot.domain.cluster.objects import ObjectRef
from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.incidents.effect import ApplyStep
from bot.domain.incidents.event import Event, Progressed, StepSettled
from bot.domain.incidents.impact import Impact
from bot.domain.incidents.run import ActiveChange, Run
from bot.domain.kernel.errors import ClusterError
from bot.domain.signals.signal import Reading
from bot.flow.handlers.apply import (
    CHECKS_APART_SECONDS,
    LOOK_EVERY_SECONDS,
    ONE_TURN_SECONDS,
    PATIENCE_SECONDS,
    ROOM_TAKEN,
    ApplyCall,
    lease_keys,
    what_changed,
)
from bot.flow.handlers.generate import Made
from bot.flow.perform_effect import Done, EffectContext, Later
from bot.flow.ports.cluster import Sent
from bot.flow.ports.storage import Owed
from tests import builders
from tests.domain.changes import snapshots
from tests.domain.incidents.machine.steps import PLAYBOOK
from tests.fakes.restrictions import restrictions
from tests.flow.harness import RULES

pytestmark = pytest.mark.fast
NOW = snapshots.NOW
VALID, DAY = 600.0, 86400.0
CALL_ID = "INC-1/R1/0"
DEPLOYMENT = ObjectRef(kind="Deployment", namespace="serving", name="llm", uid="deploy-uid")
NODE = ObjectRef(kind="Node", name="gpu-node-1", uid="gpu-node-1-uid")
SCALED = Wait(
    condition="scaled", about=DEPLOYMENT, parameters={"replicas": 4}, within_seconds=60, title="4 replicas are Ready"
)


@dataclass
class Outside:
    """Every port of a step, and what was asked of each."""

    cluster: str = "test"
    verdict: str = "claimed"
    claimed_before: bool = False
    sent: Sent = field(default_factory=lambda: Sent("done", "200 OK"))
    seen: str = "not_done"
    replanned: PlanResult | None = None
    snapshot: ClusterSnapshot | ClusterError = field(default_factory=snapshots.snapshot)
    impact_now: Impact = field(default_factory=Impact)
    at: float = NOW
    claims: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    calls: list[tuple[Approved, Call, str]] = field(default_factory=list)
    checks: int = 0
    held: list[tuple[str, ...]] = field(default_factory=list)
    appended: list[Event] = field(default_factory=list)
    impact_at: list[float] = field(default_factory=list)
    lose: Any = None
    lose_while_it_runs: bool = False
    made: Made = field(default_factory=lambda: Made("done", "40 tokens", Reading(name="made", value=40.0)))

    async def was_claimed(self, incident_id: str, call_id: str) -> bool:
        return self.claimed_before

    async def claim(self, incident_id: str, call_id: str, **more: Any) -> str:
        self.claims.append((incident_id, call_id, more))
        if self.lose is not None:
            self.lose.set()
        return self.verdict

    async def hold(self, incident_id: str, keys: Sequence[str]) -> None:
        self.held.append((incident_id, *keys))

    async def send(self, approved: Approved, call: Call, *, call_id: str) -> Sent:
        self.calls.append((approved, call, call_id))
        return self.sent

    async def look(self, call: Call, *, call_id: str) -> str:
        self.checks += 1
        return self.seen

    async def plan(self, run: Run, *, at: float) -> tuple[PlanResult, Mapping[str, Reading]]:
        request = run.requests["R1"]
        found = self.replanned or PlanResult(outcome="planned", plan=request.plan)
        return found, {"usage": Reading(name="usage", value=0.95, at=at)}

    async def append(self, incident_id: str, events: Sequence[Event]) -> None:
        self.appended += events

    async def now(self) -> float:
        return self.at

    async def pause(self, seconds: float) -> None:
        assert seconds in (LOOK_EVERY_SECONDS, *CHECKS_APART_SECONDS)
        self.at += seconds

    async def playbook_of(self, run: Run) -> Any:
        return PLAYBOOK

    async def job_result(self, run: Run, about: ObjectRef, *, at: float) -> Reading:
        return Reading(name="run_job", value=0.9, at=at)

    async def __call__(
        self, context: EffectContext, approved: Approved, call: Call, report: Callable[[str], Awaitable[None]]
    ) -> Made:
        self.calls.append((approved, call, "generated"))
        await report("20 tokens so far")
        if self.lose_while_it_runs:
            context.lost.set()
        return self.made

    @cached_property
    def apply(self) -> ApplyCall:
        """One process."""
        everything = cast(Any, self)
        return ApplyCall(
            everything, everything, everything, everything, cast(Any, See(self)), self.playbook_of,
            cluster=self.cluster, restrictions=restrictions(),
            job_result=cast(Any, self.job_result), generate=everything, grant_valid_seconds=VALID,
            approvals=RULES.approvals, pause=self.pause,
        )  # fmt: skip


class See:
    """The cluster and its users, as one sees them."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    async def __call__(self, run: Run, read_context: Any, *, at: float) -> ClusterSnapshot:
        if isinstance(self._outside.snapshot, ClusterError):
            raise self._outside.snapshot
        return self._outside.snapshot

    async def impact(self, read_context: Any, *, at: float) -> Impact:
        self._outside.impact_at.append(at)
        return self._outside.impact_now


def granted(plan: Plan | None = None, *, step: int = 0, **fields: Any) -> Run:
    """A run whose request was granted a minute ago."""
    wanted = plan or builders.plan()
    request = builders.request(
        plan=wanted, status="granted", presses=(builders.judged_press(at=NOW - 60, digest=wanted.digest),),
        decided_at=NOW - 60, expires_at=NOW + 900,
    )  # fmt: skip
    change = ActiveChange(state="grow", verb="scale", request_id="R1", begun=True, step=step, step_started_at=NOW - 30)
    return builders.run(**({"change": change, "requests": {"R1": request}, "state": "grow"} | fields))


async def taken(outside: Outside, run: Run, *, step: int = 0, now: float = NOW, attempts: int = 0) -> Done | Later:
    effect = ApplyStep(effect_id=f"v2/apply/R1/{step}/0", request_id="R1", step=step)
    return await outside.apply(EffectContext(run, Owed("INC-1", effect, attempts, ""), now), effect)


async def settled(outside: Outside, run: Run, **more: Any) -> StepSettled:
    done = await taken(outside, run, **more)
    assert isinstance(done, Done), done
    [event] = done.events
    assert isinstance(event, StepSettled)
    assert event.event_id == f"settled/{event.effect_id}"
    return event


def outcome(event: StepSettled) -> tuple[str, str]:
    return event.result, event.detail


async def put_off(outside: Outside, run: Run, **more: Any) -> tuple[float, str]:
    later = await taken(outside, run, **more)
    assert isinstance(later, Later), later
    assert outside.calls == [] or outside.sent.result != "done"
    [event] = later.events
    assert isinstance(event, Progressed)
    return later.after_seconds, event.text


# --- the claim --------------------------------------------------------------------------------------------------------


async def test_a_call_is_claimed_for_its_workload_and_sent_once_with_its_id() -> None:
    outside, run = Outside(), granted()
    event = await settled(outside, run)
    assert outcome(event) == ("done", "200 OK")
    assert (event.call_id, event.request_id, event.step) == (CALL_ID, "R1", 0)
    workload = run.target.key
    claim: dict[str, Any] = {
        "workload_key": workload,
        "lease_keys": [f"workload/{workload}"],
        "disruption": "INC-1/R1",
        "node": None,
    }
    claim |= {"playbook": run.playbook, "effect_id": event.effect_id}
    assert outside.claims == [("INC-1", CALL_ID, claim)]
    assert outside.checks == 0, "nothing was sent before, so there is nothing to look for"
    [(approved, call, call_id)] = outside.calls
    assert (approved.plan, call, call_id) == (run.requests["R1"].plan, run.requests["R1"].plan.steps[0], CALL_ID)


@pytest.mark.parametrize(
    ("plan", "disruption"),
    [
        pytest.param(builders.plan(), "INC-1/R1", id="a-change"),
        pytest.param(builders.plan(steps=(builders.call(restores=True),)), "", id="what-restores"),
        pytest.param(builders.plan(disrupts="nothing"), "", id="what-takes-nothing-from-users"),
        pytest.param(builders.plan(disrupts="replica", choices={"uid": "u-1"}), "replica u-1", id="one-replica"),
    ],
)
async def test_the_breaker_counts_what_a_plan_takes_from_users(plan: Plan, disruption: str) -> None:
    outside = Outside()
    await settled(outside, granted(plan))
    assert outside.claims[0][2]["disruption"] == disruption


ROOM = Circumstance(name="room", grade="fine", text="room for 1 more")


@pytest.mark.parametrize(
    ("plan", "is_first", "more"),
    [
        pytest.param(builders.plan(), True, [], id="its-workload"),
        pytest.param(builders.plan(circumstances=(ROOM,)), True, ["room/test"], id="at-first-the-room"),
        pytest.param(builders.plan(circumstances=(ROOM,)), False, [], id="later-no-room"),
        pytest.param(builders.plan(choices={"node": "n2"}), True, ["node/test/n2"], id="the-chosen-node"),
        pytest.param(
            builders.plan(steps=(builders.call(target=NODE), SCALED), choices={"node": "a"}),
            True,
            ["node/test/a", "node/test/gpu-node-1"],
            id="every-node-in-order",
        ),
    ],
)
def test_a_plan_leases_all_that_it_touches(plan: Plan, is_first: bool, more: list[str]) -> None:
    assert lease_keys(builders.TARGET, plan, is_first=is_first) == [f"workload/{builders.TARGET.key}", *more]


async def test_in_a_cluster_without_a_name_incidents_of_any_cluster_label_take_the_same_leases() -> None:
    taken = []
    for label in ("", "east"):
        outside = Outside(cluster="")
        run = granted(builders.plan(choices={"node": "n2"}, circumstances=(ROOM,)))
        await settled(outside, run.with_(target=run.target.model_copy(update={"cluster": label})))
        taken.append(outside.claims[0][2]["lease_keys"])
    assert taken[0] == taken[1]


async def test_only_the_first_call_leases_the_room_that_the_plan_takes() -> None:
    plan = builders.plan(steps=(builders.call(), builders.call(title="second call"), SCALED), circumstances=(ROOM,))
    workload = f"workload/{builders.run().target.key}"
    outside = Outside()
    await settled(outside, granted(plan))
    await settled(outside, granted(plan, step=1), step=1)
    await settled(outside, granted(plan, step=2), step=2)
    assert [claim[2]["lease_keys"] for claim in outside.claims] == [[workload, "room/test"], [workload]]
    assert outside.held == [("INC-1", workload)], "while it waits, no more than its calls later need"


@pytest.mark.parametrize(
    ("verdict", "result", "detail"),
    [
        ("halted", "halted", "it was halted"),
        (
            "breaker_open",
            "withheld",
            "the breaker is open: too many disruptive changes on this workload within the hour. "
            "Look for a common cause; `/incident reset` restarts the count",
        ),
        (
            "node_breaker_open",
            "withheld",
            "the node breaker is open: too many nodes were cordoned or drained within the hour. "
            "Look for a common cause; `/incident reset` restarts the count",
        ),
    ],
)
async def test_what_forbids_a_call_ends_the_step_and_says_why(verdict: str, result: str, detail: str) -> None:
    outside = Outside(verdict=verdict)
    event = await settled(outside, granted())
    assert (outcome(event), event.call_id, outside.calls) == ((result, detail), CALL_ID, [])


@pytest.mark.parametrize(
    ("verdict", "why"),
    [("lease_held", "another incident is changing this workload"), ("room_held", ROOM_TAKEN)],
)
async def test_what_another_incident_holds_is_waited_for_so_long_and_no_longer(verdict: str, why: str) -> None:
    outside, run = Outside(verdict=verdict), granted()
    assert await put_off(outside, run) == (5.0, f"waiting: {why}")
    assert await put_off(outside, run, now=NOW - 60 + VALID) == (5.0, f"waiting: {why}")
    event = await settled(outside, run, now=NOW - 59 + VALID)
    assert outcome(event) == ("lapsed", "the approved change was not started within 10 minutes")


async def test_a_later_step_is_put_off_for_the_same_time_and_then_withheld() -> None:
    plan = builders.plan(steps=(builders.call(), builders.call(title="second call")))
    outside, run = Outside(verdict="lease_held"), granted(plan, step=1)
    assert (await put_off(outside, run, step=1, now=NOW))[0] == 5.0
    assert (await put_off(outside, run, step=1, now=NOW + PATIENCE_SECONDS))[0] == 5.0
    event = await settled(outside, run, step=1, now=NOW + 1 + PATIENCE_SECONDS)
    assert outcome(event) == ("withheld", "another incident is changing this workload; waited 10 minutes")
    assert event.call_id == "INC-1/R1/1"


async def test_a_step_that_is_first_put_off_after_a_downtime_is_put_off_for_as_long() -> None:
    plan = builders.plan(steps=(builders.call(), builders.call(title="second call")))
    outside, run, back = Outside(verdict="lease_held"), granted(plan, step=1), NOW + 2 * PATIENCE_SECONDS
    assert (await put_off(outside, run, step=1, now=back))[0] == 5.0
    assert (await put_off(outside, run, step=1, now=back + PATIENCE_SECONDS))[0] == 5.0
    assert (await settled(outside, run, step=1, now=back + 1 + PATIENCE_SECONDS)).result == "withheld"


async def test_a_step_that_is_asked_for_again_may_be_put_off_as_long_again() -> None:
    plan = builders.plan(steps=(builders.call(), builders.call(title="second call")))
    outside, run = Outside(verdict="lease_held"), granted(plan, step=1)
    await put_off(outside, run, step=1, now=NOW)
    assert run.change is not None
    later = run.with_(change=run.change.model_copy(update={"step_started_at": NOW + PATIENCE_SECONDS}))
    assert (await put_off(outside, later, step=1, now=NOW + 1 + PATIENCE_SECONDS))[0] == 5.0


async def test_the_same_progress_is_not_reported_twice() -> None:
    run = granted()
    assert run.change is not None
    change = run.change.model_copy(update={"progress": "waiting: another incident is changing this workload"})
    assert await taken(Outside(verdict="lease_held"), run.with_(change=change)) == Later(5.0, ())


async def test_a_lease_that_was_lost_during_the_claim_sends_nothing() -> None:
    outside, run = Outside(), granted()
    effect = ApplyStep(effect_id="v2/apply/R1/0/0", request_id="R1", step=0)
    context = EffectContext(run, Owed("INC-1", effect, 0, ""), NOW)
    outside.lose = context.lost
    assert await outside.apply(context, effect) == Later(0.0)
    assert outside.calls == []


# --- what is not for this step ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"change": None}, id="no-change"),
        pytest.param({"requests": {}}, id="no-request"),
    ],
)
async def test_a_step_of_what_is_gone_does_nothing(fields: dict[str, Any]) -> None:
    outside = Outside()
    assert await taken(outside, granted(**fields)) == Done()
    assert await taken(outside, granted(), step=1) == Done()
    assert (outside.claims, outside.calls) == ([], [])


async def test_a_step_of_another_request_does_nothing() -> None:
    run = granted()
    assert run.change is not None
    other = run.with_(change=run.change.model_copy(update={"request_id": "R2"}))
    assert await taken(Outside(), other) == Done()


async def test_a_plan_without_steps_is_done() -> None:
    assert outcome(await settled(Outside(), granted(builders.plan(steps=())))) == ("done", "nothing to do")


async def test_a_request_without_enough_presses_is_withheld() -> None:
    run = granted()
    nobody = run.requests["R1"].model_copy(update={"presses": ()})
    outside = Outside()
    event = await settled(outside, run.with_(requests={"R1": nobody}))
    assert outcome(event) == ("withheld", "not granted: 1 more approval needed")
    assert (outside.claims, outside.calls) == ([], [])


# --- looked at again --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waited", [VALID, VALID + 1])
async def test_a_grant_holds_for_its_time_and_no_longer(waited: float) -> None:
    outside = Outside()
    event = await settled(outside, granted(), now=NOW - 60 + waited)
    if waited > VALID:
        assert outcome(event) == ("lapsed", "the approved change was not started within 10 minutes")
        assert outside.claims == []
    else:
        assert event.result == "done"


@pytest.mark.parametrize(
    ("replanned", "result", "detail"),
    [
        (PlanResult(outcome="not_needed", reason="5 by now"), "not_needed", "5 by now"),
        (PlanResult(outcome="unknown", reason="no answer"), "still_unknown", "no answer"),
        (PlanResult(outcome="impossible", reason="no room"), "superseded", "no room"),
        (PlanResult(outcome="failed", reason="403"), "superseded", "403"),
        (
            PlanResult(outcome="planned", plan=builders.plan(risk="high")),
            "superseded",
            "circumstances got worse: its risk is high, not low",
        ),
    ],
)
async def test_right_before_the_first_call_everything_is_looked_at_again(
    replanned: PlanResult, result: str, detail: str
) -> None:
    outside = Outside(replanned=replanned)
    event = await settled(outside, granted())
    assert outcome(event) == (result, detail)
    assert event.replanned == (replanned if result == "superseded" else None)
    assert (event.readings != {}) is (result in ("not_needed", "still_unknown"))
    assert (outside.claims, outside.calls) == ([], [])


async def test_a_later_step_is_not_planned_again() -> None:
    plan = builders.plan(steps=(builders.call(), builders.call(title="second call")))
    outside = Outside(replanned=PlanResult(outcome="impossible", reason="no room"))
    event = await settled(outside, granted(plan, step=1), step=1, now=NOW + VALID * 5)
    assert (event.result, event.call_id) == ("done", "INC-1/R1/1")


def test_another_plan_is_described_with_both_differences() -> None:
    other = builders.plan(
        choices={"to": 6},
        steps=(builders.call(differences=(builders.call().differences[0].model_copy(update={"text": ""}),)),),
    )
    assert what_changed(builders.plan(), other) == ("the plan has changed: /spec/replicas instead of replicas 4 → 5")
    worse = builders.plan(risk="high", approved_by=("platform", "lead"))
    assert what_changed(builders.plan(approved_by=("lead",)), worse) == (
        "circumstances got worse: its risk is high, not low; platform must approve it too"
    )


# --- somebody else ----------------------------------------------------------------------------------------------------

OURS = LedgerEntry(
    call_id="INC-1/R0/0", state="grow", verb="scale", title="scaled", target=DEPLOYMENT,
    differences=builders.call().differences, undo=builders.call().undo, applied_at=NOW - 600,
)  # fmt: skip


async def test_a_call_is_not_sent_where_somebody_else_changed_what_the_run_had_changed() -> None:
    outside = Outside(snapshot=snapshots.snapshot(workload=snapshots.deployment(replicas=7)))
    event = await settled(outside, granted(ledger=(OURS,)))
    assert (event.result, event.evidence, event.call_id) == ("interfered", {"calls": ["INC-1/R0/0"]}, CALL_ID)
    assert outside.claims == []
    undo = granted(builders.plan(verb="undo"), ledger=(OURS,))
    assert (await settled(outside, undo)).result == "done", "an undo compares each value by itself"


async def test_everything_that_somebody_else_changed_is_named() -> None:
    other = OURS.model_copy(update={"call_id": "INC-1/R0/1", "target": DEPLOYMENT.model_copy(update={"name": "gone"})})
    outside = Outside(snapshot=snapshots.snapshot(workload=None))
    event = await settled(outside, granted(ledger=(OURS, other)))
    assert event.evidence == {"calls": ["INC-1/R0/0", "INC-1/R0/1"]}
    assert event.detail == (
        "Deployment serving/llm was deleted; the bot did: scaled; "
        "Deployment serving/gone was deleted; the bot did: scaled"
    )


async def test_what_is_as_the_run_left_it_stops_nothing() -> None:
    outside = Outside(snapshot=snapshots.snapshot(workload=snapshots.deployment(replicas=5)))
    assert (await settled(outside, granted(ledger=(OURS,)))).result == "done"


async def test_while_the_cluster_cannot_be_read_nobody_knows_and_the_call_waits() -> None:
    outside = Outside(snapshot=ClusterError("timed out"))
    assert await put_off(outside, granted(ledger=(OURS,))) == (5.0, "waiting: the cluster cannot be read: timed out")
    assert (await settled(outside, granted())).result == "done", "nothing of ours is out there"


# --- nodes ------------------------------------------------------------------------------------------------------------

CORDON = builders.plan(verb="cordon_node", choices={"node": "gpu-node-1"}, steps=(builders.call(target=NODE),))


async def test_what_a_node_takes_from_the_fleet_is_read_right_before_its_call() -> None:
    outside = Outside()
    await settled(outside, granted(CORDON))
    node = outside.claims[0][2]["node"]
    assert (node.node, node.gpus, node.fleet_gpus, node.cordoned) == ("gpu-node-1", 4, 12, {})


@pytest.mark.parametrize(
    ("snapshot", "why"),
    [
        (ClusterError("timed out"), "timed out"),
        (snapshots.snapshot(unreadable={"nodes": "403"}), "403"),
    ],
)
async def test_a_node_of_a_fleet_that_cannot_be_read_is_not_taken(snapshot: Any, why: str) -> None:
    outside = Outside(snapshot=snapshot)
    text = f"waiting: what the node takes from the fleet is not known: {why}"
    assert await put_off(outside, granted(CORDON)) == (5.0, text)
    assert outside.claims == []


@pytest.mark.parametrize(
    ("outside", "plan"),
    [
        pytest.param(
            Outside(claimed_before=True, verdict="already_claimed", snapshot=ClusterError("x")),
            CORDON,
            id="sent-before",
        ),
        pytest.param(
            Outside(snapshot=ClusterError("x")),
            CORDON.model_copy(update={"steps": (builders.call(target=NODE, restores=True),)}),
            id="what-restores",
        ),
    ],
)
async def test_the_fleet_is_not_weighed_for_what_takes_no_more_of_it(outside: Outside, plan: Plan) -> None:
    assert (await settled(outside, granted(plan))).result == "done"
    assert outside.claims[0][2]["node"] is None


async def test_the_breaker_of_a_workload_does_not_name_nodes() -> None:
    detail = (await settled(Outside(verdict="breaker_open"), granted(CORDON))).detail
    assert detail.endswith("restarts the count")


async def test_a_fleet_that_is_out_too_far_names_the_nodes() -> None:
    nodes = (snapshots.node(1), snapshots.node(2, unschedulable=True), snapshots.node(3))
    outside = Outside(verdict="too_many_gpus", snapshot=snapshots.snapshot(nodes=nodes))
    beyond = "the node breaker is open: too much of the fleet would be cordoned: 4 of 12 GPUs on gpu-node-1, besides"
    assert (await settled(outside, granted(CORDON))).detail == f"{beyond} gpu-node-2 (4)"
    outside.snapshot = snapshots.snapshot()
    assert (await settled(outside, granted(CORDON))).detail == f"{beyond} nodes counted a moment ago"


# --- the answer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "result", "detail"),
    [
        (Sent("done", "200 OK"), "done", "200 OK"),
        (Sent("failed", "409: conflict"), "failed", "409: conflict"),
        (Sent("failed", "password=hunter2"), "failed", "password=(masked)"),
    ],
)
async def test_an_answer_is_the_outcome_without_secrets(sent: Sent, result: str, detail: str) -> None:
    event = await settled(Outside(sent=sent), granted())
    assert (outcome(event), event.call_id) == ((result, detail), CALL_ID)


async def test_a_server_that_says_later_is_asked_when_it_says() -> None:
    outside = Outside(sent=Sent("failed", "429: budget", retry_after_seconds=17.0))
    assert await put_off(outside, granted()) == (17.0, "waiting: 429: budget")


async def test_no_answer_is_looked_at_three_times_and_then_a_person_is_asked() -> None:
    outside = Outside(sent=Sent("unclear", "no answer"))
    for attempts in (0, 1):
        assert await taken(outside, granted(), attempts=attempts) == Later(LOOK_EVERY_SECONDS, failed=True)
    assert outside.checks == 0
    event = await settled(outside, granted(), attempts=2)
    assert (outcome(event), event.call_id) == (("unclear", "no answer"), CALL_ID)
    assert outside.checks == 1


async def test_a_last_attempt_without_an_answer_that_the_cluster_shows_is_done() -> None:
    event = await settled(Outside(sent=Sent("unclear", "no answer"), seen="done"), granted(), attempts=2)
    assert outcome(event) == ("done", "seen in the cluster after an interrupted attempt")


@pytest.mark.parametrize(
    ("seen", "attempts", "result", "detail"),
    [
        ("done", 0, "done", "seen in the cluster after an interrupted attempt"),
        ("unclear", 2, "unclear", "the object is in neither its old nor its new state"),
    ],
)
async def test_after_an_earlier_attempt_the_cluster_decides_and_nothing_is_sent(
    seen: str, attempts: int, result: str, detail: str
) -> None:
    outside = Outside(verdict="already_claimed", claimed_before=True, seen=seen)
    event = await settled(outside, granted(), attempts=attempts)
    assert (outcome(event), event.call_id) == ((result, detail), CALL_ID)
    assert outside.calls == []


async def test_an_earlier_attempt_that_did_nothing_is_sent_again_while_its_grant_is_fresh() -> None:
    outside = Outside(verdict="already_claimed", claimed_before=True)
    run, longest = granted(), VALID + PATIENCE_SECONDS
    assert (await settled(outside, run, now=NOW - 60 + longest)).result == "done"
    assert (await settled(outside, run, now=NOW - 59 + longest)).result == "lapsed"
    assert (outside.checks, len(outside.calls)) == (2, 1)


async def test_after_an_earlier_attempt_the_world_is_not_compared_with_the_plan() -> None:
    outside = Outside(
        verdict="already_claimed", claimed_before=True, replanned=PlanResult(outcome="impossible", reason="no room"),
        snapshot=snapshots.snapshot(workload=snapshots.deployment(replicas=7)),
    )  # fmt: skip
    assert (await settled(outside, granted(ledger=(OURS,)))).result == "done"


async def test_a_generation_that_was_interrupted_is_not_begun_again() -> None:
    call = builders.call(method="generate")
    outside = Outside(verdict="already_claimed", claimed_before=True, seen="done")
    event = await settled(outside, granted(builders.plan(steps=(call,))))
    assert event.call_id == CALL_ID
    assert outcome(event) == (
        "unclear",
        "it was started before the bot was interrupted; nothing shows whether it was sent or how it ended",
    )
    assert (outside.checks, outside.calls) == (0, [])


async def test_a_later_call_that_did_not_arrive_is_sent_again_however_long_ago_its_grant_was() -> None:
    plan = builders.plan(steps=(builders.call(), builders.call(title="second call")))
    outside = Outside(verdict="already_claimed", claimed_before=True)
    assert (await settled(outside, granted(plan, step=1), step=1, now=NOW + DAY)).result == "done"


GENERATION = builders.plan(steps=(builders.call(method="generate"),))


async def test_a_generation_is_reported_while_it_runs_and_its_reading_is_kept() -> None:
    outside = Outside()
    event = await settled(outside, granted(GENERATION))
    assert (outcome(event), event.call_id) == (("done", "40 tokens"), CALL_ID)
    assert {name: reading.value for name, reading in event.readings.items()} == {"made": 40.0}
    assert [cast(Progressed, one).text for one in outside.appended] == ["20 tokens so far"]
    assert [how for _, _, how in outside.calls] == ["generated"]


async def test_a_generation_that_never_ran_leaves_no_reading() -> None:
    event = await settled(Outside(made=Made("failed", "no replica answers")), granted(GENERATION))
    assert (outcome(event), event.readings) == (("failed", "no replica answers"), {})


async def test_a_generation_whose_lease_was_lost_is_not_settled() -> None:
    assert await taken(Outside(lose_while_it_runs=True), granted(GENERATION)) == Later(0.0)


# --- those who stay ---------------------------------------------------------------------------------------------------

ROLLED = SCALED.model_copy(update={"condition": "rolled_out"})
BEFORE, MUCH_MORE = Impact(waiting=1.0), Impact(waiting=9.0)
ROLLOUT = builders.plan(steps=(builders.call(), builders.call(title="second call"), ROLLED))


def bearing(plan: Plan = ROLLOUT, *, step: int = 1, impact: Impact | None = BEFORE) -> Run:
    run = granted(plan, step=step)
    assert run.change is not None
    return run.with_(change=run.change.model_copy(update={"impact": impact}))


async def test_a_step_is_not_taken_once_users_pay_too_dearly() -> None:
    outside = Outside(impact_now=MUCH_MORE)
    event = await settled(outside, bearing(), step=1)
    assert outcome(event) == ("affected", "requests waiting per replica 1.0 → 9.0")
    assert (event.impact, outside.impact_at, outside.claims) == (MUCH_MORE, [NOW], [])


@pytest.mark.parametrize(
    ("outside", "run", "step"),
    [
        pytest.param(Outside(), bearing(), 1, id="no-more-than-before"),
        pytest.param(Outside(impact_now=MUCH_MORE), bearing(step=0), 0, id="the-first-step"),
        pytest.param(Outside(impact_now=MUCH_MORE), bearing(impact=None), 1, id="nothing-known-before"),
        pytest.param(
            Outside(impact_now=MUCH_MORE), bearing(builders.plan(steps=ROLLOUT.steps[:2])), 1, id="takes-none"
        ),
        pytest.param(
            Outside(impact_now=MUCH_MORE, claimed_before=True, verdict="already_claimed"), bearing(), 1, id="on-its-way"
        ),
    ],
)
async def test_otherwise_the_step_is_taken(outside: Outside, run: Run, step: int) -> None:
    assert (await settled(outside, run, step=step)).result == "done"


@pytest.mark.parametrize(
    ("plan", "sent", "impact"),
    [
        pytest.param(ROLLOUT, Sent("done"), MUCH_MORE, id="of-a-rollout"),
        pytest.param(builders.plan(), Sent("done"), None, id="not-of-what-takes-no-capacity"),
        pytest.param(ROLLOUT, Sent("failed", "409"), None, id="not-of-what-failed"),
    ],
)
async def test_the_first_step_reports_what_users_bore_at_the_grant(
    plan: Plan, sent: Sent, impact: Impact | None
) -> None:
    outside = Outside(impact_now=MUCH_MORE, sent=sent)
    assert (await settled(outside, granted(plan))).impact == impact
    assert set(outside.impact_at) <= {NOW - 60}


async def test_later_steps_do_not_report_it_again() -> None:
    outside = Outside(impact_now=BEFORE)
    assert (await settled(outside, bearing(), step=1)).impact is None


# --- waits ------------------------------------------------------------------------------------------------------------


def waiting(wait: Wait = SCALED, **change: Any) -> Run:
    run = granted(builders.plan(steps=(builders.call(), wait)), step=1)
    assert run.change is not None
    return run.with_(change=run.change.model_copy(update=change))


async def test_what_is_waited_for_is_reported_once_it_is_seen() -> None:
    outside, run = Outside(), waiting()
    event = await settled(outside, run, step=1)
    assert (outcome(event), event.readings, event.call_id) == (("done", "4 of 4 replicas Ready"), {}, "")
    assert outside.held == [("INC-1", f"workload/{run.target.key}")]
    assert (outside.claims, outside.calls) == ([], [])


async def test_what_a_job_came_back_with_is_read_once_it_has_ended() -> None:
    wait = SCALED.model_copy(update={"gives": "run_job"})
    event = await settled(Outside(), waiting(wait), step=1)
    assert event.readings["run_job"].value == 0.9


async def test_a_wait_that_cannot_succeed_fails() -> None:
    outside = Outside(snapshot=snapshots.snapshot(workload=None))
    assert outcome(await settled(outside, waiting(), step=1)) == ("failed", "Deployment serving/llm was deleted")


async def test_what_others_add_to_the_template_does_not_end_the_wait_for_it() -> None:
    before = snapshots.snapshot()
    plan = snapshots.planned("set_flags", {"edits": [{"flag": "--max-num-seqs", "value": 6}]}, before)
    assert isinstance(plan.steps[1], Wait)
    rolling = applied(plan.calls[0].body, before.workload or {})
    rolling["spec"]["template"]["metadata"]["annotations"] = {"injected": "yes"}
    outside, run = Outside(snapshot=replace(before, workload=rolling)), granted(plan, step=1)
    assert await taken(outside, run, step=1) == Later(0.0)


FIVE = SCALED.model_copy(update={"parameters": {"replicas": 5}, "within_seconds": 40.0})
NOT_YET = snapshots.snapshot(workload=snapshots.deployment(replicas=5))


async def test_a_wait_goes_back_after_its_turn_and_says_each_progress_once() -> None:
    outside = Outside(snapshot=NOT_YET)
    long = FIVE.model_copy(update={"within_seconds": 600.0})
    assert await taken(outside, waiting(long), step=1) == Later(0.0)
    assert outside.at == NOW + ONE_TURN_SECONDS
    [event] = outside.appended
    assert isinstance(event, Progressed)
    assert (event.text, event.effect_id) == ("4 of 5 replicas Ready", "v2/apply/R1/1/0")
    quiet = Outside(snapshot=NOT_YET)
    assert await taken(quiet, waiting(long, progress="4 of 5 replicas Ready"), step=1) == Later(0.0)
    assert quiet.appended == []


async def test_a_wait_whose_lease_was_lost_looks_no_more() -> None:
    outside = Outside(snapshot=ClusterError("must not be read"))
    effect = ApplyStep(effect_id="v2/apply/R1/1/0", request_id="R1", step=1)
    context = EffectContext(waiting(FIVE), Owed("INC-1", effect, 0, ""), NOW)
    context.lost.set()
    assert await outside.apply(context, effect) == Later(0.0)
    assert outside.appended == []


async def test_a_wait_fails_once_its_time_is_over() -> None:
    outside = Outside(snapshot=NOT_YET)
    event = await settled(outside, waiting(FIVE), step=1)
    assert outcome(event) == ("failed", "not seen within 40 s: 4 of 5 replicas Ready")
    assert outside.at - (NOW - 30) == 41


async def test_a_cluster_that_cannot_be_read_has_not_shown_it_yet() -> None:
    outside = Outside(snapshot=ClusterError("timed out"))
    event = await settled(outside, waiting(FIVE), step=1)
    assert outcome(event) == ("failed", "not seen within 40 s: the cluster cannot be read: timed out")
    assert [cast(Progressed, one).text for one in outside.appended] == ["the cluster cannot be read: timed out"]


async def test_clients_over_kept_connections_are_waited_for_from_the_start_of_the_wait() -> None:
    emptied = snapshots.planned("isolate_replica", {"replica": "llm-2"}, snapshots.snapshot()).steps
    wait = next(step for step in emptied if isinstance(step, Wait) and step.condition == "emptied")
    kept = snapshots.snapshot(
        endpoint_slices=(snapshots.endpoint_slice(snapshots.pod(1)),),
        load={"llm-2": snapshots.load(running=2, arrivals=4)},
    )
    outside = Outside(snapshot=kept)
    early = await taken(outside, waiting(wait), step=1)
    assert isinstance(early, Later)
    event = await settled(replace(outside, at=NOW), waiting(wait, step_started_at=NOW - 121), step=1)
    assert event.result == "failed"
    assert REMEMBERED_SECONDS > PATIENCE_SECONDS, "what was put off to the end is still known when it is asked again"
