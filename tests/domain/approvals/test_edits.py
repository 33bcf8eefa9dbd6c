"""Only numbers of a known range may be edited, and an edit replaces the playbook's number and nothing else."""

from __future__ import annotations

import json

import pytest

from bot.domain.approvals.edits import editable_values, values_of, with_values
from bot.domain.approvals.kinds import kind_of
from bot.domain.changes.plan import Difference, Plan
from bot.domain.kernel.errors import ApprovalError
from tests import builders

pytestmark = pytest.mark.fast

EDITS = {"--max-num-seqs": "6", "--gpu-memory-utilization": "0.9", "--kv-cache-dtype": "fp8", "NCCL_DEBUG": "1"}
FLAGS = builders.plan(verb="set_flags", risk="high", choices={"edits": EDITS})
SCALE = builders.plan(choices={"to": 5})


def test_numbers_of_a_known_range_may_be_edited_and_nothing_else() -> None:
    assert [each.name for each in editable_values(FLAGS)] == ["--max-num-seqs", "--gpu-memory-utilization"]
    assert [(each.name, each.now) for each in editable_values(SCALE)] == [("replicas", "5")]
    assert editable_values(builders.plan(verb="promote", choices={"edits": EDITS})) == ()
    assert editable_values(builders.plan(verb="restart")) == ()


def test_the_range_is_shown_where_a_number_is_edited() -> None:
    assert [each.range_text for each in editable_values(SCALE)] == ["from 5 to 1000"]
    assert [each.range_text for each in editable_values(FLAGS)] == ["at least 1", "above 0, at most 1"]


@pytest.mark.parametrize(
    ("plan", "names"),
    [
        pytest.param(builders.plan(verb="canary", choices={"edits": EDITS}), 2, id="a-canaries-numbers"),
        pytest.param(builders.plan(verb="undo", choices={"to": 5}), 0, id="not-of-an-undo"),
        pytest.param(builders.plan(choices={"by": 1}), 0, id="not-of-a-scale-without-a-number"),
        pytest.param(builders.plan(verb="set_flags", choices={"edits": {"--max-num-seqs": "$(N)"}}), 0, id="no-number"),
    ],
)
def test_only_a_number_that_is_known_is_offered(plan: Plan, names: int) -> None:
    assert len(editable_values(plan)) == names


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("--gpu-memory-utilization", "1", 1.0),
        ("--gpu-memory-utilization", " 0.01 ", 0.01),
        ("--max-num-seqs", " 1 ", 1),
    ],
)
def test_the_ends_of_a_range_may_be_written(name: str, text: str, value: float) -> None:
    assert values_of(FLAGS, json.dumps({name: text})) == {name: value}


@pytest.mark.parametrize(("text", "value"), [("6", 6), (" 1000 ", 1000)])
def test_the_ends_of_the_range_of_replicas_may_be_written(text: str, value: int) -> None:
    assert values_of(SCALE, json.dumps({"replicas": text})) == {"replicas": value}


def test_what_is_out_of_range_is_reported_with_what_was_written() -> None:
    with pytest.raises(ApprovalError) as refused:
        values_of(FLAGS, json.dumps({"--max-num-seqs": " 0 "}))
    assert str(refused.value) == "--max-num-seqs has to be at least 1, not 0"


def test_what_is_written_is_read_as_the_engine_reads_it() -> None:
    written = {"--max-num-seqs": " 8 ", "--gpu-memory-utilization": "0.85"}
    assert values_of(FLAGS, json.dumps(written)) == {"--max-num-seqs": 8, "--gpu-memory-utilization": 0.85}


@pytest.mark.parametrize(
    ("before", "after", "asked", "allowed"),
    [(4, 5, "4", "from 5 to 1000"), (4, 5, "3", "from 5 to 1000"), (6, 4, "6", "from 1 to 5")],
)
def test_an_edit_does_not_turn_more_replicas_into_fewer(before: int, after: int, asked: str, allowed: str) -> None:
    difference = Difference(path="/spec/replicas", before=before, after=after)
    call = builders.call().model_copy(update={"differences": (difference,)})
    scale = builders.plan(verb="scale", choices={"to": after}, steps=(call,))
    assert [each.range_text for each in editable_values(scale)] == [allowed]
    with pytest.raises(ApprovalError, match=allowed):
        values_of(scale, json.dumps({"replicas": asked}))


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        pytest.param({"--max-num-seqs": "0"}, "has to be at least 1", id="too-small"),
        pytest.param({"--gpu-memory-utilization": "1.2"}, "at most 1", id="too-large"),
        pytest.param({"--gpu-memory-utilization": "nan"}, "at most 1", id="not-a-number"),
        pytest.param({"--max-num-seqs": "6.5"}, "whole number", id="a-fraction"),
        pytest.param({"--max-num-seqs": "many"}, "whole number", id="a-word"),
        pytest.param({"--max-num-seqs": ""}, "whole number", id="nothing"),
        pytest.param({"--kv-cache-dtype": "auto"}, "not of this request", id="not-offered"),
        pytest.param({"--max-num-seqs": "6"}, "nothing is different", id="the-same"),
        pytest.param({}, "nothing is different", id="empty"),
    ],
)
def test_what_may_not_be_written_says_why(written: dict[str, str], reason: str) -> None:
    with pytest.raises(ApprovalError, match=reason):
        values_of(FLAGS, json.dumps(written))


@pytest.mark.parametrize("text", ["0", "-1", "1001", "5.5", "²", "", "9" * 40, "0000000011999"])
def test_replicas_are_a_whole_number_in_range(text: str) -> None:
    with pytest.raises(ApprovalError, match="from 5 to 1000"):
        values_of(SCALE, json.dumps({"replicas": text}))


