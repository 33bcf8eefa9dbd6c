"""Observe-only and freezes with the real Redis: everything but the calls, and no way around it."""

from __future__ import annotations

from typing import Any

import pytest

from bot.adapters.redis.claims import RedisClaims
from bot.adapters.redis.connection import Connection
from bot.domain.approvals.advice import ObserveRule, Observing
from bot.domain.changes.catalogue import VERBS
from bot.domain.changes.plan import Call
from bot.domain.incidents.run import Run
from bot.domain.incidents.stub_plans import stub_plan
from bot.flow.ports.storage import ClaimVerdict
from tests import builders
from tests.flow.harness import LEAD, Bot, Scene, play, timeline_text, until
from tests.flow.test_one_step import Outside, granted, settled

pytestmark = pytest.mark.fast
EVERYWHERE = Observing([ObserveRule(True)])
"""As `observe_only: true` in the settings."""


def waits_with_advice(run: Run) -> bool:
    return run.advised is not None


async def test_a_whole_incident_is_only_observed(scene: Scene) -> None:
    scene.observing = EVERYWHERE
    bot = Bot(scene, "one")
    await until(scene, bot, waits_with_advice, "advised")
    text = await timeline_text(scene)
    assert "changes are only advised: the settings say observe-only" in text
    assert "only advised: the settings say observe-only" in text
    # People do it by hand, and the alert resolves.
    scene.cluster.objects["Deployment", "llm"]["spec"]["template"]["spec"]["containers"][0]["args"] = [
        "--max-num-seqs=6"
    ]
    scene.alerts.append(builders.alert("resolved"))
    run = await until(scene, bot, lambda run: not run.is_open, "closed")
    assert run.ending == "observed"
    assert run.requests["R2"].outcome == "recovered"
    assert scene.cluster.sent == [], "nothing was sent to the cluster"
    assert run.ledger == ()


async def test_a_dry_run_is_not_sent_where_the_bot_only_observes(scene: Scene) -> None:
    """Its role may not allow it."""

    async def refused(call: Call) -> str:
        raise AssertionError(f"a dry run was sent: {call.title}")

    scene.observing = EVERYWHERE
    scene.cluster.dry_run = refused  # type: ignore[method-assign]
    scene.cluster.lacking = refused  # type: ignore[assignment]
    await until(scene, Bot(scene, "one"), waits_with_advice, "advised")


async def test_a_person_who_carries_it_out_is_on_the_timeline(scene: Scene) -> None:
    scene.observing = EVERYWHERE
    bot = Bot(scene, "one")
    run = await until(scene, bot, waits_with_advice, "advised")
    assert run.advised is not None
    press = builders.press(
        press_id="mine", channel=scene.place_of("request:R2"), action="carried_out", about="R2", user=LEAD,
        digest=run.advised.digest, reason="traffic was shifted",
    )  # fmt: skip
    await bot.receive.press(press, run.incident_id)
    run = await until(scene, bot, lambda run: bool(run.requests["R2"].carried_out), "recorded")
    assert [(each.user, each.text) for each in run.requests["R2"].carried_out] == [(LEAD, "traffic was shifted")]
    assert "a person does something else: traffic was shifted" in await timeline_text(scene)


async def test_an_observed_incident_ends_after_some_hours_and_its_alert_may_open_another(scene: Scene) -> None:
    scene.observing = EVERYWHERE
    bot = Bot(scene, "one")
    await until(scene, bot, waits_with_advice, "advised")
    await scene.time.advance(4 * 3600)
    run = await until(scene, bot, lambda run: not run.is_open, "closed")
    assert (run.ending, run.requests["R2"].outcome) == ("observed", "not_recovered")


async def test_a_request_from_before_the_bot_only_observed_becomes_advice_when_it_is_approved(scene: Scene) -> None:
    await until(scene, Bot(scene, "one"), lambda run: run.open_request is not None, "requested")
    scene.observing = EVERYWHERE
    run = await until(scene, Bot(scene, "two"), waits_with_advice, "advised")
    assert run.requests["R2"].decision_reason == "it is only advised now: the settings say observe-only"
    assert scene.cluster.sent == []


async def test_only_the_named_playbook_is_observed(scene: Scene) -> None:
    scene.observing = Observing([ObserveRule(False), ObserveRule(True, playbook="another")])
    assert (await play(scene)).ending == "fixed"
    assert scene.cluster.applied


# --- defence in depth -------------------------------------------------------------------------------------------------


async def claimed(claims: RedisClaims, playbook: str = "drill") -> ClaimVerdict:
    return await claims.claim(
        "INC-1", "INC-1/R1/0", workload_key=builders.TARGET.key, lease_keys=[], disruption="", playbook=playbook
    )


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [
        (ObserveRule(True), "observe_only"),
        (ObserveRule(True, playbook="drill"), "observe_only"),
        (ObserveRule(True, target="serving/ll*"), "observe_only"),
        (ObserveRule(True, playbook="another"), "claimed"),
        (ObserveRule(True, target="chat/*"), "claimed"),
    ],
)
async def test_no_call_is_claimed_where_the_bot_only_observes(
    redis: Connection, rule: ObserveRule, verdict: ClaimVerdict
) -> None:
    claims = RedisClaims(redis, observing=Observing([rule]))
    assert await claimed(claims) == verdict
    assert await claims.was_claimed("INC-1", "INC-1/R1/0") is (verdict == "claimed")


METHODS = ("patch", "create", "delete", "evict", "generate")


@pytest.mark.parametrize("before", [False, True], ids=["first", "after an attempt"])
@pytest.mark.parametrize("verb", sorted(VERBS))
async def test_no_granted_change_of_any_verb_is_sent_where_the_bot_only_observes(
    verb: str, before: bool, redis: Connection
) -> None:
    """Whatever was granted, announced, or takes back what the bot did: the claim refuses it."""
    claims: Any = RedisClaims(redis, observing=EVERYWHERE)
    made = stub_plan(verb, {"replica": "llm-1", "node": "gpu-node-1"}, builders.run())
    for method in METHODS:
        call = made.calls[0].model_copy(update={"method": method})
        outside = Outside(claimed_before=before)
        outside.claim = claims.claim  # type: ignore[method-assign]
        event = await settled(outside, granted(made.model_copy(update={"steps": (call,)})))
        assert outside.calls == [], f"{verb} sent a {method}"
        assert event.result == ("unclear" if before and method == "generate" else "withheld")


async def test_a_change_that_is_under_way_sends_no_further_call_once_the_bot_only_observes(redis: Connection) -> None:
    claims: Any = RedisClaims(redis, observing=EVERYWHERE)
    two = builders.plan(steps=(builders.call(), builders.call(title="the second call")))
    outside = Outside()
    outside.claim = claims.claim  # type: ignore[method-assign]
    event = await settled(outside, granted(two, step=1), step=1)
    assert (event.result, outside.calls) == ("withheld", [])
