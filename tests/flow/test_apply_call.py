"""Between a grant and its call: what stops it, what delays it, and that it can succeed only once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from bot.adapters.redis.claims import BreakerLimits
from bot.domain.approvals.announced import PreApproved
from bot.domain.incidents.effect import ApplyStep
from bot.domain.incidents.event import Commanded, StepSettled
from bot.domain.incidents.run import Halt, Run
from bot.flow.handlers.apply import PATIENCE_SECONDS, what_changed
from bot.flow.perform_effect import Done, EffectContext, Later
from bot.flow.ports.storage import Owed
from tests import builders
from tests.flow import harness
from tests.flow.harness import GRANT_VALID_SECONDS, Bot, Scene, play, timeline_text, until

pytestmark = pytest.mark.fast
OTHER = "INC-99"
WORKLOAD = builders.TARGET.key
STEP = ApplyStep(effect_id="v3/apply/R2/0/0", request_id="R2", step=0)


async def asked(scene: Scene, bot: Bot, request_id: str = "R2") -> Run:
    """The request stands in Slack, and nobody has decided."""
    scene.people_are_there = True
    await until(scene, bot, lambda run: run.open_question is not None, "asked which mitigation")
    await bot.turn()
    scene.people_are_there = False
    return await until(scene, bot, lambda run: is_posted(run, request_id), f"posted {request_id}")


def is_posted(run: Run, request_id: str) -> bool:
    request = run.open_request
    return request is not None and request.request_id == request_id and request.posted_at is not None


async def command(scene: Scene, bot: Bot, word: str) -> None:
    event = Commanded.model_validate({"event_id": f"{word}/{scene.time.now()}", "command": word, "user": "U0ANA"})
    assert await bot.receive.command(event, "INC-1")


async def approved(scene: Scene, bot: Bot, reached: Callable[[Run], bool], what: str) -> Run:
    scene.people_are_there = True
    return await until(scene, bot, reached, what)


def is_asked_what_next(run: Run) -> bool:
    return run.open_question is not None and run.open_question.built_in


async def test_without_enough_presses_nothing_is_sent(scene: Scene, bot: Bot) -> None:
    run = await asked(scene, bot)
    assert run.change is not None
    granted_by_nobody = run.with_(change=run.change.model_copy(update={"begun": True}))
    done = await bot.apply(EffectContext(granted_by_nobody, Owed("INC-1", STEP, 0, ""), scene.time.now()), STEP)
    assert isinstance(done, Done)
    (event,) = done.events
    assert isinstance(event, StepSettled)
    assert (event.result, event.detail) == ("withheld", "not granted: 2 more approvals needed")
    assert scene.cluster.sent == []


async def test_a_halt_stops_the_call_and_a_resume_sends_it(scene: Scene, bot: Bot) -> None:
    await asked(scene, bot)
    await command(scene, bot, "halt")
    run = await approved(scene, bot, is_halted, "halted")
    assert run.requests["R2"].status == "granted"
    assert scene.cluster.sent == []
    await command(scene, bot, "resume")
    assert (await play(scene)).calls["INC/R2/0"] == 1


@pytest.mark.parametrize("first", ["its own halt", "the halt of all"])
async def test_after_a_halt_of_all_is_lifted_the_run_names_who_halted_it_by_itself(
    scene: Scene, bot: Bot, first: str
) -> None:
    await asked(scene, bot)
    halts = ["its own halt", "the halt of all"]
    for halt in halts if first == halts[0] else reversed(halts):
        await (command(scene, bot, "halt") if halt == halts[0] else bot.receive.halt_all("U0BEN"))
        await bot.turn()
    await bot.receive.resume_all("U0BEN")
    await bot.turn()
    run = await scene.run()
    assert run is not None
    assert run.halt == Halt(by="U0ANA")


def is_halted(run: Run) -> bool:
    return run.change is not None and run.change.progress.startswith("halted")


async def test_a_workload_that_another_incident_changes_is_waited_for(scene: Scene, bot: Bot) -> None:
    await asked(scene, bot)
    leases = [f"workload/{WORKLOAD}"]
    await bot.claims.claim(OTHER, f"{OTHER}/R1/0", workload_key="other", lease_keys=leases, disruption="a change")
    await approved(scene, bot, lambda run: "another incident" in waits_for(run), "put off")
    assert scene.cluster.sent == []
    await bot.claims.release(OTHER)
    assert (await play(scene)).calls["INC/R2/0"] == 1


async def test_the_workload_stays_leased_for_as_long_as_its_rollout_takes(scene: Scene, bot: Bot) -> None:
    await asked(scene, bot)
    await command(scene, bot, "halt")
    run = await approved(scene, bot, is_halted, "halted")
    await bot.claims.set_halt("INC-1", by="")
    leases = [f"workload/{WORKLOAD}"]
    assert (
        await bot.claims.claim("INC-1", "INC-1/R2/0", workload_key="", lease_keys=leases, disruption="a change")
        == "claimed"
    )
    scene.cluster.unreachable = "it is not known how far the rollout is"
    began = scene.time.now()
    assert run.change is not None
    rolling = run.with_(change=run.change.model_copy(update={"step": 1, "step_started_at": began}))
    effect = ApplyStep(effect_id="v3/apply/R2/1/0", request_id="R2", step=1)
    while scene.time.now() < began + BreakerLimits().lease_seconds + 60:
        context = EffectContext(rolling, Owed("INC-1", effect, 0, ""), scene.time.now())
        assert await bot.apply(context, effect) == Later(0.0), "it still waits"
    theirs = f"{OTHER}/R1/0"
    assert (
        await bot.claims.claim(OTHER, theirs, workload_key="", lease_keys=leases, disruption="a change") == "lease_held"
    )


def waits_for(run: Run) -> str:
    return run.change.progress if run.change else ""


async def test_an_open_breaker_lets_no_further_change_pass(scene: Scene, bot: Bot) -> None:
    await asked(scene, bot)
    for number in range(3):
        call = f"{OTHER}/R{number}/0"
        await bot.claims.claim(OTHER, call, workload_key=WORKLOAD, lease_keys=[], disruption=call)
    run = await approved(scene, bot, is_asked_what_next, "asked what next")
    assert scene.cluster.sent == []
    assert run.visit.state == "cap"
    assert "the breaker is open" in (run.open_question.text if run.open_question else "")


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(GRANT_VALID_SECONDS + 1, id="too late"),
        pytest.param(-3600.0, id="the clock went back, and nobody can tell how late it is"),
    ],
)
async def test_a_grant_that_was_not_begun_in_time_lapses_and_is_asked_for_again(
    scene: Scene, bot: Bot, seconds: float
) -> None:
    await asked(scene, bot)
    await command(scene, bot, "halt")
    await approved(scene, bot, is_halted, "halted")
    scene.people_are_there = False
    await scene.time.advance(seconds)
    await command(scene, bot, "resume")
    run = await until(scene, bot, lambda run: is_posted(run, "R3"), "asked again")
    assert run.requests["R2"].status == "superseded"
    assert scene.cluster.sent == []


async def test_a_call_that_was_claimed_long_ago_and_never_arrived_is_asked_for_again(scene: Scene, bot: Bot) -> None:
    """The bot died between the claim and the call, and came back much later."""
    await asked(scene, bot)
    await command(scene, bot, "halt")
    await approved(scene, bot, is_halted, "halted")
    scene.people_are_there = False
    await bot.claims.set_halt("INC-1", by="")
    leases = [f"workload/{WORKLOAD}"]
    assert (
        await bot.claims.claim("INC-1", "INC-1/R2/0", workload_key="", lease_keys=leases, disruption="a change")
        == "claimed"
    )
    await scene.time.advance(GRANT_VALID_SECONDS + PATIENCE_SECONDS + 1)
    await command(scene, bot, "resume")
    run = await until(scene, bot, lambda run: is_posted(run, "R3"), "asked again")
    assert run.requests["R2"].status == "superseded"
    assert scene.cluster.sent == []


async def test_a_plan_that_has_become_another_one_is_asked_for_again(scene: Scene, bot: Bot) -> None:
    await asked(scene, bot)
    args = [arg.replace("64", "32") for arg in scene.cluster.flags()]
    scene.cluster.edit("llm", "/spec/template/spec/containers/0/args", args)
    run = await approved(scene, bot, lambda run: run.requests["R2"].status == "superseded", "superseded")
    assert scene.cluster.sent == []
    assert "--max-num-seqs 32 → 6 instead of --max-num-seqs 64 → 6" in run.requests["R2"].decision_reason
    assert (await play(scene)).calls["INC/R3/0"] == 1


@pytest.mark.parametrize(
    ("thrash", "reason"),
    [
        pytest.param(0.0, "the reason for this change is gone", id="the reason is gone"),
        pytest.param(None, "cannot be read again", id="the reason cannot be read"),
    ],
)
async def test_a_change_without_its_reason_is_not_made(
    scene: Scene, bot: Bot, thrash: float | None, reason: str
) -> None:
    await asked(scene, bot)
    readings = {} if thrash is None else {"thrash": thrash}
    scene.script = lambda: readings
    run = await approved(scene, bot, is_asked_what_next, "asked what next")
    assert run.open_question is not None
    assert reason in run.open_question.text
    assert scene.cluster.sent == []


@pytest.mark.parametrize("reads", [1, 2])
async def test_a_read_that_fails_right_before_the_call_is_repeated_and_the_grant_stays(
    scene: Scene, bot: Bot, reads: int
) -> None:
    await asked(scene, bot)
    scene.cluster.failing_reads = reads
    ending = await play(scene)
    assert scene.cluster.failing_reads == 0
    assert ending.decisions["R2"] == "granted"
    assert ending.calls["INC/R2/0"] == 1


async def test_a_signal_that_is_missing_for_a_moment_right_before_the_call_does_not_cost_the_grant(
    scene: Scene, bot: Bot
) -> None:
    await asked(scene, bot)
    complete, reads = scene.script, 0

    def missing_once() -> Mapping[str, object]:
        nonlocal reads
        reads += 1
        return {} if reads == 1 else complete()

    scene.script = missing_once
    ending = await play(scene)
    assert ending.decisions["R2"] == "granted"
    assert ending.calls["INC/R2/0"] == 1


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        pytest.param({}, "", id="the same"),
        pytest.param({"risk": "low"}, "", id="less risk"),
        pytest.param({"risk": "high"}, "its risk is high, not medium", id="more risk"),
        pytest.param({"approved_by": ("platform",)}, "platform must approve it too", id="one more team"),
        pytest.param({"choices": {"to": 9}}, "the plan has changed", id="another plan"),
    ],
)
def test_what_was_granted_is_asked_again_where_more_would_be_asked_for(now: dict[str, Any], reason: str) -> None:
    granted = builders.plan(risk="medium")
    changed = what_changed(granted, granted.model_copy(update=now))
    assert reason in changed
    assert bool(reason) == bool(changed)


async def test_after_a_lost_reply_the_cluster_is_asked_and_the_call_is_not_sent_again(scene: Scene, bot: Bot) -> None:
    await asked(scene, bot)
    scene.cluster.troubles = ["lost_reply"]
    ending = await play(scene)
    assert ending.calls["INC/R2/0"] == 1
    assert [sent for sent in scene.cluster.sent if "R2" in sent[0]] == [("INC-1/R2/0", "unclear")]


@pytest.mark.parametrize("refused_by", ["a halt", "the lease of another incident"])
async def test_a_call_that_may_have_been_sent_is_looked_up_before_it_is_refused(
    scene: Scene, bot: Bot, refused_by: str
) -> None:
    """Otherwise the change is in force without an undo, and people read that nothing was changed."""
    await asked(scene, bot)
    scene.cluster.troubles = ["lost_reply"]
    await approved(scene, bot, lambda run: scene.cluster.sent != [], "sent")
    if refused_by == "a halt":
        await command(scene, bot, "halt")
    else:
        await scene.time.advance(BreakerLimits().lease_seconds + 1)
        leases = [f"workload/{WORKLOAD}"]
        await bot.claims.claim(OTHER, f"{OTHER}/R1/0", workload_key="other", lease_keys=leases, disruption="a change")
    run = await until(scene, bot, lambda run: bool(run.ledger), "known to be in force")
    assert [entry.call_id for entry in run.ledger] == ["INC-1/R2/0"]
    assert [result for call, result in scene.cluster.sent if "R2" in call] == ["unclear"]


async def test_a_halt_of_a_call_of_which_nobody_knows_whether_it_was_sent_says_so(scene: Scene, bot: Bot) -> None:
    await asked(scene, bot)
    scene.cluster.troubles = ["cut_off"]
    await approved(scene, bot, lambda run: scene.cluster.sent != [], "sent")
    await command(scene, bot, "halt")
    await approved(scene, bot, is_asked_what_next, "asked what next")
    assert "it may have been sent before; now it was halted" in await timeline_text(scene)


async def test_a_call_that_was_carried_out_while_it_was_sent_again_is_done_and_its_undo_is_kept(
    scene: Scene, bot: Bot
) -> None:
    """Its answer was late: looked at, it was not done yet; sent again, it lost against itself."""
    await asked(scene, bot)
    scene.cluster.troubles = ["late"]
    ending = await play(scene)
    assert ending.calls["INC/R2/0"] == 1
    assert [result for call, result in scene.cluster.sent if call == "INC-1/R2/0"] == ["unclear", "failed"]
    assert "INC/R2/0" in ending.ledger
    assert "changed by somebody else" not in await timeline_text(scene)


async def test_a_call_that_never_arrived_is_sent_again(scene: Scene, bot: Bot) -> None:
    await asked(scene, bot)
    scene.cluster.troubles = ["never_arrived"]
    ending = await play(scene)
    assert ending.calls["INC/R2/0"] == 1
    assert [result for call, result in scene.cluster.sent if "R2" in call] == ["unclear", "done"]


async def test_a_budget_that_says_not_now_is_asked_again_later(scene: Scene, bot: Bot) -> None:
    await asked(scene, bot)
    scene.cluster.troubles = ["429", "429"]
    began = scene.time.now()
    ending = await play(scene)
    assert ending.calls["INC/R2/0"] == 1
    assert [result for call, result in scene.cluster.sent if "R2" in call] == ["failed", "failed", "done"]
    assert scene.time.now() - began > 20


async def test_what_is_unclear_after_three_checks_is_a_question_for_people(scene: Scene, bot: Bot) -> None:
    await asked(scene, bot)
    scene.cluster.troubles = ["cut_off"]
    await approved(scene, bot, is_asked_what_next, "asked what next")
    assert scene.cluster.sent == [("INC-1/R2/0", "unclear")]
    assert "unclear" in await timeline_text(scene)


async def test_a_lost_lease_stops_before_the_call(scene: Scene, bot: Bot) -> None:
    await asked(scene, bot)
    await command(scene, bot, "halt")
    run = await approved(scene, bot, is_halted, "halted")
    await bot.claims.set_halt("INC-1", by="")
    context = EffectContext(run, Owed("INC-1", STEP, 0, ""), scene.time.now())
    context.lost.set()
    assert await bot.apply(context, STEP) == Later(0.0)
    assert scene.cluster.sent == []


@pytest.mark.parametrize(
    ("bounds", "is_sent"),
    [
        pytest.param({"hours": "07:00-08:02"}, False, id="its hours are over"),
        pytest.param({"least_serving": 4}, False, id="a replica fell out of rotation"),
        pytest.param({}, True, id="still within its bounds"),
    ],
)
async def test_a_pre_approved_change_that_had_to_wait_is_sent_only_within_its_bounds(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, bounds: dict[str, Any], is_sent: bool
) -> None:
    rule = PreApproved(change="set_flags", at_most=2, **bounds)
    approvals = harness.RULES.approvals.model_copy(update={"pre_approved": (rule,), "risk_floors": {}})
    monkeypatch.setattr(harness, "RULES", harness.RULES.model_copy(update={"approvals": approvals}))
    bot = Bot(scene, "one")
    leases = [f"workload/{WORKLOAD}"]
    await bot.claims.claim(OTHER, f"{OTHER}/R1/0", workload_key="other", lease_keys=leases, disruption="a change")
    scene.people_are_there = True
    await until(scene, bot, lambda run: "another incident" in waits_for(run), "put off")
    if "least_serving" in bounds:
        served = scene.cluster._served
        monkeypatch.setattr(scene.cluster, "_served", lambda pods: served(pods)[1:])
    await scene.time.advance(180)
    await bot.claims.release(OTHER)
    scene.people_are_there = False
    for _ in range(12):
        await bot.turn()
        await scene.time.advance(5)
    assert bool(scene.cluster.sent) == is_sent
    if not is_sent:
        run = await scene.run()
        assert run is not None
        assert run.open_request is not None, "people are asked now"
        assert not run.open_request.policy.announced
