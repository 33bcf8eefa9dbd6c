"""The writer over a real socket: calls succeed once, report conflicts, and look up unknown results."""

from __future__ import annotations

import pytest

from bot.adapters.kubernetes.client import KubernetesClient
from bot.adapters.kubernetes.credentials import Connection
from bot.adapters.kubernetes.reader import KubernetesReader
from bot.adapters.kubernetes.writer import KubernetesWriter
from bot.domain.changes.plan import Plan
from bot.domain.kernel.errors import ApprovalError
from tests.adapters.kubernetes.lab import LLM, PODS, Lab, granted

CAP = [{"flag": "--max-num-seqs", "value": 6.0}]
STAMP = "incident-bot/call"


async def args_of(lab: Lab) -> list[str]:
    found = await lab.get(LLM)
    return list(found["spec"]["template"]["spec"]["containers"][0]["args"])


async def first_pod(lab: Lab) -> str:
    return str((await lab.snapshot()).pods[0]["metadata"]["name"])


async def test_a_patch_is_done_and_stamped_on_the_object_but_not_on_its_template(lab: Lab) -> None:
    plan = await lab.plan("set_flags", edits=CAP)
    assert (await lab.send(plan)).result == "done"
    found = await lab.get(LLM)
    assert "--max-num-seqs=6" in await args_of(lab)
    assert found["metadata"]["annotations"][STAMP] == "INC-42/R1/0"
    assert STAMP not in (found["spec"]["template"]["metadata"].get("annotations") or {})
    assert [one["verb"] for one in await lab.mutations()] == ["patch"]


async def test_a_call_that_is_not_in_the_approved_plan_is_not_sent(lab: Lab) -> None:
    approved = await lab.plan("scale", by=1)
    other = await lab.plan("scale", by=2)
    with pytest.raises(ApprovalError, match="not a call of the approved plan"):
        await lab.send(approved, other.calls[0])
    assert await lab.mutations() == []


async def test_a_change_by_somebody_else_meanwhile_is_reported_and_nothing_is_sent(lab: Lab) -> None:
    plan = await lab.plan("set_flags", edits=CAP)
    container = {"name": "vllm", "image": "vllm/vllm-openai:v0.32.0", "args": ["--max-num-seqs=32"]}
    await lab.somebody_patches(LLM, {"spec": {"template": {"spec": {"containers": [container]}}}})
    sent = await lab.send(plan)
    assert (sent.result, "changed by somebody else" in sent.detail) == ("failed", True)
    assert "--max-num-seqs=32" in sent.detail
    assert await lab.mutations() == []


async def test_the_same_patch_cannot_win_twice(lab: Lab) -> None:
    plan = await lab.plan("set_flags", edits=CAP)
    first, second = await lab.send(plan), await lab.send(plan)
    assert (first.result, second.result) == ("done", "failed")
    assert len(await lab.mutations()) == 1


async def test_a_lost_reply_is_unclear_and_looking_finds_it_done(lab: Lab) -> None:
    plan = await lab.plan("set_flags", edits=CAP)
    await lab.fault("PATCH deployments", "lost_reply")
    assert (await lab.send(plan)).result == "unclear"
    assert await lab.writer.look(plan.calls[0], call_id="INC-42/R1/0") == "done"


async def test_a_dropped_request_is_unclear_and_looking_finds_it_not_done(lab: Lab) -> None:
    plan = await lab.plan("set_flags", edits=CAP)
    await lab.fault("PATCH deployments", "drop")
    assert (await lab.send(plan)).result == "unclear"
    assert await lab.writer.look(plan.calls[0], call_id="INC-42/R1/0") == "not_done"
    assert (await lab.send(plan)).result == "done"


async def test_neither_before_nor_after_is_unclear(lab: Lab) -> None:
    plan = await lab.plan("set_flags", edits=CAP)
    container = {"name": "vllm", "image": "vllm/vllm-openai:v0.32.0", "args": ["--max-num-seqs=32"]}
    await lab.somebody_patches(LLM, {"spec": {"template": {"spec": {"containers": [container]}}}})
    assert await lab.writer.look(plan.calls[0], call_id="INC-42/R1/0") == "unclear"


async def test_a_server_error_is_unclear(lab: Lab) -> None:
    plan = await lab.plan("scale", by=1)
    await lab.fault("PATCH deployments/scale", "500")
    assert (await lab.send(plan)).result == "unclear"


async def test_a_refusal_is_failed_and_names_what_was_forbidden(lab: Lab) -> None:
    plan = await lab.plan("scale", by=1)
    await lab.fault("PATCH deployments/scale", "403")
    sent = await lab.send(plan)
    assert (sent.result, sent.detail.startswith("403")) == ("failed", True)


async def test_a_server_that_cannot_be_reached_has_certainly_not_done_it(lab: Lab, unused_tcp_port: int) -> None:
    plan = await lab.plan("scale", by=1)
    async with KubernetesClient(Connection(url=f"http://127.0.0.1:{unused_tcp_port}")) as nowhere:
        writer = KubernetesWriter(nowhere, KubernetesReader(nowhere))
        sent = await writer.send(granted(plan), plan.calls[0], call_id="INC-42/R1/0")
    assert (sent.result, "cannot be reached" in sent.detail) == ("failed", True)
    assert sent.retry_after_seconds is not None, "nothing was sent, so it may be tried again"


