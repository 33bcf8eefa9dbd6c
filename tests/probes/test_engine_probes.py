"""Probes over pods and their logs: read data is reported, the rest is unknown, and old crashes do not count."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.errors import ClusterError, CutLogError
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Reading
from bot.probes.engine.flags_in_effect import default_max_num_seqs, version_of_tag
from tests.kit import probes
from tests.kit.probes import Samples, request

pytestmark = pytest.mark.fast

OPENED = 1_790_000_000.0
CUDA_OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
OOM = f"INFO: Application startup complete.\n{CUDA_OOM}"


class Logs:
    """Pod name to its log; a previous container's log is under `name/previous`. `None` cannot be read."""

    def __init__(self, logs: Mapping[str, str | None]) -> None:
        self._logs = logs
        self.read_of: list[str] = []

    async def read(
        self,
        namespace: str,
        pod: str,
        *,
        previous: bool = False,
        tail_lines: int | None = None,
        since: float | None = None,
    ) -> str | None:
        name = f"{pod}/previous" if previous else pod
        self.read_of.append(name if since is None else f"{name} since {since - OPENED:g}")
        if name in self._logs and self._logs[name] is None:
            raise ClusterError("the kubelet did not answer")
        log = self._logs.get(name)
        if log is not None and since is not None and len(log) >= 1024 * 1024:
            raise CutLogError(f"its lines since {at(since - OPENED)} are larger than 1 MiB", log[: 1024 * 1024])
        if log is None or tail_lines is None:
            return log
        last = "\n".join(log.splitlines()[-tail_lines:])
        if len(last) >= 1024 * 1024:
            raise CutLogError(f"its last {tail_lines} lines are larger than 1 MiB", last[: 1024 * 1024])
        return last


def at(seconds: float) -> str:
    return datetime.fromtimestamp(OPENED + seconds, UTC).isoformat().replace("+00:00", "Z")


def pod(name: str, *args: str, template: str = "t1", image: str = "vllm/vllm-openai:v0.32.0", **status: Any) -> Obj:
    labels = {"app": "llm", "pod-template-hash": template}
    owner = {"kind": "ReplicaSet", "uid": "rs", "controller": True}
    container = {"name": "vllm", "image": image, "command": ["vllm", "serve", "m"], "args": list(args)}
    return {
        "metadata": {"name": name, "namespace": "serving", "labels": labels, "ownerReferences": [owner]},
        "spec": {"nodeName": "n1", "containers": [container]},
        "status": {"phase": "Running", "startTime": at(-86400), "containerStatuses": [{"name": "vllm", **status}]},
    }


def restarted(name: str, *, seconds: float, reason: str = "Error", code: int = 1, count: int = 1) -> Obj:
    ended = {"reason": reason, "exitCode": code, "finishedAt": at(seconds)}
    return pod(name, restartCount=count, state={"running": {}}, lastState={"terminated": ended})


def beside(engine: Obj, *, seconds: float, is_native: bool = False) -> Obj:
    """With a log shipper that was killed for its own memory, and started again."""
    died = {"reason": "OOMKilled", "exitCode": 137, "startedAt": at(-86400), "finishedAt": at(seconds)}
    status = {
        "name": "log-shipper", "restartCount": 1, "lastState": {"terminated": died},
        "state": {"running": {"startedAt": at(seconds)}},
    }  # fmt: skip
    kind = "initContainers" if is_native else "containers"
    engine["spec"].setdefault(kind, []).append({"name": "log-shipper", "image": "fluent/fluent-bit:3"})
    engine["status"].setdefault(kind.removesuffix("s") + "Statuses", []).append(status)
    return engine


async def ask(
    probe: str,
    *pods: Obj,
    logs: Logs | None = None,
    pages: Samples | None = None,
    gpu: str = "",
    unreadable: dict[str, str] | None = None,
    kills: Sequence[Obj] = (),
    revisions: Sequence[Obj] = (),
    moments: Mapping[str, float] | None = None,
    parameters: Mapping[str, Any] | None = None,
    entered_at: float = 0.0,
    config_maps: Mapping[str, Obj] | None = None,
) -> Reading:
    owner = {"kind": "Deployment", "uid": "d", "controller": True}
    node = {"metadata": {"name": "n1", "labels": {"nvidia.com/gpu.product": gpu} if gpu else {}}}
    snapshot = ClusterSnapshot(
        at=OPENED,
        workload={"metadata": {"name": "llm", "uid": "d"}, "spec": {}},
        replica_sets=tuple(revisions) or ({"metadata": {"name": "rs", "uid": "rs", "ownerReferences": [owner]}},),
        pods=pods,
        nodes=(node,),
        kills=tuple(kills),
        unreadable=unreadable or {},
        config_maps=dict(config_maps or {}),
    )

    asked = request(probe, snapshot, at=OPENED, moments=moments or {}, parameters=parameters, entered_at=entered_at)
    return await probes.ask(asked, logs=logs or Logs({}), history=pages or Samples())


# --- restarts ---------------------------------------------------------------------------------------------------------


async def test_without_a_restart_no_log_is_read() -> None:
    logs = Logs({})
    reading = await ask("restarts", pod("a", restartCount=0, state={"running": {}}), logs=logs)
    assert reading.fields == {"count": 0.0, "crashed": False, "oom": False, "last_reason": ""}
    assert logs.read_of == []


async def test_a_crash_with_a_cuda_oom_line_ran_out_of_memory() -> None:
    reading = await ask("restarts", restarted("a", seconds=-60), logs=Logs({"a/previous": OOM}))
    assert (reading.fields["count"], reading.fields["crashed"], reading.fields["oom"]) == (1.0, True, True)
    assert "serving: torch.OutOfMemoryError" in str(reading.fields["last_reason"])
    assert "CUDA out of memory" in reading.detail


