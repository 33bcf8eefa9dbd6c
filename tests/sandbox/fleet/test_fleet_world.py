"""The fleet beside the cluster simulator, each in its own process: pods, rotation, load, faults, logs, GPUs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from bot.domain.cluster.job import job_reading
from tests.sandbox.fleet.living_world import DEPLOYMENT, Json, World, demo_world, eventually

pytestmark = pytest.mark.end_to_end


@pytest.fixture(scope="module")
def calm() -> Iterator[World]:
    """Shared by the tests that leave it as they found it."""
    with demo_world() as world:
        yield world


@pytest.fixture
def world() -> Iterator[World]:
    with demo_world() as fresh:
        yield fresh


def started_at(world: World, pod: str) -> float:
    return world.metric(pod, "process_start_time_seconds")


# Replicas


def test_each_replica_is_ready_on_its_own_address_and_serves_its_endpoints(calm: World) -> None:
    addresses = {pod["status"]["podIP"] for pod in calm.pods()}
    assert len(addresses) == 4
    pod = calm.in_rotation()[0]
    assert calm.ask(pod, "/health").status_code == 200
    assert calm.ask(pod, "/version").json() == {"version": "0.32.0"}
    assert calm.ask(pod, "/v1/models").json()["data"][0]["id"] == "tiny-llama"
    assert "vllm:kv_cache_usage_perc" in calm.ask(pod, "/metrics").text


def test_a_completion_streams_all_its_tokens_and_then_done(calm: World) -> None:
    body = {"model": "tiny-llama", "prompt": "hello there", "max_tokens": 40, "stream": True}
    lines = [line for line in calm.ask(calm.in_rotation()[0], "/v1/completions", json=body).text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines[:-1]]
    assert sum(len(chunk["text"]) for chunk in chunks) == 40
    assert chunks[-1]["finish_reason"] == "length"


def test_a_completion_without_streaming_counts_its_tokens(calm: World) -> None:
    body = {"model": "tiny-llama", "prompt": "hello", "max_tokens": 7}
    assert calm.ask(calm.in_rotation()[0], "/v1/completions", json=body).json()["usage"]["completion_tokens"] == 7


def test_a_prompt_longer_than_the_model_is_refused_with_400(calm: World) -> None:
    answer = calm.ask(calm.in_rotation()[0], "/v1/completions", json={"prompt": "a" * 2049, "max_tokens": 4})
    assert answer.status_code == 400
    assert "maximum context length is 2048 tokens" in answer.json()["error"]["message"]


@pytest.mark.parametrize(("body", "status"), [({"prompt": "a", "model": "other"}, 404), ({"max_tokens": 3}, 400)])
def test_a_request_for_another_model_or_without_a_prompt_is_refused(
    calm: World, body: dict[str, object], status: int
) -> None:
    assert calm.ask(calm.in_rotation()[0], "/v1/completions", json=body).status_code == status


def test_a_client_that_goes_away_aborts_its_request(calm: World) -> None:
    pod = calm.in_rotation()[1]
    calm.begin_and_leave(pod, {"prompt": "hello", "max_tokens": 2000, "stream": True})
    eventually("the engine is empty", lambda: calm.replicas()[pod]["running"] == 0)
    assert 'finished_reason="abort",model_name="tiny-llama"} 1.0' in calm.ask(pod, "/metrics").text


def test_logs_come_through_the_api_with_tail_and_timestamps(calm: World) -> None:
    pod = calm.in_rotation()[0]
    assert "Application startup complete." in calm.log(pod)
    (last,) = calm.log(pod, tailLines="1", timestamps="true").splitlines()
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z \S", last)


# Load and rotation


def test_the_load_reaches_every_replica_and_is_counted_as_the_clients_saw_it(world: World) -> None:
    world.set_load(workers=12)
    eventually("all replicas have finished requests", lambda: all(r["finished"] for r in world.replicas().values()))
    seen = world.load()
    assert (seen["failed"], seen["shed"]) == (0, 0)
    assert seen["workers_now"] == 12


def test_a_replica_whose_label_leaves_the_service_gets_no_new_request_and_empties(world: World) -> None:
    world.set_load(workers=20)
    pod = world.in_rotation()[0]
    eventually("the replica works", lambda: world.replicas()[pod]["running"] > 0)
    world.merge(f"/api/v1/namespaces/serving/pods/{pod}", {"metadata": {"labels": {"serving": "draining"}}})
    eventually("it is out of rotation", lambda: pod not in world.in_rotation())
    eventually("it is empty", lambda: not (world.replicas()[pod]["running"] + world.replicas()[pod]["waiting"]))
    assert world.load()["failed"] == 0
    assert world.ask(pod, "/health").status_code == 200


def test_a_deleted_replica_finishes_what_it_has_and_is_replaced(world: World) -> None:
    world.set_load(workers=12)
    pod = world.in_rotation()[0]
    eventually("the replica works", lambda: world.replicas()[pod]["running"] > 0)
    world.delete_pod(pod)
    eventually("it is gone", lambda: world.pod(pod) is None)
    assert pod not in world.wait_for_rotation(4)
    assert world.load()["failed"] == 0


def test_a_replica_deleted_without_grace_cuts_its_streams(world: World) -> None:
    world.set_load(workers=40)
    pod = world.in_rotation()[0]
    eventually("the replica is busy", lambda: world.replicas()[pod]["running"] >= 5)
    world.delete_pod(pod, gracePeriodSeconds=0)
    eventually("the clients saw cut streams", lambda: world.load()["cut"] >= 5)


# Rollouts


def test_a_rollout_changes_the_flags_of_every_replica_without_a_failed_request(world: World) -> None:
    world.set_load(workers=12)
    world.set_args(lambda args: [one for one in args if "max-num-seqs" not in one] + ["--max-num-seqs=6"])
    eventually(
        "four replicas run with the new flag, and no other is left",
        lambda: len(world.pods()) == 4 and {r["max_num_seqs"] for r in world.replicas().values()} == {6},
        deadline_seconds=60.0,
    )
    assert world.load()["failed"] == 0


def test_a_removed_flag_crash_loops_with_exit_code_2_while_the_old_replicas_serve(world: World) -> None:
    old = set(world.in_rotation())
    world.set_args(lambda args: [*args, "--swap-space=8"])

    def restarted() -> str | None:
        new = [pod["metadata"]["name"] for pod in world.pods() if pod["metadata"]["name"] not in old]
        return new[0] if new and world.container(new[0]).get("restartCount", 0) >= 2 else None

    pod = eventually("the new pod has restarted twice", restarted)
    assert world.container(pod)["lastState"]["terminated"]["exitCode"] == 2
    assert "error: unrecognized arguments: --swap-space=8" in world.log(pod, previous="true")
    assert set(world.in_rotation()) == old


def test_an_image_that_does_not_exist_is_never_pulled(world: World) -> None:
    template = world.get(DEPLOYMENT)["spec"]["template"]
    container = {**template["spec"]["containers"][0], "image": "vllm/vllm-openai:v0.32.x"}
    world.merge(DEPLOYMENT, {"spec": {"template": {"spec": {"containers": [container]}}}})

    def waiting() -> list[str]:
        states = [pod["status"].get("containerStatuses", [{}])[0].get("state", {}) for pod in world.pods()]
        return [one["waiting"]["reason"] for one in states if "waiting" in one]

    eventually("a pod cannot pull its image", lambda: "ImagePullBackOff" in waiting())
    assert len(world.in_rotation()) == 4


# Faults


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("engine_dead", "EngineCore encountered a fatal error"),
        ("engine_killed", "engine core exited unexpectedly"),
        ("worker_killed", "Worker proc VllmWorker-0 died unexpectedly (exit code: -9)"),
        ("cuda_oom", "torch.OutOfMemoryError"),
    ],
)
def test_a_dead_engine_restarts_with_fresh_counters_and_leaves_its_last_words(
    world: World, kind: str, line: str
) -> None:
    world.set_load(workers=12)
    pod = world.in_rotation()[0]
    eventually("the replica has finished requests", lambda: world.replicas()[pod]["finished"] > 3)
    before = started_at(world, pod)
    world.fault(pod, kind=kind)
    eventually("the container restarted", lambda: world.container(pod)["restartCount"] == 1)
    eventually("it serves again", lambda: pod in world.in_rotation())
    assert started_at(world, pod) > before
    ended = world.container(pod)["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (0, "Completed"), "the API server ends in good order"
    assert line in world.log(pod, previous="true")
    assert world.load()["failed"] > 0


def test_an_engine_that_hangs_is_ended_by_its_kubelet_and_the_events_say_why(world: World) -> None:
    pod = world.in_rotation()[0]
    world.fault(pod, kind="hangs")
    eventually("the container restarted", lambda: world.container(pod)["restartCount"] == 1)
    assert world.container(pod)["lastState"]["terminated"]["exitCode"] == 137
    events = [(event["reason"], event["message"]) for event in world.events(pod)]
    assert ("Killing", "Container vllm failed liveness probe, will be restarted") in events
    assert any(reason == "Unhealthy" for reason, _ in events)


def test_an_engine_may_die_again_and_again_after_a_while(world: World) -> None:
    pod = world.in_rotation()[0]
    world.fault(pod, kind="dies", after=2.0)
    eventually("it died twice", lambda: world.container(pod)["restartCount"] >= 2, deadline_seconds=60.0)
    assert "EngineDeadError" in world.log(pod, previous="true")


def test_a_small_pool_belongs_to_the_pod_and_shows_in_its_metrics(world: World) -> None:
    world.set_load(workers=24)
    sick, *healthy = world.in_rotation()
    world.fault(sick, kind="small_pool", blocks=32)
    assert 'num_gpu_blocks="32"' in world.ask(sick, "/metrics").text
    eventually("the sick replica preempts", lambda: world.metric(sick, "vllm:num_preemptions_total") > 3)
    assert [world.metric(pod, "vllm:num_preemptions_total") for pod in healthy] == [0, 0, 0]
    world.fault(sick, kind="none")
    assert 'num_gpu_blocks="128"' in world.ask(sick, "/metrics").text


def test_metrics_may_be_down_while_the_replica_serves(world: World) -> None:
    pod = world.in_rotation()[0]
    world.fault(pod, kind="metrics_down")
    assert (world.ask(pod, "/metrics").status_code, world.ask(pod, "/health").status_code) == (500, 200)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/__sandbox__/load", {"workers": 4, "output_tokens": [9, 3]}, 422),
        ("/__sandbox__/load", {"clients": 4}, 422),
        ("/__sandbox__/replicas/nobody/fault", {"kind": "none"}, 404),
        ("/__sandbox__/nodes/nowhere/gpu", {"xid": 79}, 404),
    ],
)
def test_what_the_sandbox_does_not_know_is_refused_with_a_reason(
    calm: World, path: str, body: dict[str, object], status: int
) -> None:
    answer = calm.post(path, body)
    assert (answer.status_code, bool(answer.text)) == (status, True)


# GPUs


def test_the_exporters_are_found_through_the_api_and_show_trouble(calm: World) -> None:
    exporters = calm.get("/api/v1/namespaces/monitoring/pods", labelSelector="app.kubernetes.io/name=dcgm-exporter")
    addresses = {one["spec"]["nodeName"]: one["status"]["podIP"] for one in exporters["items"]}
    assert set(addresses) == {"gpu-node-1", "gpu-node-2", "gpu-node-3"}
    calm.post("/__sandbox__/nodes/gpu-node-2/gpu", {"gpu": 0, "xid": 79, "temperature": 88}).raise_for_status()
    text = calm.fetch(f"http://{addresses['gpu-node-2']}:9400/metrics")
    assert re.search(r'DCGM_FI_DEV_XID_ERRORS\{gpu="0",.*err_code="79".*\} 79$', text, re.MULTILINE)
    assert "DCGM_EXP_CLOCK_EVENTS_COUNT" not in text
    calm.post("/__sandbox__/nodes/gpu-node-2/gpu", {"clear": True}).raise_for_status()


# Jobs


def test_a_jobs_pod_writes_its_log_once_and_ends(world: World) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "eval", "image": "eval:1"}]}
    template = {"metadata": {"annotations": {"sandbox/log": 'loading\n{"score": 0.7}'}}, "spec": pod}
    world.create(
        "/apis/batch/v1/namespaces/serving/jobs", {"metadata": {"name": "eval"}, "spec": {"template": template}}
    )

    def ended() -> Json | None:
        job = world.get("/apis/batch/v1/namespaces/serving/jobs/eval")
        return job if job["status"].get("completionTime") else None

    job = eventually("the Job is complete", ended)
    assert job["status"]["succeeded"] == 1
    (made,) = [one for one in world.pods() if one["metadata"]["name"].startswith("eval-")]
    assert made["status"]["phase"] == "Succeeded"
    assert world.log(made["metadata"]["name"], tailLines="1") == '{"score": 0.7}\n'


def bench_job(name: str, url: str, **spec: object) -> Json:
    command = ["vllm", "bench", "serve", "--base-url", "$(TARGET_URL)", "--dataset-name", "random"]
    arguments = ["--num-prompts", "12", "--max-concurrency", "4", "--random-input-len=40", "--random-output-len=30"]
    container = {
        "name": "bench", "image": "vllm/vllm-openai:v0.32.0", "command": command, "args": arguments,
        "env": [{"name": "TARGET_URL", "value": url}],
    }  # fmt: skip
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"metadata": {"name": name}, "spec": {"template": template, "backoffLimit": 0, **spec}}


def ended_bench(world: World, name: str, end: str) -> str:
    """The log of its pod once its Job has this end."""

    def ended() -> Json | None:
        status = world.get(f"/apis/batch/v1/namespaces/serving/jobs/{name}")["status"]
        ends = [one["type"] for one in status.get("conditions") or [] if one["status"] == "True"]
        return status if end in ends else None

    eventually(f"the Job {name} is {end}", ended)
    (made,) = [one for one in world.pods() if one["metadata"]["name"].startswith(f"{name}-")]
    return world.log(made["metadata"]["name"], tailLines="100")


def test_a_load_test_sends_requests_to_one_replica_and_prints_what_it_measured(world: World) -> None:
    pod, replica = next(iter(world.replicas().items()))
    before = replica["finished"]
    world.create("/apis/batch/v1/namespaces/serving/jobs", bench_job("bench", f"http://{replica['address']}:8000"))
    reading = job_reading(ended_bench(world, "bench", "Complete"), at=1.0)
    assert (reading.fields["completed"], reading.fields["failed"]) == (12.0, 0.0)
    assert all(float(reading.fields[part]) > 0 for part in ("requests_per_second", "tokens_per_second", "ttft_p99"))
    # The twelve, and the one that is tried first.
    assert world.replicas()[pod]["finished"] >= before + 13


def test_a_load_test_of_an_address_where_nothing_listens_fails_and_says_so(world: World) -> None:
    world.create("/apis/batch/v1/namespaces/serving/jobs", bench_job("nobody", "http://127.0.0.1:9"))
    log = ended_bench(world, "nobody", "Failed")
    assert "Initial test run failed" in log.splitlines()[-1]
    assert job_reading(log, at=1.0).unknown_parts["ttft_p99"] == "no result of a benchmark at the end of the Job's log"
