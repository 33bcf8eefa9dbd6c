"""The cost of a path through a playbook, in virtual time: presses, people, and minutes to relief.

The machine, the playbook, the approvals and the number of replicas that the planner replaces at a time are real.
Starting a replica takes as long as the fleet says, all else that a change does takes no time; people answer at once.
Relief is the moment when most replicas serve without the trouble.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pytest

from bot.adapters.yaml_playbooks import load_playbook, load_table
from bot.domain.incidents.effect import ApplyStep
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.loading.other_playbook import with_stand_ins
from bot.domain.playbooks.packaged import packaged_playbooks
from bot.domain.playbooks.testing.cases import Table, table_of
from bot.domain.signals.window import NEEDED_SECONDS
from bot.flow.perform_effect import Done, EffectContext, Later
from bot.flow.rehearse_case import BEGINS_AT, TARGET, AsWritten, alert_at
from bot.flow.rehearse_run import Clock, Rehearsal
from bot.flow.route_alerts import opened
from tests.domain.changes.snapshots import deployment, node, planned, pod, snapshot, template

MAIN_PATHS = {
    "gpu-fault": (
        "a GPU that fell off the bus: cordon first, ours moves, and a person takes the node",
        "a contained fault: one more replica first, ours is replaced, and the node stays",
    ),
    "inference-slo-breach": (
        "a queue and a free GPU: one more replica, verified, and the long window trails",
        "slow tokens without a free GPU run a smaller batch, tried on a canary",
        "one slow replica at a normal share is replaced",
        "an autoscaler at its maximum gets a higher one by request",
        "a deploy that fits in time is rolled back",
    ),
    "kv-cache-oom": (
        "a thrash is limited on a canary, rolled out and verified",
        "the emergency set is one rollout without a canary",
        "a canary that passes the load test is rolled out with its result",
        "more traffic and a free GPU recommend a replica first",
        "one replica of four is replaced, after one more came up",
    ),
    "kv-compression-no-savings": (
        "a flag that breached the SLO is taken back first",
        "scattered survivors free no block, and the method goes",
        "fp8 that was never set is scored by a Job and rolled out",
    ),
    "thermal-emergency": (
        "one hot node: cordon, ours moves away, and the platform team gives it back",
        "a hot hall: facilities are called, load is shed, and the replica comes back once it is cool",
    ),
    "vllm-oom-triage": (
        "a burst of long prompts gets fewer tokens a step, and never more than now",
        "a leak restarts the replicas with one approval, and adds none",
        "only the new revision crashes: nobody is paged, and it goes back",
    ),
}
"""Playbook to the cases of its table that are its main paths."""

MINUTE = 60.0
STARTING = ("canary", "scale", "promote", "set_flags", "rollback", "restart")
"""Verbs that start replicas; those before `promote` start one."""


@dataclass(frozen=True)
class Fleet:
    replicas: int
    start_minutes: float

    @property
    def at_a_time(self) -> int:
        """How many replicas the planner replaces together where enough GPUs are free."""
        made = deployment(template(lifecycle={}), replicas=self.replicas)
        pods = tuple(pod(number) for number in range(1, self.replicas + 1))
        room = node(99)
        room["status"]["allocatable"]["nvidia.com/gpu"] = "64"
        edit = {"edits": [{"flag": "--max-num-seqs", "value": 6}]}
        plan = planned("set_flags", edit, snapshot(workload=made, pods=pods, nodes=(room,), all_pods=()))
        return max(len(call.ends) for call in plan.calls if call.target.kind == "Deployment")

    def seconds(self, verb: str, replicas: int) -> float:
        """How long the change takes until so many replicas serve with it."""
        waves = 1 if verb in ("canary", "scale") else math.ceil(replicas / self.at_a_time)
        return waves * self.start_minutes * MINUTE if verb in STARTING else 0.0


FLEETS = [
    pytest.param(Fleet(4, 2), id="4-replicas-that-start-in-2-minutes"),
    pytest.param(Fleet(4, 10), id="4-replicas-that-start-in-10-minutes"),
    pytest.param(Fleet(20, 2), id="20-replicas-that-start-in-2-minutes"),
    pytest.param(Fleet(20, 10), id="20-replicas-that-start-in-10-minutes"),
]
FLEETS_AND_MINUTES = [
    pytest.param(Fleet(4, 2), 15, id="4-replicas-that-start-in-2-minutes"),
    pytest.param(Fleet(4, 10), 60, id="4-replicas-that-start-in-10-minutes"),
    pytest.param(Fleet(20, 2), 15, id="20-replicas-that-start-in-2-minutes"),
    pytest.param(Fleet(20, 10), 60, id="20-replicas-that-start-in-10-minutes"),
]
"""With the minutes within which a change of every replica has to relieve."""


@dataclass
class Cost:
    presses: int = 0
    people: int = 0
    first_message: float = 0.0
    """Seconds from the alert to the first request."""
    relief: float = 0.0
    """Minutes from the alert."""
    begun: dict[str, float] = field(default_factory=dict)
    """State to when its change began."""


class Timed(Rehearsal):
    """A rehearsal whose changes take time."""

    fleet: Fleet
    cost: Cost

    async def _applied(self, context: EffectContext, effect: ApplyStep) -> Done | Later:  # type: ignore[override]
        request = context.run.requests[effect.request_id]
        if request.state not in self.cost.begun:
            self.cost.begun[request.state] = context.now
            if seconds := self.fleet.seconds(request.plan.verb, self.fleet.replicas):
                return Later(seconds)
        return await super()._applied(context, effect)


async def cost_of(
    playbook_name: str,
    case_name: str,
    fleet: Fleet,
    relieved_by: str,
    ends: str = "fixed",
    at: dict[str, Any] | None = None,
    **given: Any,
) -> Cost:
    """Play a case of a packaged playbook's table; `given` replaces readings of the case.

    `relieved_by`: the state whose change relieves the fleet. `ends`: the ending that the path must have.
    """
    path = packaged_playbooks() / f"{playbook_name}.yaml"
    playbook, table = load_playbook(path), table_of(load_table(path.with_name(f"{playbook_name}.test.yaml")).data)
    assert isinstance(table, Table)
    case = next(case for case in table.whole() if case.name == case_name)
    case = case.model_copy(update={"given": case.given | given, "at": {**case.at, **(at or {})}})
    bundle: Bundle = with_stand_ins(playbook)
    clock = Clock(BEGINS_AT + NEEDED_SECONDS)
    alert = alert_at(BEGINS_AT, case.name)
    run = Timed(opened("INC-1", alert.alert, TARGET, bundle), bundle, AsWritten(case, playbook, clock), clock)
    run.fleet, run.cost = fleet, Cost()
    found = await run.play(alert)
    requests = list(found.run.requests.values())
    relieving = next(one for one in requests if one.state == relieved_by)
    most = fleet.seconds(relieving.plan.verb, fleet.replicas // 2 + 1)
    cost = run.cost
    cost.presses = sum(len(one.presses) for one in requests)
    cost.people = max(one.policy.needed for one in requests if one.presses)
    cost.first_message = requests[0].asked_at - BEGINS_AT
    cost.relief = (cost.begun[relieved_by] + most - BEGINS_AT) / MINUTE
    assert found.run.ending == ends
    return cost