FLOOD = ["ERROR [serving.py:500] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."] * 5000
"""Each stream in flight logs a traceback after the cause: 20 of them 2,100 lines on a real vLLM 0.32."""


async def test_a_cause_above_the_tracebacks_of_many_streams_is_found() -> None:
    crashed, log = restarted("a", seconds=-60, code=0), "\n".join([OOM, *FLOOD])
    logs = Logs({"a/previous": log})
    reading = await ask("restarts", crashed, logs=logs)
    assert reading.fields["oom"] is True
    assert "serving: torch.OutOfMemoryError" in str(reading.fields["last_reason"])
    assert "CUDA out of memory" in reading.detail
    assert reading.detail.count("EngineDeadError") == 1
    assert logs.read_of == ["a/previous", "a/previous since -90"]
    words = await ask("last_words", crashed, logs=logs)
    assert (words.fields["why"], words.fields["oom"]) == ("serving", True)


async def test_a_death_without_a_cause_above_its_tracebacks_stays_a_death() -> None:
    reading = await ask("restarts", restarted("a", seconds=-60, code=0), logs=Logs({"a/previous": "\n".join(FLOOD)}))
    assert (reading.fields["crashed"], reading.fields["oom"]) == (True, False)
    assert "engine_died" in str(reading.fields["last_reason"])


LINES_OF_A_BUSY_ENGINE = ["INFO: 10.0.0.9:4321 - POST /v1/completions HTTP/1.1 200 OK " + "x" * 400] * 3000
"""More than a MiB within the time in which a cause is looked for."""


@pytest.mark.parametrize(
    ("log", "oom", "last_reason"),
    [
        pytest.param([*LINES_OF_A_BUSY_ENGINE, OOM, *FLOOD], None, "Error (exit 0) of a", id="cut off"),
        pytest.param([OOM, *LINES_OF_A_BUSY_ENGINE, *FLOOD], True, "serving: torch.OutOfMemoryError", id="read"),
    ],
)
async def test_a_cause_that_may_be_in_what_is_cut_off_is_unknown(
    log: list[str], oom: bool | None, last_reason: str
) -> None:
    crashed, logs = restarted("a", seconds=-60, code=0), Logs({"a/previous": "\n".join(log)})
    reading = await ask("restarts", crashed, logs=logs)
    assert (reading.fields["crashed"], reading.fields.get("oom")) == (True, oom)
    assert last_reason in str(reading.fields["last_reason"])
    words = await ask("last_words", crashed, logs=logs)
    assert (words.fields.get("why"), words.fields.get("oom")) == ("serving" if oom else None, oom)


async def test_a_cause_above_many_tracebacks_that_cannot_be_read_is_unknown() -> None:
    class Half(Logs):
        async def read(self, namespace: str, pod: str, **asked: Any) -> str | None:
            if asked.get("since") is not None:
                raise ClusterError("the kubelet did not answer")
            return await super().read(namespace, pod, **asked)

    reading = await ask("restarts", restarted("a", seconds=-60), logs=Half({"a/previous": "\n".join(FLOOD)}))
    assert "oom" not in reading.fields


def requests(count: int, *, letters: int) -> list[str]:
    line = "INFO 08-01 12:00:00 [logger.py:43] Received request cmpl-1: prompt: '{}', params: SamplingParams(n=1)"
    return [line.format("x" * letters)] * count


async def test_of_long_lines_fewer_are_read_so_that_the_newest_are_among_them() -> None:
    logs = Logs({"a/previous": "\n".join([*requests(700, letters=2000), CUDA_OOM]), "a": ""})
    crashed = restarted("a", seconds=-60)
    reading = await ask("restarts", crashed, logs=logs)
    assert (reading.fields["oom"], logs.read_of) == (True, ["a/previous", "a/previous"])
    assert "serving: torch.OutOfMemoryError" in str(reading.fields["last_reason"])
    assert (await ask("last_words", crashed, logs=logs)).fields["why"] == "serving"


async def test_a_cause_above_the_fewer_lines_that_are_read_is_found_too() -> None:
    lines = [*requests(700, letters=2000), CUDA_OOM, *FLOOD[:300]]
    reading = await ask("restarts", restarted("a", seconds=-60), logs=Logs({"a/previous": "\n".join(lines)}))
    assert reading.fields["oom"] is True


async def test_a_log_whose_newest_lines_cannot_be_read_is_unread_and_says_why() -> None:
    logs = Logs({"a/previous": "\n".join([*requests(300, letters=6000), CUDA_OOM]), "a": ""})
    reading = await ask("restarts", restarted("a", seconds=-60), logs=logs)
    why = "its last 200 lines are larger than 1 MiB"
    assert reading.unknown_parts == {"oom": f"the log of the container that ended cannot be read: {why}"}
    words = await ask("last_words", restarted("a", seconds=-60), logs=logs)
    assert {words.unknown_parts["why"], words.unknown_parts["oom"]} == {f"1 of the logs cannot be read: {why}"}
    running = await ask("last_words", pod("a"), logs=Logs({"a": "\n".join(requests(300, letters=6000))}))
    assert running.unknown == f"no log of any of its pods can be read: {why}"


async def test_a_log_that_is_gone_is_unread() -> None:
    reading = await ask("restarts", restarted("a", seconds=-60), logs=Logs({"a": ""}))
    assert reading.unknown_parts == {"oom": "the log of the container that ended cannot be read: it is gone"}


