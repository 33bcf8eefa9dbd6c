"""Others add to the template that the bot changes: Reloader, admission webhooks. Who edits it is another matter."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bot.domain.changes.interference import interference
from bot.domain.changes.plan import Plan, Wait
from bot.domain.changes.progress import progress
from bot.domain.cluster.json_patch import applied
from bot.domain.cluster.rollout import revisions_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from tests.domain.changes.ledgers import entry, with_ledger
from tests.domain.changes.snapshots import deployment, planned, replica_set, snapshot, template

pytestmark = pytest.mark.fast
ENV = [{"name": "HF_HOME", "value": "/models"}, {"name": "STAKATER_FLAGS_CONFIGMAP", "value": "1"}]
EDITS = {"edits": [{"flag": "--max-num-seqs", "value": 6}, {"env": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}]}
UNSET = {"edits": [{"env": "HF_HOME", "value": None}]}
VERBS: list[tuple[str, Any]] = [("set_flags", EDITS), ("restart", {}), ("rollback", {})]
RELOADED = "reloader.stakater.com/last-reloaded-from"
Touch = Callable[[Obj], None]


def before() -> Obj:
    made = template(env=copy.deepcopy(ENV))
    made["metadata"]["annotations"] = {RELOADED: "1", "team": "llm"}
    return made


def seen(pod_template: Obj, *others: Obj) -> ClusterSnapshot:
    sets = (*snapshot().replica_sets[:1], *(replica_set(2 + at, one) for at, one in enumerate((*others, pod_template))))
    return snapshot(workload=deployment(pod_template), replica_sets=sets)


def rolling(plan: Plan, touch: Touch) -> ClusterSnapshot:
    """After the first call of the plan, and after somebody else has touched the template."""
    written = applied(plan.calls[0].body, deployment(before()))["spec"]["template"]
    touch(written)
    return seen(written, before())


def engine(pod_template: Obj) -> Obj:
    found: Obj = pod_template["spec"]["containers"][0]
    return found


def set_env(name: str, value: str) -> Touch:
    def touch(made: Obj) -> None:
        others = [one for one in engine(made).get("env", []) if one["name"] != name]
        engine(made)["env"] = [*others, {"name": name, "value": value}]

    return touch


def annotate(name: str, value: str) -> Touch:
    return lambda made: made["metadata"].setdefault("annotations", {}).update({name: value})


def set_field(name: str, value: Any) -> Touch:
    return lambda made: engine(made).update({name: value})


def add_container(made: Obj) -> None:
    made["spec"]["containers"].append({"name": "proxy", "image": "proxy:1"})


def nothing(made: Obj) -> None:
    """Leave it as the bot wrote it."""


RELOADS = [
    pytest.param(annotate(RELOADED, "2"), id="reloaded-again-by-annotation"),
    pytest.param(set_env("STAKATER_FLAGS_CONFIGMAP", "2"), id="reloaded-again-by-variable"),
]
ADDITIONS = [
    pytest.param(nothing, id="none"),
    pytest.param(annotate("injected", "yes"), id="annotation"),
    pytest.param(set_env("OTEL", "on"), id="variable"),
    pytest.param(set_field("terminationMessagePath", "/dev/termination-log"), id="default"),
    pytest.param(add_container, id="container"),
    pytest.param(set_field("image", "vllm/vllm-openai:v0.32.0@sha256:0a1b"), id="digest"),
    pytest.param(set_field("image", "index.docker.io/vllm/vllm-openai@sha256:0a1b"), id="digest-in-place-of-the-tag"),
]
FOREIGN = [
    pytest.param(set_field("args", ["--max-num-seqs=64"]), id="flags"),
    pytest.param(set_field("image", "vllm/vllm-openai:v0.33.0"), id="image"),
    pytest.param(set_field("image", "vllm/vllm-openai:v0.33.0@sha256:0a1b"), id="image-with-a-digest"),
    pytest.param(set_field("image", "example.com/vllm/vllm-openai@sha256:0a1b"), id="image-of-another-registry"),
    pytest.param(set_env("VLLM_LOGGING_LEVEL", "INFO"), id="variable"),
    pytest.param(set_env("HF_HOME", "/other"), id="variable-of-others"),
]


def state_of(plan: Plan, now: ClusterSnapshot) -> str:
    wait = next(step for step in plan.steps if isinstance(step, Wait) and "template" in step.parameters)
    return progress(wait, now, calls=plan.calls).state


@pytest.mark.parametrize("touch", [*ADDITIONS, *RELOADS])
@pytest.mark.parametrize(("verb", "arguments"), VERBS)
def test_what_others_add_does_not_fail_a_rollout(verb: str, arguments: Any, touch: Touch) -> None:
    plan = planned(verb, arguments, seen(before()))
    assert state_of(plan, rolling(plan, touch)) == "pending"


@pytest.mark.parametrize("touch", FOREIGN)
def test_what_others_change_fails_a_rollout(touch: Touch) -> None:
    plan = planned("set_flags", EDITS, seen(before()))
    assert state_of(plan, rolling(plan, touch)) == "failed"


def test_a_poll_copies_no_kept_template() -> None:
    """A hundred of them took longer to copy than to compare, each second."""
    now = seen(before(), template())
    for kept, found in zip(reversed(now.replica_sets), revisions_of(now), strict=True):
        assert found.template["spec"] is kept["spec"]["template"]["spec"]
        assert "pod-template-hash" not in found.template["metadata"]["labels"]


def test_what_the_bot_removed_may_not_come_back() -> None:
    plan = planned("set_flags", UNSET, seen(before()))
    assert state_of(plan, rolling(plan, set_env("HF_HOME", "/models"))) == "failed"


def test_arguments_beside_a_command_are_no_addition() -> None:
    plain = template(command=["vllm", "serve", "m", "--max-num-seqs=64"], env=copy.deepcopy(ENV))
    del engine(plain)["args"]
    plan = planned("set_flags", EDITS, seen(plain))
    written = applied(plan.calls[0].body, deployment(plain))["spec"]["template"]
    set_field("args", ["--max-num-seqs=64"])(written)
    assert state_of(plan, seen(written, plain)) == "failed"


@pytest.mark.parametrize(
    ("verb", "arguments", "touch"),
    [
        *(pytest.param(*verb, *one.values, id=f"{verb[0]}-{one.id}") for verb in VERBS for one in ADDITIONS),
        # What a rollback removed is put back as it was, also where a reloader has made it again.
        *(pytest.param(*verb, *one.values, id=f"{verb[0]}-{one.id}") for verb in VERBS[:2] for one in RELOADS),
    ],
)
def test_an_undo_leaves_what_others_added(verb: str, arguments: Any, touch: Touch) -> None:
    plan = planned(verb, arguments, seen(before()))
    ledger, now = with_ledger(entry(plan.calls[0], verb=verb)), rolling(plan, touch)
    assert interference(ledger.ledger, now) == ()
    back = planned("undo", {}, now, ledger)
    restored = applied(back.calls[0].body, now.workload or {})["spec"]["template"]
    wanted = before()
    touch(wanted)
    assert comparable_env(restored) == comparable_env(wanted)
    assert state_of(back, replace(now, workload=deployment(restored))) != "failed"


def comparable_env(made: Obj) -> Obj:
    """With the variables in order of their names."""
    sorted_env = sorted(engine(made)["env"], key=lambda one: str(one["name"]))
    made["spec"]["containers"][0] = engine(made) | {"env": sorted_env}
    return made


def test_an_undo_is_refused_where_somebody_changed_what_the_bot_wrote() -> None:
    plan = planned("set_flags", EDITS, seen(before()))
    ledger, now = (
        with_ledger(entry(plan.calls[0], verb="set_flags")),
        rolling(plan, set_env("VLLM_LOGGING_LEVEL", "INFO")),
    )
    assert len(interference(ledger.ledger, now)) == 1
