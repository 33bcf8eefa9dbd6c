"""Mitigations for diagnoses: the contents of the table, and no move in the wrong direction."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.domain.changes.planning import plan_change
from bot.domain.flags.flag_history import life_of_flag
from bot.domain.flags.flag_table import newest_table
from bot.domain.flags.mitigations import DIRECTIONS, Move, effect_of, mitigations, refuse_what_harms
from bot.domain.kernel.errors import NoPlanError
from tests.domain.changes.snapshots import CONTEXT, declined, deployment, planned, snapshot, template

pytestmark = pytest.mark.fast


def test_every_mitigation_is_a_flag_and_every_diagnosis_is_described() -> None:
    table = mitigations()
    for flag, known in table.mitigations.items():
        assert newest_table().name_of(flag) or life_of_flag(flag), flag
        assert known.keys() <= table.diagnoses.keys(), flag
    assert {diagnosis for known in table.mitigations.values() for diagnosis in known} == table.diagnoses.keys()


def test_every_diagnosis_has_something_that_helps() -> None:
    for diagnosis in mitigations().diagnoses:
        effects = [
            effect_of(flag, diagnosis, direction) for flag in mitigations().mitigations for direction in DIRECTIONS
        ]
        assert any(effect is not None and effect.effect == "helps" for effect in effects), diagnosis


@pytest.mark.parametrize(
    ("move", "diagnosis", "reason"),
    [
        pytest.param(
            Move("--max-num-seqs", 256, 512), "kv_thrash", "the pool|a pool that is full", id="more-into-a-full-pool"
        ),
        pytest.param(Move("--gpu-memory-utilization", 0.92, 0.9), "kv_thrash", "smaller KV pool", id="a-smaller-pool"),
        pytest.param(Move("--gpu-memory-utilization", 0.9, 0.92), "oom_serving", "activations", id="less-room"),
        pytest.param(Move("--max-num-seqs", "8", "9", "lower"), "", "means a lower", id="not-as-it-is-written"),
    ],
)
def test_a_move_the_wrong_way_is_impossible(move: Move, diagnosis: str, reason: str) -> None:
    with pytest.raises(NoPlanError, match=reason) as refused:
        refuse_what_harms([move], diagnosis)
    assert refused.value.outcome == "impossible"


@pytest.mark.parametrize(
    ("move", "diagnosis"),
    [
        pytest.param(Move("--max-num-seqs", 256, 6, "lower"), "kv_thrash", id="helps"),
        pytest.param(Move("--max-num-seqs", None, 6), "kv_thrash", id="nobody-knows-from-where"),
        pytest.param(Move("--gpu-memory-utilization", 0.9, 0.8), "oom_weights", id="does-nothing"),
        pytest.param(Move("--kv-cache-dtype", "auto", "fp8"), "kv_thrash", id="set"),
        pytest.param(Move("--seed", 1, 2), "kv_thrash", id="no-mitigation"),
        pytest.param(Move("--max-num-seqs", 6, 256), "", id="against-nothing"),
    ],
)
def test_what_does_not_harm_is_not_refused(move: Move, diagnosis: str) -> None:
    refuse_what_harms([move], diagnosis)


@pytest.mark.parametrize("verb", ["set_flags", "canary"])
def test_a_plan_looks_at_what_the_flag_really_is(verb: str) -> None:
    context = replace(CONTEXT, against="kv_thrash")
    seen = snapshot(workload=deployment(template("--max-num-seqs=16")))
    edit = {"flag": "--max-num-seqs", "value": 32, "direction": "lower"}
    assert "is a raise" in declined(verb, {"edits": [edit]}, seen, context).reason
    assert "wrong direction" in declined(verb, {"edits": [edit | {"direction": "raise"}]}, seen, context).reason
    assert planned(verb, {"edits": [edit | {"value": 8}]}, seen, context)


@pytest.mark.parametrize(("image", "is_refused"), [("v0.32.0", True), ("v0.12.0", False)])
def test_a_default_of_another_version_is_not_taken_for_the_value_before(image: str, is_refused: bool) -> None:
    """0.91 is less than the default of 0.32; that of 0.12 was 0.9."""
    edit = {"flag": "--gpu-memory-utilization", "value": 0.91, "direction": "raise"}
    seen = snapshot(workload=deployment(template("--seed=1", image=f"vllm/vllm-openai:{image}")))
    result = plan_change("set_flags", {"edits": [edit]}, seen, CONTEXT)
    assert ("from 0.92 to 0.91 is a lower" in result.reason) is is_refused, result.reason