async def test_a_container_killed_for_host_memory_ran_out_of_memory_too() -> None:
    reading = await ask("restarts", restarted("a", seconds=-60, reason="OOMKilled", code=137))
    assert reading.fields["oom"] is True


@pytest.mark.parametrize("is_native", [False, True])
async def test_a_sidecar_that_was_killed_is_no_end_of_the_engine_beside_it(is_native: bool) -> None:
    engine = pod("a", restartCount=0, state={"running": {"startedAt": at(-86400)}})
    engine["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    seen, logs = beside(engine, seconds=-110, is_native=is_native), Logs({"a": "INFO fine"})
    restarts = await ask("restarts", seen, logs=logs)
    assert restarts.fields == {"count": 0.0, "crashed": False, "oom": False, "last_reason": ""}
    words = await ask("last_words", seen, logs=logs)
    assert (words.fields["why"], words.fields["host_oom"], words.fields["died"]) == ("none", False, False)
    scene = await ask("crash_scene", seen)
    assert (scene.fields["crashed"], scene.fields["steady_for"]) == (0.0, 86400.0)


async def test_beside_a_sidecar_that_was_killed_an_engine_ends_by_its_own_exit_code() -> None:
    died = {"reason": "Error", "exitCode": 1, "startedAt": at(-3660), "finishedAt": at(-60)}
    engine = pod("a", restartCount=1, state={"running": {"startedAt": at(-50)}}, lastState={"terminated": died})
    scene = await ask("crash_scene", beside(engine, seconds=-110))
    assert {name: scene.fields[name] for name in ("names", "exit_code", "lived")} == {
        "names": "a (exit 1, once)", "exit_code": 1.0, "lived": 3600.0,
    }  # fmt: skip


async def test_a_failing_init_container_is_a_start_that_does_not_succeed_and_no_end_of_an_engine() -> None:
    starts = pod("a", restartCount=0, state={"waiting": {"reason": "PodInitializing"}})
    seen = beside(starts, seconds=-60, is_native=True)
    assert (await ask("restarts", seen)).fields["count"] == 0.0
    scene = await ask("crash_scene", seen)
    assert (scene.fields["crashed"], scene.fields["steady_for"]) == (0.0, 0.0)


async def test_where_no_engine_is_recognised_the_end_of_each_container_counts() -> None:
    engine = pod("a", image="own/model:1", restartCount=0, state={"running": {}})
    engine["spec"]["containers"][0] |= {"name": "main", "command": ["serve"]}
    engine["status"]["containerStatuses"][0]["name"] = "main"
    reading = await ask("restarts", beside(engine, seconds=-110), logs=Logs({"a/previous": ""}))
    assert (reading.fields["count"], reading.fields["oom"]) == (1.0, True)


async def test_a_replica_whose_engine_restarted_is_read_before_one_whose_sidecar_did() -> None:
    """Of each template one log is read."""
    sidecar = beside(pod("a", restartCount=0, state={"running": {}}), seconds=-86400)
    sidecar["status"]["containerStatuses"][1]["restartCount"] = 9
    logs = Logs({"b": "INFO fine"})
    await ask("startup_log", sidecar, restarted("b", seconds=-86400), logs=logs)
    assert logs.read_of == ["b"]


async def test_a_crash_before_the_time_that_is_asked_for_is_over() -> None:
    crashed = restarted("a", seconds=-300)
    logs = Logs({"a/previous": OOM})
    recent, long_ago = [await ask("restarts", crashed, logs=logs, parameters={"over": over}) for over in ("10m", "2m")]
    assert (recent.fields["crashed"], recent.fields["oom"], recent.fields["count"]) == (True, True, 1.0)
    assert (long_ago.fields["crashed"], long_ago.fields["oom"], long_ago.fields["count"]) == (False, False, 0.0)


async def test_a_crash_before_the_state_was_entered_may_be_left_out() -> None:
    async def crashes(entered_at: float) -> Reading:
        crashed, logs, here = restarted("a", seconds=-60), Logs({"a/previous": OOM}), {"since": "state"}
        return await ask("restarts", crashed, logs=logs, parameters=here, entered_at=entered_at)

    assert (await crashes(OPENED - 30)).fields["count"] == 0.0
    assert (await crashes(OPENED - 90)).fields["count"] == 1.0


@pytest.mark.parametrize(
    ("moments", "count"),
    [
        pytest.param({"answers.probe": OPENED - 30}, 0, id="people-answered-since"),
        pytest.param({"answers.probe": OPENED - 90}, 1, id="it-crashed-since"),
        pytest.param({}, 1, id="nobody-was-asked"),
    ],
)
async def test_a_crash_that_people_were_asked_about_may_be_left_out(moments: dict[str, float], count: float) -> None:
    crashed, logs, since = restarted("a", seconds=-60), Logs({"a/previous": OOM}), {"since": "answers.probe"}
    reading = await ask("restarts", crashed, logs=logs, parameters=since, moments=moments)
    assert reading.fields["count"] == count


async def test_a_crash_for_another_reason_is_no_oom() -> None:
    logs = Logs({"a/previous": "RuntimeError: Worker proc W-1 died unexpectedly"})
    reading = await ask("restarts", restarted("a", seconds=-60), logs=logs)
    assert (reading.fields["crashed"], reading.fields["oom"]) == (True, False)


async def test_a_crash_whose_log_cannot_be_read_may_have_been_an_oom() -> None:
    reading = await ask("restarts", restarted("a", seconds=-60), logs=Logs({"a/previous": None}))
    assert reading.fields["crashed"] is True
    assert reading.unknown_parts == {
        "oom": "the log of the container that ended cannot be read: the kubelet did not answer"
    }


async def test_a_crash_of_last_night_is_not_this_incidents() -> None:
    reading = await ask("restarts", restarted("a", seconds=-6 * 3600))
    assert (reading.fields["count"], reading.fields["crashed"]) == (0.0, False)


DIED = (
    "INFO: Application startup complete.\n(APIServer pid=1) ERROR 11-20 23:37:58 [async_llm.py:906] vllm.v1.engine."
    "exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."
)


@pytest.mark.parametrize(("code", "reason"), [(0, "Completed"), (143, "Error"), (137, "Error"), (1, "Error")])
async def test_an_engine_that_ended_in_a_pod_that_stays_crashed_whatever_its_exit_code(code: int, reason: str) -> None:
    died = restarted("a", seconds=-60, reason=reason, code=code)
    logs = Logs({"a/previous": DIED, "a": ""})
    reading = await ask("restarts", died, logs=logs)
    assert (reading.fields["count"], reading.fields["crashed"], reading.fields["oom"]) == (1.0, True, False)
    assert f"{reason} (exit {code}) of a: engine_died" in str(reading.fields["last_reason"])
    assert (await ask("last_words", died, logs=logs)).fields["died"] is True
    scene = await ask("crash_scene", died)
    assert (scene.fields["crashed"], scene.fields["exit_code"]) == (1.0, float(code))


def ended(name: str, *, code: int, seconds: float = -60) -> Obj:
    """A container that ended and was not started again."""
    reason = "Completed" if code == 0 else "Error"
    return pod(name, state={"terminated": {"reason": reason, "exitCode": code, "finishedAt": at(seconds)}})


def deleted(ended: Obj, *, seconds: float) -> Obj:
    ended["metadata"] |= {"deletionTimestamp": at(seconds + 30), "deletionGracePeriodSeconds": 30}
    return ended


def disrupted(ended: Obj, *, seconds: float) -> Obj:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    ended["status"]["conditions"] = [condition | {"lastTransitionTime": at(seconds)}]
    return ended


def done(ended: Obj) -> Obj:
    ended["spec"]["restartPolicy"] = "Never"
    return ended


@pytest.mark.parametrize(
    "ended_pod",
    [
        pytest.param(deleted(ended("a", code=0), seconds=-70), id="deleted, and it ended in good order"),
        pytest.param(deleted(ended("a", code=137), seconds=-90), id="deleted, and its grace ran out"),
        pytest.param(disrupted(ended("a", code=143), seconds=-70), id="evicted"),
        pytest.param(done(ended("a", code=0)), id="it has done its work"),
    ],
)
async def test_a_container_that_was_asked_to_stop_did_not_crash(ended_pod: Obj) -> None:
    reading = await ask("restarts", ended_pod, logs=Logs({"a": "INFO bye"}))
    assert (reading.fields["count"], reading.fields["crashed"], reading.fields["oom"]) == (1.0, False, False)
    assert (await ask("crash_scene", ended_pod)).fields["crashed"] == 0.0


@pytest.mark.parametrize("leaving", [deleted, disrupted])
async def test_an_engine_that_died_before_its_pod_was_asked_to_leave_crashed(leaving: Callable[..., Obj]) -> None:
    ended_pod = leaving(restarted("a", seconds=-60, reason="Completed", code=0), seconds=-30)
    assert (await ask("restarts", ended_pod, logs=Logs({"a/previous": DIED}))).fields["crashed"] is True


async def test_a_crashed_pod_that_was_replaced_says_nothing_of_what_runs_now() -> None:
    """It is still there for its grace period, beside replicas that all run the fix."""
    replaced = deleted(restarted("a", seconds=-60), seconds=-5)
    runs = pod("b", state={"running": {"startedAt": at(-600)}})
    runs["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    assert (await ask("restarts", replaced, runs)).fields["crashed"] is False
    scene = await ask("crash_scene", replaced, runs)
    assert (scene.fields["crashed"], scene.fields["steady_for"]) == (0.0, 600.0)


async def test_a_failed_job_crashed() -> None:
    assert (await ask("restarts", done(ended("a", code=1)), logs=Logs({"a": "INFO"}))).fields["crashed"] is True


async def test_an_old_pod_whose_last_container_began_lately_ended_twice() -> None:
    twice = restarted("a", seconds=-60, reason="Completed", code=0, count=9)
    twice["status"]["containerStatuses"][0]["lastState"]["terminated"]["startedAt"] = at(-300)
    assert (await ask("restarts", twice, logs=Logs({"a/previous": DIED}))).fields["count"] == 2.0


async def test_of_a_young_pod_every_restart_is_of_now_and_of_an_old_one_only_the_last() -> None:
    young = restarted("a", seconds=-60, count=4)
    young["status"]["startTime"] = at(-300)
    reading = await ask("restarts", young, restarted("b", seconds=-60, count=9))
    assert reading.fields["count"] == 4.0 + 1.0


@pytest.mark.parametrize(
    ("pods", "logs", "begins"),
    [
        pytest.param(
            (disrupted(ended("a", code=0, seconds=-30), seconds=-40), restarted("b", seconds=-60)),
            {"a": "INFO bye", "b/previous": OOM},
            "Error (exit 1) of b: serving: torch.OutOfMemoryError",
            id="a crash before a normal end",
        ),
        pytest.param(
            (restarted("a", seconds=-300), restarted("b", seconds=-60, code=3)),
            {"a/previous": OOM, "b/previous": "RuntimeError: Worker proc W-1 died unexpectedly"},
            "Error (exit 3) of b: engine_died: RuntimeError",
            id="the most recent crash",
        ),
        pytest.param(
            (restarted("a", seconds=-60, code=3), restarted("b", seconds=-300)),
            {"a/previous": None, "b/previous": OOM},
            "Error (exit 3) of a",
            id="no words of another pod",
        ),
        pytest.param(
            (*(restarted(f"a{n}", seconds=-300) for n in range(8)), restarted("b", seconds=-60)),
            {"b/previous": OOM},
            "Error (exit 1) of b: serving: torch.OutOfMemoryError",
            id="its log is among those that are read",
        ),
    ],
)
async def test_the_last_reason_is_of_the_most_recent_crash_in_its_own_words(
    pods: tuple[Obj, ...], logs: dict[str, str | None], begins: str
) -> None:
    reason = str((await ask("restarts", *pods, logs=Logs(logs))).fields["last_reason"])
    assert (reason.startswith(begins), len(reason) > len(begins)) == (True, begins.count(":") > 0), reason


async def test_the_exit_code_of_a_crash_scene_is_of_the_most_recent_crash() -> None:
    reading = await ask("crash_scene", restarted("a", seconds=-300, code=3), restarted("b", seconds=-60, code=137))
    assert reading.fields["exit_code"] == 137.0


async def test_a_time_that_is_no_duration_counts_nothing() -> None:
    reading = await ask("restarts", restarted("a", seconds=-60), parameters={"over": "soon"})
    assert reading.unknown.startswith("'soon' is not a duration")


async def test_pods_that_cannot_be_listed_have_not_zero_restarts() -> None:
    assert (await ask("restarts", unreadable={"pods": "403"})).unknown == "pods: 403"


# --- start log --------------------------------------------------------------------------------------------------------


async def test_the_start_log_shows_what_the_engine_began_with(captures: Path) -> None:
    log = (captures / "startup_cases/kv_dtype_fp8_16M/server.log").read_text()
    reading = await ask("startup_log", pod("a"), logs=Logs({"a": log}))
    assert reading.fields == {"oom_class": "none", "kv_tokens": 16384.0, "version": "0.32.0"}
    assert "backend" in reading.unknown_parts


async def test_the_container_before_says_why_it_ended() -> None:
    logs = Logs({"a": "INFO: starting", "a/previous": OOM})
    reading = await ask("startup_log", restarted("a", seconds=-60), logs=logs)
    assert reading.fields["oom_class"] == "serving"
    old = await ask("startup_log", restarted("a", seconds=-86400), logs=logs)
    assert old.fields["oom_class"] == "none"


@pytest.mark.parametrize(
    "unread",
    [
        pytest.param({"new/previous": None, "new": "INFO: starting"}, id="no answer"),
        pytest.param({"new": "INFO: starting"}, id="gone"),
        pytest.param({"new/previous": "INFO: starting", "new": None}, id="the running one"),
    ],
)
async def test_a_start_log_that_cannot_be_read_lets_no_memory_failure_be_denied(
    unread: dict[str, str | None],
) -> None:
    pods = (restarted("new", seconds=-60), pod("old", template="t0"))
    reading = await ask("startup_log", *pods, logs=Logs(unread | {"old": START}))
    assert reading.unknown_parts["oom_class"] == "1 of the logs cannot be read"
    found = await ask("startup_log", *pods, logs=Logs(unread | {"old": OOM}))
    assert found.fields["oom_class"] == "serving"


async def test_a_pod_that_has_not_begun_has_no_log_to_read() -> None:
    pods = (pod("new"), pod("old", template="t0"))
    reading = await ask("startup_log", *pods, logs=Logs({"old": "INFO: Application startup complete."}))
    assert reading.fields["oom_class"] == "none"


async def test_without_any_log_nothing_is_known() -> None:
    reading = await ask("startup_log", pod("a"), logs=Logs({"a": None}))
    assert reading.unknown == "no log of any of its pods can be read"


# --- flags ------------------------------------------------------------------------------------------------------------


async def test_a_flag_in_the_arguments_is_in_effect() -> None:
    reading = await ask("engine_flags", pod("a", "--max-num-seqs=64", "--shutdown-timeout", "20"))
    assert reading.fields == {
        "max_num_seqs": 64.0,
        "version": "0.32.0",
        "kv_cache_dtype": "auto",
        "shutdown_timeout": 20.0,
    }
    assert "max num seqs 64 (its arguments)" in reading.detail


async def test_flags_hidden_in_a_shell_string_are_read_from_the_start_log(captures: Path) -> None:
    hidden = pod("a", image="registry/own:latest")
    hidden["spec"]["containers"][0] |= {"command": ["sh", "-c", "vllm serve m $(cat /flags)"], "args": []}
    log = (captures / "startup_cases/kv_dtype_fp8_16M/server.log").read_text()
    found = (await ask("engine_flags", hidden, logs=Logs({"a": log}))).fields
    assert (found["max_num_seqs"], found["kv_cache_dtype"], found["version"]) == (16.0, "fp8", "0.32.0")
    without = await ask("engine_flags", hidden, logs=Logs({}))
    assert not without.is_known


async def test_flags_in_a_shell_string_are_read_without_a_log() -> None:
    written = pod("a")
    written["spec"]["containers"][0] |= {"command": ["sh", "-c", "vllm serve m --max-num-seqs 16"], "args": []}
    found = (await ask("engine_flags", written, logs=Logs({}))).fields
    assert found["max_num_seqs"] == 16.0


@pytest.mark.parametrize(
    ("version", "gpu", "seqs"),
    [
        ("0.32.0", "NVIDIA-H100-80GB-HBM3", 1024),
        ("0.32.0", "NVIDIA-A100-SXM4-80GB", 256),
        ("0.32", "NVIDIA-L40S", 256),
        ("0.32", "NVIDIA-RTX-6000-Ada-Generation", 256),
        # Only the A100 is left out by its name; every other GPU counts by its memory.
        ("0.32.0", "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", 1024),
        ("0.32.0", "NVIDIA-A800-SXM4-80GB", 1024),
        ("0.32.0", "NVIDIA-A800-40GB-Active", 256),
        ("0.32.0", "NVIDIA-RTX-PRO-5000-Blackwell", None),
        ("0.8.5", "NVIDIA-H100-80GB-HBM3", 256),
        ("0.32.0", "SomethingNew-9000", None),
        ("0.32.0", "", None),
        (None, "NVIDIA-H100-80GB-HBM3", None),
    ],
)
async def test_an_absent_cap_means_the_versions_default_on_that_gpu(
    version: str | None, gpu: str, seqs: int | None
) -> None:
    assert default_max_num_seqs(version, gpu) == seqs
    image = f"vllm/vllm-openai:v{version}" if version else "own/image"
    reading = await ask("engine_flags", on_gpu(pod("a", image=image)), gpu=gpu)
    assert reading.fields.get("max_num_seqs") == seqs


def on_gpu(engine: Obj, resource: str = "nvidia.com/gpu") -> Obj:
    engine["spec"]["containers"][0]["resources"] = {"limits": {resource: "1"}}
    return engine


H100 = "NVIDIA-H100-80GB-HBM3"
CPU_LOG = (
    "INFO 11-20 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: device_config=cpu, quantization=None"
)


@pytest.mark.parametrize("version", ["0.32.0", "0.8.5"])
@pytest.mark.parametrize(
    ("has", "gpu", "log"),
    [
        pytest.param("", H100, "", id="it asks for no GPU of its node"),
        pytest.param("nvidia.com/gpu", H100, CPU_LOG, id="its log says CPU"),
        pytest.param("nvidia.com/mig-1g.10gb", H100, "", id="a slice of a GPU"),
        pytest.param("nvidia.com/gpu", f"{H100}-MIG-1g.10gb", "", id="slices under the name of GPUs"),
    ],
)
async def test_a_default_that_depends_on_the_hardware_is_unknown_without_it(
    version: str, has: str, gpu: str, log: str
) -> None:
    engine = pod("a", image=f"vllm/vllm-openai:v{version}")
    reading = await ask("engine_flags", on_gpu(engine, has) if has else engine, gpu=gpu, logs=Logs({"a": log}))
    assert {"max_num_batched_tokens", "max_num_seqs"} <= set(reading.unknown_parts)
    assert "not known" in reading.unknown_parts["max_num_batched_tokens"]


async def test_replicas_that_differ_make_a_flag_unknown() -> None:
    pods = (pod("a", "--max-num-seqs=64"), pod("b", "--max-num-seqs=6", template="t2"))
    reading = await ask("engine_flags", *pods)
    assert reading.unknown_parts["max_num_seqs"] == "the replicas differ: 6.0, 64.0"
    assert reading.fields["kv_cache_dtype"] == "auto"


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.32.0", "0.32.0"),
        ("registry:5000/x/vllm:0.11.2-cu128@sha256:aa", "0.11.2"),
        ("vllm/vllm-openai:latest", None),
        ("lmcache/vllm-openai:v0.3.7", None),
        ("vllm/vllm-openai", None),
    ],
)
def test_the_version_is_read_from_an_images_tag(image: str, version: str | None) -> None:
    assert version_of_tag(image) == version


