"""Changes that need no press: cleaning up, what an approval covered, and what the settings pre-approve."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.approvals.announced import PreApproved
from bot.domain.approvals.grant import Covered, Request
from bot.domain.approvals.rules import ApprovalRules
from bot.domain.changes.plan import Circumstance, LedgerEntry, Plan, Risk
from bot.domain.cluster.objects import ObjectRef
from tests import builders

pytestmark = pytest.mark.fast
WARNING = Circumstance(name="drain", grade="warning", text="streams are cut")
EDITS = {"edits": {"--max-num-seqs": 6}}


def why(plan: Plan, kind: str = "", *, risk: Risk = "low", **fields: Any) -> str:
    level = builders.policy()
    rules: dict[str, Any] = {
        name: fields.pop(name) for name in ("four_eyes", "risk_floors", "pre_approved") if name in fields
    }
    facts: dict[str, Any] = {
        "state": "roll",
        "target": builders.TARGET,
        "ledger": (),
        "earlier": (),
        "at": builders.START,
    } | fields
    found = ApprovalRules(low=level, medium=level, high=level, **rules)
    return found.announced(plan, kind or plan.verb, risk, **facts)


def undo(*of: str, **fields: Any) -> Plan:
    calls = tuple(builders.call(undoes=call_id, restores=True, **fields) for call_id in of)
    return builders.plan(verb="undo", choices={"of": list(of)}, steps=calls)


def entry(verb: str, call_id: str = "c1") -> LedgerEntry:
    workload = ObjectRef(kind="Deployment", namespace="serving", name="llm")
    return LedgerEntry(call_id=call_id, state="s", verb=verb, title=verb, target=workload, applied_at=builders.START)


# --- cleaning up ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["remove_canary", "return_replica"])
def test_removing_a_canary_and_returning_a_replica_are_announced(verb: str) -> None:
    assert why(builders.plan(verb=verb)) == "it only cleans up what the bot did"


@pytest.mark.parametrize("verb", ["scale", "promote", "set_flags", "rollback", "restart", "cordon_node", "drain_node"])
def test_any_other_change_is_asked_about(verb: str) -> None:
    assert why(builders.plan(verb=verb)) == ""


@pytest.mark.parametrize(
    ("plan", "ledger", "is_announced"),
    [
        pytest.param(undo("c1"), [entry("canary")], True, id="the-bots-own-canary"),
        pytest.param(undo("c1"), [entry("isolate_replica")], True, id="an-isolated-replica"),
        pytest.param(undo("c1"), [entry("set_flags")], False, id="a-flag"),
        pytest.param(undo("c1", "c2"), [entry("canary"), entry("scale", "c2")], False, id="a-canary-and-more"),
        pytest.param(undo("c9"), [entry("canary")], False, id="a-call-that-is-not-known"),
        pytest.param(builders.plan(verb="undo", steps=()), [entry("canary")], False, id="no-call"),
        pytest.param(
            undo("c1", target=ObjectRef(kind="HorizontalPodAutoscaler", namespace="serving", name="llm")),
            [entry("scale")], True, id="an-autoscalers-floor",
        ),
    ],
)  # fmt: skip
def test_an_undo_is_announced_if_it_only_removes_what_the_bot_added(
    plan: Plan, ledger: list[LedgerEntry], is_announced: bool
) -> None:
    assert bool(why(plan, ledger=ledger)) == is_announced


@pytest.mark.parametrize(
    "changed",
    [
        {"four_eyes": ("all",)},
        {"four_eyes": ("remove_canary",)},
        {"risk_floors": {"remove_canary": "high"}},
    ],
)
def test_settings_that_ask_for_more_are_obeyed(changed: dict[str, Any]) -> None:
    assert why(builders.plan(verb="remove_canary"), **changed) == ""


def test_a_warning_is_always_shown_to_people() -> None:
    assert why(builders.plan(verb="remove_canary", circumstances=(WARNING,))) == ""


# --- what an approval covers ------------------------------------------------------------------------------------------


def earlier(status: str = "granted", *, risk: Risk = "high", covers: tuple[str, ...] = ("roll",)) -> Request:
    canary = builders.plan(verb="canary", choices=EDITS | {"name": "llm-canary"}, risk=risk)
    later = tuple(Covered(state=name, title="Roll it out", risk="high") for name in covers)
    return builders.request(plan=canary, covers=later, status=status)


def rollout(edits: dict[str, Any] = EDITS, **fields: Any) -> Plan:
    return builders.plan(verb="promote", choices=edits, risk="high", **fields)


def test_an_approval_covers_the_later_change_that_its_request_listed() -> None:
    assert why(rollout(), risk="high", earlier=[earlier()]) == "R1 covers it"


@pytest.mark.parametrize(
    ("plan", "before"),
    [
        pytest.param(rollout({"edits": {"--max-num-seqs": 5}}), earlier(), id="other-edits"),
        pytest.param(rollout({}), earlier(), id="no-edits"),
        pytest.param(rollout(), earlier("refused"), id="refused"),
        pytest.param(rollout(), earlier("expired"), id="expired"),
        pytest.param(rollout(), earlier(covers=("other",)), id="another-change-was-listed"),
        pytest.param(rollout(), earlier(covers=()), id="nothing-was-listed"),
        pytest.param(rollout(), earlier(risk="medium"), id="a-higher-risk-than-was-approved"),
        pytest.param(rollout(circumstances=(WARNING,)), earlier(), id="a-warning"),
    ],
)
def test_anything_else_is_asked_about(plan: Plan, before: Request) -> None:
    assert why(plan, risk="high", earlier=[before]) == ""


def test_an_approval_covers_a_later_change_once() -> None:
    """Otherwise who may answer questions could start it again, hours later, after it failed or was taken back."""
    first = builders.request(request_id="R2", state="roll", plan=rollout(), status="granted")
    first = first.model_copy(update={"policy": first.policy.model_copy(update={"announced": "R1 covers it"})})
    assert why(rollout(), risk="high", earlier=[earlier(), first]) == ""
    again = earlier().model_copy(update={"request_id": "R3"})
    assert why(rollout(), risk="high", earlier=[earlier(), first, again]) == "R3 covers it"
    not_begun = first.model_copy(update={"status": "superseded"})
    assert why(rollout(), risk="high", earlier=[earlier(), not_begun]) == "R1 covers it"


def test_what_nobody_approved_covers_no_later_change() -> None:
    """The settings pre-approve the canary, and its rollout would begin without a press."""
    before = earlier()
    announced = before.policy.model_copy(update={"announced": f"the settings pre-approve {ONE_MORE}"})
    assert why(rollout(), risk="high", earlier=[before.model_copy(update={"policy": announced})]) == ""


def probe(canary: str) -> Plan:
    return builders.plan(verb="probe_request", choices={"replica": "llm-canary-1", "canary": canary}, risk="low")


@pytest.mark.parametrize(
    ("canary", "text"),
    [pytest.param("llm-canary", "R1 covers it", id="that-canary"), pytest.param("x", "", id="other")],
)
def test_the_approval_of_a_canary_covers_what_is_asked_of_it(canary: str, text: str) -> None:
    assert why(probe(canary), earlier=[earlier()]) == text


def test_the_newest_request_that_listed_it_counts() -> None:
    other = earlier().model_copy(update={"plan": rollout({"edits": {"--max-num-seqs": 5}}), "request_id": "R2"})
    assert why(rollout(), risk="high", earlier=[earlier(), other]) == ""


# --- what the settings pre-approve ------------------------------------------------------------------------------------

ONE_MORE = PreApproved(change="scale", at_most=2, targets=("serving/ll*",), hours="22:00-06:00")
NIGHT, NOON = 1_800_050_400.0, 1_800_014_400.0  # 22:00 and 12:00 UTC


def granted(kind: str) -> Request:
    return builders.request(kind=kind, status="granted")


def test_the_days_of_these_tests_are_what_they_say() -> None:
    assert (NIGHT % 86_400 / 3600, NOON % 86_400 / 3600) == (22, 12)


@pytest.mark.parametrize(
    ("changes", "is_permitted"),
    [
        pytest.param({}, True, id="within-bounds"),
        pytest.param({"earlier": [granted("scale")]}, True, id="once-before"),
        pytest.param({"earlier": [granted("scale"), granted("scale")]}, False, id="too-often"),
        pytest.param({"earlier": [granted("canary"), granted("canary")]}, True, id="other-changes-do-not-count"),
        pytest.param({"at": NOON}, False, id="another-hour"),
        pytest.param({"kind": "scale_more"}, False, id="another-kind"),
        pytest.param({"target": builders.TARGET.model_copy(update={"namespace": "batch"})}, False, id="elsewhere"),
        pytest.param({"four_eyes": ("scale",)}, False, id="four-eyes-win"),
    ],
)
def test_a_pre_approved_change_is_announced_within_its_bounds(changes: dict[str, Any], is_permitted: bool) -> None:
    given: dict[str, Any] = {"kind": "scale", "at": NIGHT, "pre_approved": (ONE_MORE,)} | changes
    announced = why(builders.plan(), **given)
    text = "the settings pre-approve it (at most 2 in one incident, for serving/ll*, 22:00-06:00 UTC)"
    assert announced == (text if is_permitted else "")


def test_who_pre_approves_the_end_of_a_busy_replica_accepts_that_its_streams_are_cut() -> None:
    rule = PreApproved(change="replace_busy_replica", at_most=1, least_serving=4)
    cut = builders.plan(verb="replace_replica", serving=4, circumstances=(WARNING,))
    given: dict[str, Any] = {"kind": "replace_busy_replica", "risk": "high", "pre_approved": (rule,)}
    assert why(cut, **given).startswith("the settings pre-approve it (at most 1 in one incident, with 4 in rotation")
    other = Circumstance(name="disruption_budget", grade="warning", text="not now")
    assert why(cut.model_copy(update={"circumstances": (WARNING, other)}), **given) == ""


def test_a_pre_approved_change_with_a_warning_is_asked_about() -> None:
    assert why(builders.plan(circumstances=(WARNING,)), at=NIGHT, pre_approved=(ONE_MORE,)) == ""


@pytest.mark.parametrize(("hours", "is_open"), [("", True), ("11:00-13:00", True), ("13:00-11:00", False)])
def test_hours_may_go_round_midnight(hours: str, is_open: bool) -> None:
    rule = PreApproved(change="scale", at_most=1, hours=hours)
    assert rule.permits(builders.plan(verb="scale"), "scale", builders.TARGET, (), at=NOON) == is_open


@pytest.mark.parametrize(
    ("serving", "wanted", "permitted"),
    [
        pytest.param(4, 6, True, id="within-both-bounds"),
        pytest.param(3, 6, False, id="too-few-serve"),
        pytest.param(None, 6, False, id="not-known-how-many-serve"),
        pytest.param(4, 7, False, id="too-many-replicas"),
    ],
)
def test_a_pre_approval_may_be_bound_by_replicas(serving: int | None, wanted: int, *, permitted: bool) -> None:
    rule = PreApproved(change="scale", at_most=1, least_serving=4, most_replicas=6)
    plan = builders.plan(verb="scale", choices={"to": wanted}, serving=serving)
    assert rule.permits(plan, "scale", builders.TARGET, (), at=NOON) is permitted


@pytest.mark.parametrize("kind", ["scale", "scale_more", "scale_over_half"])
def test_who_pre_approves_more_replicas_is_asked_before_one_is_taken_away(kind: str) -> None:
    rule = PreApproved(change=kind, at_most=1, most_replicas=6)
    fewer = builders.plan(verb="scale", choices={"to": 3, "ends": ["uid-4"]})
    more = builders.plan(verb="scale", choices={"to": 6})
    permitted = [rule.permits(plan, kind, builders.TARGET, (), at=NOON) for plan in (fewer, more)]
    assert permitted == [False, True]


def several(*names: str) -> Plan:
    choices = {"replicas": list(names), "uids": [f"{name}-uid" for name in names]}
    return builders.plan(verb="replace_replica", choices=choices, serving=6)


@pytest.mark.parametrize(
    ("earlier", "plan", "is_permitted"),
    [
        pytest.param([], several("a", "b"), True, id="as many as the rule allows"),
        pytest.param([], several("a", "b", "c"), False, id="more in one change"),
        pytest.param([several("a")], several("b", "c"), False, id="more with those before"),
        pytest.param([several("a", "b")], several("c"), False, id="none left"),
    ],
)
def test_each_replica_that_is_replaced_counts_for_a_rule(
    earlier: list[Plan], plan: Plan, *, is_permitted: bool
) -> None:
    rule = PreApproved(change="replace_replica", at_most=2)
    before = [builders.request(kind="replace_replica", status="granted", plan=each) for each in earlier]
    assert bool(why(plan, pre_approved=(rule,), earlier=before, risk="medium")) is is_permitted