async def test_a_patch_whose_object_cannot_be_read_right_before_is_tried_again_later(lab: Lab) -> None:
    plan = await lab.plan("set_flags", edits=CAP)
    await lab.fault("get deployments", "500")
    sent = await lab.send(plan)
    assert (sent.result, sent.retry_after_seconds is not None) == ("failed", True)
    assert await lab.mutations() == []
    assert (await lab.send(plan)).result == "done"


async def test_a_scale_is_found_done_by_its_value(lab: Lab) -> None:
    plan = await lab.plan("scale", by=1)
    assert await lab.writer.look(plan.calls[0], call_id="INC-42/R1/0") == "not_done"
    await lab.fault("PATCH deployments/scale", "lost_reply")
    assert (await lab.send(plan)).result == "unclear"
    assert await lab.writer.look(plan.calls[0], call_id="INC-42/R1/0") == "done"


async def test_a_pod_without_annotations_can_be_isolated(lab: Lab) -> None:
    name = await first_pod(lab)
    plan = await lab.plan("isolate_replica", replica=name)
    assert (await lab.send(plan)).result == "done"
    metadata = (await lab.get(f"{PODS}/{name}"))["metadata"]
    assert metadata["labels"]["serving"] == "out-of-rotation"
    assert metadata["annotations"] == {
        "incident-bot/incident": "INC-42",
        "incident-bot/rotation-label": "serving=active",
        STAMP: "INC-42/R1/0",
    }


async def test_an_eviction_that_the_budget_forbids_is_to_be_tried_again(lab: Lab) -> None:
    plan = await lab.plan("replace_replica", replica=await first_pod(lab))
    budget = "/apis/policy/v1/namespaces/serving/poddisruptionbudgets/llm"
    await lab.somebody_patches(budget, {"spec": {"minAvailable": 4}})
    await lab.until_seen("the budget is used up", lambda w: w.pdbs[0]["status"].get("disruptionsAllowed") == 0)
    sent = await lab.send(plan)
    assert (sent.result, sent.retry_after_seconds) == ("failed", 10.0)
    assert await lab.writer.look(plan.calls[0], call_id="INC-42/R1/0") == "not_done"


async def test_two_budgets_are_a_plain_failure(lab: Lab) -> None:
    plan = await lab.plan("replace_replica", replica=await first_pod(lab))
    second = {"metadata": {"name": "second"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "llm"}}}}
    (await lab.door.post("/apis/policy/v1/namespaces/serving/poddisruptionbudgets", json=second)).raise_for_status()
    sent = await lab.send(plan)
    assert (sent.result, "more than one PodDisruptionBudget" in sent.detail) == ("failed", True)


async def test_an_eviction_whose_reply_was_lost_is_found_done(lab: Lab) -> None:
    plan = await lab.plan("replace_replica", replica=await first_pod(lab))
    await lab.fault("POST pods/eviction", "lost_reply")
    assert (await lab.send(plan)).result == "unclear"
    assert await lab.writer.look(plan.calls[0], call_id="INC-42/R1/0") == "done"


async def test_an_eviction_of_another_pod_of_that_name_does_not_happen(lab: Lab) -> None:
    plan = await lab.plan("replace_replica", replica=await first_pod(lab))
    call = plan.calls[0]
    other = call.model_copy(update={"target": call.target.model_copy(update={"uid": "another"})})
    wrong = Plan(verb="replace_replica", title="x", steps=(other,), risk="low")
    assert (await lab.send(wrong)).result == "failed"
    assert await lab.mutations() == []


async def test_a_canary_created_by_an_attempt_with_a_lost_reply_is_recognised_as_ours(lab: Lab) -> None:
    plan = await lab.plan("canary", edits=CAP)
    await lab.fault("POST deployments", "lost_reply")
    assert (await lab.send(plan)).result == "unclear"
    assert await lab.writer.look(plan.calls[0], call_id="INC-42/R1/0") == "done"
    again = await lab.send(plan)
    assert (again.result, "earlier attempt" in again.detail) == ("done", True)


async def test_a_canary_of_that_name_made_by_somebody_else_is_not_taken_for_ours(lab: Lab) -> None:
    plan = await lab.plan("canary", edits=CAP)
    body = plan.calls[0].body
    (await lab.door.post("/apis/apps/v1/namespaces/serving/deployments", json=body)).raise_for_status()
    sent = await lab.send(plan)
    assert (sent.result, "somebody else" in sent.detail) == ("failed", True)
    assert await lab.writer.look(plan.calls[0], call_id="INC-42/R1/0") == "unclear"


async def test_a_delete_without_a_uid_is_never_sent(lab: Lab) -> None:
    undo = (await lab.plan("canary", edits=CAP)).calls[0].undo[0]
    careless = Plan(verb="undo", title="x", steps=(undo,), risk="low")
    assert (await lab.send(careless)).result == "failed"
    assert await lab.mutations() == []