# --- KV pool ----------------------------------------------------------------------------------------------------------


def page(replica: str, blocks: float, at: float = OPENED) -> Scrape:
    return Scrape(replica=replica, at=at, ranks={"0": {"num_gpu_blocks": blocks, "block_size": 32.0}})


async def test_the_pool_is_that_of_the_smallest_replica_without_its_null_block() -> None:
    reading = await ask("kv_budget", pages=Samples(page("a", 256), page("b", 128)))
    assert reading.fields == {"tokens": 4064.0, "block_size": 32.0, "blocks": 128.0}
    assert reading.detail == "4,064 tokens, the smallest of pools that differ"


async def test_the_engine_knows_how_many_tokens_its_blocks_hold() -> None:
    """With sliding windows a token takes blocks of several kinds."""
    ranks = {"0": {"num_gpu_blocks": 128.0, "block_size": 32.0, "kv_cache_size_tokens": 1024.0}}
    reading = await ask("kv_budget", pages=Samples(Scrape(replica="a", at=OPENED, ranks=ranks)))
    assert reading.fields["tokens"] == 1016


async def test_a_pool_that_no_page_shows_is_unknown() -> None:
    refused = Scrape(replica="a", at=OPENED, error="connection refused")
    assert (await ask("kv_budget", pages=Samples(refused))).unknown == "a: connection refused"
    silent = Scrape(replica="a", at=OPENED, ranks={"0": {"num_requests_running": 1.0}})
    assert "cache_config_info" in (await ask("kv_budget", pages=Samples(silent))).unknown


