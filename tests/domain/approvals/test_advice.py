"""Where the bot only observes: by playbook and target, with the precedence of every override."""

from __future__ import annotations

import pytest

from bot.domain.approvals.advice import OBSERVE_ONLY, ObserveRule, Observing
from bot.domain.approvals.grant import grant
from bot.domain.kernel.errors import ApprovalError
from bot.domain.kernel.target import Target
from tests import builders

pytestmark = pytest.mark.fast
ALL, NONE = ObserveRule(True), ObserveRule(False)
HERE = ObserveRule(True, target="serving/*")
LLM = Target(cluster="east", namespace="serving", name="llm-70b")


def test_nobody_can_approve_what_is_only_advised() -> None:
    advised = builders.request(status="advised", advice=OBSERVE_ONLY)
    with pytest.raises(ApprovalError, match="only advised: the settings say observe-only"):
        grant(advised, (builders.judged_press(),))


@pytest.mark.parametrize(
    ("rules", "playbook", "expected"),
    [
        pytest.param([NONE], "p", False, id="nothing is set"),
        pytest.param([ALL], "p", True, id="everywhere"),
        pytest.param([ALL, ObserveRule(False, target="serving/llm-*")], "p", False, id="everywhere but this target"),
        pytest.param([ALL, ObserveRule(False, target="chat/*")], "p", True, id="another target"),
        pytest.param([ObserveRule(True, target="east/serving/*")], "p", True, id="a target of this cluster"),
        pytest.param([ObserveRule(True, target="west/serving/*")], "p", False, id="a target of another cluster"),
        pytest.param([NONE, ObserveRule(True, playbook="p")], "p", True, id="this playbook"),
        pytest.param([NONE, ObserveRule(True, playbook="p")], "q", False, id="another playbook"),
        pytest.param(
            [HERE, ObserveRule(False, playbook="p")],
            "p",
            True,
            id="a target counts more",
        ),
        pytest.param(
            [HERE, ObserveRule(False, "p", "serving/*")],
            "p",
            False,
            id="the later counts",
        ),
    ],
)
def test_the_most_specific_rule_says_where_the_bot_observes(
    rules: list[ObserveRule], playbook: str, expected: bool
) -> None:
    assert Observing(rules).is_on(playbook, LLM) is expected


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        pytest.param([NONE], False, id="nowhere"),
        pytest.param([ALL], True, id="everywhere"),
        pytest.param([ALL, ObserveRule(True, target="a/*")], True, id="everywhere, written twice"),
        pytest.param([ALL, ObserveRule(False, target="a/*")], False, id="one target is left out"),
        pytest.param([ALL, ObserveRule(False, playbook="p")], False, id="one playbook is left out"),
        pytest.param([NONE, ObserveRule(True, target="*")], False, id="only by a pattern"),
    ],
)
def test_the_bot_needs_no_permission_to_change_only_where_nothing_is_left_out(
    rules: list[ObserveRule], expected: bool
) -> None:
    assert Observing(rules).everywhere is expected


def test_no_program_is_run_in_a_pod_whose_target_some_playbook_only_observes() -> None:
    observing = Observing([NONE, ObserveRule(True, playbook="gpu-fault", target="serving/*")])
    assert observing.may_be_on(LLM)
    assert not observing.may_be_on(Target(namespace="chat", name="llm"))