@pytest.mark.parametrize("written", ["", "[]", "6", '"x"'])
def test_a_press_that_carries_no_values_is_refused(written: str) -> None:
    with pytest.raises(ApprovalError, match="not of this request"):
        values_of(FLAGS, written)


def test_another_number_of_replicas_leaves_what_else_was_asked_for() -> None:
    asked = {"by": 1, "above_maximum": True}
    assert with_values("scale", asked, {"replicas": 6}) == {"to": 6, "above_maximum": True}
    assert with_values("scale", {"to": 5}, {"replicas": 6}) == {"to": 6}


@pytest.mark.parametrize("field", ["minReplicas", "minReplicaCount"])
def test_an_edit_does_not_lower_the_floor_of_an_autoscaler(field: str) -> None:
    difference = Difference(path=f"/spec/{field}", before=4, after=5)
    call = builders.plan(verb="scale").calls[0].model_copy(update={"differences": (difference,)})
    plan = builders.plan(verb="scale", choices={"to": 5}, steps=(call,))
    assert [each.range_text for each in editable_values(plan)] == ["from 5 to 1000"]


def test_the_numbers_of_the_playbook_are_replaced_and_its_other_edits_stay() -> None:
    edits = [{"flag": "max_num_seqs", "value": 6}, {"env": "NCCL_DEBUG", "value": "1"}]
    wanted = with_values("set_flags", {"edits": edits}, {"--max-num-seqs": 8})
    assert wanted == {"edits": [{"flag": "max_num_seqs", "value": 8}, {"env": "NCCL_DEBUG", "value": "1"}]}
    assert with_values("scale", {"by": 1}, {"replicas": 7}) == {"to": 7}
    assert with_values("restart", {}, {"replicas": 7}) == {}
    arguments = {
        "edits": ({"flag": "--max-num-seqs", "value": 6}, "as it was", {"flag": "--made-up", "value": 1}),
        "a": 1,
    }
    assert with_values("set_flags", arguments, {"--max-num-seqs": 8}) == {
        "edits": [{"flag": "--max-num-seqs", "value": 8}, "as it was", {"flag": "--made-up", "value": 1}],
        "a": 1,
    }


def test_a_number_of_a_person_reaches_the_flag_that_was_chosen_of_several() -> None:
    edits = [{"first_of": ["--max-num-active-seqs", "--max-num-seqs"], "value": 6}]
    wanted = with_values("set_flags", {"edits": edits}, {"--max-num-seqs": 8})
    assert wanted == {"edits": [{**edits[0], "value": 8}]}


CANARY = builders.plan(verb="canary", choices={"edits": {"--max-num-seqs": "6"}, "rotation": "out"})


@pytest.mark.parametrize(
    ("verb", "choices", "kind"),
    [
        pytest.param("set_flags", {"edits": {"--max-num-seqs": "6"}}, "promote", id="as-the-canary-ran"),
        pytest.param("set_flags", {"edits": {"--max-num-seqs": "9"}}, "set_flags", id="other-than-the-canary"),
        pytest.param("set_flags", {"edits": {"--max-model-len": "9"}}, "client_contract", id="contract"),
        pytest.param("promote", {"edits": {"--kv-cache-dtype": "fp8"}}, "answer_quality", id="quality"),
        pytest.param(
            "set_flags", {"edits": {"--kv-cache-dtype": "x", "--max-model-len": "9"}}, "answer_quality", id="both"
        ),
        pytest.param("canary", {"edits": {"--kv-cache-dtype": "fp8"}, "rotation": "out"}, "canary", id="out-of-reach"),
        pytest.param("canary", {"edits": {"--kv-cache-dtype": "fp8"}, "rotation": "in"}, "answer_quality", id="in"),
        pytest.param("rotate_canary", {"rotation": "in"}, "rotate_canary", id="harmless-canary"),
        pytest.param("rollback", {"revision": 3}, "rollback", id="verb"),
    ],
)
def test_a_plan_is_of_the_kind_that_does_the_most_harm(verb: str, choices: dict[str, object], kind: str) -> None:
    assert kind_of(builders.plan(verb=verb, choices=choices, risk="high"), [CANARY]) == kind


def test_turning_traffic_to_a_canary_is_judged_by_what_the_canary_runs() -> None:
    canary = builders.plan(verb="canary", choices={"edits": {"--kv-cache-dtype": "fp8"}, "rotation": "out"})
    turned = builders.plan(verb="rotate_canary", choices={"rotation": "in"}, risk="medium")
    assert kind_of(turned, [CANARY, canary]) == "answer_quality"
    assert kind_of(turned) == "rotate_canary"


def test_what_was_applied_after_the_canary_does_not_hide_that_the_canary_ran_these_flags() -> None:
    flags = builders.plan(verb="set_flags", choices={"edits": {"--max-num-seqs": "6"}}, risk="high")
    assert kind_of(flags, [CANARY, builders.plan(verb="isolate_replica")]) == "promote"


def test_a_change_that_gives_no_answers_by_other_settings_is_of_its_own_kind_whatever_it_names() -> None:
    assert kind_of(builders.plan(verb="remove_canary", choices={"edits": {"--kv-cache-dtype": "x"}})) == "remove_canary"


@pytest.mark.parametrize(("risk", "kind"), [("medium", "replace_replica"), ("high", "replace_busy_replica")])
def test_ending_a_replica_that_has_users_is_another_kind(risk: str, kind: str) -> None:
    assert kind_of(builders.plan(verb="replace_replica", risk=risk)) == kind


@pytest.mark.parametrize(("risk", "kind"), [("low", "scale"), ("medium", "scale_more"), ("high", "scale_over_half")])
def test_a_larger_step_is_another_kind(risk: str, kind: str) -> None:
    assert kind_of(builders.plan(risk=risk)) == kind