# --- last words -------------------------------------------------------------------------------------------------------


async def test_the_last_words_of_a_container_that_ended_name_its_end() -> None:
    logs = Logs({"llm-0/previous": OOM, "llm-0": "INFO: Application startup complete."})
    reading = await ask("last_words", restarted("llm-0", seconds=30), logs=logs)
    parts = {name: reading.fields[name] for name in ("why", "oom", "host_oom", "died", "lines")}
    assert parts == {"why": "serving", "oom": True, "host_oom": False, "died": True, "lines": 1.0}
    assert "CUDA out of memory" in reading.detail


async def test_a_prompt_that_quotes_a_crash_is_no_crash_and_is_not_shown() -> None:
    prompt = "Why do I get torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB?"
    request = f"INFO 08-01 12:00:00 [logger.py:43] Received request cmpl-1: prompt: '{prompt}', params: None"
    healthy = pod("llm-0", image="vllm/vllm-openai:v0.8.5", restartCount=0, state={"running": {}})
    reading = await ask("last_words", healthy, logs=Logs({"llm-0": f"INFO: Application startup complete.\n{request}"}))
    assert {name: reading.fields[name] for name in ("why", "oom", "died", "line", "lines")} == {
        "why": "none", "oom": False, "died": False, "line": "", "lines": 0.0,
    }  # fmt: skip
    assert reading.detail == ""


async def test_the_kill_of_the_host_is_distinguished_from_the_devices_memory() -> None:
    ended = restarted("llm-0", seconds=30, reason="OOMKilled", code=137)
    reading = await ask("last_words", ended, logs=Logs({"llm-0/previous": "INFO fine", "llm-0": "INFO fine"}))
    assert {name: reading.fields[name] for name in ("why", "oom", "host_oom", "died")} == {
        "why": "none",
        "oom": False,
        "host_oom": True,
        "died": True,
    }


async def test_a_log_that_cannot_be_read_lets_nothing_be_denied() -> None:
    logs = Logs({"llm-0/previous": None, "llm-0": "INFO fine"})
    reading = await ask("last_words", restarted("llm-0", seconds=30), logs=logs)
    assert set(reading.unknown_parts) == {"why", "oom", "collective", "fits_tokens", "fits_seqs"}
    assert reading.fields["died"] is True
    none = await ask("last_words", pod("llm-0"), logs=Logs({"llm-0": None}))
    assert none.unknown == "no log of any of its pods can be read: the kubelet did not answer"


async def test_a_container_that_was_asked_to_stop_has_not_died() -> None:
    ended_pod = deleted(ended("llm-0", seconds=30, code=143), seconds=20)
    reading = await ask("last_words", ended_pod, logs=Logs({"llm-0": "INFO bye"}))
    assert (reading.fields["died"], reading.fields["why"]) == (False, "none")


SIGTERM = "INFO [launcher.py:254] [shutdown] API server: shutdown triggered"


STOPPED = pytest.mark.parametrize(
    ("code", "log"), [pytest.param(0, SIGTERM, id="SIGTERM"), pytest.param(137, "INFO: GET /health", id="SIGKILL")]
)


def stopped(code: int) -> Obj:
    return restarted("llm-0", seconds=-30, reason="Completed" if code == 0 else "Error", code=code)


def kill(message: str, *, of: str = "llm-0", seconds: float = -60) -> Obj:
    about = {"kind": "Pod", "namespace": "serving", "name": of}
    return {"reason": "Killing", "message": message, "involvedObject": about, "lastTimestamp": at(seconds)}


LIVENESS = "Container vllm failed liveness probe, will be restarted"


@STOPPED
@pytest.mark.parametrize("probe", ["liveness", "startup"])
async def test_a_container_whose_probe_failed_is_a_class_of_its_own(code: int, log: str, probe: str) -> None:
    message = f"Container vllm failed {probe} probe, will be restarted"
    logs = Logs({"llm-0/previous": log, "llm-0": "INFO fine"})
    reading = await ask("last_words", stopped(code), logs=logs, kills=[kill(message)])
    assert (reading.fields["why"], reading.fields["line"], reading.fields["oom"]) == ("probe", message, False)
    restarts = await ask("restarts", stopped(code), logs=logs, kills=[kill(message)])
    assert str(restarts.fields["last_reason"]).endswith(f"probe: {message}")
    assert message in (await ask("crash_scene", stopped(code), kills=[kill(message)])).detail


@STOPPED
@pytest.mark.parametrize(
    "kills",
    [
        pytest.param([], id="without events"),
        pytest.param([kill("Stopping container vllm")], id="the pod was ended"),
        pytest.param([kill(LIVENESS, of="llm-1")], id="of another pod"),
        pytest.param([kill(LIVENESS.replace("vllm", "vllm-proxy"))], id="of another container"),
        pytest.param([kill(LIVENESS, seconds=-7200)], id="of an earlier container"),
    ],
)
async def test_an_engine_that_was_stopped_in_a_pod_that_stays_was_killed_from_outside(
    code: int, log: str, kills: list[Obj]
) -> None:
    killed = stopped(code)
    killed["status"]["containerStatuses"][0]["lastState"]["terminated"]["startedAt"] = at(-3600)
    logs = Logs({"llm-0/previous": log, "llm-0": "INFO fine"})
    reading = await ask("last_words", killed, logs=logs, kills=kills)
    assert (reading.fields["why"], reading.fields["died"]) == ("killed", True)
    reason = str((await ask("restarts", killed, logs=logs, kills=kills)).fields["last_reason"])
    assert "killed from outside" in reason


@STOPPED
async def test_the_words_of_an_engine_come_before_what_ended_its_container(code: int, log: str) -> None:
    logs = Logs({"llm-0/previous": f"{DIED}\n{log}", "llm-0": ""})
    reading = await ask("last_words", stopped(code), logs=logs, kills=[kill(LIVENESS)])
    assert reading.fields["why"] == "engine_died"


async def test_the_cause_in_another_log_comes_before_a_failed_probe() -> None:
    logs = Logs({"llm-0/previous": "INFO", "llm-1/previous": OOM, "llm-0": "", "llm-1": ""})
    pods = (stopped(137), restarted("llm-1", seconds=-60))
    reading = await ask("last_words", *pods, logs=logs, kills=[kill(LIVENESS)])
    assert (reading.fields["why"], reading.fields["oom"]) == ("serving", True)


NO_MODEL = """\
(APIServer pid=1) INFO 11-28 12:51:00 [utils.py:302] version 0.32.0
Traceback (most recent call last):
  File "/transformers/utils/hub.py", line 595, in cached_files
    raise OSError(f"{e}") from e
OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.
"""
A_BAD_REQUEST = "INFO:     Application startup complete.\nERROR 11-28 12:00:00 [serving.py:1] ValueError: a bad image\n"
SERVED = 'INFO:     10.0.0.1:4242 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'


@pytest.mark.parametrize(
    ("log", "why", "line"),
    [
        pytest.param(NO_MODEL, "engine_died", "OSError: We couldn't connect", id="before the engine"),
        pytest.param(A_BAD_REQUEST + NO_MODEL, "engine_died", "OSError: We couldn't connect", id="while it serves"),
        pytest.param(A_BAD_REQUEST + SERVED, "none", "", id="a request's exception ends nothing"),
    ],
)
async def test_an_exception_that_ended_the_process_is_its_last_word(log: str, why: str, line: str) -> None:
    """vLLM 0.32 loads the model's configuration in the API server: without it no engine starts, so none fails."""
    reading = await ask("last_words", stopped(1), logs=Logs({"llm-0/previous": log, "llm-0": ""}))
    assert (reading.fields["why"], str(reading.fields["line"])[: len(line)]) == (why, line)
    assert (await ask("last_words", pod("llm-0"), logs=Logs({"llm-0": log}))).fields["why"] == "none"


async def test_an_exception_in_the_log_of_a_killed_engine_did_not_end_it() -> None:
    logs = Logs({"llm-0/previous": NO_MODEL, "llm-0": ""})
    reading = await ask("last_words", stopped(137), logs=logs, kills=[kill(LIVENESS)])
    assert reading.fields["why"] == "probe"


@pytest.mark.parametrize("seen", [stopped(0), ended("llm-0", code=0)], ids=["started again", "not yet"])
async def test_an_engine_that_ended_with_0_and_without_a_word_died(seen: Obj) -> None:
    """Nobody had asked its pod to end, so a clean exit is not a good one."""
    logs = Logs({"llm-0/previous": "INFO: GET /health", "llm-0": "INFO: GET /health"})
    reading = await ask("last_words", seen, logs=logs)
    assert (reading.fields["why"], reading.fields["died"]) == ("engine_died", True)
    assert "exit code 0" in str(reading.fields["line"])
    leaving = deleted(ended("llm-0", code=0), seconds=-70)
    assert (await ask("last_words", leaving, logs=logs)).fields["why"] == "none"


async def test_at_most_fifty_lines_are_kept_and_no_secret() -> None:
    log = "\n".join(f"ERROR CUDA out of memory {n} token=hf_abcdefghijk" for n in range(80))
    reading = await ask("last_words", pod("llm-0"), logs=Logs({"llm-0": log}))
    assert reading.fields["lines"] == 50
    assert "hf_abcdefghijk" not in reading.detail


async def test_of_long_lines_the_last_ones_are_kept_and_each_is_whole() -> None:
    log = "\n".join(f"ERROR CUDA out of memory {n:02} {'x' * 300} end" for n in range(40))
    kept = (await ask("last_words", pod("llm-0"), logs=Logs({"llm-0": log}))).detail.splitlines()
    assert kept[-1].startswith("ERROR CUDA out of memory 39")
    assert len(kept) > 5
    assert all(line.startswith("ERROR CUDA") and line.endswith(" end") for line in kept)


# --- compression ------------------------------------------------------------------------------------------------------


START = "Initializing a V1 LLM engine (v0.32.0) with config"


@pytest.mark.parametrize(
    ("args", "log", "dtype", "kind"),
    [
        pytest.param(["--kv-cache-dtype", "fp8"], START, "", "quantised_kv", id="flag"),
        pytest.param([], START, "fp8", "quantised_kv", id="page"),
        pytest.param([], START + "\nUsing fp8 data type to store kv cache", "auto", "quantised_kv", id="log"),
        pytest.param([], START, "auto", "none", id="none"),
        pytest.param([], None, "auto", None, id="no-log"),
    ],
)
async def test_the_compression_is_read_from_flags_page_and_log(
    args: list[str], log: str | None, dtype: str, kind: str | None
) -> None:
    scrape = Scrape(replica="llm-0", at=OPENED, config={"cache_dtype": dtype} if dtype else {})
    pages, logs = Samples(scrape), Logs({"llm-0": log})
    reading = await ask("compression_method", pod("llm-0", *args), logs=logs, pages=pages)
    assert reading.fields.get("kind") == kind
    assert reading.fields["offloads"] is False
    if kind is None:
        assert "its start is not in the log" in reading.unknown_parts["kind"]


async def test_replicas_of_two_kinds_share_none() -> None:
    logs = Logs({"llm-0": START, "llm-1": START})
    pods = (pod("llm-0"), pod("llm-1", "--kv-cache-dtype=fp8", template="t2"))
    reading = await ask("compression_method", *pods, logs=logs)
    assert reading.unknown_parts == {"kind": "the replicas differ"}
